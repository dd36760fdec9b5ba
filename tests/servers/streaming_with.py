"""A job with its checkpoint anywhere, run in a Spark's Python: it says when it is inside a batch,
and how it ended.

python streaming_with.py CHECKPOINT SETTINGS-AS-JSON
"""

import json
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

CHECKPOINT, SETTINGS = sys.argv[1:]


def each(frame: Any, number: int) -> None:
    frame.count()
    print("in batch", number, flush=True)
    time.sleep(2)


def main() -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "1g",
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in {**settings, **json.loads(SETTINGS)}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    counts = rows.selectExpr("value % 3 as key").groupBy("key").count()
    writer = (
        counts.writeStream.outputMode("update")
        .option("checkpointLocation", CHECKPOINT)
        .foreachBatch(each)
    )
    query = writer.trigger(processingTime="1 second").start()
    try:
        query.awaitTermination()
    except Exception as error:
        print("died:", " ".join(str(error).split()), flush=True)


main()
