"""The log of a Delta table: which batches of which application are in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateshift.errors import FormatError
from stateshift.formats import delta_log
from stateshift.formats.delta_log import (
    Transaction,
    checkpoint_name,
    commit_version,
    decode_transactions,
    newest_checkpoint,
)

TABLES = Path(__file__).resolve().parents[1] / "golden" / "tables"
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def test_every_real_commit_says_its_batch() -> None:
    expected = json.loads((TABLES / "expected.json").read_text())["delta"]
    found = {}
    for path in sorted((TABLES / "delta" / "sink" / "_delta_log").glob("*.json")):
        for transaction in decode_transactions([path.read_bytes()]):
            assert transaction.app_id == expected["query"]
            found[str(transaction.batch)] = commit_version(path.name)
    assert found == expected["versions"]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("00000000000000000012.json", 12),
        ("0000000000000000012.json", None),
        ("00000000000000000012.crc", None),
        ("00000000000000000012.checkpoint.parquet", None),
        ("00000000000000000004.00000000000000000006.compacted.json", None),
    ],
)
def test_commits_are_known_by_their_names(name: str, version: int | None) -> None:
    assert commit_version(name) == version


@pytest.mark.parametrize(
    ("ending", "part", "is_json"),
    [
        ("parquet", (1, 1), False),
        ("0000000002.0000000003.parquet", (2, 3), False),
        (f"{UUID}.parquet", (1, 1), False),
        (f"{UUID}.json", (1, 1), True),
    ],
)
def test_checkpoints_are_known_by_their_names(
    ending: str, part: tuple[int, int], is_json: bool
) -> None:
    found = checkpoint_name(f"{7:020d}.checkpoint.{ending}")
    assert found is not None
    assert (found.version, (found.part, found.parts), found.is_json) == (7, part, is_json)


@pytest.mark.parametrize(
    "name", [f"{7:020d}.checkpoint.json", f"{7:020d}.checkpoint.x.parquet", "_last_checkpoint"]
)
def test_other_names_are_no_checkpoints(name: str) -> None:
    assert checkpoint_name(name) is None


def test_the_newest_checkpoint_is_the_newest_that_is_whole() -> None:
    parts = [f"{20:020d}.checkpoint.{part:010d}.0000000003.parquet" for part in (1, 2, 3)]
    older = f"{10:020d}.checkpoint.parquet"
    assert [file.name for file in newest_checkpoint([*parts, older])] == parts
    assert [file.name for file in newest_checkpoint([*parts[:2], older])] == [older]
    assert newest_checkpoint([]) == ()


def test_only_txn_actions_are_decoded() -> None:
    lines = [
        b'{"add":{"path":"txn"}}',
        b'{"txn":{"appId":"q","version":7}}',
        b"not json at all",
        b'{"txn":null}',
    ]
    assert list(decode_transactions([b"\n".join(lines)])) == [Transaction("q", 7)]


@pytest.mark.parametrize(
    "line",
    [
        b'{"txn":{"appId":"q"}}',
        b'{"txn":{"version":7}}',
        b'{"txn":5}',
        b'{"txn":{"appId":"q","version":true}}',
        b'{"txn":',
        b'["txn"]',
        b'\xff"txn"',
    ],
)
def test_a_damaged_action_is_refused(line: bytes) -> None:
    with pytest.raises(FormatError):
        list(decode_transactions([line]))


def test_a_line_without_an_end_is_refused_before_it_fills_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delta_log, "LINE_BYTES_MAX", 1000)
    with pytest.raises(FormatError, match="longer than"):
        list(decode_transactions(b"x" * 100 for _ in range(1000)))
    assert list(decode_transactions(b"x" * 99 + b"\n" for _ in range(100))) == []
