"""A job whose sink knows batches by their number, and which can die between its sink and its
commit.

    batches.py --input FOLDER --output FOLDER --checkpoint FOLDER [--die-in BATCH]

file source (JSON) -> count and sum per key -> one file per batch, replaced if the batch runs again.
With --die-in, the process is gone right after the sink has written that batch: planned, put out,
not committed.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--input", "--output", "--checkpoint"):
        parser.add_argument(name, required=True)
    parser.add_argument("--die-in", type=int, default=-1)
    options = parser.parse_args()
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    records = (
        spark.readStream.schema("key STRING, value LONG")
        .option("maxFilesPerTrigger", 2)
        .json(options.input)
    )
    totals = records.groupBy("key").agg(f.count("*").alias("count"), f.sum("value").alias("sum"))

    def keep(batch: DataFrame, number: int) -> None:
        rows = sorted(batch.collect())
        hidden = output / f".{number:06}.tmp"
        hidden.write_text("".join(json.dumps(row.asDict()) + "\n" for row in rows))
        os.replace(hidden, output / f"{number:06}.json")
        if number == options.die_in:
            os._exit(9)

    query = (
        totals.writeStream.outputMode("update")
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
