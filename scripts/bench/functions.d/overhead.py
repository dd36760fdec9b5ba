"""One query with a bare function and with a chain of that function, in turn: how long a batch takes.

    overhead.py PAIRS BATCHES

A line of JSON for each pair: the medians of both, in milliseconds. Which of the two begins changes
from pair to pair. The first batches of a query are not counted. Before them a line without Spark:
what a chain adds to one task, in milliseconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import made
import pyarrow
from job import SETTINGS, bare
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from stateshift import live
from stateshift.live.folder import ChainWorker
from stateshift.live.member import TaskPlace, member_of
from stateshift.live.task import Task

ROWS = 200_000  # of a batch, in two partitions, ten Arrow batches each
SCHEMA = "timestamp timestamp, value long, score double"
ARROW_BATCHES = 10  # of a task
WARM_UP = 3
TASKS = 300


def main() -> None:
    pairs, batches = int(sys.argv[1]), int(sys.argv[2])
    cloudpickle.register_pickle_by_value(made)
    spark = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        chain = live.chain("score", f"{folder}/group", SCHEMA, made.score)
        print(json.dumps({"task": round(added(folder), 2)}), flush=True)
        ways = {"bare": bare(made.score), "chain": chain}
        measured(spark, ways["bare"], f"{folder}/warm", batches)
        for number in range(pairs):
            order = list(ways) if number % 2 == 0 else list(reversed(ways))
            took = {}
            for way in order:
                place = f"{folder}/{way}-{number}"
                took[way] = round(measured(spark, ways[way], place, batches), 1)
            print(json.dumps(took), flush=True)


def added(folder: str) -> float:
    """The milliseconds that a chain adds to a task of ten Arrow batches, without a Spark: the
    medians of many tasks, each of a batch of its own, which is sealed.
    """
    fields = {"timestamp": pyarrow.timestamp("us"), "value": "int64", "score": "float64"}
    chain = live.chain("alone", f"{folder}/group", pyarrow.schema(fields), made.score)
    member = member_of(chain.group)
    numbers = pyarrow.array(range(ROWS // 2 // ARROW_BATCHES), pyarrow.int64())
    times = numbers.cast(pyarrow.timestamp("us"))
    rows = pyarrow.RecordBatch.from_arrays([times, numbers], ["timestamp", "value"])
    took: dict[str, list[float]] = {"bare": [], "chain": []}
    for number in range(TASKS):
        here = TaskPlace(ChainWorker("alone", "query", 0), number)
        for way in took:
            task = Task(chain, member, here, "run").run if way == "chain" else bare(made.score)
            began = time.perf_counter()
            for _ in task(iter([rows] * ARROW_BATCHES)):
                pass
            took[way].append(1000 * (time.perf_counter() - began))
    return statistics.median(took["chain"]) - statistics.median(took["bare"])


def measured(spark: SparkSession, function: Any, checkpoint: str, batches: int) -> float:
    """The median of a batch's milliseconds."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    rows = reader.option("numPartitions", 2).option("startTimestamp", 1_767_225_600_000).load()
    writer = rows.mapInArrow(function, SCHEMA).writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).start()
    while not query.recentProgress or query.lastProgress["batchId"] < WARM_UP + batches:
        time.sleep(0.1)
        if not query.isActive:
            raise SystemExit(str(query.exception()))
    query.stop()
    counted = query.recentProgress[WARM_UP : WARM_UP + batches]
    return statistics.median(one["durationMs"]["triggerExecution"] for one in counted)


if __name__ == "__main__":
    main()
