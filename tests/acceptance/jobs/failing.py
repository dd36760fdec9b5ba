"""Counts words, or fails in one of the ways in which a moved job fails.

    failing.py INPUT CHECKPOINT HOW

HOW is one of

    once     count what is there, and end
    on       go on counting
    throw    the query throws in its first batch
    import   the driver throws before its first query: a module is not there
    other    the query counts by a key of another type than the state's
    lost     files of the state are gone; the driver lives on without the query
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def refuse(batch: DataFrame, number: int) -> None:
    raise ValueError(f"no table called orders for batch {number}: --password hunter22")


source, checkpoint, how = sys.argv[1], sys.argv[2].removeprefix("file://"), sys.argv[3]
if how == "import":
    import orders_of_another_environment  # noqa: F401  # the failure that is wanted
if how == "lost":
    for file in Path(checkpoint, "state", "0", "1").glob("*.delta"):
        file.unlink()

builder = SparkSession.builder.config("spark.sql.shuffle.partitions", 2)
spark = builder.config("spark.ui.enabled", False).getOrCreate()
key = "length(value)" if how == "other" else "value"
words = spark.readStream.text(source).selectExpr(f"{key} as word")
writer = words.groupBy("word").count().writeStream.outputMode("update")
writer = writer.foreachBatch(refuse) if how == "throw" else writer.format("noop")
writer = writer.option("checkpointLocation", checkpoint)
query = (writer.trigger(availableNow=True) if how == "once" else writer).start()
while how == "lost":
    time.sleep(1)
query.awaitTermination()
