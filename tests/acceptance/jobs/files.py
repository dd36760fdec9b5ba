"""A job that reads files, remembers what it has seen, counts, and writes files: everything that
names places.

    files.py --input FOLDER --output FOLDER --checkpoint FOLDER

file source (JSON) -> dropDuplicates(id) -> parquet file sink. One input file a batch, logs
compacted every third batch. Reads what is there, then prints one line of JSON: how many rows it
read, and what a reader of the output sees.
"""

from __future__ import annotations

import argparse
import json

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--input", "--output", "--checkpoint"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.fileSource.log.compactInterval", "3")
        .config("spark.sql.streaming.fileSink.log.compactInterval", "3")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    records = (
        spark.readStream.schema("id STRING, value LONG")
        .option("maxFilesPerTrigger", 1)
        .json(options.input)
    )
    query = (
        records.dropDuplicates(["id"])
        .writeStream.format("parquet")
        .option("path", options.output)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    read = sum(progress["numInputRows"] for progress in query.recentProgress)
    seen = sorted((row.id, row.value) for row in spark.read.parquet(options.output).collect())
    print(json.dumps({"rows_read": read, "output": seen}))
    spark.stop()


if __name__ == "__main__":
    main()
