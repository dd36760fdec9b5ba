"""Queries that go on from their checkpoints over what input there is, and end.

    go_on.py ORDERS.json    [{"query": "words", "input": FOLDER, "checkpoint": FOLDER}, ...]

The queries are those of scripts/golden/old (words, window), one file a batch. Prints a JSON object:
per checkpoint {"error": what went wrong, or null, "output": [[batch, row], ...]}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, LongType, StringType, StructType, TimestampType

EVENTS = StructType().add("id", LongType()).add("at", TimestampType())
EVENTS = EVENTS.add("word", StringType()).add("amount", DoubleType())
MODES = {"words": "complete", "window": "append"}


def main() -> None:
    orders = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.sql.shuffle.partitions", "3")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print(json.dumps({order["checkpoint"]: run(spark, order) for order in orders}))
    spark.stop()


def run(spark: SparkSession, order: dict[str, str]) -> dict[str, Any]:
    output: list[tuple[int, str]] = []

    def collect(batch: DataFrame, number: int) -> None:
        rows = sorted(repr(row) for row in batch.collect())
        output.extend((number, row) for row in rows)

    try:
        events = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
        counted = query_of(order["query"], events.json(order["input"]))
        writer = counted.writeStream.outputMode(MODES[order["query"]]).foreachBatch(collect)
        writer = writer.option("checkpointLocation", order["checkpoint"])
        writer.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:  # the test knows what to expect
        return {"error": str(error)[:2000], "output": output}
    return {"error": None, "output": output}


def query_of(name: str, events: DataFrame) -> DataFrame:
    sums = (f.count(f.lit(1)).alias("n"), f.sum("amount").alias("total"))
    if name == "words":
        return events.groupBy("word").agg(*sums)
    windows = f.window("at", "10 seconds")
    return events.withWatermark("at", "1 minute").groupBy(windows, "word").agg(*sums)


if __name__ == "__main__":
    main()
