"""A new version of the job `orders`: its windows know the cheapest order, too."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

INPUT = "/tmp/stateshift-golden/window-hdfs/in"

spark = SparkSession.builder.appName("orders").getOrCreate()
orders = spark.readStream.schema("id long, at timestamp, word string, amount double").json(INPUT)
counted = (
    orders.withWatermark("at", "1 minute")
    .groupBy(F.window("at", "10 seconds"), "word")
    .agg(F.count("*"), F.sum("amount"), F.max("word"), F.min("amount"))
)
writer = counted.writeStream.outputMode("update").format("console").queryName("orders")
query = writer.option("checkpointLocation", sys.argv[1]).start()
query.awaitTermination()
