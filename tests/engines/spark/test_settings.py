"""Settings of the offset log that the state was not written with are refused, and those that Spark
reads in another spelling are not.

What Spark 4.3.0 does with each was seen: it fails, but with formats 3 and 4 of joins exchanged,
and with fewer partitions: there it starts, and does not see the state.
"""

from __future__ import annotations

import json
import re

import pytest

from stateshift.formats.spark.offset_conf import (
    AGGREGATION_FORMAT,
    CODEC,
    ENCODING,
    GROUPS_FORMAT,
    JOIN_FORMAT,
    ROCKSDB_FORMAT,
)
from stateshift.formats.spark.offsets import PARTITIONS
from tests.damage import images
from tests.damage.commands import document_of, run

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CLASSES = "org.apache.spark.sql.execution.streaming.state."
OFFSETS = re.compile("/offsets/[0-9]+$")


def with_setting(content: bytes, key: str, value: str | None) -> bytes:
    """Return an offset log with another value of a setting; None: without it."""
    version, header, *sources = content.split(b"\n")
    plain = json.loads(header)
    plain["conf"].pop(key, None)
    if value is not None:
        plain["conf"][key] = value
    return b"\n".join((version, json.dumps(plain).encode(), *sources))


def judged(
    name: str, key: str, value: str | None, planned: bool = False, deep: bool = False
) -> tuple[int | None, str]:
    """Return the exit code of `verify`, and what it refuses, where a setting has another value in
    all offset logs; in that of a planned batch alone, where there is one.
    """
    golden = images.image(f"spark-{name}")
    files = dict(golden.files)
    logs = sorted(filter(OFFSETS.search, files), key=lambda path: int(path.rpartition("/")[2]))
    if planned:
        del files[logs[-1].replace("/offsets/", "/commits/")]
        logs = logs[-1:]
    for path in logs:
        files[path] = with_setting(files[path], key, value)
    arguments = ["--deep"] if deep else []
    shown = run(images.on_a_disk(files), "verify", golden.location, *arguments, "--json")
    findings = document_of(shown)["findings"]
    refused = [each["message"] for each in findings if each["level"] == "refuse"]
    return shown.code, "\n".join(refused)


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [
        ("4.3.0/join-rocksdb-v4", JOIN_FORMAT, ["1", "2", "3", None]),
        ("4.3.0/join-rocksdb-v3", JOIN_FORMAT, ["1", "2", "4", None]),
        ("4.3.0/join-hdfs", JOIN_FORMAT, ["1", "3", "4", None]),
        ("3.5.9/join-rocksdb", JOIN_FORMAT, ["1", "3"]),
        ("3.3.4/join-hdfs-v1", JOIN_FORMAT, ["2"]),
        ("4.3.0/window-hdfs", AGGREGATION_FORMAT, ["1", None]),
        ("4.3.0/window-hdfs-v1", AGGREGATION_FORMAT, ["2"]),
        ("4.3.0/groups-hdfs", GROUPS_FORMAT, ["1", None]),
        ("4.3.0/groups-hdfs-v1", GROUPS_FORMAT, ["2"]),
        ("4.3.0/pandas-hdfs", GROUPS_FORMAT, ["1"]),
        ("3.5.9/groups-rocksdb", GROUPS_FORMAT, ["1"]),
        ("4.3.0/window-rocksdb-changelog", ENCODING, ["avro", "AVRO", "protobuf"]),
        ("4.3.0/window-rocksdb-changelog", ROCKSDB_FORMAT, ["7", "99"]),
        ("4.3.0/window-rocksdb-changelog", CODEC, ["none", " lz4"]),
        ("4.3.0/window-rocksdb-changelog", PROVIDER, [f"{CLASSES}HDFSBackedStateStoreProvider"]),
        ("4.3.0/window-hdfs", PROVIDER, [f"{CLASSES}RocksDBStateStoreProvider"]),
        ("4.3.0/window-hdfs", PARTITIONS, ["1", "2", "4"]),
    ],
)
def test_settings_that_the_state_was_not_written_with_are_refused(
    name: str, key: str, values: list[str | None]
) -> None:
    for value in values:
        code, refused = judged(name, key, value)
        assert code == 5, value
        assert "offset" in refused or "is missing: the operator has 4 shards" in refused


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [
        ("4.3.0/join-rocksdb-v4", JOIN_FORMAT, [" 4", "+4"]),
        ("4.3.0/window-hdfs-v1", AGGREGATION_FORMAT, [None]),
        ("3.3.4/join-hdfs-v1", JOIN_FORMAT, [None]),
        ("4.3.0/window-hdfs", ENCODING, ["avro"]),
        ("4.3.0/tws-avro", ENCODING, ["AVRO"]),
        ("4.3.0/window-rocksdb-changelog", ROCKSDB_FORMAT, ["0", "6", None]),
        ("4.3.0/window-hdfs", CODEC, ["LZ4", "org.apache.spark.io.LZ4CompressionCodec"]),
        ("4.3.0/window-hdfs", PARTITIONS, ["+3", " 3", "03"]),
    ],
)
def test_settings_in_another_spelling_are_what_spark_takes_them_for(
    name: str, key: str, values: list[str | None]
) -> None:
    for value in values:
        code, refused = judged(name, key, value, deep=True)
        assert (code, refused) == (0, ""), value


def test_a_planned_batch_under_other_settings_is_refused() -> None:
    code, refused = judged("4.3.0/window-hdfs", PARTITIONS, "2", planned=True)
    assert code == 5
    assert f"{PARTITIONS}=2, and the batch before has 3" in refused


def test_every_golden_checkpoint_has_the_settings_of_its_state() -> None:
    for name in filter(re.compile("spark-").match, images.names()):
        golden = images.image(name)
        shown = run(images.on_a_disk(golden.files), "verify", golden.location, "--json")
        assert shown.code == 0, (name, document_of(shown))
