"""A job over a Delta table with column mapping, whose schema Delta tracks below the checkpoint. One
step after another:

    create          the table
    append:N        six more rows
    rename          its second column gets another name
    run:CHECKPOINT  the job reads all there is, and ends; prints `run` and what Delta said if it did
                    not
    rows            prints what the sink holds, as JSON

Every step prints one line.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROWS = 6
MAPPING = (
    "'delta.columnMapping.mode'='name','delta.minReaderVersion'='2','delta.minWriterVersion'='5'"
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--jars", required=True)
    parser.add_argument("steps", nargs="+")
    options = parser.parse_args()
    spark = session(options.jars)
    for step in options.steps:
        name, _, argument = step.partition(":")
        print(json.dumps(STEPS[name](spark, options.folder, argument)), flush=True)
    spark.stop()


def session(jars: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    builder = builder.config("spark.sql.shuffle.partitions", "2").config(
        "spark.ui.enabled", "false"
    )
    builder = builder.config("spark.databricks.delta.snapshotPartitions", "1")
    # What Delta asks of whoever lets a stream go on behind a renamed column.
    builder = builder.config("spark.databricks.delta.streaming.allowSourceColumnRename", "always")
    spark = builder.config("spark.driver.host", "localhost").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def create(spark: Any, folder: Path, argument: str) -> str:
    columns = "(id BIGINT, word STRING)"
    spark.sql(
        f"CREATE TABLE delta.`{folder}/source` {columns} USING delta TBLPROPERTIES ({MAPPING})"
    )
    return "created"


def append(spark: Any, folder: Path, argument: str) -> str:
    first, table = int(argument) * ROWS, f"{folder}/source"
    frame = spark.range(first, first + ROWS).selectExpr("id", "concat('w', id % 3) AS word")
    frame = frame.toDF(*spark.read.format("delta").load(table).columns)
    frame.coalesce(1).write.format("delta").mode("append").save(table)
    return "appended"


def rename(spark: Any, folder: Path, argument: str) -> str:
    spark.sql(f"ALTER TABLE delta.`{folder}/source` RENAME COLUMN word TO term")
    return "renamed"


def run(spark: Any, folder: Path, checkpoint: str) -> str:
    stream = spark.readStream.format("delta").option(
        "schemaTrackingLocation", f"{checkpoint}/tracking"
    )
    stream = stream.load(f"{folder}/source")
    counts = stream.groupBy(stream.columns[1]).count().toDF("word", "n")
    writer = counts.writeStream.outputMode("complete").option("checkpointLocation", checkpoint)
    try:
        writer.trigger(availableNow=True).format("delta").start(f"{folder}/sink").awaitTermination()
    except Exception as error:  # whatever Delta says is what the scenario asks for
        return f"failed: {error}"
    return "ran"


def rows(spark: Any, folder: Path, argument: str) -> list[list[Any]]:
    return sorted(
        [row.word, row.n] for row in spark.read.format("delta").load(f"{folder}/sink").collect()
    )


STEPS = {"create": create, "append": append, "rename": rename, "run": run, "rows": rows}

if __name__ == "__main__":
    main()
