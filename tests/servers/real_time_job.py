"""A job that counts and adds up a topic's records by key, run in a Spark's Python, in micro-batches
or in real-time mode: real_time_job.py BROKERS FILE

FILE is JSON, a list of queries one after the other: {"mode": "micro-batch" or "real-time",
"checkpoint": …, "topic": …, "sink": a topic, "kind": "sums", "distinct" or "plain"}. A micro-batch
one reads all there is. One in real-time mode goes on until so many records ("until") are committed;
without a checkpoint it is one of a cluster's, which goes on until it is asked to stop. What Spark
says of one that fails is printed, a line each.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from stateshift import job
from tests.servers.real_time_batches import committed, newest

SECONDS_MAX = 120


def main() -> None:
    brokers, file = sys.argv[1:]
    # In real-time mode all tasks of both stages run at once, each on a core.
    builder = SparkSession.builder.master("local[8]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for query in json.loads(Path(file).read_text()):
        run(spark, brokers, **query)
    spark.stop()


def run(
    spark: Any,
    brokers: str,
    mode: str,
    topic: str,
    sink: str,
    checkpoint: str | None = None,
    kind: str = "sums",
    until: int = 0,
) -> None:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    values = reader.load().selectExpr("CAST(key AS STRING) key", "CAST(value AS STRING) value")
    if kind == "sums":
        sums = values.groupBy("key").agg(f.count("*").alias("n"), f.expr("sum(int(value)) total"))
        values = sums.selectExpr("key", "n || ',' || total value")
    elif kind == "distinct":
        values = values.dropDuplicates(["value"])
    writer = values.writeStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    writer = writer.option("topic", sink).option("checkpointLocation", checkpoint or job.location())
    trigger: dict[str, Any] = {"availableNow": True}
    if mode == "real-time":
        trigger = {"realTime": "5 seconds"}
    query = writer.outputMode("update").trigger(**trigger).start()
    if checkpoint is None:
        return job.watch(query)
    try:
        end, first = time.monotonic() + SECONDS_MAX, newest(Path(checkpoint))
        while mode == "real-time" and query.isActive and time.monotonic() < end:
            # The second batch is the first one that shows its length.
            is_second = newest(Path(checkpoint)) >= first + 2
            if is_second and committed(Path(checkpoint)) >= until:
                query.stop()
            time.sleep(0.1)
        query.awaitTermination(SECONDS_MAX)
    except Exception as error:
        print(f"{Path(checkpoint).name}: {str(error).splitlines()[0]}", flush=True)


main()
