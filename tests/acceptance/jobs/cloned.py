"""A job that counts the rows of a table of Delta or Iceberg by word, beside copies of that table. One
step after another:

    append:TABLE:N          six more rows, in one file; the table is made if it is not there
    ctas:TABLE:OTHER        another table with the rows of this one
    copy:TABLE:OTHER        Iceberg: the files of this one, with the paths in them rewritten
    run:CHECKPOINT:TABLE    the job reads all there is, and ends; prints what its state then holds, or
                            what Spark said

Every step prints one line. Tables and checkpoints are folders below --folder; those of Iceberg lie
in two warehouses there, here/db/TABLE and there/db/TABLE (here.db.TABLE, there.db.TABLE).
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
from pathlib import Path
from typing import Any

ROWS = 6
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "localhost",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
ICEBERG = "org.apache.iceberg.spark"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--jars", required=True)
    parser.add_argument("--format", default="delta")
    parser.add_argument("steps", nargs="+")
    options = parser.parse_args()
    job = Job(options)
    for step in options.steps:
        name, first, second = step.split(":")
        print(json.dumps(getattr(job, name)(first, second)), flush=True)
    job.spark.stop()


class Job:
    def __init__(self, options: Any) -> None:
        from pyspark.sql import SparkSession

        self.folder, self.format = options.folder, options.format
        builder = SparkSession.builder.master("local[2]").config("spark.jars", options.jars)
        settings = {**SETTINGS, **(DELTA if self.format == "delta" else self.catalogs())}
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")

    def catalogs(self) -> dict[str, str]:
        settings = {"spark.sql.extensions": f"{ICEBERG}.extensions.IcebergSparkSessionExtensions"}
        for name in ("here", "there"):
            catalog = f"spark.sql.catalog.{name}"
            settings[catalog] = f"{ICEBERG}.SparkCatalog"
            settings[f"{catalog}.type"] = "hadoop"
            settings[f"{catalog}.warehouse"] = f"{self.folder}/{name}"
        return settings

    def named(self, table: str) -> str:
        return f"delta.`{self.folder}/{table}`" if self.format == "delta" else table

    def append(self, table: str, number: str) -> str:
        first = int(number) * ROWS
        frame = self.spark.range(first, first + ROWS).selectExpr(
            "id", "concat('w', id % 3) AS word"
        )
        frame = frame.coalesce(1)
        if self.format == "delta":
            frame.write.format("delta").mode("append").save(f"{self.folder}/{table}")
            return "appended"
        columns = "id BIGINT, word STRING"
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg")
        frame.writeTo(table).append()
        return "appended"

    def ctas(self, table: str, other: str) -> str:
        rows = f"SELECT * FROM {self.named(table)}"
        self.spark.sql(f"CREATE TABLE {self.named(other)} USING {self.format} AS {rows}")
        return "written"

    def copy(self, table: str, other: str) -> str:
        old, new = (f"{self.folder}/{name.replace('.', '/')}" for name in (table, other))
        catalog = table.partition(".")[0]
        call = f"table => '{table}', source_prefix => '{old}', target_prefix => '{new}'"
        (made,) = self.spark.sql(f"CALL {catalog}.system.rewrite_table_path({call})").collect()
        pairs = Path(made.file_list_location.removeprefix("file:"))
        for part in pairs.glob("part-*") if pairs.is_dir() else [pairs]:
            for source, target in csv.reader(part.read_text().splitlines()):
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        hint = Path(old) / "metadata" / "version-hint.text"
        shutil.copy(hint, Path(new) / "metadata")
        return "copied"

    def run(self, checkpoint: str, table: str) -> Any:
        from pyspark.sql import functions as f

        place = f"{self.folder}/{table}" if self.format == "delta" else table
        stream = self.spark.readStream.format(self.format).load(place)
        counted, added = f.count("*").alias("count"), f.sum("id").alias("sum")
        sums = stream.groupBy("word").agg(counted, added)
        held: dict[str, list[int]] = {}

        def keep(batch: Any, number: int) -> None:
            held.clear()
            held.update({row["word"]: [row["count"], row["sum"]] for row in batch.collect()})

        writer = sums.writeStream.outputMode("complete").foreachBatch(keep)
        writer = writer.option("checkpointLocation", f"{self.folder}/{checkpoint}")
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
        except Exception as error:  # whatever Spark said is what the scenario asks for
            return f"failed: {error}"
        return held


if __name__ == "__main__":
    main()
