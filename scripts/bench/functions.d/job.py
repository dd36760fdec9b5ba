"""The bench's job: queries over the open-loop source, whose functions are chains.

    job.py --folder FOLDER [--branches 1] [--arrow-rows 100] [--k 0] [--bare] [--kafka ADDRESS]

    --branches N   N chains beside each other, each of every N-th record: `score-0`, `score-1`, …
    --bare         the function itself, and no chain
    --kafka        two queries with a topic between them: `clean` stamps, `score` follows

What comes out of a batch is a line of FOLDER/events.jsonl. FOLDER/restart.json asks for the query
to be started again with another k; FOLDER/stop ends the job.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import made
import open_loop
from made import AFTER_SCHEMA, BETWEEN_SCHEMA, SCHEMA, giving
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import live

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
PARTITIONS = 2
TOPIC = "between"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--branches", type=int, default=1)
    parser.add_argument("--arrow-rows", default="100")
    parser.add_argument("--k", type=int, default=0)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--kafka")
    parser.add_argument("--jars", default="")
    options = parser.parse_args()
    for module in (made, open_loop):
        cloudpickle.register_pickle_by_value(module)
    spark = session(options)
    queries = started(spark, options, options.k)
    restart = options.folder / "restart.json"
    while not (options.folder / "stop").exists():
        for query in queries:
            if not query.isActive:
                sys.exit(str(query.exception()))
        if restart.exists():
            k = json.loads(restart.read_text())
            restart.unlink()
            for query in queries:
                query.stop()
            queries = started(spark, options, k)
        time.sleep(0.02)
    for query in queries:
        query.stop()


def session(options: argparse.Namespace) -> SparkSession:
    settings = {**SETTINGS, "spark.sql.execution.arrow.maxRecordsPerBatch": options.arrow_rows}
    if options.jars:
        settings |= {f"spark.{one}.extraClassPath": options.jars for one in ("driver", "executor")}
    # functions that cost time sleep: more tasks at a time than cores
    cores = PARTITIONS * (2 if options.kafka else options.branches)
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=settings).getOrCreate()
    spark.dataSource.register(open_loop.OpenLoop)
    return spark


def started(spark: SparkSession, options: argparse.Namespace, k: int) -> list[Any]:
    if options.kafka:
        return pair(spark, options, k)
    rows = records(spark, options.folder)
    count = options.branches
    parts = []
    for number in range(count):
        part = rows if count == 1 else rows.where(f.col("i") % count == number)
        parts.append(part.mapInArrow(function(options, number, k), SCHEMA))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return [writing(whole, options.folder, "k")]


def records(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.format("openloop").option("folder", str(folder))
    return reader.option("partitions", PARTITIONS).load()


def function(options: argparse.Namespace, number: int, k: int) -> Any:
    if options.bare:
        return bare(giving(k))
    return live.chain(f"score-{number}", str(options.folder / "group"), SCHEMA, giving(k))


def bare(function: Any) -> Any:
    """Return what a job without chains hands to mapInArrow."""

    def run(batches: Any) -> Any:
        for batch in batches:
            yield function(batch)

    return run


def pair(spark: SparkSession, options: argparse.Namespace, k: int) -> list[Any]:
    """Two queries with a real Kafka between them."""
    group = str(options.folder / "group")
    clean = live.chain("clean", group, BETWEEN_SCHEMA, giving(k), stamp="v")
    score = live.chain("score", group, AFTER_SCHEMA, giving(k, 0.0, "m"), follow="v")
    between = records(spark, options.folder).mapInArrow(clean, BETWEEN_SCHEMA)
    servers = {"kafka.bootstrap.servers": options.kafka}
    writer = between.select(f.to_json(f.struct("i", "k", "v")).alias("value")).writeStream
    writer = writer.format("kafka").options(**servers).option("topic", TOPIC)
    first = writer.option("checkpointLocation", str(options.folder / "checkpoint-1")).start()
    while not (options.folder / "checkpoint-1" / "commits" / "1").exists() and first.isActive:
        time.sleep(0.1)  # the topic is there once something was handed on
    reader = spark.readStream.format("kafka").options(**servers)
    arrived = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    value = f.from_json(f.col("value").cast("string"), BETWEEN_SCHEMA).alias("r")
    after = arrived.select(value).select("r.*").mapInArrow(score, AFTER_SCHEMA)
    return [first, writing(after, options.folder, "k", "m")]


def writing(rows: DataFrame, folder: Path, *columns: str) -> Any:
    def write(batch: DataFrame, number: int) -> None:
        told = batch.groupBy(*columns).agg(f.count("*"), f.min("i"), f.max("i")).collect()
        event = {"batch": number, "ended": time.time(), "rows": [list(row) for row in told]}
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")

    place = str(folder / "checkpoint")
    return rows.writeStream.foreachBatch(write).option("checkpointLocation", place).start()


if __name__ == "__main__":
    main()
