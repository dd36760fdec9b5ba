"""Two jobs in a chain. The first one drops what it has had, and writes the rest with a file sink; the
second one reads that, and counts it per shop: what it reads twice counts twice.

    chained.py orders|totals --input FOLDER --output FOLDER

Each batch of totals is a file named after it, with the counts that have changed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import job

SCHEMA = "id STRING, shop STRING, amount LONG"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=("orders", "totals"))
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    settings = {"spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.appName(options.which).config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if options.which == "totals":
        while not (options.input / "_spark_metadata").exists():
            time.sleep(0.1)
    records = spark.readStream.schema(SCHEMA).json(f"file://{options.input}")
    write = (orders if options.which == "orders" else totals)(records, options.output)
    write = write.option("checkpointLocation", job.location())
    job.run(write.queryName(options.which).trigger(processingTime="200 milliseconds").start())


def orders(records: DataFrame, folder: Path):  # type: ignore[no-untyped-def]
    write = records.dropDuplicates(["id"]).writeStream.outputMode("append").format("json")
    return write.option("path", f"file://{folder}")


def totals(records: DataFrame, folder: Path):  # type: ignore[no-untyped-def]
    counted = records.groupBy("shop").agg(f.count("*").alias("orders"), f.sum("amount"))

    def keep(batch: DataFrame, number: int) -> None:
        hidden = folder / f".{number:06}.tmp"
        hidden.write_text(json.dumps({row[0]: [row[1], row[2]] for row in batch.collect()}))
        os.replace(hidden, folder / f"{number:06}.json")

    return counted.writeStream.outputMode("update").foreachBatch(keep)


if __name__ == "__main__":
    main()
