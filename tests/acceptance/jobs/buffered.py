"""A query that reads a buffer, and writes each batch's rows to a file of its number.

    buffered.py --buffer DIRECTORY --checkpoint DIRECTORY --output DIRECTORY --reader NAME
                [--options '{"maxRecordsPerBatch": "100"}'] [--until FILE]

Two applications may write to one output: `OUTPUT/BATCH.json` has `[number, value]` of its rows in
their order. It runs until there is a file that --until names; without it, until it is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from stateshift import live

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.streaming.stopTimeout": "10s",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("buffer", "checkpoint", "output", "reader"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--options", default="{}")
    parser.add_argument("--until", type=Path, default=Path("/nowhere"))
    asked = parser.parse_args()
    spark = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(live.BufferSource)
    reader = spark.readStream.format("stateshift-buffer").option("reader", asked.reader)
    rows = reader.options(**json.loads(asked.options)).load(asked.buffer)
    writer = rows.writeStream.foreachBatch(writing(Path(asked.output)))
    writer = writer.option("checkpointLocation", asked.checkpoint)
    query = writer.trigger(processingTime="200 milliseconds").start()
    while query.isActive and not asked.until.exists():
        time.sleep(0.1)
    if not query.isActive:
        raise SystemExit(str(query.exception()))
    query.stop()


def writing(output: Path):  # type: ignore[no-untyped-def]
    output.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        rows = [[row["number"], row["value"]] for row in batch.collect()]
        hidden = output / f".{number:06}.tmp"
        hidden.write_text(json.dumps(rows))
        os.replace(hidden, output / f"{number:06}.json")

    return write


if __name__ == "__main__":
    main()
