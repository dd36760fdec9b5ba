"""A job that counts and adds up a topic's records by key, run in a Spark's Python:
repositioned_job.py BROKERS CHECKPOINT TOPIC OUT [CHECKPOINT TOPIC OUT ...]

It reads all there is of each topic, and ends. OUT is then a file with {key: [count, sum]}, of all
records that the state has ever met.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

PER_BATCH = 60


def main() -> None:
    brokers, *rest = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.sql.codegen.wholeStage": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for place in range(0, len(rest), 3):
        run(spark, brokers, *rest[place : place + 3])
    spark.stop()


def run(spark: Any, brokers: str, checkpoint: str, topic: str, out: str) -> None:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    records = reader.option("maxOffsetsPerTrigger", PER_BATCH).load()
    values = records.selectExpr("CAST(key AS STRING) key", "CAST(CAST(value AS STRING) AS LONG) n")
    sums = values.groupBy("key").agg(f.count("*").alias("count"), f.sum("n").alias("sum"))

    def write(batch: Any, number: int) -> None:
        rows = {row["key"]: [row["count"], row["sum"]] for row in batch.collect()}
        Path(out).write_text(json.dumps(rows))

    stream = sums.writeStream.outputMode("complete").option("checkpointLocation", checkpoint)
    query = stream.trigger(availableNow=True).foreachBatch(write).start()
    query.awaitTermination()


main()
