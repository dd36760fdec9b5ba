"""A job over windows of 10 seconds, whose sink recognises a batch by its number and then skips the
batch's plan.

    numbered.py --input FOLDER --output FOLDER --checkpoint FOLDER --sink SINK --provider PROVIDER
    [--wait-in BATCH]

    sink      file                Spark's own (JSON)
              foreach-batch       one file a batch; a batch whose file is there is skipped
              delta               Delta's own
              delta-batches       foreachBatch with txnAppId and txnVersion, so that Delta skips the
                                  batch
              iceberg             Iceberg's own, into the table db.rows of a catalog at OUTPUT; what
                                  is in the table
                                  in the end is written to a file `rows.json` beside OUTPUT
    provider  hdfs, rocksdb (a snapshot each version), changelog (RocksDB with changelogs)

It reads one input file a batch, all there are, and ends. With --restore, the sink's table goes back
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

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

STATE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
ICEBERG = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
}
TABLE = "ice.db.rows"


def main() -> None:
    options = arguments()
    spark = session(options)
    if options.restore:
        restore(spark, options)
    records = (
        spark.readStream.schema("key STRING, value LONG, at TIMESTAMP")
        .option("maxFilesPerTrigger", 1)
        .json(options.input)
    )
    sums = records.withWatermark("at", "5 seconds").groupBy(f.window("at", "10 seconds"), "key")
    rows = sums.agg(f.count("*").alias("count"), f.sum("value").alias("sum")).select(
        f.col("window.start").cast("long").alias("start"), "key", "count", "sum"
    )
    stream = rows.writeStream.outputMode("append").option("checkpointLocation", options.checkpoint)
    stream = stream.trigger(availableNow=True)
    match options.sink:
        case "file":
            query = stream.format("json").start(options.output)
        case "delta":
            query = stream.format("delta").start(options.output)
        case "iceberg":
            columns = "start LONG, key STRING, count LONG, sum LONG"
            spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} ({columns}) USING iceberg")
            query = stream.format("iceberg").toTable(TABLE)
        case _:
            query = stream.foreachBatch(writer(options)).start()
    query.awaitTermination()
    if options.sink == "iceberg":
        rows_of_table = [row.asDict() for row in spark.table(TABLE).collect()]
        lines = "".join(json.dumps(row) + "\n" for row in rows_of_table)
        Path(options.output).with_name("rows.json").write_text(lines)
    spark.stop()


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
        iceberg = {**ICEBERG, "spark.sql.catalog.ice.warehouse": options.output}
        for key, value in (iceberg if options.sink == "iceberg" else DELTA).items():
            made = made.config(key, value)
    spark = made.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


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
