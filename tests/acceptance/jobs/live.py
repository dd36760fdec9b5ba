"""Queries whose functions can change while they run: one for each kind of chain.

    live.py --folder FOLDER --kinds arrow,pandas,batch [--rows 200] [--arrow-rows 10]
            [--partitions 2] [--tries 4] [--keep-running]

    arrow   mapInArrow, the chain `score`; it begins with a function that sets k to 0
    pandas  mapInPandas, the chain `clean`; the same
    trio    mapInArrow, the chain `trio` of three functions: the first and the third give k
    batch   foreachBatch, the chain `write`; it keeps the last three numbers of batches as its state

Each has a folder of its own below FOLDER: `group`, `checkpoint`, `output`. Batch n has the numbers
n × rows to (n + 1) × rows − 1, in so many partitions, however often it runs. What a run of it puts out
is a file of its own, `output/BATCH.RUN.json`: two runs of a batch can be held against each other.
The job ends when there is a file FOLDER/stop, or one of the queries has failed; which, and of what,
is in FOLDER/failed.json. With --keep-running a query is started again where a change has taken
itself back, and each start is a line of FOLDER/starts.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stateshift import live

SCHEMA = "timestamp timestamp, value long, k long"
PACE = "300 milliseconds"
START = 1_767_225_600_000
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.task.maxFailures": "4",
}
RUN = uuid.uuid4().hex[:8]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kinds", default="arrow")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--arrow-rows", default="10")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--tries", default="4")
    parser.add_argument("--keep-running", action="store_true")
    options = parser.parse_args()
    settings = {**SETTINGS, "spark.sql.execution.arrow.maxRecordsPerBatch": options.arrow_rows}
    # a worker that dies costs its task a try, not the query
    builder = SparkSession.builder.master(f"local[2,{options.tries}]").config(map=settings)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    queries = {}
    if options.keep_running:
        keep_running(spark, options)
        return
    for kind in options.kinds.split(","):
        queries[kind] = KINDS[kind](numbers(spark, options), options.folder / kind)
    while not (options.folder / "stop").exists():
        for kind, query in queries.items():
            if not query.isActive:
                failed = {"kind": kind, "error": str(query.exception())}
                (options.folder / "failed.json").write_text(json.dumps(failed))
                return
        time.sleep(0.1)
    for query in queries.values():
        query.stop()


def keep_running(spark: SparkSession, options: argparse.Namespace) -> None:
    """Run one query, through changes that take themselves back, until somebody stops it."""
    kind = options.kinds

    def start() -> Any:
        with open(options.folder / "starts", "a") as starts:
            starts.write(f"{kind}\n")
        return KINDS[kind](numbers(spark, options), options.folder / kind)

    def stop_when_asked() -> None:
        while not (options.folder / "stop").exists():
            time.sleep(0.1)
        for query in spark.streams.active:
            query.stop()

    threading.Thread(target=stop_when_asked, daemon=True).start()
    try:
        live.keep_running(start)
    except Exception as error:
        failed = {"kind": kind, "error": str(error)}
        (options.folder / "failed.json").write_text(json.dumps(failed))


def numbers(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", options.rows)
    reader = reader.option("numPartitions", options.partitions)
    return reader.option("startTimestamp", START).load()


def of_arrow(rows: DataFrame, folder: Path) -> Any:
    score = live.chain("score", str(folder / "group"), SCHEMA, zero)
    return started(rows.mapInArrow(score, SCHEMA), writing(folder / "output"), folder)


def of_trio(rows: DataFrame, folder: Path) -> Any:
    trio = live.chain("trio", str(folder / "group"), SCHEMA, zero, same, same)
    return started(rows.mapInArrow(trio, SCHEMA), writing(folder / "output"), folder)


def of_pandas(rows: DataFrame, folder: Path) -> Any:
    clean = live.chain("clean", str(folder / "group"), SCHEMA, zero_in_pandas)
    return started(rows.mapInPandas(clean, SCHEMA), writing(folder / "output"), folder)


def of_batches(rows: DataFrame, folder: Path) -> Any:
    keep = live.stateful("last", initial=[])(last_three)
    write = live.chain("write", str(folder / "group"), None, keep, writer_of_state(folder))
    return started(rows, write, folder)


KINDS = {"arrow": of_arrow, "trio": of_trio, "pandas": of_pandas, "batch": of_batches}


def started(rows: DataFrame, sink: Callable[[DataFrame, int], object], folder: Path) -> Any:
    writer = rows.writeStream.foreachBatch(sink).trigger(processingTime=PACE)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


# ------------------------------------------------------------------------- what chains begin with


def zero(rows: Any) -> Any:
    import pyarrow

    return rows.append_column("k", pyarrow.array([0] * rows.num_rows, pyarrow.int64()))


def same(rows: Any) -> Any:
    return rows


def zero_in_pandas(rows: Any) -> Any:
    return rows.assign(k=0)


def last_three(rows: Any, state: Any) -> Any:
    number = rows.agg({"value": "max"}).collect()[0][0]
    return (rows, [*state, number][-3:]), [*state, number][-3:]


# ------------------------------------------------------------------------------------- what writes


def writing(output: Path) -> Callable[[DataFrame, int], None]:
    output.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        rows = sorted((row.value, row.k) for row in batch.select("value", "k").collect())
        put(output, number, rows)

    return write


def writer_of_state(folder: Path) -> Callable[[Any], None]:
    """The last function of foreachBatch's chain is not told the batch's number: the greatest value
    says it.
    """
    output = folder / "output"
    output.mkdir(parents=True, exist_ok=True)

    def write(given: Any) -> None:
        _, state = given
        put(output, state[-1], state)

    return write


def put(output: Path, number: int, content: object) -> None:
    hidden = output / f".{number:06}.{RUN}.tmp"
    hidden.write_text(json.dumps(content))
    os.replace(hidden, output / f"{number:06}.{RUN}.json")


if __name__ == "__main__":
    main()
