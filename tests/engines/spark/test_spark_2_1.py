"""Checkpoints that a real Spark 2.1.3 wrote (scripts/golden/old): no commits/, no schemas, no
conf in the offsets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.formats.spark.offsets import decode_offsets
from tests.look.golden_images import contents, write
from tests.support.ground import SOURCE, TARGET, Ground, spec_of

GOLDEN = Path(__file__).resolve().parents[2] / "golden/old-spark-2.1.3"
CASES = sorted(path.parent for path in GOLDEN.glob("*/checkpoint"))
WAIVED = ["paths-stay", "old-state", "repeated-batches"]
CHANGES: dict[str, list[dict[str, Any]]] = {
    "copy": [],
    "compact": [{"kind": "compact"}],
    "convert": [{"kind": "convert", "codec": "zstd"}],
}


def ground_with(folder: Path, case: Path) -> Ground:
    ground = Ground(folder)
    write(ground.disk.open(SOURCE), contents(case))
    return ground


def entries_at(ground: Ground, location: str) -> list[dict[str, Any]]:
    made = look.export(location, "x.jsonl", None, ground.open)
    lines = b"".join(made.chunks()).splitlines()
    assert made.notes, "there is no schema"
    return sorted((json.loads(line) for line in lines), key=repr)


def test_both_cases_are_there() -> None:
    assert [case.name for case in CASES] == ["window", "words"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_restarts_and_has_its_state(tmp_path: Path, case: Path) -> None:
    ground = ground_with(tmp_path, case)
    last = max(int(path.name) for path in (case / "checkpoint/offsets").iterdir())
    assert decode_offsets((case / f"checkpoint/offsets/{last}").read_bytes()).conf == {}
    judged = look.restartable(SOURCE, ground.open, thorough=True)
    assert judged.restartable, judged.findings
    assert judged.epoch == last - 1
    assert entries_at(ground, SOURCE)


def test_every_word_is_exported(tmp_path: Path) -> None:
    ground = ground_with(tmp_path, GOLDEN / "words")
    keys = [bytes.fromhex(entry["key"]["hex"]) for entry in entries_at(ground, SOURCE)]
    words = {key[16:].rstrip(b"\0").decode() for key in keys}
    assert words == {"", "alpha", "beta", "délta"}, "these are the words of every file"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_made_of_it_holds_the_same_and_restarts(
    tmp_path: Path, case: Path, change: str
) -> None:
    ground = ground_with(tmp_path, case)
    proposal = ground.propose(spec_of(transform=CHANGES[change], waive=WAIVED))
    assert not proposal.refusals
    ground.apply(proposal)
    judged = look.restartable(TARGET, ground.open, thorough=True)
    assert judged.restartable, judged.findings
    assert entries_at(ground, TARGET) == entries_at(ground, SOURCE)
