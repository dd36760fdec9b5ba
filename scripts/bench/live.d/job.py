"""A worker of the bench: one application, which reads the open loop and counts.

    job.py --folder FOLDER --name west --form objects --keys 1200000 --home driver

FOLDER/group is what the workers share, FOLDER/rates.json says what is due. What comes out is noted in FOLDER/NAME/came:
a file for each delivery, its first number when that was, in microseconds, the others the rows'. FOLDER/NAME/commits.jsonl
says how long each commit has worked, and what it has given and taken. FOLDER/stop ends the job.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from counting import FORMS
from open_loop import OpenLoop
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import live
from stateshift.live.bins.worker import Delivery

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
# Spark gives the process that asks a Python source for offsets 10 seconds to start.
SLOW_START = "Python worker failed to connect back"


class Came:
    """What a worker has put out, noted down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.worker: live.Worker | None = None
        (folder / "came").mkdir(parents=True, exist_ok=True)

    def __call__(self, delivery: Delivery) -> None:
        now = round(time.time() * 1e6)
        numbers = delivery.table.column("i").to_numpy()
        place = self.folder / "came" / f"{delivery.number:09d}.npy"
        np.save(place.with_suffix(".new.npy"), np.concatenate(([now], numbers)))
        place.with_suffix(".new.npy").rename(place)
        if self.worker is not None:
            self._note_commit(self.worker)

    def _note_commit(self, worker: live.Worker) -> None:
        last = worker.running.ledger.last
        assert last is not None
        noted = {
            "number": last.number,
            "at": last.at,
            "seconds": last.at - last.began,
            "given": sum(one.kept.keys for one in last.given),
            "taken": sum(one.kept.keys for one in last.taken),
        }
        with (self.folder / "commits.jsonl").open("a") as file:
            file.write(json.dumps(noted) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--form", choices=list(FORMS), required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--home", default="driver")
    options = parser.parse_args()
    folder, own = options.folder, options.folder / options.name
    spark = session(1)
    came = Came(own)
    group, operator = str(folder / "group"), FORMS[options.form]
    came.worker = live.Worker(
        group, options.name, operator, came, first=("west",), home=options.home
    )
    rows = records(spark, folder, options.keys)
    writer = rows.writeStream.foreachBatch(came.worker)
    writer = writer.option("checkpointLocation", str(own / "checkpoint"))
    query = writer.start()
    while not (folder / "stop").exists():
        query = alive(query, writer)
        time.sleep(0.1)
    query.stop()


def alive(query: Any, writer: Any) -> Any:
    """Return a query that runs: another start of it, where the machine was too slow for Spark."""
    if query.isActive:
        return query
    if SLOW_START not in str(query.exception()):
        raise SystemExit(str(query.exception()))
    return writer.start()


def session(cores: int) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{cores}]").config(map=SETTINGS)
    spark = builder.getOrCreate()
    spark.dataSource.register(OpenLoop)
    return spark


def records(spark: SparkSession, folder: Path, keys: int, kind: str = "key-count") -> DataFrame:
    """Return the rows of the open loop, each with a key that is scattered over all of them."""
    reader = spark.readStream.format("openloop").option("folder", str(folder))
    key = f.pmod(f.xxhash64("i"), f.lit(keys))
    if kind == "hash-count":
        key = f.concat(f.lit("visitor-"), key)
    return reader.option("partitions", 1).load().select("i", key.alias("key"))


if __name__ == "__main__":
    main()
