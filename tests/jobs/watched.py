"""A job of two queries that imports `stateshift.job`: words from files (mostly idle), ticks as fast
as they come.

Usage: watched.py INPUT. Both keep counts; the ticks' batches are slow enough that a stop falls into
one, and are kept as results in production.
"""

import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stateshift import job


def slow(batch: DataFrame, epoch: int) -> None:
    results = job.results("ticks")
    if results is None:
        batch.collect()
    else:
        batch.write.mode("overwrite").parquet(f"{results}/{epoch}")
    time.sleep(0.3)


spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("WARN")
words = spark.readStream.text(sys.argv[1]).groupBy("value").count()
ticks = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
ticks = ticks.groupBy((F.col("value") % 3).alias("key")).count()

queries = [
    words.writeStream.outputMode("update")
    .format("noop")
    .option("checkpointLocation", job.checkpoint("Count (words)")),
    ticks.writeStream.outputMode("update")
    .foreachBatch(slow)
    .option("checkpointLocation", job.checkpoint("ticks")),
]
job.run(*[query.start() for query in queries])
print("the job ends well")
