"""The job that is moved: one of two queries, each with as much state as its first batch is told to
fill in.

    map  the last number and a payload by key: a stateful map, which reads and writes its key's
         state for every record
    q8   NEXMark's query 8, persons who opened an auction in the window they came in: two streams
         joined by window

    job.py --query map|q8 --input FOLDER --output FOLDER --keys N

Everything that comes out is written down with the time at which it did, batch by batch, and so is
what happens on the way there: session, released, started.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stateshift import job

PIECES = 31  # of 64 bytes, which no codec makes smaller
WINDOW = "12 hours"  # so long that nothing of the state is too old while it is measured


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", choices=("map", "q8"), required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--keys", type=int, required=True)
    options = parser.parse_args()
    note(options.output, "begun")
    spark = SparkSession.builder.appName("downtime").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    note(options.output, "session")

    def results(folder: Path) -> DataFrame:
        return (
            mapped(spark, folder, options.keys) if options.query == "map" else joined(spark, folder)
        )

    mode, asked = "update" if options.query == "map" else "append", results(options.input)
    job.wait(first=lambda: practised(results, mode))
    note(options.output, "released")

    def keep(batch: DataFrame, number: int) -> None:
        """Every number that comes out for the first time, and when."""
        numbers = [row.seq for row in batch.where("seq >= 0").select("seq").collect()]
        told = {"at": time.time(), "batch": number, "numbers": numbers}
        written(options.output / f"{number:08}-{os.getpid()}.json", told)

    write = asked.writeStream.outputMode(mode).queryName(options.query)
    write = write.option("checkpointLocation", job.location()).foreachBatch(keep)
    query = write.start()
    note(options.output, "started")
    job.run(query)


def practised(results: Callable[[Path], DataFrame], mode: str) -> None:
    """The query once over a record, with a checkpoint that is thrown away: whoever waits has the
    time for it, and the first batch that counts then finds its code loaded.
    """
    with tempfile.TemporaryDirectory(
        prefix="stateshift-practice-", ignore_cleanup_errors=True
    ) as scratch:
        for name in ("records", "persons", "auctions"):
            (Path(scratch) / name).mkdir()
            line = {"first": 1, "last": 1, "fill": True, "seller": 1, "at": "2027-01-15T09:00:00Z"}
            written(Path(scratch) / name / "1.json", line)
        write = results(Path(scratch)).writeStream.outputMode(mode).trigger(availableNow=True)
        write = write.option("checkpointLocation", f"file://{scratch}/checkpoint")
        write.foreachBatch(lambda batch, number: batch.collect()).start().awaitTermination()


def mapped(spark: SparkSession, folder: Path, keys: int) -> DataFrame:
    """A row for every record, with what is known of its key."""
    rows = read(spark, folder / "records").withColumn("key", f.pmod("seq", f.lit(keys)))
    last, times, extra = (
        f.max("seq").alias("seq"),
        f.count("*").alias("times"),
        f.max("extra").alias("extra"),
    )
    return rows.groupBy("key").agg(last, times, extra)


def joined(spark: SparkSession, folder: Path) -> DataFrame:
    """A row for every auction whose seller has come in the same window."""
    persons = read(spark, folder / "persons").select(
        "seq", "seller", "extra", f.window("at", WINDOW).alias("window")
    )
    persons = persons.select(f.col("seller").alias("id"), "extra", f.col("window").alias("came"))
    auctions = read(spark, folder / "auctions").select(
        "seq", "seller", f.window("at", WINDOW).alias("window")
    )
    return auctions.join(persons, f.expr("seller = id AND window = came")).select(
        "seq", "id", "extra"
    )


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """A line is a record; or, where it says `fill`, as many as there are numbers from its first to
    its last, each with a payload. With a scheme: where there is an HDFS, a path alone would be one
    of it.
    """
    lines = spark.readStream.schema(
        "first LONG, last LONG, fill BOOLEAN, seller LONG, at TIMESTAMP"
    )
    rows = lines.json(f"file://{folder.absolute()}").withWatermark("at", "10 seconds")
    rows = rows.select(f.explode(f.sequence("first", "last")).alias("seq"), "fill", "seller", "at")
    pieces = [
        f.unhex(f.sha2(f.concat_ws("-", "seq", f.lit(number)), 512)) for number in range(PIECES)
    ]
    seller = f.coalesce("seller", "seq")
    return rows.select(
        "seq", seller.alias("seller"), "at", f.when(f.col("fill"), f.concat(*pieces)).alias("extra")
    )


def note(output: Path, what: str) -> None:
    output.mkdir(parents=True, exist_ok=True)
    written(
        output / f"{what}-{os.getpid()}.note", {"at": time.time(), "what": what, "pid": os.getpid()}
    )


def written(file: Path, told: object) -> None:
    hidden = file.with_name(f".{file.name}")
    hidden.write_text(json.dumps(told))
    hidden.replace(file)


if __name__ == "__main__":
    main()
