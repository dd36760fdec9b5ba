#!/usr/bin/env python
"""Make the golden checkpoints: small images written by a real Spark, with what Spark itself reads in them.

    python scripts/golden/make.py [CASE...]       with the pyspark of the Python that runs this

    tests/golden/spark-<version>/<case>/checkpoint/   as Spark left it, Hadoop's .crc files removed
                                        out/          what the file sink wrote, only in the case that has one
                                        expected.json
      {"spark": "4.3.0", "epoch": 4, "shards": 3,
       "stores": [{"operator": "0", "store": "default", "rows": [[shard, key, value], ...]}],    Spark's own reading
       "raw":    [{"operator": "0", "rows": [[shard, column family, key in hex, value in hex], ...]}]}

Plain values: a struct is a list, a map a sorted list of pairs, dates are days and times microseconds since 1970, binary
is hex, decimals are text. Spark versions before 4.0 have no reader of state: run the cases with them, then
`expected.json` holds no stores. Everything is written below one neutral directory, which ends up in the images.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import shutil
import sys
import time
from pathlib import Path

os.environ["TZ"] = "UTC"
time.tzset()

import pyspark  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql import functions as f  # noqa: E402

WORK = Path("/tmp/stateshift-golden")
GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PREFIX = "spark.sql.streaming."
STATE = f"{PREFIX}stateStore."
JOIN_STORES = [f"{side}-{store}" for side in ("left", "right") for store in ("keyToNumValues", "keyWithIndexToValue")]

EVENTS = "id LONG, at TIMESTAMP, word STRING, amount DOUBLE"
TYPES = """b BOOLEAN, i8 BYTE, i16 SHORT, i32 INT, i64 LONG, f32 FLOAT, f64 DOUBLE, d DATE, t TIMESTAMP,
  n TIMESTAMP_NTZ, small DECIMAL(10,2), large DECIMAL(30,5), s STRING, raw BINARY,
  list ARRAY<STRING>, nested STRUCT<x: INT, y: STRING>, shorts ARRAY<SHORT>"""


def windowed(spark: SparkSession, source: DataFrame) -> DataFrame:
    counted = source.withWatermark("at", "1 minute").groupBy(f.window("at", "10 seconds"), "word")
    return counted.agg(f.count("*").alias("n"), f.sum("amount").alias("total"), f.max("word").alias("last"))


def deduplicated(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.withWatermark("at", "1 hour").dropDuplicates(["word", "at"])


def joined(spark: SparkSession, source: DataFrame) -> DataFrame:
    left = source.filter("id % 2 = 0").withWatermark("at", "1 hour").alias("l")
    right = source.filter("id % 2 = 1").withWatermark("at", "1 hour").alias("r")
    near = f.expr("l.word = r.word AND r.at BETWEEN l.at AND l.at + INTERVAL 1 MINUTE")
    return left.join(right, near, "leftOuter")


def evicting(spark: SparkSession, source: DataFrame) -> DataFrame:
    """A join whose state shrinks: deletes, and lists that lose items."""
    left = source.filter("id % 2 = 0").withWatermark("at", "20 seconds").alias("l")
    right = source.filter("id % 2 = 1").withWatermark("at", "20 seconds").alias("r")
    near = f.expr("l.word = r.word AND r.at BETWEEN l.at AND l.at + INTERVAL 30 SECONDS")
    return left.join(right, near, "leftOuter")


def copied(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.select("id", "word")


def all_types(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.dropDuplicates()


def collected(spark: SparkSession, source: DataFrame) -> DataFrame:
    pairs = f.create_map("word", f.array("amount", f.lit(None).cast("double")))
    return source.groupBy("word").agg(f.first(pairs).alias("pairs"), f.max(f.struct("at", "word")).alias("latest"))


CASES = {
    "window-hdfs": (windowed, {}, ["default"]),
    "window-rocksdb": (windowed, {f"{STATE}providerClass": ROCKSDB}, ["default"]),
    "window-rocksdb-changelog": (
        windowed,
        {f"{STATE}providerClass": ROCKSDB, f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"},
        ["default"],
    ),
    "window-rocksdb-format2": (
        windowed,
        {
            f"{STATE}providerClass": ROCKSDB,
            f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
            f"{STATE}checkpointFormatVersion": "2",
        },
        ["default"],
    ),
    "join-hdfs": (joined, {}, JOIN_STORES),
    "join-hdfs-checksum": (evicting, {f"{STATE}rowChecksum.enabled": "true"}, JOIN_STORES),
    "join-rocksdb-v3": (
        joined,
        {
            f"{STATE}providerClass": ROCKSDB,
            f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
            f"{PREFIX}join.stateFormatVersion": "3",
        },
        JOIN_STORES,
    ),
    "join-rocksdb-v4": (
        joined,
        {
            f"{STATE}providerClass": ROCKSDB,
            f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
            f"{PREFIX}join.stateFormatVersion": "4",
        },
        ["left-keyWithTsToValues", "right-keyWithTsToValues"],
    ),
    "join-rocksdb-v3-checksum": (
        evicting,
        {
            f"{STATE}providerClass": ROCKSDB,
            f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
            f"{PREFIX}join.stateFormatVersion": "3",
            f"{STATE}rowChecksum.enabled": "true",
        },
        JOIN_STORES,
    ),
    "join-rocksdb-v4-checksum": (
        evicting,
        {
            f"{STATE}providerClass": ROCKSDB,
            f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
            f"{PREFIX}join.stateFormatVersion": "4",
            f"{STATE}rowChecksum.enabled": "true",
        },
        ["left-keyWithTsToValues", "right-keyWithTsToValues"],
    ),
    "dedup-zstd": (deduplicated, {f"{STATE}compression.codec": "zstd"}, ["default"]),
    "dedup-snappy": (deduplicated, {f"{STATE}compression.codec": "snappy"}, ["default"]),
    "dedup-lzf": (deduplicated, {f"{STATE}compression.codec": "lzf"}, ["default"]),
    "dedup-checksum": (deduplicated, {f"{STATE}rowChecksum.enabled": "true"}, ["default"]),
    "dedup-rocksdb-checksum": (
        deduplicated,
        {
            f"{STATE}providerClass": ROCKSDB,
            f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
            f"{STATE}rowChecksum.enabled": "true",
        },
        ["default"],
    ),
    "types": (all_types, {}, ["default"]),
    "collected": (collected, {}, ["default"]),
    "files": (copied, {}, []),
}
NEEDS = {
    "join-rocksdb-v3": (4, 1),
    "join-rocksdb-v4": (4, 3),
    "join-rocksdb-v3-checksum": (4, 3),
    "join-rocksdb-v4-checksum": (4, 3),
    "window-rocksdb-format2": (4, 0),
    "window-rocksdb-changelog": (3, 5),
    "dedup-checksum": (4, 3),
    "join-hdfs-checksum": (4, 3),
    "dedup-rocksdb-checksum": (4, 3),
}


def main(names: list[str]) -> None:
    spark = session()
    for name in names or CASES:
        if NEEDS.get(name, (0, 0)) <= VERSION:
            make(spark, name)
    spark.stop()


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "3").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config(f"{STATE}maintenanceInterval", "100ms").config(f"{STATE}minDeltasForSnapshot", "2")
    builder = builder.config(f"{PREFIX}fileSource.log.compactInterval", "3")
    builder = builder.config(f"{PREFIX}fileSink.log.compactInterval", "3")
    spark = builder.config("spark.driver.host", "localhost").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def make(spark: SparkSession, name: str) -> None:
    query, conf, stores = CASES[name]
    shutil.rmtree(WORK / name, ignore_errors=True)
    inputs = WORK / name / "in"
    write_inputs(spark, name, inputs)
    for key, value in conf.items():
        spark.conf.set(key, value)
    run(spark, name, query, inputs)
    expected = read_back(spark, WORK / name / "checkpoint", stores)
    for key in conf:
        spark.conf.unset(key)
    keep(name, expected)


def write_inputs(spark: SparkSession, name: str, inputs: Path) -> None:
    inputs.mkdir(parents=True)
    if name == "types":
        write_types(inputs)
        return
    words = ["alpha", "beta", "gamma", "délta", "", "epsilon zeta"]
    for batch in range(5):
        lines = []
        for i in range(12):
            number = batch * 12 + i
            # Join format 4 keeps a list per key and time: let its lists have items, from several batches.
            seconds = number // 18 * 18 * 7 if name.startswith("join-rocksdb-v4") else number * 7
            at = datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=seconds)
            event = {"id": number, "at": at.isoformat() + "Z", "word": words[number * number % 6]}
            lines.append(json.dumps({**event, "amount": number / 4} if number % 5 else event))
        place = inputs / (f"f %{batch}.json" if name == "files" else f"f{batch}.json")
        place.write_text("\n".join(lines) + "\n")
        os.utime(place, (1_767_225_600 + batch, 1_767_225_600 + batch))


def write_types(inputs: Path) -> None:
    """Rows of every type a state key may have: ordinary, empty, null, smallest and largest."""
    full = {
        "b": True, "i8": -128, "i16": 32767, "i32": -(2**31), "i64": 2**63 - 1, "f32": -0.0, "f64": 1e300,
        "d": "1969-12-31", "t": "2026-01-01T00:00:00.123456Z", "n": "1900-02-03T04:05:06.5",
        "small": 12345678.90, "large": "123456789012345678901234.56789", "s": "ünïcode ☃", "raw": "AAEC/w==",
        "list": ["a", None, "abc"], "nested": {"x": 1, "y": "z"}, "shorts": [1, None, -3],
    }  # fmt: skip
    empty = {
        **full,
        "s": "",
        "raw": "",
        "list": [],
        "nested": {"x": None, "y": ""},
        "shorts": [],
        "large": "-0.00001",
    }
    rows = [full, empty, {}, *({**full, "i32": i, "s": "s" * i} for i in range(20))]
    rows += [{key: value for key, value in full.items() if key != missing} for missing in full]
    for batch in range(2):
        (inputs / f"f{batch}.json").write_text("\n".join(json.dumps(row) for row in rows[batch::2]) + "\n")


def run(spark: SparkSession, name: str, query, inputs: Path) -> None:
    reader = spark.readStream.schema(TYPES if name == "types" else EVENTS).option("maxFilesPerTrigger", 1)
    result = query(spark, reader.json(str(inputs)))
    writer = result.writeStream.option("checkpointLocation", str(WORK / name / "checkpoint"))
    if name == "files":
        writer = writer.format("json").option("path", str(WORK / name / "out"))
    else:
        mode = "update" if query is collected else "append"
        writer = writer.outputMode(mode).foreachBatch(lambda batch, _: (batch.collect(), time.sleep(0.3))[0])
    started = writer.trigger(availableNow=True).start()
    started.awaitTermination()


def read_back(spark: SparkSession, checkpoint: Path, stores: list[str]) -> dict:
    epoch = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    expected: dict = {"spark": pyspark.__version__, "epoch": epoch, "shards": 3, "stores": []}
    if VERSION < (4, 0):
        return expected
    reader = spark.read.format("statestore").option("path", str(checkpoint)).option("operatorId", 0)
    for store in stores:
        frame = reader.option("storeName", store).load()
        rows = [[row["partition_id"], plain(row["key"]), plain(row["value"])] for row in frame.collect()]
        expected["stores"].append({"operator": "0", "store": store, "rows": sorted(rows, key=repr)})
    return expected


def plain(value):
    """The value as JSON holds it; see above."""
    epoch = datetime.datetime(1970, 1, 1)
    match value:
        case datetime.datetime():
            return (value - epoch) // datetime.timedelta(microseconds=1)
        case datetime.date():
            return (value - epoch.date()).days
        case datetime.timedelta():
            return value // datetime.timedelta(microseconds=1)
        case decimal.Decimal():
            return str(value)
        case bytes() | bytearray():
            return value.hex()
        case dict():
            return sorted(([plain(k), plain(v)] for k, v in value.items()), key=repr)
        case list() | tuple():
            return [plain(item) for item in value]
    return value


def keep(name: str, expected: dict) -> None:
    place = GOLDEN / f"spark-{pyspark.__version__}" / name
    shutil.rmtree(place, ignore_errors=True)
    hidden = shutil.ignore_patterns(".*.crc", ".*.tmp")
    shutil.copytree(WORK / name / "checkpoint", place / "checkpoint", ignore=hidden)
    if name == "files":
        shutil.copytree(WORK / name / "out", place / "out", ignore=hidden)
    (place / "expected.json").write_text(json.dumps(expected, indent=None, ensure_ascii=False) + "\n")
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    print(f"{name}: {size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
