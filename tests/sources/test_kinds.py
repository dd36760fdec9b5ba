"""The kinds of sources: what an offset or a state says of them."""

from __future__ import annotations

from typing import Any

import pytest

from stateshift.formats.flink import file_source, kafka
from stateshift.formats.flink.java_data import DataOutput
from stateshift.formats.flink.operator_state import ConnectorState
from stateshift.sources.kind import FlinkSource, SourcePosition
from stateshift.sources.kinds import KINDS, of_flink, of_spark, positions_of, words_of
from tests.support import flink_connectors as written


@pytest.mark.parametrize(
    ("offset", "kind", "details"),
    [
        ({"logOffset": 3}, "file", {"log_offset": 3}),
        (
            {
                "sourceVersion": 1,
                "reservoirId": "t",
                "reservoirVersion": 4,
                "index": -1,
                "isStartingVersion": False,
            },
            "delta",
            {"table_id": "t", "version": 4, "index": -1, "starting_snapshot": False},
        ),
        (
            {
                "sourceVersion": 3,
                "reservoirId": "t",
                "reservoirVersion": 2,
                "index": 1,
                "isStartingVersion": True,
            },
            "delta",
            {"table_id": "t", "version": 2, "index": 1, "starting_snapshot": True},
        ),
        (
            {"version": 1, "snapshot_id": 59993792, "position": 2, "scan_all_files": True},
            "iceberg",
            {"snapshot_id": 59993792, "position": 2, "starting_snapshot": True},
        ),
        (
            {"snapshotId": 3, "index": 1, "scanSnapshot": False, "totalSplits": 2},
            "paimon",
            {"snapshot_id": 3, "position": 1, "starting_snapshot": False},
        ),
        ({"a": {"0": 8, "1": -2}, "b": {"0": -1}}, "kafka", {"offsets": {"a": {0: 8}}}),
        ({"hub": {"0": 8}}, "kafka or event-hubs", {"offsets": {"hub": {0: 8}}}),
        ({"topic-": {"0": 8}}, "kafka", {"offsets": {"topic-": {0: 8}}}),
        (
            {
                "endpoint": "sb://n/",
                "consumerGroup": "$Default",
                "partitionToSeqNos": {"hub": {"0": 23, "1": -1}},
            },
            "event-hubs",
            {"consumer_group": "$Default", "offsets": {"hub": {0: 23}}},
        ),
        ({"partitionToSeqNos": 5, "consumerGroup": "g"}, "event-hubs", {"consumer_group": "g"}),
        ({"offset": 10, "timestamp": 2000}, "rate-micro-batch", {"offset": 10, "timestamp": 2000}),
        (5, "rate", {"offset": 5}),
        ({"offsetCommitTime": "20260102"}, "hudi", {"commit_time": "20260102"}),
        ({"persistent://a/b/c": [8, 33]}, "pulsar", {"topics": "persistent://a/b/c"}),
        (
            {"metadata": {"streamName": "s", "batchId": "1"}, "shardId-0": {"iteratorType": "X"}},
            "kinesis",
            {"stream": "s", "shards": 1},
        ),
        (
            {"seqNum": 12, "sourceVersion": 1, "lastBackfillStartTimeMs": 0},
            "auto loader",
            {"sequence_number": 12},
        ),
        (True, "unknown", {}),
        ([1], "unknown", {}),
        ("words", "unknown", {}),
        ({}, "unknown", {}),
        ({"topic": {"first": 1}}, "unknown", {}),
    ],
)
def test_an_offset_tells_its_connector_and_how_far_it_was_read(
    offset: Any, kind: str, details: Any
) -> None:
    source = of_spark(offset, True)
    assert (source.kind.name, source.details) == (kind, details)


def test_a_number_without_a_log_of_its_start_is_of_a_source_in_memory() -> None:
    assert of_spark(5, False).kind.name == "memory or socket"


def test_each_kind_has_one_name() -> None:
    names = [kind.name for kind in KINDS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kind", "details", "words"),
    [
        ("hudi", {"commit_time": "20260102"}, "commit time 20260102: copied whole"),
        ("pulsar", {"topics": "persistent://a/b/c"}, "topics persistent://a/b/c: copied whole"),
        ("kinesis", {"stream": "s", "shards": 2}, "stream s, shards 2: copied whole"),
        ("auto loader", {"sequence_number": 12}, "sequence number 12: copied whole"),
        ("unknown", {"splits": 3, "split_versions": [1]}, "3 splits of version 1: copied whole"),
        ("nobody's", {}, ""),
    ],
)
def test_a_source_that_only_its_connector_reads_is_copied_whole(
    kind: str, details: Any, words: str
) -> None:
    assert words_of(kind, details) == words
    assert positions_of(kind, details) == ()


def test_the_positions_of_topics_are_told_by_partition() -> None:
    details = {
        "offsets": {"b": {"10": 7, "9": 5}},
        "marks": {"a": {"0": "earliest"}, "b": {"11": "latest"}},
        "ends": {"b": {"9": 60}},
        "unassigned": ["b/11"],
        "discovering": True,
    }
    assert positions_of("kafka", details) == (
        SourcePosition("a/0", "earliest"),
        SourcePosition("b/9", "5, ends at 60"),
        SourcePosition("b/10", 7),
        SourcePosition("b/11", "latest, no reader has it yet"),
        SourcePosition("", "the first look for partitions is not over"),
    )
    assert words_of("kafka", details) == "a 0 (0: earliest); b 12 (9: 5, 10: 7, 11: latest)"


