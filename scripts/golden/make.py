#!/usr/bin/env python
"""Make the golden checkpoints: small images written by a real Spark, with what Spark itself reads
in them.

    python scripts/golden/make.py [--missing] [CASE...]  with the pyspark of the Python that runs
                                                         this
    python scripts/golden/make.py --read SPARK           add what this Spark reads in the images of
                                                         an older one

    tests/golden/spark-<version>/<case>/checkpoint/   as Spark left it, Hadoop's .crc files removed
                                        out/          what the file sink wrote, only in the case
                                                      that has one
                                        expected.json
      {"spark": "4.3.0", "epoch": 4, "shards": 3,
       "stores": [{"operator": "0", "store": "default", "rows": [[shard, key, value], ...]},      Spark's own reading
                  {"operator": "0", "variable": "seen", "kind": "list", "rows": ...}],            of transformWithState
       "output": [[batch, [row, ...]], ...], "read_by": "4.3.0"}                      before 4.0, see below

Plain values: a struct is a list, a map a sorted list of pairs, dates are days and times
microseconds since 1970, binary is hex, decimals are text. Spark versions before 4.0 have no reader
of state, and 4.0's does not read checkpoint format 2: their `expected.json` holds the query's
output, and what a later Spark reads in a copy with the operator metadata it looks for. Everything
is written below one neutral directory, which ends up in the images.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["TZ"] = "UTC"
time.tzset()
os.environ["PYTHONPATH"] = str(
    Path(__file__).resolve().parent
)  # Python workers look for `queries` and `processors`
os.environ["PYSPARK_PYTHON"] = sys.executable

import broker  # noqa: E402
import pyspark  # noqa: E402
import queries as q  # noqa: E402
from cases import CASES, FORMAT_2, PREFIX, STATE, TYPES, VERSION, Case, size  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

WORK = Path("/tmp/stateshift-golden")
GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"


def main(arguments: list[str]) -> None:
    work: list[Any] = unread(arguments[1]) if arguments[:1] == ["--read"] else wanted(arguments)
    if not work:
        return
    spark = session(broker.jars() if "kafka" in work else [])
    for one in work:
        if isinstance(one, Path):
            read_later(spark, one)
        else:
            make(spark, one)
    spark.stop()


def wanted(arguments: list[str]) -> list[str]:
    """The cases to make."""
    names = [name for name in arguments if not name.startswith("--")] or list(CASES)
    there = {
        path.parent.name for path in GOLDEN.glob(f"spark-{pyspark.__version__}/*/expected.json")
    }
    done = there if "--missing" in arguments else set()
    fit = [name for name in names if CASES[name].fits(VERSION) and name not in done]
    return [name for name in fit if name != "kafka" or broker.available()]


def unread(version: str) -> list[Path]:
    """What an older Spark wrote and could not read."""
    places = sorted(GOLDEN.glob(f"spark-{version}/*/expected.json"))
    held = {place: json.loads(place.read_text()) for place in places}
    return [
        place
        for place, expected in held.items()
        if "output" in expected and "read_by" not in expected
    ]


def session(jars: list[str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.driver.extraClassPath", ":".join((compiled(), *jars)))
    builder = builder.config(f"{STATE}maintenanceInterval", "100ms").config(
        f"{STATE}minDeltasForSnapshot", "2"
    )
    builder = builder.config(f"{PREFIX}fileSource.log.compactInterval", "3")
    builder = builder.config(f"{PREFIX}fileSink.log.compactInterval", "3")
    spark = builder.config("spark.driver.host", "localhost").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def compiled() -> str:
    """The folder of what is written in Java, compiled against this Spark."""
    classes = WORK / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    command = ["javac", "-nowarn", "-d", str(classes), "-cp", str(jars)]
    subprocess.run([*command, str(Path(__file__).parent / "java" / "Grouped.java")], check=True)
    return str(classes)


def make(spark: SparkSession, name: str) -> None:
    case = CASES[name]
    shutil.rmtree(WORK / name, ignore_errors=True)
    inputs = WORK / name / "in"
    write_inputs(name, inputs)
    expected = {"spark": pyspark.__version__, "epoch": 0, "shards": size(name)[0], "stores": []}
    with configured(spark, {**case.conf, "spark.sql.shuffle.partitions": str(size(name)[0])}):
        output = run(spark, name, case, inputs)
        expected |= read_back(spark, WORK / name / "checkpoint", case, output)
    keep(name, expected)


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    yield
    for key, held in before.items():
        if held is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, held)


def write_inputs(name: str, inputs: Path) -> None:
    inputs.mkdir(parents=True)
    if name.endswith("types"):
        write_types(inputs)
        return
    words = ["alpha", "beta", "gamma", "délta", "", "epsilon zeta"]
    for batch in range(size(name)[1]):
        lines = []
        for i in range(12):
            number = batch * 12 + i
            # Join format 4 keeps a list per key and time: let its lists have items, from several
            # batches.
            seconds = number // 18 * 18 * 7 if name.startswith("join-rocksdb-v4") else number * 7
            at = datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=seconds)
            event = {"id": number, "at": at.isoformat() + "Z", "word": words[number * number % 6]}
            lines.append(json.dumps({**event, "amount": number / 4} if number % 5 else event))
        place = inputs / (f"f %{batch}.json" if name.startswith("files") else f"f{batch}.json")
        place.write_text("\n".join(lines) + "\n")
        os.utime(place, (1_767_225_600 + batch, 1_767_225_600 + batch))


def write_types(inputs: Path) -> None:
    """Rows of every type a state key may have: ordinary, empty, null, smallest and largest."""
    full = {
        "b": True,
        "i8": -128,
        "i16": 32767,
        "i32": -(2**31),
        "i64": 2**63 - 1,
        "f32": -0.0,
        "f64": 1e300,
        "d": "1969-12-31",
        "t": "2026-01-01T00:00:00.123456Z",
        "n": "1900-02-03T04:05:06.5",
        "small": 12345678.90,
        "large": "123456789012345678901234.56789",
        "s": "ünïcode ☃",
        "raw": "AAEC/w==",
        "list": ["a", None, "abc"],
        "nested": {"x": 1, "y": "z"},
        "shorts": [1, None, -3],
    }
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
        (inputs / f"f{batch}.json").write_text(
            "\n".join(json.dumps(row) for row in rows[batch::2]) + "\n"
        )


def run(spark: SparkSession, name: str, case: Case, inputs: Path) -> list[Any]:
    """What the query put out, batch by batch."""
    if case.then is None:
        return started(spark, name, case, inputs)
    last = max(inputs.iterdir())
    later = last.rename(inputs.with_name(last.name))
    output = started(spark, name, case, inputs)
    later.rename(last)
    return output + started(spark, name, replace(case, query=case.then), inputs)


def started(spark: SparkSession, name: str, case: Case, inputs: Path) -> list[Any]:
    reader = spark.readStream.schema(TYPES if name.endswith("types") else q.EVENTS).option(
        "maxFilesPerTrigger", 1
    )
    if name == "dedup-offsets2":
        reader = reader.name("events")
    writer = case.query(spark, reader.json(str(inputs))).writeStream.outputMode(case.mode)
    writer = writer.option("checkpointLocation", str(WORK / name / "checkpoint"))
    output: list[Any] = []
    if name == "files-commits3":
        writer._jwrite.name("copies")  # Python has no way yet to name a sink
    if name.startswith("files"):
        writer = writer.format("json").option("path", str(WORK / name / "out"))
    elif name == "memory":
        writer = writer.format("memory").queryName("kept")
    else:

        def collect(batch: DataFrame, number: int) -> None:
            if name == "exotic":  # Python has not all of its types
                batch.write.format("noop").mode("overwrite").save()
            else:
                output.append([number, sorted((plain(row) for row in batch.collect()), key=repr)])
            time.sleep(0.3)

        writer = writer.foreachBatch(collect)
    if VERSION < (3, 3):  # which cannot be told to end with its input
        query = writer.start()
        query.processAllAvailable()
        query.stop()
        return output
    if not case.stops:
        writer.trigger(availableNow=True).start().awaitTermination()
        return (
            output
            if name != "memory"
            else [[0, sorted(map(plain, spark.table("kept").collect()), key=repr)]]
        )
    query = writer.trigger(processingTime="3 seconds").start()
    while (
        query.isActive
        and len(list((WORK / name / "checkpoint" / "commits").glob("[0-9]*"))) < case.stops
    ):
        time.sleep(0.05)
    query.stop()
    if query.exception():
        raise query.exception()
    return output


def read_back(
    spark: SparkSession, checkpoint: Path, case: Case, output: list[Any]
) -> dict[str, Any]:
    epoch = max(
        int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()
    )
    if VERSION < (4, 0) or (VERSION < (4, 1) and FORMAT_2.items() <= case.conf.items()):
        return {"epoch": epoch, "output": output}
    expected: dict[str, Any] = {"epoch": epoch, "stores": read_stores(spark, checkpoint, case)}
    for variable, kind in case.variables.items():
        expected["stores"].append(read_variable(spark, checkpoint, variable, kind))
    return expected


def state(spark: SparkSession, checkpoint: Path, operator: str = "0") -> Any:
    return (
        spark.read.format("statestore")
        .option("path", str(checkpoint))
        .option("operatorId", operator)
    )


def read_stores(spark: SparkSession, checkpoint: Path, case: Case) -> list[dict[str, Any]]:
    stores = []
    for operator, store in case.stores:
        frame = state(spark, checkpoint, operator).option("storeName", store).load()
        frame = frame.selectExpr("partition_id", f"{case.key} AS key", f"{case.value} AS value")
        rows = [
            [row["partition_id"], plain(row["key"]), plain(row["value"])] for row in frame.collect()
        ]
        stores.append({"operator": operator, "store": store, "rows": sorted(rows, key=repr)})
    return stores


def read_variable(
    spark: SparkSession, checkpoint: Path, variable: str, kind: str
) -> dict[str, Any]:
    """A state variable as [shard, key, value]: a list state's value is a list, a map state's are
    pairs; timers have their time instead.
    """
    reader = state(spark, checkpoint).option("flattenCollectionTypes", "false")
    reader = (
        reader.option("stateVarName", variable)
        if variable
        else reader.option("readRegisteredTimers", "true")
    )
    column = {
        "value": "value",
        "list": "list_value",
        "map": "map_value",
        "timers": "expiration_timestamp_ms",
    }[kind]
    rows = [
        [row["partition_id"], plain(row["key"]), plain(row[column])]
        for row in reader.load().collect()
    ]
    return {"operator": "0", "variable": variable, "kind": kind, "rows": sorted(rows, key=repr)}


def read_later(spark: SparkSession, place: Path) -> None:
    """What this Spark reads in the image of one whose reader does not, or that has none."""
    expected, case = json.loads(place.read_text()), CASES[place.parent.name]
    copy = WORK / "read-later"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place.parent / "checkpoint", copy)
    names: dict[str, list[str]] = {}
    for operator, store in case.stores:
        names.setdefault(operator, []).append(store)
    for operator, stores in names.items():
        prefix = 2 if case.query is q.sessions else 0
        info = [
            {"storeName": s, "numColsPrefixKey": prefix, "numPartitions": expected["shards"]}
            for s in stores
        ]
        what = {
            "operatorInfo": {"operatorId": int(operator), "operatorName": "any"},
            "stateStoreInfo": info,
        }
        metadata = copy / "state" / operator / "_metadata" / "metadata"
        metadata.parent.mkdir(exist_ok=True)
        metadata.write_text("v1\n" + json.dumps(what, separators=(",", ":")))
    with configured(spark, case.conf):
        expected |= {"stores": read_stores(spark, copy, case), "read_by": pyspark.__version__}
    place.write_text(json.dumps(expected, indent=None, ensure_ascii=False) + "\n")
    print(
        f"{place.parent.name}: {sum(len(store['rows']) for store in expected['stores'])} rows read"
    )


def plain(value: Any) -> Any:
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
    if type(value).__name__ == "VariantVal":
        return [value.value.hex(), value.metadata.hex()]
    return value


def keep(name: str, expected: dict[str, Any]) -> None:
    place = GOLDEN / f"spark-{pyspark.__version__}" / name
    shutil.rmtree(place, ignore_errors=True)
    hidden = shutil.ignore_patterns(".*.crc", ".*.tmp")
    shutil.copytree(WORK / name / "checkpoint", place / "checkpoint", ignore=hidden)
    if name.startswith("files"):
        shutil.copytree(WORK / name / "out", place / "out", ignore=hidden)
    (place / "expected.json").write_text(
        json.dumps(expected, indent=None, ensure_ascii=False) + "\n"
    )
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    print(f"{name}: {size} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
