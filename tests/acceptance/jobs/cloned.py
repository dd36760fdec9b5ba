"""A job that counts the rows of a Delta table by word, beside copies of that table. One step after
another:

    append:TABLE:N          six more rows, in one file; the table is made if it is not there
    ctas:TABLE:OTHER        another table with the rows of this one
    run:CHECKPOINT:TABLE    the job reads all there is, and ends; prints what its state then holds, or
                            what Delta said

Every step prints one line. Tables and checkpoints are folders below --folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROWS = 6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--jars", required=True)
    parser.add_argument("steps", nargs="+")
    options = parser.parse_args()
    spark = session(options.jars)
    for step in options.steps:
        name, first, second = step.split(":")
        print(json.dumps(STEPS[name](spark, options.folder, first, second)), flush=True)
    spark.stop()


def session(jars: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def append(spark: Any, folder: Path, table: str, number: str) -> str:
    first = int(number) * ROWS
    frame = spark.range(first, first + ROWS).selectExpr("id", "concat('w', id % 3) AS word")
    frame.coalesce(1).write.format("delta").mode("append").save(f"{folder}/{table}")
    return "appended"


def ctas(spark: Any, folder: Path, table: str, other: str) -> str:
    rows = f"SELECT * FROM delta.`{folder}/{table}`"
    spark.sql(f"CREATE TABLE delta.`{folder}/{other}` USING delta AS {rows}")
    return "written"


def run(spark: Any, folder: Path, checkpoint: str, table: str) -> Any:
    from pyspark.sql import functions as f

    stream = spark.readStream.format("delta").load(f"{folder}/{table}")
    counted, added = f.count("*").alias("count"), f.sum("id").alias("sum")
    sums = stream.groupBy("word").agg(counted, added)
    held: dict[str, list[int]] = {}

    def keep(batch: Any, number: int) -> None:
        held.clear()
        held.update({row["word"]: [row["count"], row["sum"]] for row in batch.collect()})

    writer = sums.writeStream.outputMode("complete").foreachBatch(keep)
    writer = writer.option("checkpointLocation", f"{folder}/{checkpoint}")
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:  # whatever Delta says is what the scenario asks for
        return f"failed: {error}"
    return held


STEPS = {"append": append, "ctas": ctas, "run": run}

if __name__ == "__main__":
    main()
