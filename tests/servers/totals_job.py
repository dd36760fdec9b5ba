"""A query that keeps the count and the sum of a topic's numbers by key, as a cluster runs it.

    totals_job.py --kafka HOST:PORT --topic TOPIC --output FOLDER

Each batch writes all totals to a file of its own: {"key": [count, sum]}.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import job


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    settings = {"spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.kafka)
    reader = reader.option("subscribe", options.topic).option("startingOffsets", "earliest")
    number = f.col("value").cast("string").cast("long").alias("number")
    numbers = reader.load().select(f.col("key").cast("string"), number)
    totals = numbers.groupBy("key").agg(f.count("*").alias("count"), f.sum("number").alias("sum"))
    options.output.mkdir(parents=True, exist_ok=True)

    def keep(batch: DataFrame, id: int) -> None:
        rows = {row["key"]: [row["count"], row["sum"]] for row in batch.collect()}
        hidden = options.output / f".{id:06}.tmp"
        hidden.write_text(json.dumps(rows))
        os.replace(hidden, options.output / f"{id:06}.json")

    writer = totals.writeStream.outputMode("complete").trigger(processingTime="500 milliseconds")
    job.run(writer.option("checkpointLocation", job.location()).foreachBatch(keep).start())


if __name__ == "__main__":
    main()
