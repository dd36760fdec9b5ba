"""Many small queries, one after the other in one Spark: each reads what is there, and ends.

    shapes.py ORDERS.json       [{"query", "inputs": [...], "checkpoint", "output", "conf": {...}, "words": [...]}, ...]

file sources (JSON), one file of each a batch, of some words only where they are given -> a query with state -> one file
per batch that put out anything, replaced if the batch runs again.
Prints a JSON object: per checkpoint, what went wrong (null where nothing did).
"""

from __future__ import annotations

import json
import os
import sys
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

EVENTS = "id LONG, at TIMESTAMP, word STRING, amount LONG"


def windowed(events: DataFrame) -> DataFrame:
    events = events.withWatermark("at", "5 seconds")
    counted = events.groupBy(f.window("at", "10 seconds"), "word")
    counted = counted.agg(f.count("*").alias("n"), f.sum("amount").alias("total"), f.max("id").alias("last"))
    return counted.select("window.start", "word", "n", "total", "last")


def joined(events: DataFrame) -> DataFrame:
    left = events.filter("id % 2 = 0").withWatermark("at", "5 seconds").alias("l")
    right = events.filter("id % 3 = 0").withWatermark("at", "5 seconds").alias("r")
    near = f.expr("l.word = r.word AND r.at BETWEEN l.at AND l.at + INTERVAL 15 SECONDS")
    found = left.join(right, near, "leftOuter")
    return found.selectExpr("l.id", "l.word", "r.id AS other", "l.amount + r.amount AS amount")


def sessions(events: DataFrame) -> DataFrame:
    events = events.withWatermark("at", "5 seconds")
    counted = events.groupBy(f.session_window("at", "4 seconds"), "word").count()
    return counted.select("session_window.end", "word", "count")


def distinct(events: DataFrame) -> DataFrame:
    return events.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["word"]).select("word")


def limited(events: DataFrame) -> DataFrame:
    """Two stateful operators: the limit is operator 0, what it limits operator 1."""
    return distinct(events).limit(1000)


def totals(events: DataFrame) -> DataFrame:
    return events.groupBy().agg(f.count("*").alias("n"), f.sum("amount").alias("total"))


def counted(events: DataFrame) -> DataFrame:
    """A query, and below what became of it: an aggregate more in the middle and one at the end, and a wider column."""
    return _counted(events, f.count("*").alias("n"), f.max(f.col("id").cast("int")).alias("last"))


def counted_more(events: DataFrame) -> DataFrame:
    more = f.min("amount").alias("least"), f.max("id").alias("last"), f.max("word").alias("word_again")
    return _counted(events, f.count("*").alias("n"), *more)


def _counted(events: DataFrame, *columns: Column) -> DataFrame:
    events = events.withWatermark("at", "5 seconds")
    counted = events.groupBy(f.window("at", "10 seconds"), "word").agg(*columns)
    return counted.select("window.start", *(name for name in counted.columns if name != "window"))


def paired(events: DataFrame) -> DataFrame:
    return _paired(events, "id", "word", "at")


def paired_more(events: DataFrame) -> DataFrame:
    """Both sides of the join remember a column more."""
    return _paired(events, "id", "word", "at", "amount")


def _paired(events: DataFrame, *columns: str) -> DataFrame:
    left = events.filter("id % 2 = 0").withWatermark("at", "5 seconds").select(*columns).alias("l")
    right = events.filter("id % 3 = 0").withWatermark("at", "5 seconds").select(*columns).alias("r")
    near = f.expr("l.word = r.word AND r.at BETWEEN l.at AND l.at + INTERVAL 15 SECONDS")
    shown = [f"{side}.{name} AS {side}_{name}" for side in "lr" for name in columns if name != "at"]
    return left.join(right, near, "leftOuter").selectExpr(*shown)


def singled(events: DataFrame) -> DataFrame:
    return _singled(events, "int")


def singled_wider(events: DataFrame) -> DataFrame:
    """The key of the state has a wider column, which hashes otherwise."""
    return _singled(events, "long")


def _singled(events: DataFrame, kind: str) -> DataFrame:
    numbered = events.select("word", (f.col("id") % 9).cast(kind).alias("number"))
    return numbered.dropDuplicates(["word", "number"])


QUERIES = {
    "counted": counted, "counted-more": counted_more, "paired": paired, "paired-more": paired_more,
    "singled": singled, "singled-wider": singled_wider,
    "window": windowed, "join": joined, "session": sessions, "distinct": distinct, "limited": limited, "totals": totals,
}  # fmt: skip


def main() -> None:
    orders = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "5")
    spark = builder.config("spark.sql.streaming.noDataMicroBatches.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({order["checkpoint"]: run(spark, order) for order in orders}))
    spark.stop()


def run(spark: SparkSession, order: dict) -> str | None:
    for key, value in order["conf"].items():
        spark.conf.set(key, value)
    output = Path(order["output"])
    output.mkdir(parents=True, exist_ok=True)

    def keep(batch: DataFrame, number: int) -> None:
        rows = sorted(json.dumps(row.asDict(), default=str) for row in batch.collect())
        hidden = output / f".{number:06}.tmp"
        hidden.write_text("".join(f"{row}\n" for row in rows))
        os.replace(hidden, output / f"{number:06}.json")

    reader = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
    events = reduce(DataFrame.union, [reader.json(place) for place in order["inputs"]])
    if order["words"]:
        events = events.filter(f.col("word").isin(order["words"]))
    writer = QUERIES[order["query"]](events).writeStream.option("checkpointLocation", order["checkpoint"])
    mode = "update" if order["query"] == "totals" else "append"
    try:
        query = writer.outputMode(mode).trigger(availableNow=True).foreachBatch(keep).start()
        query.awaitTermination()
    except Exception as error:  # told to the scenario, which names the one that failed
        return str(error)[:2000]
    finally:
        for key in order["conf"]:
            spark.conf.unset(key)
    return None


if __name__ == "__main__":
    main()
