"""How far a source has been read, as its offset says it."""

from __future__ import annotations

from typing import Any

import pytest

from stateshift.formats.spark.positions import position_of


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
    position = position_of(offset, True)
    assert (position.kind, dict(position.details)) == (kind, details)


def test_a_number_without_a_log_of_its_start_is_of_a_source_in_memory() -> None:
    assert position_of(5, False).kind == "memory or socket"
