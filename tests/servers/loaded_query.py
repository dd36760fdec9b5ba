"""A query that takes a while over each record of a topic, on so many cores: it sleeps, so that a
busy machine makes little difference.

    loaded_query.py --checkpoint FOLDER --kafka HOST:PORT --jars JARS --cores N --seconds 0.025
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

TOPIC = "load"
PER_BATCH_MAX = 240
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "12",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--jars", required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    settings = {**SETTINGS, "spark.driver.extraClassPath": options.jars}
    builder = SparkSession.builder.master(f"local[{options.cores}]").config(map=settings)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.kafka)
    reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
    arrived = reader.option("maxOffsetsPerTrigger", PER_BATCH_MAX).load().select("value")
    seconds = options.seconds

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(seconds * batch.num_rows)
            yield batch

    writer = arrived.mapInArrow(slowly, "value binary").writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(options.checkpoint))
    writer.trigger(processingTime="1 second").start().awaitTermination()


main()
