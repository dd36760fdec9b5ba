"""The metadata of an Iceberg table: which batches of which query its snapshots are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stateshift.errors import FormatError
from stateshift.formats.iceberg_metadata import (
    EPOCH,
    QUERY,
    StreamedSnapshot,
    decode_table,
    metadata_number,
    newest_metadata,
)

TABLES = Path(__file__).resolve().parents[1] / "golden" / "tables"


def snapshot(
    number: int, parent: int | None, query: str | None, batch: Any = "0"
) -> dict[str, Any]:
    summary = {} if query is None else {QUERY: query, EPOCH: batch}
    return {
        "snapshot-id": number,
        "parent-snapshot-id": parent,
        "summary": {"operation": "append", **summary},
    }


def table(current: int | None, *snapshots: dict[str, Any]) -> bytes:
    plain = {
        "format-version": 2,
        "table-uuid": "u",
        "current-snapshot-id": current,
        "snapshots": list(snapshots),
    }
    return json.dumps(plain).encode()


def test_the_real_tables_snapshots_are_its_batches() -> None:
    expected = json.loads((TABLES / "expected.json").read_text())["iceberg"]
    folder = TABLES / "iceberg" / "db" / "sink" / "metadata"
    newest = newest_metadata(path.name for path in folder.iterdir())
    assert len(newest) == 1
    found = decode_table((folder / newest[0]).read_bytes())
    assert {str(one.batch): one.snapshot_id for one in found.streamed} == expected["versions"]
    assert {one.query for one in found.streamed} == {expected["query"]}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("v3.metadata.json", 3),
        ("v12.gz.metadata.json", 12),
        ("v12.metadata.json.gz", 12),
        ("00005-80a083e8-7026-4e79-81be-64bd76c43a11.metadata.json", 5),
        ("00005-80a083e8-7026-4e79-81be-64bd76c43a11.gz.metadata.json", 5),
        ("version-hint.text", None),
        ("snap-1-1-x.avro", None),
        ("x.metadata.json", None),
    ],
)
def test_metadata_files_are_known_by_their_names(name: str, number: int | None) -> None:
    assert metadata_number(name) == number


def test_what_was_rolled_back_does_not_count() -> None:
    content = table(
        2, snapshot(1, None, "q", "0"), snapshot(2, 1, "q", "1"), snapshot(3, 2, "q", "2")
    )
    assert decode_table(content).streamed == (
        StreamedSnapshot(2, "q", 1),
        StreamedSnapshot(1, "q", 0),
    )


def test_snapshots_of_others_are_passed_over() -> None:
    content = table(
        3, snapshot(1, None, "q", "0"), snapshot(2, 1, None), snapshot(3, 2, "other", "9")
    )
    assert decode_table(content).streamed == (
        StreamedSnapshot(3, "other", 9),
        StreamedSnapshot(1, "q", 0),
    )


def test_an_empty_table_and_one_whose_snapshots_lead_in_a_ring_end() -> None:
    assert decode_table(table(-1)).streamed == ()
    assert decode_table(table(None)).current is None
    assert len(decode_table(table(1, snapshot(1, 2, "q"), snapshot(2, 1, "q"))).streamed) == 2


def test_a_parent_that_has_expired_ends_the_history() -> None:
    assert len(decode_table(table(2, snapshot(2, 1, "q"))).streamed) == 1


def test_compressed_metadata_is_read() -> None:
    content = table(1, snapshot(1, None, "q", "4"))
    assert decode_table(gzip.compress(content, mtime=0)) == decode_table(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"snapshots": 5}',
        b'{"snapshots": [5]}',
        b"\x1f\x8b\x08broken",
        gzip.compress(table(None), mtime=0)[:-9],
        table(1, snapshot(1, None, "q", 7)),
        table(1, snapshot(1, None, "q", "x")),
        table(1, {**snapshot(1, None, "q"), "snapshot-id": None}),
        table(1, {**snapshot(1, None, "q"), "snapshot-id": [1]}),
        table(2, snapshot(1, None, "q")),
    ],
)
def test_damage_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        decode_table(content)
