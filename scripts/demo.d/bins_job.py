"""The other job of `demo --live`: it counts the visits of users, those of its bins.

bins_job.py GROUP FOLDER NAME            a worker, until there is a file FOLDER/stop
bins_job.py GROUP FOLDER NAME --alone    the same, as the only one of its group

FOLDER/visits/000012.parquet    the input, which everybody reads (`visits`)
FOLDER/OUTPUT/                  what came out: NAME where it is --alone, `moved` otherwise
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from stop_file import run_until_stopped

from stateshift import live

BINS = 64
SCHEMA = "number long, at long, user long"


@live.operator(
    bins=BINS,
    key="user",
    time=("at", "number"),
    out="number long, at long, user long, visits long, since long",
)
def visits(user: int, state: Any, rows: Sequence[Any]) -> live.Folded:
    """Count a user's visits, and remember when the first one was."""
    count, since = state or (0, rows[0].at)
    outputs = []
    for row in rows:
        count += 1
        outputs.append((row.number, row.at, user, count, since))
    return live.Folded((count, since), outputs=tuple(outputs))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("group")
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    folder, name = options.folder, options.name
    spark = (
        SparkSession.builder.config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    output = live.files(str(folder / (name if options.alone else "moved")))
    first = (name,) if options.alone else ("west",)
    worker = live.Worker(options.group, name, visits, output, first=first)
    query = (
        spark.readStream.schema(SCHEMA)
        .parquet(str(folder / "visits"))
        .writeStream.foreachBatch(worker)
        .option("checkpointLocation", str(folder / "checkpoints" / name))
        .start()
    )
    run_until_stopped(query, folder)


if __name__ == "__main__":
    main()
