"""Checkpoints without a commit log: Spark 2.1 kept none, and any Spark takes all batches but the
last one planned as done, and runs that one again. Seen with 4.3.0: `commits/` removed behind batch
5, the job starts with batch 5; without offsets/4 beside offsets/5 it fails ("batch 4 doesn't
exist"); with offsets/0 alone it begins with batch 0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.errors import PlanError
from stateshift.step import FenceSource
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import SOURCE, TARGET, Ground, running_spec, spec_of

WAIVED = ["paths-stay"]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """Five batches that were done, as Spark 2.1 leaves them: the last one's state is there, and
    no commit is.
    """
    ground = Ground(tmp_path)
    write(ground, Checkpoint(batches=5))
    return ground


def write(ground: Ground, checkpoint: Checkpoint, *without: str) -> None:
    storage = ground.disk.open(SOURCE)
    for path, content in checkpoint.files().items():
        if not path.startswith("commits/") and path not in without:
            put(storage, path, content)
    ground.clock.time += 600


def refusals(ground: Ground, **keys: Any) -> list[str]:
    proposal = ground.propose(spec_of(waive=WAIVED, **keys))
    return [finding.message for finding in proposal.refusals]


def test_a_job_restarts_behind_the_batch_before_the_last_one_planned(ground: Ground) -> None:
    judged = look.restartable(SOURCE, ground.open, thorough=True)
    assert judged.restartable
    assert (judged.epoch, judged.epochs) == (3, (3,))
    (warning,) = [finding.message for finding in judged.findings if finding.level == "warn"]
    assert "takes the batches up to 3 as done, and runs batch 4 again" in warning


def test_its_state_is_exported_as_the_batch_that_runs_again_finds_it(ground: Ground) -> None:
    whole = Ground(ground.folder / "whole")
    write_whole = Checkpoint(batches=4)
    write_whole.write(whole.disk.open(SOURCE))
    lines = [
        b"".join(look.export(SOURCE, "x.jsonl", None, where.open).chunks())
        for where in (ground, whole)
    ]
    assert lines[0] == lines[1] != b""


def test_a_copy_restarts_as_the_source_would_and_is_taken_back(ground: Ground) -> None:
    before = ground.held(SOURCE)
    ground.apply(spec_of(waive=WAIVED))
    held = ground.held(TARGET)
    assert not [path for path in held if path.startswith("commits/")]
    assert {"offsets/3", "offsets/4", "metadata"} <= held.keys()
    assert [path for path in held if path.endswith("5.delta")], (
        "the state that batch 4 wrote goes along"
    )
    judged = look.restartable(TARGET, ground.open, thorough=True)
    assert judged.restartable and judged.epoch == 3
    fences = [path for path in ground.held(SOURCE) if path not in before]
    assert sorted(fences) == ["commits/4", "offsets/5"], (
        "Spark 2.1 writes no commit that a fence could stop"
    )
    fenced = look.restartable(SOURCE, ground.open)
    assert not fenced.restartable
    ground.rollback()
    assert ground.held(SOURCE) == before


def test_it_is_compacted(ground: Ground) -> None:
    ground.apply(spec_of(waive=WAIVED, transform=[{"kind": "compact"}]))
    judged = look.restartable(TARGET, ground.open, thorough=True)
    assert judged.restartable and judged.epoch == 3
    assert look.diff(SOURCE, TARGET, ground.open).equal


def test_nothing_tells_how_far_a_running_job_is_so_that_it_is_not_followed(ground: Ground) -> None:
    proposal = ground.propose(running_spec(mode="warm", waive=WAIVED))
    assert any("so that it cannot be followed" in finding.message for finding in proposal.refusals)


def test_the_batch_that_runs_again_cannot_be_dropped(ground: Ground) -> None:
    assert any("has no commit log" in reason for reason in refusals(ground, planned_batch="drop"))


def test_there_is_no_way_back_to_a_batch_without_a_commit(ground: Ground) -> None:
    assert any(
        "batch 1 is not committed" in reason
        for reason in refusals(ground, transform=[{"kind": "rewind", "batch": 1}])
    )
    with pytest.raises(PlanError, match="state of batch 1"):
        look.export(SOURCE, "x.jsonl", look.Wanted(batch=1), ground.open)


def test_the_offsets_before_the_last_are_needed(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    write(ground, Checkpoint(batches=5), "offsets/3")
    assert not look.restartable(SOURCE, ground.open).restartable
    assert refusals(ground)


def test_with_one_batch_planned_and_none_done_a_job_begins(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    write(ground, Checkpoint(batches=1))
    judged = look.restartable(SOURCE, ground.open)
    assert judged.restartable and judged.epoch is None


def test_the_plan_of_a_fence_is_the_same_where_there_are_commits(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(batches=5))
    steps = [step for plan in ground.propose(spec_of(waive=WAIVED)).plans for step in plan]
    (fence,) = [step for step in steps if isinstance(step, FenceSource)]
    assert json.dumps(fence.paths) == '["offsets/5", "commits/5"]'
