"""The job of `demo --live`: orders come in, a chain scores them, each batch is written down.

    live_job.py GROUP FOLDER

    FOLDER/out/0000012.json    {"batch", "rows", "by_version": {"2": rows}, "wrong": rows}
    FOLDER/stop                ends the job

Every row carries the version that it met (`stamp`), so that the demo can check each score.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.compute
from pyspark.sql import DataFrame, SparkSession
from stop_file import run_until_stopped

from stateshift import live

ROWS_PER_SECOND = 500
SCHEMA = "id long, amount long, score long, version long"


def score(orders: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Return the orders with a score: twice their amount."""
    scores = pyarrow.compute.multiply(orders["amount"], 2)
    return pyarrow.RecordBatch.from_arrays(
        [orders["id"], orders["amount"], scores], names=["id", "amount", "score"]
    )


def main() -> None:
    group, folder = sys.argv[1], Path(sys.argv[2])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    chain = live.chain("score", group, SCHEMA, score, stamp="version")
    orders = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", ROWS_PER_SECOND)
        .option("numPartitions", 2)
        .load()
        .selectExpr("value AS id", "value % 97 + 1 AS amount")
    )
    out = folder / "out"
    out.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        rows = batch.groupBy("version", (batch.score / batch.amount).alias("factor")).count()
        by_version: Counter[str] = Counter()
        factors: dict[str, list[float]] = {}
        for row in rows.collect():
            by_version[str(row["version"])] += row["count"]
            factors.setdefault(str(row["version"]), []).append(row["factor"])
        document = {"batch": number, "at": time.time(), "rows": by_version, "factors": factors}
        (out / f"{number:07}.json").write_text(json.dumps(document))

    query = (
        orders.mapInArrow(chain, SCHEMA)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    run_until_stopped(query, folder)


if __name__ == "__main__":
    main()
