"""A job that knows nothing of stateshift. Usage: unwatched.py INPUT CHECKPOINT"""

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
words = spark.readStream.text(sys.argv[1]).groupBy("value").count()
query = (
    words.writeStream.outputMode("update")
    .format("noop")
    .option("checkpointLocation", sys.argv[2])
    .start()
)
query.awaitTermination()
