"""One of two jobs that hand records on by a topic; each says on every record which version of it
has met it.

passing_job.py pass|count --version NAME --kafka HOST:PORT --reads TOPIC --writes TOPIC|FOLDER

pass   from topic to topic, as fast as they come
count  keeps a count of what it has seen of each key, and is slow: there is always something left to
       read
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import job

RECORDS_PER_BATCH_MAX = 25


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("pass", "count"))
    for name in ("--version", "--kafka", "--reads", "--writes"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    settings = {"spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.kafka)
    reader = reader.option("subscribe", options.reads).option("startingOffsets", "earliest")
    if options.what == "count":
        reader = reader.option("maxOffsetsPerTrigger", RECORDS_PER_BATCH_MAX)
    met = f.concat(f.col("value").cast("string"), f.lit(f" {options.version}"))
    rows = reader.load().select(f.col("key").cast("string"), met.alias("value"))
    writer = (passing if options.what == "pass" else counting)(rows, options)
    writer = writer.option("checkpointLocation", job.location()).trigger(
        processingTime="500 milliseconds"
    )
    job.run(writer.start())


def passing(rows: DataFrame, options: argparse.Namespace):  # type: ignore[no-untyped-def]
    writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", options.kafka)
    return writer.option("topic", options.writes)


def counting(rows: DataFrame, options: argparse.Namespace):  # type: ignore[no-untyped-def]
    """What came is told, too: a count alone does not show who has met what."""
    folder = Path(options.writes)
    folder.mkdir(parents=True, exist_ok=True)

    def keep(batch: DataFrame, number: int) -> None:
        time.sleep(1)
        hidden = folder / f".{number:06}.tmp"
        hidden.write_text("".join(f"{row.value}\n" for row in batch.collect()))
        os.replace(hidden, folder / f"{number:06}.txt")

    return rows.groupBy("value").count().writeStream.outputMode("update").foreachBatch(keep)


if __name__ == "__main__":
    main()
