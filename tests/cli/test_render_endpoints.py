"""Sources and sinks in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from stateshift.cli.views.findings_text import position
from stateshift.documents.shape import document_of
from stateshift.documents.survey import EndpointDocument
from stateshift.survey import Endpoint

MANY = {"orders": {number: number for number in range(12)}}


def source(kind: str, **details: Any) -> Endpoint:
    return Endpoint("source", "0", kind, True, None, details.get("offsets", {}), details)


def delta(version: Any, index: Any, starting: bool = False) -> Endpoint:
    return source("delta", table_id="t-1", version=version, index=index, starting_snapshot=starting)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (delta(4, -1), "table t-1, version 4 is next, 3 is read"),
        (delta(0, -1), "table t-1, version 0 is next"),
        (delta(4, 7), "table t-1, version 4, file 7"),
        (delta(2, 1, True), "table t-1, version 2, the starting snapshot, file 1"),
        (delta(None, "x"), "table t-1, version None is next"),
        (
            source("iceberg", snapshot_id=59, position=2, starting_snapshot=False),
            "snapshot 59, file 2",
        ),
        (
            source("paimon", snapshot_id=3, position=1, starting_snapshot=True),
            "snapshot 3, split 1 of the starting snapshot",
        ),
        (
            source("kafka", offsets={"b": {0: 5}, "a": {1: 80, 0: 1000}}),
            "a 1,080 (0: 1000, 1: 80); b 5 (0: 5)",
        ),
        (source("kafka", offsets=MANY), "orders 66 in 12 partitions"),
        (source("file", log_offset=3), ""),
        (
            Endpoint(
                "sink",
                "",
                "delta",
                None,
                "s3://lake/t",
                {},
                {"queries": [{"query": "q", "last_batch": 7, "version": 12}]},
            ),
            "s3://lake/t, batches up to 7 (version 12)",
        ),
        (
            Endpoint(
                "sink",
                "",
                "iceberg",
                None,
                "s3://lake/t",
                {},
                {"queries": [{"query": "q", "last_batch": None}]},
            ),
            "s3://lake/t, no batch of this query",
        ),
        (
            Endpoint("sink", "", "delta", None, "s3://t", {}, {"wrong": "no"}),
            "s3://t, its log cannot be read",
        ),
        (Endpoint("sink", "", "kafka", None, None, {}, {}), ""),
    ],
)
def test_a_position_is_told_in_a_few_words(end: Endpoint, told: str) -> None:
    assert position(end) == told


def test_all_partitions_are_shown_where_more_is_asked_for() -> None:
    shown = position(source("kafka", offsets=MANY), verbose=True)
    assert shown.startswith("orders 66 (0: 0, 1: 1, 2: 2,")
    assert shown.endswith("10: 10, 11: 11)")


def test_json_has_offsets_by_partition_and_their_sum() -> None:
    told = document_of(EndpointDocument, source("kafka", offsets={"a": {0: 5, 1: 7}}))
    assert told["details"] == {"offsets": {"a": {"0": 5, "1": 7}}, "sum": {"a": 12}}
