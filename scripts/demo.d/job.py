"""The demo's job: two operators with state in one application, as a user would write it for
stateshift.

    Windowed counts (demo)        orders per shop and minute of event time
    Orders joined with payments   every order with its payment, or without one once it is too late

`job.checkpoint(name)` is where an operator's state is now: the same code runs before a move and
after it. Both write each batch to a file named after the batch, so that a batch which runs twice
counts once.

    job.py --input FOLDER --output FOLDER [--once] [--only counts|joined]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import job

COUNTS = "Windowed counts (demo)"
JOINED = "Orders joined with payments"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--once", action="store_true", help="read what is there, and end")
    parser.add_argument("--only", choices=("counts", "joined"), help="one of the two operators")
    options = parser.parse_args()
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    spark = SparkSession.builder.appName("stateshift demo").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    job.wait()  # returns at once, unless this was started to take over from a job that still runs
    queries = []
    for name, results in ((COUNTS, counts), (JOINED, joined)):
        if options.only not in (None, results.__name__):
            continue
        write = results(spark, options.input).writeStream.outputMode("append").queryName(name)
        write = (
            write.trigger(availableNow=True)
            if options.once
            else write.trigger(processingTime="500 milliseconds")
        )
        folder = options.output / results.__name__
        write = write.option("checkpointLocation", job.checkpoint(name)).foreachBatch(
            keep_in(folder)
        )
        queries.append(write.start())
    job.run(*queries)


def counts(spark: SparkSession, folder: Path) -> DataFrame:
    """A row per shop and minute, once the minute is over."""
    window = f.window("at", "60 seconds")
    orders = read(spark, folder / "orders", "order STRING, shop STRING, amount LONG, at TIMESTAMP")
    return (
        orders.groupBy(window, "shop")
        .agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))
        .select(f.col("window.start").cast("string").alias("minute"), "shop", "orders", "amount")
    )


def joined(spark: SparkSession, folder: Path) -> DataFrame:
    """A row per order; `paid` is null where nobody paid within 15 seconds."""
    orders = read(
        spark, folder / "orders", "order STRING, shop STRING, amount LONG, at TIMESTAMP"
    ).alias("o")
    payments = read(spark, folder / "payments", "order STRING, paid LONG, at TIMESTAMP").alias("p")
    in_time = f.expr("o.order = p.order AND p.at BETWEEN o.at AND o.at + INTERVAL 15 SECONDS")
    return orders.join(payments, in_time, "leftOuter").select("o.order", "o.amount", "p.paid")


def read(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    """With a scheme: on a cluster with an HDFS, a path alone would be one of it."""
    return (
        spark.readStream.schema(schema)
        .json(f"file://{folder.absolute()}")
        .withWatermark("at", "10 seconds")
    )


def keep_in(folder: Path) -> Callable[[DataFrame, int], None]:
    """A sink that is idempotent by batch: one file each, written whole."""
    folder.mkdir(parents=True, exist_ok=True)

    def keep(batch: DataFrame, number: int) -> None:
        hidden = folder / f".{number:06}.tmp"
        hidden.write_text("".join(json.dumps(row.asDict()) + "\n" for row in batch.collect()))
        os.replace(hidden, folder / f"{number:06}.json")

    return keep


if __name__ == "__main__":
    main()
