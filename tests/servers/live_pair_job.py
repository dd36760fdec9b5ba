"""One of two jobs whose functions change together while records go from one to the other by Kafka.

    live_pair_job.py clean|score --folder FOLDER --kafka HOST:PORT --jars JARS

    clean  numbers, 100 a batch, go through the chain `clean` into the topic `between`; the chain
           stamps the version that each record met
    score  from there through the chain `score`, which follows the stamp, into
           FOLDER/out/BATCH.RUN.json: of each record its number, the k that `clean` gave, and the m
           of `score`

While there is a file FOLDER/slow, `score` takes two seconds more for each batch, so that records
wait in Kafka. FOLDER/stop ends both.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import live
from tests.acceptance.jobs.live import SETTINGS, numbers

TOPIC = "between"
CLEANED = "value long, k long, v long"
SCORED = "value long, k long, v long, m long"
RUN = uuid.uuid4().hex[:8]
PER_BATCH_MAX = 400


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("clean", "score"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--jars", required=True)
    options = parser.parse_args()
    settings = {**SETTINGS, "spark.driver.extraClassPath": options.jars}
    settings |= {"spark.sql.execution.arrow.maxRecordsPerBatch": "20"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    query = (cleaning if options.what == "clean" else scoring)(spark, options)
    while query.isActive and not (options.folder / "stop").exists():
        time.sleep(0.1)
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    query.stop()


def cleaning(spark: SparkSession, options: argparse.Namespace) -> Any:
    clean = live.chain("clean", group(options), CLEANED, k_of_0, stamp="v")
    rows = numbers(spark, 100).select("value").mapInArrow(clean, CLEANED)
    writer = rows.select(f.to_json(f.struct("value", "k", "v")).alias("value")).writeStream
    writer = writer.format("kafka").option("kafka.bootstrap.servers", options.kafka)
    writer = writer.option("topic", TOPIC).trigger(processingTime="500 milliseconds")
    return writer.option("checkpointLocation", str(options.folder / "clean")).start()


def scoring(spark: SparkSession, options: argparse.Namespace) -> Any:
    score = live.chain("score", group(options), SCORED, m_of_0, follow="v")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.kafka)
    reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
    arrived = reader.option("maxOffsetsPerTrigger", PER_BATCH_MAX).load()
    value = f.from_json(f.col("value").cast("string"), CLEANED).alias("record")
    rows = arrived.select(value).select("record.*").mapInArrow(score, SCORED)
    output = options.folder / "out"
    output.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        if (options.folder / "slow").exists():
            time.sleep(2)
        met = sorted((row.value, row.k, row.m) for row in batch.collect())
        hidden = output / f".{number:06}.{RUN}.tmp"
        hidden.write_text(json.dumps(met))
        os.replace(hidden, output / f"{number:06}.{RUN}.json")

    writer = rows.writeStream.foreachBatch(write).trigger(processingTime="300 milliseconds")
    return writer.option("checkpointLocation", str(options.folder / "score")).start()


def group(options: argparse.Namespace) -> str:
    return str(options.folder / "group")


def k_of_0(rows: Any) -> Any:
    import pyarrow

    return rows.append_column("k", pyarrow.array([0] * rows.num_rows, pyarrow.int64()))


def m_of_0(rows: Any) -> Any:
    import pyarrow

    return rows.append_column("m", pyarrow.array([0] * rows.num_rows, pyarrow.int64()))


if __name__ == "__main__":
    main()
