"""Workers of four live operators, one of each form: one application of a group, one query.

    live_forms.py --folder FOLDER --name west --first 100 --rate 100 --rows 1000000 --keys 60

The log is that of tests.live.bins.workers, read in an open loop: FOLDER/begin says when it begins,
FOLDER/end how many rows it has. All bins begin at west. FOLDER/group is what the workers share,
FOLDER/output where all rows go. The job ends when there is a file FOLDER/stop, or its query fails.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from stateshift import live
from tests.acceptance.jobs.live import SETTINGS
from tests.acceptance.jobs.live_bins import is_slow_start
from tests.live.bins.forms import FORMS
from tests.support.open_loop import OpenLoop


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
        "begin": str(folder / "begin"),
        "end": str(folder / "end"),
        "first": options.first,
        "rate": options.rate,
        "rows": options.rows,
        "keys": options.keys,
    }
    rows = spark.readStream.format("open-loop").options(**source).load()
    rows = rows.selectExpr(
        "number",
        "at",
        f"(number * 7919 + 13) % {options.keys} as key",
        "if(number div 4 % 2 = 0, 'l', 'r') as side",
    )
    group, output = live.group(str(folder / "group")), live.files(str(folder / "output"))
    workers = [
        live.Worker(group, name, operator, output, first=("west",)) for operator in FORMS.values()
    ]

    def each(batch: DataFrame, number: int) -> None:
        batch.persist()
        for worker in workers:
            worker(batch, number)
        batch.unpersist()

    writer = rows.writeStream.foreachBatch(each)
    writer = writer.option("checkpointLocation", str(folder / name / "checkpoint"))
    while not (folder / "stop").exists():
        query = writer.start()
        while query.isActive and not (folder / "stop").exists():
            time.sleep(0.1)
        if query.isActive:
            query.stop()
        elif not is_slow_start(query.exception()):
            raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    main()
