"""A worker of a live operator: one application of a group.

    live_bins.py --folder FOLDER --name west --first 100 --rate 300 --rows 6000 --keys 200

All bins begin at west. FOLDER/group is what the workers share, FOLDER/begin when the open loop begins, FOLDER/output where
all rows go; FOLDER/end, once it is there, how many rows there are; FOLDER/NAME is its own. It ends when there is a file FOLDER/stop, or its query fails.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pyspark.sql import SparkSession

from stateshift import live
from tests.acceptance.jobs.live import SETTINGS
from tests.acceptance.live_operators import visits
from tests.support.open_loop import OpenLoop

# Spark gives its processes of Python 10 to 15 seconds to start and to connect, which is little on a
# machine that does something else. A query that has failed of it is started again.
SLOW_STARTS = ("Python worker failed to connect back", "CANNOT_OPEN_SOCKET")


def is_slow_start(failed: object) -> bool:
    """Whether a query has failed because the machine was slow."""
    return any(slow in str(failed) for slow in SLOW_STARTS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    for number in ("--first", "--rate", "--rows", "--keys"):
        parser.add_argument(number, required=True)
    options = parser.parse_args()
    folder, name = options.folder, options.name
    builder = SparkSession.builder.master("local[1]").config(map=SETTINGS)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(OpenLoop)
    source = {
        "first": options.first,
        "rate": options.rate,
        "rows": options.rows,
        "keys": options.keys,
        "end": str(folder / "end"),
    }
    rows = spark.readStream.format("open-loop").options(begin=str(folder / "begin"), **source)
    output = live.files(str(folder / "output"))
    worker = live.Worker(str(folder / "group"), name, visits, output, first=("west",))
    writer = rows.load().writeStream.foreachBatch(worker)
    writer = writer.option("checkpointLocation", str(folder / name / "checkpoint"))
    while not (folder / "stop").exists():
        query = writer.start()
        (folder / name / "started").touch()
        while query.isActive and not (folder / "stop").exists():
            time.sleep(0.1)
        if query.isActive:
            query.stop()
        elif not is_slow_start(query.exception()):
            raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    main()
