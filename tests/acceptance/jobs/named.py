"""A job that counts the records of two inputs by key. It does what it is told, line by line:

    {"checkpoint": …, "sources": [["orders", FOLDER], [null, FOLDER]], "named": true, "sink": "a"}

Each source has a name, or none; the sink, too. The answer to a line is what the state holds when all is read, or
what Spark said.
"""

from __future__ import annotations

import json
import sys
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

EVOLUTION = "spark.sql.streaming.queryEvolution.enable{}Evolution"


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(spark, **json.loads(line))), flush=True)
    spark.stop()


def run(
    spark: SparkSession, checkpoint: str, sources: list[Any], named: bool, sink: str | None
) -> Any:
    spark.conf.set(EVOLUTION.format("Source"), str(named).lower())
    spark.conf.set(EVOLUTION.format("Sink"), str(sink is not None).lower())
    streams = []
    for name, folder in sources:
        reader = spark.readStream.schema("key STRING, value LONG")
        streams.append((reader.name(name) if name else reader).json(folder))
    held: dict[str, list[int]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        held.update({row["key"]: [row["count"], row["sum"]] for row in batch.collect()})

    both = reduce(DataFrame.unionAll, streams)
    sums = both.groupBy("key").agg({"*": "count", "value": "sum"}).toDF("key", "count", "sum")
    writer = sums.writeStream.outputMode("complete").foreachBatch(keep)
    if sink is not None:
        writer._jwrite.name(sink)  # Python has no way yet to name a sink
    try:
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    except Exception as error:  # the scenario knows what to expect
        return f"failed: {error}"
    return held


if __name__ == "__main__":
    main()
