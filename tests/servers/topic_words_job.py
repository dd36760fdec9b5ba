"""Spark's own example of words in Kafka, with a checkpoint: topic_words_job.py BROKERS CHECKPOINT
OPTIONS, of which OPTIONS is JSON.

The words are called as $WORD says. A JSON list in $CHECKPOINTS has it run once for each of these
[checkpoint, options], all there is, and say how each ended.
"""

import json
import os
import shutil
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

WORD = os.environ.get("WORD", "word")


def start(spark: Any, brokers: str, checkpoint: str, options: dict[str, str]) -> Any:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    lines = reader.option("startingOffsets", "earliest").options(**options).load()
    lines = lines.selectExpr("CAST(value AS STRING)")
    words = lines.select(explode(split(lines.value, " ")).alias(WORD))
    writer = words.groupBy(WORD).count().writeStream.outputMode("complete").format("noop")
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def main() -> None:
    brokers, checkpoint, options = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    start(spark, brokers, checkpoint, json.loads(options)).awaitTermination()
    ends = []
    for copy, changed in json.loads(os.environ.get("CHECKPOINTS", "[]")):
        shutil.copytree(checkpoint, copy)
        query = start(spark, brokers, copy, changed)
        try:
            query.awaitTermination()
            ends.append("started")
        except Exception as error:
            ends.append(str(error))
    if ends:
        print(json.dumps(ends))


main()
