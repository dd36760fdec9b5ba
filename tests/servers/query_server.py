"""A driver that starts and stops queries as files in a folder say: a cluster whose JVM is up already.

    query_server.py REQUESTS JOBS SETTINGS-AS-JSON

    REQUESTS/NAME.start   a query to start, as JSON: tag, location, brokers, topic, output
    REQUESTS/NAME.stop    the location of a query to stop
    JOBS/NAME.state       `queued|running|finished|failed PID`, by the digest of its location, and by
                          its tag

A query keeps the count and the sum of a topic's numbers by key. Batch N writes all totals to
OUTPUT/N.json, whole: {"key": [count, sum]}.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

PER_BATCH = 20
POLL_SECONDS = 0.1
REQUESTS, JOBS = map(Path, sys.argv[1:3])


def digest(location: str) -> str:
    return hashlib.md5(location.encode()).hexdigest()


def written(path: Path, text: str) -> None:
    """Write a file whole."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    hidden.write_text(text)
    os.replace(hidden, path)


def start(spark: SparkSession, request: dict[str, str]) -> Any:
    reader = spark.readStream.format("kafka").option("subscribe", request["topic"])
    reader = reader.option("kafka.bootstrap.servers", request["brokers"])
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", PER_BATCH)
    number = f.col("value").cast("string").cast("long").alias("number")
    numbers = reader.load().select(f.col("key").cast("string"), number)
    totals = numbers.groupBy("key").agg(f.count("*").alias("count"), f.sum("number").alias("sum"))
    output = Path(request["output"])
    output.mkdir(parents=True, exist_ok=True)

    def keep(batch: DataFrame, number: int) -> None:
        rows = {row["key"]: [row["count"], row["sum"]] for row in batch.collect()}
        written(output / f"{number}.json", json.dumps(rows))

    writer = totals.writeStream.outputMode("complete").trigger(processingTime="1 second")
    return writer.option("checkpointLocation", request["location"]).foreachBatch(keep).start()


def tell(request: dict[str, str], state: str) -> None:
    for name in (digest(request["location"]), request["tag"]):
        written(JOBS / f"{name}.state", f"{state} {os.getpid()}\n")


def serve(spark: SparkSession) -> None:
    running: dict[str, tuple[dict[str, str], Any]] = {}
    parent = os.getppid()
    while os.getppid() == parent:  # else whoever has started it was killed
        for path in sorted(REQUESTS.glob("*.start")):
            request = json.loads(path.read_text())
            path.unlink()
            try:
                running[request["location"]] = (request, start(spark, request))
                tell(request, "running")
            except Exception as error:
                print("did not start:", request, error, flush=True)
                tell(request, "failed")
        for path in sorted(REQUESTS.glob("*.stop")):
            location = path.read_text()
            path.unlink()
            if location in running:
                running[location][1].stop()
        for location, (request, query) in list(running.items()):
            if not query.isActive:
                del running[location]
                error = query.exception()
                print("ended:", request, error, flush=True)
                tell(request, "finished" if error is None else "failed")
        time.sleep(POLL_SECONDS)


def main() -> None:
    builder = SparkSession.builder.config(map=json.loads(sys.argv[3]))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    written(REQUESTS / "ready", str(os.getpid()))
    serve(spark)
    os.killpg(0, signal.SIGKILL)


main()
