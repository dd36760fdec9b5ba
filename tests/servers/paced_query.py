"""A query that counts and takes a share of the time between its batches, however little there is
to do: it sleeps, so that a busy machine makes little difference.

    paced_query.py ROOT CHECKPOINT OUTPUT SHARE

Each batch writes `key count` of the keys that it changed to OUTPUT/<batch>.txt, whole: a batch that
is done again writes the same file.
"""

import os
import sys
import time
from typing import Any

ROOT, CHECKPOINT, OUTPUT, SHARE = sys.argv[1:]
sys.path.insert(0, ROOT)

from pyspark.sql import SparkSession  # noqa: E402

from stateshift import job  # noqa: E402

EVERY_SECONDS, PER_SECOND, KEYS = 20, 5, 3


def each(frame: Any, number: int) -> None:
    began = time.monotonic()
    lines = [f"{row['key']} {row['count']}\n" for row in frame.collect()]
    whole = os.path.join(OUTPUT, f"{number}.txt")
    with open(f"{whole}.new", "w", encoding="utf-8") as file:
        file.writelines(lines)
    os.replace(f"{whole}.new", whole)
    time.sleep(max(0.0, float(SHARE) * EVERY_SECONDS - (time.monotonic() - began)))


def main() -> None:
    os.makedirs(OUTPUT, exist_ok=True)
    # In the driver alone: a job is one process then.
    spark = SparkSession.builder.master("local[1]").getOrCreate()
    rows = spark.readStream.format("rate").option("rowsPerSecond", PER_SECOND).load()
    counts = rows.groupBy((rows.value % KEYS).alias("key")).count()
    writer = counts.writeStream.outputMode("update").foreachBatch(each)
    writer = writer.trigger(processingTime=f"{EVERY_SECONDS} seconds")
    job.run(writer.option("checkpointLocation", job.location()).start())


main()
