"""Checkpoints of a given number of entries, written by a real Spark: one count, sum and max by a
string and a long.

    python making.py PLACE PROVIDER ENTRIES [--shards 8] [--batches 10] [--tail 5]

    PLACE/checkpoint  every key once in `batches` batches, then `tail` batches that change one key
                      in 100
    PLACE/input       the Parquet files that the query read, in the order of their times
    PLACE/made.json   written last: without it, input and query go on where they were

Spark is made to write a snapshot of every shard after the last of `batches`. The newest version of
a shard is therefore one snapshot and `tail` deltas or changelogs: what a job leaves behind that is
stopped at any time. No batch, and so no memory, is larger than a tenth of the state. RocksDB does
not count its keys where there are very many, as Spark's guide advises: that takes a look-up for
each put, and half of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FILES = 2  # files a batch, one for each core
ROWS_AT_ONCE = 1 << 18
ROWS = pa.schema(
    [
        ("customer", pa.string()),
        ("item", pa.int64()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
SCHEMA = "customer STRING, item BIGINT, amount DOUBLE, at TIMESTAMP"
STATE = "spark.sql.streaming.stateStore."
COUNTED, COUNTED_MAX = f"{STATE}rocksdb.trackTotalNumberOfRows", 20_000_000
MIN_DELTAS = f"{STATE}minDeltasForSnapshot"
PROVIDERS = {
    "hdfs": {},
    "rocksdb": {
        f"{STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("place", type=Path)
    parser.add_argument("provider", choices=sorted(PROVIDERS))
    parser.add_argument("entries", type=int)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--tail", type=int, default=5)
    options = parser.parse_args()
    made(
        options.place,
        options.provider,
        options.entries,
        options.shards,
        options.batches,
        options.tail,
    )


def made(
    place: Path, provider: str, entries: int, shards: int = 8, batches: int = 10, tail: int = 5
) -> Path:
    """The checkpoint below `place`, made now unless it is there."""
    if not (place / "made.json").exists():
        (place / "input").mkdir(parents=True, exist_ok=True)
        counting = {COUNTED: str(entries <= COUNTED_MAX).lower()}
        spark = session(2, {**PROVIDERS[provider], **counting}, shards)
        _base(spark, place, entries, batches)
        await_snapshots(spark, query(spark, place / "input", FILES), place, shards, batches)
        _tail(spark, place, entries, batches, tail)
        spark.stop()
        told = {
            "provider": provider,
            "entries": entries,
            "shards": shards,
            "batches": batches,
            "tail": tail,
        }
        (place / "made.json").write_text(json.dumps(told))
    return place / "checkpoint"


def session(cores: int, conf: dict[str, str], shards: int, memory: str = "6g") -> Any:
    """A local Spark that keeps to itself; `memory` is the most that its heap may have."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.driver.memory", memory)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "localhost",
        "spark.sql.shuffle.partitions": str(shards),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        f"{STATE}maintenanceInterval": "2s",
        f"{STATE}maxVersionsToRetainInMemory": "1",
        **conf,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def query(spark: Any, inputs: Path, files: int | None) -> Any:
    """The job that the benchmarks are about; `files` of input at a time."""
    from pyspark.sql import functions as f

    reader = spark.readStream.schema(SCHEMA)
    if files is not None:
        reader = reader.option("maxFilesPerTrigger", files)
    sums = (f.count("*").alias("count"), f.sum("amount").alias("sum"), f.max("at").alias("max"))
    return (
        reader.parquet(str(inputs))
        .groupBy("customer", "item")
        .agg(*sums)
        .writeStream.outputMode("update")
    )


def started(writer: Any, checkpoint: Path | str) -> Any:
    return writer.format("noop").option("checkpointLocation", str(checkpoint)).start()


def _base(spark: Any, place: Path, entries: int, batches: int) -> None:
    """Every key once, but for those of the last batch."""
    bounds = [entries * number // batches for number in range(batches + 1)]
    for number in range(batches - 1):
        add_input(place, number, bounds[number], bounds[number + 1], 1)
    run(query(spark, place / "input", FILES), place)
    add_input(place, batches - 1, bounds[-2], entries, 1)


def await_snapshots(spark: Any, writer: Any, place: Path, shards: int, version: int) -> None:
    """Run the query's last batch until Spark's maintenance has written snapshots of it: without,
    it is none for us.
    """
    for name in (
        f"{version - 1}",
        f".{version - 1}.crc",
    ):  # committed by a run that was interrupted: once more
        (place / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    # None at all: a snapshot of the batch before may just have been written.
    spark.conf.set(MIN_DELTAS, "0")
    names = (f"{version}.snapshot", f"{version}.zip")
    operator = place / "checkpoint" / "state" / "0"

    def there() -> bool:
        return (
            sum(
                (operator / str(shard) / name).exists() for shard in range(shards) for name in names
            )
            == shards
        )

    run(writer, place, there)
    spark.conf.unset(MIN_DELTAS)


def _tail(spark: Any, place: Path, entries: int, before: int, batches: int) -> None:
    """Changes of one key in 100 each, another one each time."""
    for number in range(batches):
        add_input(place, before + number, number, entries, 100)
    run(query(spark, place / "input", FILES), place)


def run(writer: Any, place: Path, done: Callable[[], bool] = lambda: True) -> None:
    """A query, until it has read all its input and `done` says so."""
    running = started(writer, place / "checkpoint")
    running.processAllAvailable()
    for _ in range(600):
        if done():
            break
        time.sleep(1)
    running.stop()
    if not done():
        raise SystemExit(f"Spark wrote no snapshots where they were waited for, below {place}")


def add_input(place: Path, number: int, first: int, last: int, step: int) -> None:
    """The rows of the keys `first` to `last` as FILES files, newer than all the files before."""
    for index in range(FILES):
        file = (
            place / "input" / f".{number:03}-{index}.parquet"
        )  # hidden from Spark until it is whole
        if file.with_name(file.name[1:]).exists():
            continue
        with pq.ParquetWriter(file, ROWS) as writer:
            for start in range(first + index * step, last, ROWS_AT_ONCE * FILES * step):
                end = min(last, start + ROWS_AT_ONCE * FILES * step)
                writer.write_batch(_rows(np.arange(start, end, FILES * step), number))
        os.utime(file, (1_767_225_600 + number, 1_767_225_600 + number))
        file.rename(file.with_name(file.name[1:]))


def _rows(keys: Any, number: int) -> Any:
    """A row for each key: customers have some ten items, amounts and times change with `number`."""
    padded = pc.utf8_lpad(pa.array(keys * 7919 % 5_000_011).cast(pa.string()), 7, "0")
    columns = [
        pc.binary_join_element_wise("customer-", padded, ""),
        pa.array((keys * 0x1E3779B97F4A7C15) & 0x7FFFFFFFFFFFFFFF),
        pa.array((keys * 31 + number) % 100_003 / 100),
        pa.array((keys % 86_400 + 1_767_225_600) * 1_000_000).cast(pa.timestamp("us", "UTC")),
    ]
    return pa.record_batch(columns, schema=ROWS)


if __name__ == "__main__":
    main()
