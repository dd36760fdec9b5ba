"""A job over windows of 10 seconds, whose sink recognises a batch by its number and then skips the
batch's plan.

    numbered.py --input FOLDER --output FOLDER --checkpoint FOLDER --sink SINK --provider PROVIDER
    [--source SOURCE] [--brokers BROKERS] [--topic TOPIC] [--wait-in BATCH] [--for-ever]

    sink      file                Spark's own (JSON)
              foreach-batch       one file a batch; a batch whose file is there is skipped
              delta               Delta's own
              delta-batches       foreachBatch with txnAppId and txnVersion, so that Delta skips the
                                  batch
              iceberg             Iceberg's own, into the table db.rows of a catalog at OUTPUT; what
                                  is in the table
                                  in the end is written to a file `rows.json` beside OUTPUT
              kafka               Kafka's own, into the topic TOPIC-rows
    source    files               INPUT itself
              delta, iceberg,     a table `source` beside INPUT, or a topic TOPIC, into which the job
              kafka               first puts the files of INPUT that are not there yet, one by one
    provider  hdfs, rocksdb (a snapshot each version), changelog (RocksDB with changelogs)

It reads one input file a batch, all there are, and ends, unless it runs for ever. With --restore, the sink's table goes back
to that version (Delta) or snapshot (Iceberg) first. With --wait-in, foreachBatch waits for ever
once its sink has that batch, and says so in a file `waits` beside the output: whoever started the
job kills it then.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

STATE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
EXTENSIONS = "spark.sql.extensions"
DELTA = {
    EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
ICEBERG = "org.apache.iceberg.spark"
TABLE, LAKE = "ice.db.rows", "lake.db.source"
COLUMNS = "key STRING, value LONG, at TIMESTAMP"
PER_FILE = 5  # records


def main() -> None:
    options = arguments()
    spark = session(options)
    if options.restore:
        restore(spark, options)
    load(spark, options)
    records = source(spark, options)
    sums = records.withWatermark("at", "5 seconds").groupBy(f.window("at", "10 seconds"), "key")
    rows = sums.agg(f.count("*").alias("count"), f.sum("value").alias("sum")).select(
        f.col("window.start").cast("long").alias("start"), "key", "count", "sum"
    )
    stream = rows.writeStream.outputMode("append").option("checkpointLocation", options.checkpoint)
    stream = stream.trigger(**often(options))
    match options.sink:
        case "file":
            query = stream.format("json").start(options.output)
        case "delta":
            query = stream.format("delta").start(options.output)
        case "iceberg":
            columns = "start LONG, key STRING, count LONG, sum LONG"
            spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} ({columns}) USING iceberg")
            query = stream.format("iceberg").toTable(TABLE)
        case "kafka":
            values = rows.selectExpr("to_json(struct(*)) AS value").writeStream.outputMode("append")
            values = values.option("checkpointLocation", options.checkpoint).trigger(
                **often(options)
            )
            query = to_topic(values, options, f"{options.topic}-rows").start()
        case _:
            query = stream.foreachBatch(writer(options)).start()
    if options.source == "iceberg" and not options.for_ever:
        query.processAllAvailable()
        query.stop()
    query.awaitTermination()
    if options.sink == "iceberg":
        rows_of_table = [row.asDict() for row in spark.table(TABLE).collect()]
        lines = "".join(json.dumps(row) + "\n" for row in rows_of_table)
        Path(options.output).with_name("rows.json").write_text(lines)
    spark.stop()


def often(options: argparse.Namespace) -> dict[str, Any]:
    """How often it reads. Iceberg takes "all there is" for one batch."""
    is_on = options.for_ever or options.source == "iceberg"
    return {"processingTime": "0 seconds"} if is_on else {"availableNow": True}


def to_topic(writer: Any, options: argparse.Namespace, topic: str) -> Any:
    brokers = ("kafka.bootstrap.servers", options.brokers)
    return writer.format("kafka").option(*brokers).option("topic", topic)


def load(spark: SparkSession, options: argparse.Namespace) -> None:
    """Put the files of the input that are not there yet into the table or topic, in order."""
    if options.source == "files":
        return
    beside = Path(options.input)
    told = Path(options.loaded)
    loaded = int(told.read_text()) if told.exists() else 0
    for number, path in enumerate(sorted(beside.glob("*.json"))[loaded:], loaded + 1):
        rows = spark.read.schema(COLUMNS).json(str(path)).coalesce(1)
        match options.source:
            case "delta":
                rows.write.format("delta").mode("append").save(f"{beside.parent}/source")
            case "iceberg":
                spark.sql(f"CREATE TABLE IF NOT EXISTS {LAKE} ({COLUMNS}) USING iceberg")
                rows.writeTo(LAKE).append()
            case "kafka":
                values = rows.selectExpr("to_json(struct(*)) AS value").write
                to_topic(values, options, options.topic).save()
        told.write_text(str(number))


def source(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    reader = spark.readStream.format(options.source).option("maxFilesPerTrigger", 1)
    match options.source:
        case "files":
            return reader.format("json").schema(COLUMNS).load(options.input)
        case "delta":
            return reader.load(str(Path(options.input).with_name("source")))
        case "iceberg":
            return reader.option("streaming-max-files-per-micro-batch", 1).load(LAKE)
    reader = reader.option("kafka.bootstrap.servers", options.brokers)
    reader = reader.option("subscribe", options.topic).option("startingOffsets", "earliest")
    values = (
        reader.option("maxOffsetsPerTrigger", PER_FILE)
        .load()
        .selectExpr("CAST(value AS STRING) AS v")
    )
    return values.select(f.from_json("v", COLUMNS).alias("row")).select("row.*")


def restore(spark: SparkSession, options: argparse.Namespace) -> None:
    """What the plan of a rewind says is to be done to the table."""
    if options.sink == "iceberg":
        spark.sql(f"CALL ice.system.rollback_to_snapshot('db.rows', {options.restore})")
    else:
        spark.sql(f"RESTORE TABLE delta.`{options.output}` TO VERSION AS OF {options.restore}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--input", "--output", "--checkpoint", "--sink", "--provider"):
        parser.add_argument(name, required=True)
    parser.add_argument("--jars", default="")
    parser.add_argument("--source", default="files")
    for name in ("--brokers", "--topic", "--loaded"):
        parser.add_argument(name, default="")
    parser.add_argument("--for-ever", action="store_true")
    parser.add_argument("--checkpoint-format", default="1")
    parser.add_argument("--wait-in", type=int, default=-1)
    parser.add_argument("--restore", default="")
    return parser.parse_args()


def session(options: argparse.Namespace) -> SparkSession:
    made = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if options.provider != "hdfs":
        made = made.config(f"{STATE}.providerClass", ROCKSDB)
        changelog = str(options.provider == "changelog").lower()
        made = made.config(f"{STATE}.rocksdb.changelogCheckpointing.enabled", changelog)
    if options.checkpoint_format != "1":
        made = made.config(f"{STATE}.checkpointFormatVersion", options.checkpoint_format)
    if options.jars:
        made = made.config("spark.jars", options.jars)
        for key, value in tables(options).items():
            made = made.config(key, value)
    spark = made.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def tables(options: argparse.Namespace) -> dict[str, str]:
    """The settings that Delta and Iceberg ask for, whichever of them the job has."""
    settings = dict(DELTA) if "delta" in options.jars else {}
    if "iceberg" in (options.source, options.sink):
        extensions = f"{ICEBERG}.extensions.IcebergSparkSessionExtensions"
        own = settings.get(EXTENSIONS)
        settings[EXTENSIONS] = ",".join(filter(None, [own, extensions]))
        for name, place in (
            ("ice", options.output),
            ("lake", Path(options.input).with_name("lake")),
        ):
            catalog = f"spark.sql.catalog.{name}"
            settings[catalog] = f"{ICEBERG}.SparkCatalog"
            settings |= {f"{catalog}.type": "hadoop", f"{catalog}.warehouse": str(place)}
    return settings


def writer(options: argparse.Namespace) -> Callable[[DataFrame, int], None]:
    output = Path(options.output)

    def write(batch: DataFrame, number: int) -> None:
        if options.sink == "delta-batches":
            to_delta(batch, number)
        else:
            to_file(batch, number)
        if number == options.wait_in:
            output.with_name("waits").touch()
            time.sleep(3600)

    def to_file(batch: DataFrame, number: int) -> None:
        output.mkdir(parents=True, exist_ok=True)
        final = output / f"{number:06}.json"
        if final.exists():
            return
        rows = sorted(batch.collect())
        hidden = output / f".{number:06}.tmp"
        hidden.write_text("".join(json.dumps(row.asDict()) + "\n" for row in rows))
        os.replace(hidden, final)

    def to_delta(batch: DataFrame, number: int) -> None:
        query = json.loads((Path(options.checkpoint) / "metadata").read_text())["id"]
        writing = batch.write.format("delta").mode("append")
        writing.option("txnAppId", query).option("txnVersion", number).save(options.output)

    return write


if __name__ == "__main__":
    main()
