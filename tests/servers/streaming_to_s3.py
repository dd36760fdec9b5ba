"""A job whose checkpoint is on s3a:, run in a Spark's Python: it says when it is inside a batch, and how it ended."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

CHECKPOINT, JARS, PROVIDER = sys.argv[1:]
HADOOP = {
    "endpoint": os.environ["AWS_ENDPOINT_URL_S3"],
    "endpoint.region": os.environ["AWS_DEFAULT_REGION"],
    "path.style.access": "true",
    "connection.ssl.enabled": "false",
    "aws.credentials.provider": PROVIDER,
}


def each(frame: Any, number: int) -> None:
    frame.count()
    print("in batch", number, flush=True)
    time.sleep(2)


def main() -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", ",".join(map(str, sorted(Path(JARS).glob("*.jar")))))
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.driver.memory", "1g")
    for key, value in HADOOP.items():
        builder = builder.config(f"spark.hadoop.fs.s3a.{key}", value)
    spark = builder.getOrCreate()
    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    counts = rows.selectExpr("value % 3 as key").groupBy("key").count()
    writer = counts.writeStream.outputMode("update").option("checkpointLocation", CHECKPOINT).foreachBatch(each)
    query = writer.trigger(processingTime="1 second").start()
    try:
        query.awaitTermination()
    except Exception as error:
        print("died:", " ".join(str(error).split()), flush=True)


main()
