"""One application that counts large batches, natively and as a live operator, in turn: how long a batch takes.

    throughput.py '{"folder": …, "rows": 100000, "batches": 8, "cases": [{"way": "native", …}, …]}'

Prints a line of JSON for each case. A round that nobody counts warms the JVM.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from job import session
from processes import cpu_seconds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import live

KEYS = 200_000
PARTITIONS = 2
START = 1_767_225_600_000
WARM_UP = 3  # batches of each query
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STORE = "spark.sql.streaming.stateStore"
TIME = ("timestamp", "value")


def count(key: int, state: int | None, values: Any) -> live.Folded:
    after = (state or 0) + len(values)
    return live.Folded(after, outputs=((key, after),))


def count_in_columns(table: Any, rows: Any) -> tuple[Any, Any]:
    """Count a bin's rows; what is put out is each key's new count, as Spark does."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as c

    keys, counts = np.unique(rows["key"].to_numpy(), return_counts=True)
    keys = pa.array(keys)
    if table is not None:
        before = table["n"].take(c.index_in(keys, value_set=table["key"].combine_chunks()))
        counts = c.fill_null(before, 0).to_numpy() + counts
    changed = pa.table({"key": keys, "n": counts})
    return changed, changed


OPERATORS = {
    "objects": live.operator(
        key="key", time=TIME, values="value", out="key long, n long", name="count"
    )(count),
    "columns": live.operator(
        key="key",
        time=TIME,
        values="value",
        out="key long, n long",
        name="count",
        form="columns",
        state="n long",
    )(count_in_columns),
}


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(PARTITIONS)
    for name, value in {
        f"{STORE}.providerClass": ROCKSDB,
        f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
    }.items():
        spark.conf.set(name, value)
    for way in dict.fromkeys(case["way"] for case in asked["cases"]):
        warm = measured(spark, {**asked, "batches": 1}, way, Path(asked["folder"]) / f"warm-{way}")
        print(way, warm, file=sys.stderr, flush=True)
    for number, case in enumerate(asked["cases"]):
        found = measured(spark, asked, case["way"], Path(asked["folder"]) / str(number))
        print(json.dumps({**case, **found}), flush=True)


def measured(spark: SparkSession, asked: dict[str, Any], way: str, folder: Path) -> dict[str, Any]:
    """Return the median of a batch's seconds, and the CPU seconds of one."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", asked["rows"])
    reader = reader.option("numPartitions", PARTITIONS).option("startTimestamp", START)
    key = f.pmod(f.xxhash64("value"), f.lit(KEYS)).alias("key")
    writer, worker = written(reader.load().withColumn("key", key), way, folder)
    load = os.getloadavg()[0]
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    _until_batch(query, WARM_UP)
    began, cpu = time.time(), cpu_seconds(os.getpid())
    first = query.lastProgress["batchId"]
    _until_batch(query, first + asked["batches"])
    last = query.lastProgress["batchId"]
    used, took = cpu_seconds(os.getpid()) - cpu, time.time() - began
    done = [one for one in query.recentProgress if first < one["batchId"] <= last]
    query.stop()
    if worker is not None:
        worker.stop()
    batch = statistics.median(one["durationMs"]["triggerExecution"] for one in done)
    return {
        "batch": round(batch / 1000, 3),
        "cpu": round(used / (last - first), 3),
        "rows_a_second": round(asked["rows"] * 1000 / batch),
        "rows_over_all": round(asked["rows"] * (last - first) / took),
        "load": round(load, 1),
    }


def written(rows: DataFrame, way: str, folder: Path) -> tuple[Any, live.Worker | None]:
    """Return what writes the counts to nowhere."""
    if way == "native":
        counted = rows.groupBy("key").count()
        return counted.writeStream.format("noop").outputMode("update"), None
    form, home = way.split(", ")
    worker = live.Worker(
        str(folder / "group"),
        "west",
        OPERATORS[form],
        output=lambda delivery: None,
        home=home,
    )
    return rows.writeStream.foreachBatch(worker), worker


def _until_batch(query: Any, number: int) -> None:
    while not query.recentProgress or query.lastProgress["batchId"] < number:
        if not query.isActive:
            raise SystemExit(str(query.exception()))
        time.sleep(0.02)


if __name__ == "__main__":
    main()
