"""A worker of the soak: Kafka's records go through a chain that marks them with the number of its
function, and then into bins.

    live_soak_job.py --folder FOLDER --name west --group LOCATION --output LOCATION
        --kafka HOST:PORT --topic TOPIC --jars JARS

FOLDER is on this machine, with the query's checkpoint; the group and the output are on the storage
that is tried. It ends when there is a file FOLDER/stop, or its query fails.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import live
from tests.acceptance.jobs.live import SETTINGS
from tests.acceptance.jobs.live_bins import is_slow_start
from tests.acceptance.live_operators import visits_of_partitions

CHAIN = "mark"
RECORD = "number long, at long, key long"
MARKED = "number long, at long, key long, partition int, v long"
PER_BATCH_MAX = 2000  # records: after a pause a worker is to catch up in several batches
NAMES = ("west", "east", "north")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    for text in ("--name", "--group", "--output", "--kafka", "--topic", "--jars"):
        parser.add_argument(text, required=True)
    options = parser.parse_args()
    folder, name = options.folder, options.name
    settings = {**SETTINGS, "spark.driver.extraClassPath": options.jars}
    settings |= {"spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    output = live.files(options.output)
    worker = live.Worker(options.group, name, visits_of_partitions, output, first=NAMES)
    rows = records(spark, options).mapInArrow(
        live.chain(CHAIN, options.group, MARKED, mark_0), MARKED
    )
    writer = rows.writeStream.foreachBatch(worker).trigger(processingTime="1 second")
    writer = writer.option("checkpointLocation", (folder / name / "checkpoint").as_uri())
    while not (folder / "stop").exists():
        query = writer.start()
        while query.isActive and not (folder / "stop").exists():
            time.sleep(0.1)
        if query.isActive:
            query.stop()
        elif not is_slow_start(query.exception()):
            raise SystemExit(str(query.exception()))


def records(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.kafka)
    reader = reader.option("subscribe", options.topic).option("startingOffsets", "earliest")
    arrived = reader.option("maxOffsetsPerTrigger", PER_BATCH_MAX).load()
    record = f.from_json(f.col("value").cast("string"), RECORD).alias("record")
    return arrived.select(record, "partition").select("record.*", "partition")


def mark_0(rows: Any) -> Any:
    import pyarrow

    return rows.append_column("v", pyarrow.array([0] * rows.num_rows, pyarrow.int64()))


if __name__ == "__main__":
    main()
