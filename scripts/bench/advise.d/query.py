"""A query that sleeps over each record of a topic, on so many cores, and counts what it has done:
FOLDER/done-<pid> is `records busy-nanoseconds` of each worker.

    query.py FOLDER KAFKA JARS CORES SECONDS
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

SETTINGS = {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}
TOPIC, PER_BATCH_MAX = "load", 800
PER_READ = "20"  # records that a worker is given at once


def main() -> None:
    folder, kafka, jars, cores, word = sys.argv[1:]
    seconds = float(word)
    settings: dict[str, Any] = {
        **SETTINGS,
        "spark.driver.extraClassPath": jars,
        "spark.sql.execution.arrow.maxRecordsPerBatch": PER_READ,
    }
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka)
    reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
    arrived = reader.option("maxOffsetsPerTrigger", PER_BATCH_MAX).load().select("value")

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        file = Path(folder, f"done-{os.getpid()}")
        records, busy = 0, 0
        if file.exists():
            records, busy = map(int, file.read_text().split())
        for batch in batches:
            began = time.perf_counter_ns()
            time.sleep(seconds * batch.num_rows)
            records += batch.num_rows
            busy += time.perf_counter_ns() - began
            new = file.with_name(f".{file.name}")
            new.write_text(f"{records} {busy}")
            os.replace(new, file)
            yield batch

    writer = arrived.mapInArrow(slowly, "value binary").writeStream.format("noop")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(processingTime="2 seconds").start().awaitTermination()


main()
