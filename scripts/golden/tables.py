#!/usr/bin/env python
"""Make the golden tables: what real Delta, Iceberg and file sinks keep of a streaming job's
batches, and the job's checkpoints beside them.

    STATESHIFT_SPARKS/4.0.5/bin/python scripts/golden/tables.py  Delta 4.0.1 and Iceberg 1.10.0,
    fetched by Maven

    tests/golden/tables/delta/checkpoint/             a job over a table with column mapping
                        delta/later/tracking/         its schema log after a column of the table was
                                                      renamed
                        delta/sink/_delta_log/        where it writes to; with a checkpoint in
                                                      Parquet
                        delta/parts/, delta/v2/       by foreachBatch with txnAppId: checkpoints in
                                                      parts, and V2
                        iceberg/source/, iceberg/sink/, iceberg/checkpoint/      metadata in JSON only
                        file/out/_spark_metadata/, file/checkpoint/
                        expected.json                 ids, batches and versions, as the engines
                                                      themselves tell them

Hadoop's .crc files, data files and Avro are left out: nobody reads them here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TZ"] = "UTC"
time.tzset()

import broker  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

WORK = Path("/tmp/stateshift-golden/tables")
JARS = Path("/tmp/stateshift-golden/table-jars")
GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tables"
ALONE = [
    "io.delta:delta-spark_2.13:4.0.1",
    "io.delta:delta-storage:4.0.1",
    "org.antlr:antlr4-runtime:4.13.1",
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
]
DELTA = "org.apache.spark.sql.delta"
MAPPING = (
    "'delta.columnMapping.mode'='name','delta.minReaderVersion'='2','delta.minWriterVersion'='5'"
)


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    spark = session()
    expected = {"delta": delta(spark), "iceberg": iceberg(spark), "file": files(spark)}
    spark.stop()
    (WORK / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    keep()


def session() -> SparkSession:
    jars = broker._fetched(JARS, ALONE, alone=True)
    extensions = "io.delta.sql.DeltaSparkSessionExtension,"
    extensions += "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", ",".join(jars)).config(
        "spark.sql.extensions", extensions
    )
    builder = builder.config("spark.sql.catalog.spark_catalog", f"{DELTA}.catalog.DeltaCatalog")
    builder = builder.config("spark.sql.catalog.ice", "org.apache.iceberg.spark.SparkCatalog")
    builder = builder.config("spark.sql.catalog.ice.type", "hadoop")
    builder = builder.config("spark.sql.catalog.ice.warehouse", str(WORK / "iceberg"))
    builder = builder.config("spark.sql.shuffle.partitions", "2").config(
        "spark.driver.host", "localhost"
    )
    builder = builder.config("spark.sql.warehouse.dir", str(WORK / "warehouse"))
    spark = builder.config("spark.databricks.delta.snapshotPartitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def words(spark: SparkSession, count: int, first: int) -> DataFrame:
    return spark.range(first, first + count).selectExpr("id", "concat('w', id % 3) AS word")


def delta(spark: SparkSession) -> dict[str, Any]:
    """A job over a Delta table, five batches long, and a function of foreachBatch that writes to
    two tables.
    """
    source, sink, parts, v2 = (
        str(WORK / "delta" / name) for name in ("source", "sink", "parts", "v2")
    )
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id BIGINT, word STRING) USING delta TBLPROPERTIES "
        f"({MAPPING})"
    )
    for table, policy in ((sink, "classic"), (parts, "classic"), (v2, "v2")):
        spark.sql(
            f"CREATE TABLE delta.`{table}` (word STRING, n BIGINT) USING delta TBLPROPERTIES "
            f"('delta.checkpointPolicy'='{policy}', 'delta.checkpointInterval'='3')"
        )
    checkpoint = WORK / "delta" / "checkpoint"
    query = ""
    for number in range(5):
        append(spark, source, number)
        query = counted(spark, source, sink, checkpoint)
    last = {"query": query, "last": 4, "versions": versions(spark, sink, query)}
    both = both_tables(parts, v2)
    spark.conf.set("spark.databricks.delta.checkpoint.partSize", "4")
    foreach(spark, source, both)
    spark.conf.unset("spark.databricks.delta.checkpoint.partSize")
    last["function"] = {
        name: versions(spark, str(WORK / "delta" / name), "orders") for name in ("parts", "v2")
    }
    shutil.copytree(checkpoint, WORK / "kept")
    spark.sql(f"ALTER TABLE delta.`{source}` RENAME COLUMN word TO term")
    append(spark, source, 5)
    last["starts"] = evolved(spark, source, str(WORK / "sink"), checkpoint)
    checkpoint.rename(WORK / "delta" / "later")
    (WORK / "kept").rename(checkpoint)
    last["source"] = spark.sql(f"DESCRIBE DETAIL delta.`{source}`").first()["id"]
    return last


def append(spark: SparkSession, table: str, number: int) -> None:
    frame = words(spark, 6, number * 6)
    frame = frame.toDF(*spark.read.format("delta").load(table).columns)
    frame.coalesce(1).write.format("delta").mode("append").save(table)


def counted(spark: SparkSession, source: str, sink: str, checkpoint: Path) -> str:
    """One run of the job: whatever is new, in one batch. Returns the query's id. Its columns have
    the names that the schema log has last.
    """
    stream = (
        spark.readStream.format("delta")
        .option("schemaTrackingLocation", f"{checkpoint}/tracking")
        .load(source)
    )
    counts = stream.groupBy(stream.columns[1]).count().toDF("word", "n")
    writer = counts.writeStream.outputMode("complete").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).format("delta").start(sink)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return str(query.id)


def evolved(spark: SparkSession, source: str, sink: str, checkpoint: Path) -> list[str]:
    """Start the job until it runs again; what each start said."""
    said = []
    for _ in range(4):
        try:
            counted(spark, source, sink, checkpoint)
            return [*said, "ran"]
        except Exception as error:  # whatever Delta says is what is wanted here
            codes = re.findall(r"\[(DELTA_[A-Z_]+)", str(error))
            said.append(codes[0] if codes else str(error)[:200])
    return said


def versions(spark: SparkSession, table: str, app_id: str) -> dict[str, int]:
    """Batch -> version of the table, read off the log by Spark."""
    log = spark.read.json(f"{table}/_delta_log/*.json").selectExpr(
        "txn", "_metadata.file_name AS file"
    )
    rows = log.where(f"txn.appId = '{app_id}'").selectExpr("txn.version AS batch", "file").collect()
    return {
        str(row.batch): int(row.file.partition(".")[0])
        for row in sorted(rows, key=lambda row: row.batch)
    }


def both_tables(parts: str, v2: str) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, batch: int) -> None:
        options = {"txnAppId": "orders", "txnVersion": batch}
        for table in (parts, v2):
            frame.write.format("delta").mode("append").options(**options).save(table)

    return write


def foreach(spark: SparkSession, source: str, write: Callable[[DataFrame, int], None]) -> None:
    checkpoint = WORK / "delta" / "function"
    stream = spark.readStream.format("delta").option(
        "schemaTrackingLocation", f"{checkpoint}/tracking"
    )
    counts = (
        stream.option("maxFilesPerTrigger", 1)
        .load(source)
        .groupBy("word")
        .count()
        .toDF("word", "n")
    )
    writer = counts.writeStream.outputMode("complete").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).foreachBatch(write).start().awaitTermination()


def iceberg(spark: SparkSession) -> dict[str, Any]:
    """A job from one Iceberg table into another: three batches."""
    spark.sql("CREATE TABLE ice.db.source (id BIGINT, word STRING) USING iceberg")
    spark.sql("CREATE TABLE ice.db.sink (word STRING, n BIGINT) USING iceberg")
    query = ""
    for number in range(3):
        words(spark, 6, number * 6).coalesce(1).writeTo("ice.db.source").append()
        stream = (
            spark.readStream.format("iceberg")
            .load("ice.db.source")
            .groupBy("word")
            .count()
            .toDF("word", "n")
        )
        writer = stream.writeStream.outputMode("complete")
        writer = writer.option("checkpointLocation", str(WORK / "iceberg" / "checkpoint"))
        running = writer.trigger(availableNow=True).toTable("ice.db.sink")
        running.awaitTermination()
        query = str(running.id)
    told = spark.sql("SELECT snapshot_id, summary FROM ice.db.sink.snapshots").collect()
    found = {
        row.summary["spark.sql.streaming.epochId"]: row.snapshot_id
        for row in told
        if row.summary.get("spark.sql.streaming.queryId") == query
    }
    source = spark.sql(
        "SELECT snapshot_id FROM ice.db.source.snapshots ORDER BY committed_at DESC"
    ).first()
    return {"query": query, "versions": found, "source": source.snapshot_id}


def files(spark: SparkSession) -> dict[str, Any]:
    """A file sink's log, compacted after three batches."""
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    source = WORK / "file" / "in"
    source.mkdir(parents=True)
    query = ""
    for number in range(4):
        (source / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")
        stream = spark.readStream.schema("id BIGINT").json(str(source))
        writer = stream.writeStream.format("json").option("path", str(WORK / "file" / "out"))
        running = (
            writer.option("checkpointLocation", str(WORK / "file" / "checkpoint"))
            .trigger(once=True)
            .start()
        )
        running.awaitTermination()
        query = str(running.id)
    return {"query": query, "last": 3}


def keep() -> None:
    """Only what is read: logs, and the checkpoints."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    wanted = [
        *("delta/checkpoint/**/*", "delta/later/tracking/**/*"),
        *("delta/sink/_delta_log/*", "delta/parts/_delta_log/*", "delta/v2/_delta_log/*"),
        *(
            "iceberg/db/*/metadata/*.json",
            "iceberg/db/*/metadata/*.text",
            "iceberg/checkpoint/**/*",
        ),
        *("file/out/_spark_metadata/*", "file/checkpoint/**/*", "expected.json"),
    ]
    for pattern in wanted:
        for path in sorted(WORK.glob(pattern)):
            if path.is_file() and not path.name.endswith(".crc"):
                target = GOLDEN / path.relative_to(WORK)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


if __name__ == "__main__":
    main()
