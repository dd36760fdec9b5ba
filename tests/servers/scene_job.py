"""One query with state, of a kind and over an input that are told, as a cluster runs it.

    scene_job.py --check windows|join|dedup|pandas --source files:FOLDER|kafka:HOST:PORT/PREFIX
    --output FOLDER

    windows  orders and their sum per shop and minute, once the minute is over
    join     every order with its payment, or without one once it is too late
    dedup    every order once, of those that come several times
    pandas   per shop and 20 seconds of event time: that the first order came, and when they are
             over, the sum

Orders and payments are those of scripts/demo.d/data.py. What comes out depends on them alone, not
on how they are cut into batches; each batch goes to a file of its own, so that one which runs twice
counts once.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import job

ORDERS = "order STRING, shop STRING, amount LONG, at TIMESTAMP"
PAYMENTS = "order STRING, paid LONG, at TIMESTAMP"
SLOT_SECONDS = 20
COLUMNS = ["slot", "shop", "told", "orders", "amount"]
FILES_PER_BATCH_MAX = 10

Read = Callable[[str, str], DataFrame]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", choices=sorted(CHECKS), required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = CHECKS[options.check](reading(spark, options.source))
    writer = rows.writeStream.outputMode("append").trigger(processingTime="500 milliseconds")
    writer = writer.option("checkpointLocation", job.location()).foreachBatch(
        keep_in(options.output)
    )
    job.run(writer.start())


def reading(spark: SparkSession, source: str) -> Read:
    kind, _, place = source.partition(":")

    def files(name: str, schema: str) -> DataFrame:
        """With a scheme: on a cluster with an HDFS, a path alone would be one of it."""
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH_MAX)
        return reader.json(f"file://{place}/{name}")

    def kafka(name: str, schema: str) -> DataFrame:
        address, _, prefix = place.rpartition("/")
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
        told = (
            reader.option("subscribe", f"{prefix}-{name}")
            .option("startingOffsets", "earliest")
            .load()
        )
        return told.select(f.from_json(f.col("value").cast("string"), schema).alias("row")).select(
            "row.*"
        )

    read = {"files": files, "kafka": kafka}[kind]
    return lambda name, schema: read(name, schema).withWatermark("at", "10 seconds")


def windows(read: Read) -> DataFrame:
    counted = read("orders", ORDERS).groupBy(f.window("at", "60 seconds"), "shop")
    counted = counted.agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))
    return counted.select(
        f.col("window.start").cast("string").alias("minute"), "shop", "orders", "amount"
    )


def join(read: Read) -> DataFrame:
    in_time = f.expr("o.order = p.order AND p.at BETWEEN o.at AND o.at + INTERVAL 15 SECONDS")
    orders, payments = read("orders", ORDERS).alias("o"), read("payments", PAYMENTS).alias("p")
    return orders.join(payments, in_time, "leftOuter").select("o.order", "o.amount", "p.paid")


def dedup(read: Read) -> DataFrame:
    return read("orders", ORDERS).dropDuplicates(["order", "at"]).select("order", "shop", "amount")


def in_pandas(read: Read) -> DataFrame:
    slot = f.floor(f.unix_timestamp("at") / SLOT_SECONDS)
    output, state = (
        "slot LONG, shop STRING, told STRING, orders LONG, amount LONG",
        "orders LONG, amount LONG",
    )
    grouped = read("orders", ORDERS).withColumn("slot", slot).groupBy("slot", "shop")
    return grouped.applyInPandasWithState(summed, output, state, "append", "EventTimeTimeout")


def summed(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    import pandas

    slot, shop = key
    orders, amount = state.get if state.exists else (0, 0)
    first = not state.exists
    if state.hasTimedOut:
        state.remove()
        yield pandas.DataFrame([[slot, shop, "closed", orders, amount]], columns=COLUMNS)
        return
    for frame in frames:
        orders, amount = orders + len(frame), amount + int(frame["amount"].sum())
    state.update((orders, amount))
    state.setTimeoutTimestamp((int(slot) + 1) * SLOT_SECONDS * 1000)
    if first:
        yield pandas.DataFrame([[slot, shop, "opened", 0, 0]], columns=COLUMNS)


def keep_in(folder: Path) -> Callable[[DataFrame, int], None]:
    folder.mkdir(parents=True, exist_ok=True)

    def keep(batch: DataFrame, number: int) -> None:
        hidden = folder / f".{number:06}.tmp"
        hidden.write_text("".join(json.dumps(row.asDict()) + "\n" for row in batch.collect()))
        os.replace(hidden, folder / f"{number:06}.json")

    return keep


CHECKS = {"windows": windows, "join": join, "dedup": dedup, "pandas": in_pandas}

if __name__ == "__main__":
    main()