# ---- Flink


def split(topic: str, partition: int, offset: int) -> ConnectorState:
    return ConnectorState(0, kafka.encode_split(kafka.KafkaSplit(topic, partition, offset)))


def enumerator(version: int, *splits: kafka.KafkaSplit) -> ConnectorState:
    known = kafka.KafkaEnumerator(version, splits, None if version < 2 else True)
    return ConnectorState(version, kafka.encode_enumerator(known))


def test_a_partition_that_no_reader_has_is_told_from_the_enumerator() -> None:
    known = [kafka.KafkaSplit("t", number, 7, status=number) for number in (0, 1)]
    source = of_flink(FlinkSource((split("t", 0, 9),), enumerator(3, *known)))
    assert source.kind.name == "kafka"
    assert source.details == {"offsets": {"t": {0: 9, 1: 7}}, "unassigned": ["t/1"]}
    source = of_flink(FlinkSource((), enumerator(2, known[1])))
    assert source.details == {
        "offsets": {},
        "marks": {"t": {"1": "not known yet"}},
        "unassigned": ["t/1"],
    }


def test_an_enumerator_that_cannot_be_read_is_told_beside_its_splits() -> None:
    source = of_flink(FlinkSource((split("t", 0, 9),), ConnectorState(4, b"new")))
    assert source.details["offsets"] == {"t": {0: 9}}
    assert "has version 4" in source.details["enumerator"]
    assert not source.is_whole
    assert of_flink(FlinkSource((), ConnectorState(4, b"new"))).kind.name == "unknown"


def test_the_topics_of_a_dynamic_source_are_told_by_cluster() -> None:
    one = kafka.KafkaSplit("t", 0, 9, cluster="east")
    state = ConnectorState(2, written.encode_cluster_split(2, one))
    source = of_flink(FlinkSource((state,), ConnectorState(3, b"")))
    assert source.details["offsets"] == {"east:t": {0: 9}}
    assert not source.is_whole


def test_a_source_without_splits_is_of_no_kind() -> None:
    """A Kafka source and one of numbers without any look the same."""
    source = of_flink(FlinkSource((), ConnectorState(1, bytes(4))))
    assert (source.kind.name, source.details) == ("unknown", {"splits": 0, "split_versions": []})


def test_a_file_that_is_read_in_parts_is_told_by_its_part() -> None:
    path = file_source.Uri("s3", None, "lake", -1, "/in/a", None, None)
    part = file_source.FileSplit("1", path, 100, 50, 0, 900, ("h",), 120, 3)
    waiting = file_source.FileSplit("2", path, 0, 900, 0, 900)
    enumerated = file_source.FileEnumerator((waiting,), ("s3://lake/in/a",))
    state = ConnectorState(1, file_source.encode_file_enumerator(enumerated))
    source = of_flink(FlinkSource((ConnectorState(1, file_source.encode_file_split(part)),), state))
    assert source.kind.name == "file"
    assert positions_of("file", source.details) == (
        SourcePosition("s3://lake/in/a from byte 100 to 150", "3 records behind byte 120"),
        SourcePosition("s3://lake/in/a", "no reader has it yet"),
    )


def iceberg_enumerator(splits: int, version: int = 2) -> ConnectorState:
    out = DataOutput()
    out.boolean(True)
    out.i4(1, 18)
    out.boolean(True)
    out.i8(4255830956843550409)
    out.boolean(True)
    out.i8(1795606795459)
    out.i4(3, splits)
    for _ in range(splits):
        out.sized(b"a task")
        out.utf("UNASSIGNED")
    if version > 1:
        out.i4(2, 7, 9)
    return ConnectorState(version, out.content())


@pytest.mark.parametrize("version", [1, 2])
def test_flinks_iceberg_source_is_known_by_its_enumerator(version: int) -> None:
    """Those of real jobs are read in tests/engines/flink/test_new_tables.py."""
    enumerator = iceberg_enumerator(2, version)
    reading = of_flink(FlinkSource((ConnectorState(3, b"a task"),), enumerator))
    assert reading.kind.name == "iceberg"
    rest = {"split_version": 3, "listings": [7, 9] if version > 1 else []}
    details = {"snapshot_id": 4255830956843550409, "time_ms": 1795606795459, "splits": 3, **rest}
    assert reading.details == details
    shown = "snapshot 4255830956843550409 is listed, 3 splits unread"
    assert words_of("iceberg", details) == shown
    first, *others = positions_of("iceberg", details)
    assert first == SourcePosition("", shown)
    for name, value in {"time_ms": 1, "split_version": 2, "listings": [1]}.items():
        assert list(positions_of("iceberg", {**details, name: value}))[1:] != others
    for cut in range(len(enumerator.content)):
        damaged = ConnectorState(version, enumerator.content[:cut])
        assert of_flink(FlinkSource((), damaged)).kind.name != "iceberg"
