"""The job: it counts rows by key, so many of them in each batch. After batch N its state holds
ROWS * (N + 1) of them, whatever happens in between.

    job.py ROWS KEYS SECONDS
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from stateshift import job

ROWS, KEYS, SECONDS = map(int, sys.argv[1:])


def main() -> None:
    spark = SparkSession.builder.appName("soak").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    rows = reader.load()
    counts = rows.groupBy((rows.value % KEYS).alias("key")).count()
    writer = counts.writeStream.outputMode("update").format("noop")
    writer = writer.trigger(processingTime=f"{SECONDS} seconds")
    job.run(writer.option("checkpointLocation", job.location()).start())


main()
