"""Delta's schema log below a checkpoint: read, and moved without touching another byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateshift.errors import FormatError
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.source_log import (
    decode_schema_log,
    encode_schema_log,
    relocate_schema_log,
)
from stateshift.formats.spark.uris import Relocation

TABLES = Path(__file__).resolve().parents[2] / "golden" / "tables"
REAL = sorted(TABLES.glob("delta/*/tracking/_schema_log_*/*"))
CHECKPOINT = "file:/tmp/stateshift-golden/tables/delta/checkpoint"


def entry(**changes: object) -> bytes:
    plain = {
        "tableId": "t",
        "deltaCommitVersion": 2,
        "dataSchemaJson": "{}",
        "partitionSchemaJson": "{}",
        "sourceMetadataPath": "file:/c/sources/0",
        "tableConfigurations": {},
        **changes,
    }
    return (
        b"v1\n"
        + json.dumps(
            {k: v for k, v in plain.items() if v is not None}, separators=(",", ":")
        ).encode()
    )


def test_there_are_real_ones() -> None:
    assert len(REAL) >= 3


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parts[-4]}-{path.name}")
def test_a_real_entry_is_read_and_written_back_byte_for_byte(path: Path) -> None:
    content = path.read_bytes()
    decoded = decode_schema_log(content)
    expected = json.loads((TABLES / "expected.json").read_text())["delta"]
    assert decoded.table_id == expected["source"]
    assert decoded.source_path == f"{CHECKPOINT}/sources/0"
    assert encode_schema_log(decoded) == content
    assert classify(str(path.relative_to(path.parents[2]))).area == "delta-schema-log"


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parts[-4]}-{path.name}")
def test_a_real_entry_is_moved_and_no_other_byte_changes(path: Path) -> None:
    content = path.read_bytes()
    mapping = {CHECKPOINT.replace("file:", "file://"): "s3a://b/orders"}
    moved = relocate_schema_log(decode_schema_log(content), Relocation(mapping))
    assert encode_schema_log(moved) == content.replace(
        f"{CHECKPOINT}/sources/0".encode(), b"s3a://b/orders/sources/0"
    )


def test_a_column_of_that_name_is_left_alone() -> None:
    schema = json.dumps(
        {
            "fields": [
                {"name": "sourceMetadataPath", "x": {"sourceMetadataPath": "file:/c/sources/0"}}
            ]
        }
    )
    content = entry(dataSchemaJson=schema)
    moved = encode_schema_log(
        relocate_schema_log(decode_schema_log(content), Relocation({"file:///c": "file:///d"}))
    )
    before, after = (json.loads(one.partition(b"\n")[2]) for one in (content, moved))
    assert after == {**before, "sourceMetadataPath": "file:/d/sources/0"}


def test_an_entry_from_before_delta_kept_the_path_stays_as_it_is() -> None:
    decoded = decode_schema_log(entry(sourceMetadataPath=None))
    assert relocate_schema_log(decoded, Relocation({"file:///c": "file:///d"})) == decoded


def test_a_path_that_does_not_move_is_refused() -> None:
    with pytest.raises(FormatError, match="lies under no directory that moves"):
        relocate_schema_log(decode_schema_log(entry()), Relocation({"file:///other": "file:///d"}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"v1",
        b"v1\n",
        b"v2\n{}",
        b"v1\n[]",
        b"v1\n{}",
        b"v1\n\xff",
        b"v1\n{",
        entry(tableId=None),
        entry(sourceMetadataPath=5),
        entry(dataSchemaJson=None),
        entry(deltaCommitVersion="x"),
    ],
)
def test_damage_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        decode_schema_log(content)


def test_truncated_anywhere_it_is_refused() -> None:
    content = entry()
    for length in range(len(content)):
        with pytest.raises(FormatError):
            decode_schema_log(content[:length])
