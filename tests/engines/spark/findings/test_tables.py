"""A Delta table that the job reads: is it the same, and does it still have what comes next?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateshift.survey import Finding
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, Ground, spec_of

TABLE, ID = "file:///lake/orders", "6c4f-orders"
AFTERWARDS = [{"kind": "delta", "location": TABLE}]


def offset(version: int, index: int = -1, snapshot: bool = False) -> str:
    return json.dumps(
        {
            "sourceVersion": 1,
            "reservoirId": ID,
            "reservoirVersion": version,
            "index": index,
            "isStartingVersion": snapshot,
        }
    )


def with_table(ground: Ground, at: str, versions: range, table_id: str = ID) -> None:
    """A table each of whose versions adds one file."""
    for version in versions:
        actions: list[dict[str, Any]] = [
            {"add": {"path": f"part%20{version}.parquet", "dataChange": True}}
        ]
        if version == versions[0]:
            actions.append({"metaData": {"id": table_id}})
        lines = "\n".join(map(json.dumps, actions))
        ground.put(f"{at}/_delta_log/{version:020d}.json", lines.encode())
        ground.put(f"{at}/part {version}.parquet", b"rows")


def told(tmp_path: Path, at: str, make: Callable[[Ground], None], **keys: Any) -> Finding:
    ground = Ground(tmp_path)
    ground.write()
    head = Checkpoint().offsets(2).rpartition(b"\n")[0]
    ground.put(f"{SOURCE}/offsets/2", head + b"\n" + at.encode())
    make(ground)
    findings = ground.propose(spec_of(**keys)).plans[-1].findings
    (finding,) = [one for one in findings if "Delta table" in one.message or TABLE in one.message]
    return finding


@pytest.mark.row("W-4")
def test_a_table_that_is_not_named_was_not_asked(tmp_path: Path) -> None:
    finding = told(tmp_path, offset(3), lambda ground: None)
    assert finding.level == "note"
    assert "was not asked" in finding.message and '"sources": [' in (finding.hint or "")


@pytest.mark.row("W-4")
@pytest.mark.parametrize(
    ("at", "versions", "level", "says"),
    [
        (offset(3), range(6), "note", "still has it, and 3 files that it reads next"),
        (offset(3), range(3, 6), "note", "still has it"),
        (offset(3, 0), range(6), "note", "and 2 files"),
        (offset(6), range(6), "note", "still has it"),
        (offset(3), range(4, 6), "refuse", "has no commit of version 3 any more"),
        (offset(7), range(6), "refuse", "ends at version 5"),
        (offset(3, 2, True), range(6), "note", "and 2 files"),
        (offset(3, 2, True), range(2, 6), "refuse", "can no longer show that version"),
    ],
)
def test_a_table_that_is_named_is_asked_for_the_version(
    tmp_path: Path, at: str, versions: range, level: str, says: str
) -> None:
    finding = told(
        tmp_path, at, lambda ground: with_table(ground, TABLE, versions), sources=AFTERWARDS
    )
    assert (finding.level, says in finding.message) == (level, True), finding
    assert finding.waive == ("lost-offsets" if level == "refuse" else None)


@pytest.mark.row("W-4")
def test_a_file_that_comes_next_and_is_gone_is_refused_and_one_that_was_read_is_not(
    tmp_path: Path,
) -> None:
    for version, level in ((2, "note"), (4, "refuse")):

        def make(ground: Ground, gone: int = version) -> None:
            with_table(ground, TABLE, range(6))
            ground.remove(f"{TABLE}/part {gone}.parquet")

        finding = told(tmp_path / level, offset(3), make, sources=AFTERWARDS)
        assert finding.level == level, finding


@pytest.mark.row("W-4")
def test_another_table_at_that_place_is_refused(tmp_path: Path) -> None:
    finding = told(
        tmp_path,
        offset(3),
        lambda ground: with_table(ground, TABLE, range(6), "another"),
        sources=AFTERWARDS,
    )
    assert finding.level == "refuse" and "another table" in finding.message


@pytest.mark.row("W-4")
def test_a_table_that_moves_along_is_asked_where_it_is(tmp_path: Path) -> None:
    finding = told(
        tmp_path,
        offset(3),
        lambda ground: with_table(ground, TABLE, range(4, 6)),
        data=[{"source": TABLE, "target": "file:///mnt/orders"}],
    )
    assert finding.level == "refuse" and "no commit of version 3" in finding.message
