"""Counts words, or fails in one of the ways in which a moved job fails. Usage: failing.py INPUT CHECKPOINT HOW

HOW is `once` (what is there, and ends), `on` (goes on), `throw` (before its first query), `other` (with state of
another schema), `lost` (with a file of its state gone; its driver lives on without the query)
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

given, checkpoint, how = sys.argv[1], sys.argv[2].removeprefix("file://"), sys.argv[3]
if how == "throw":
    raise ValueError("no table called orders: --password hunter22")
if how == "lost":
    for file in Path(checkpoint, "state", "0", "1").glob("*.delta"):
        file.unlink()

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).config("spark.ui.enabled", False).getOrCreate()
words = spark.readStream.text(given)
key = "length(value)" if how == "other" else "value"
counts = words.selectExpr(f"{key} as word").groupBy("word").count()
writer = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", checkpoint)
query = (writer.trigger(availableNow=True) if how == "once" else writer).start()
while how == "lost":
    time.sleep(1)
query.awaitTermination()
