"""verify WORKDIR: a file at the target that the run did not write does not go unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift import migration
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import SOURCE, TARGET, Ground, spec_of

EPOCH = 2


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    made = Ground(tmp_path)
    made.write(Checkpoint(batches=EPOCH + 1))
    made.apply(spec_of())
    return made


def verdict(ground: Ground) -> migration.Verdict:
    return migration.verify(ground.workdir(), ground.adapters)


def test_a_run_that_nobody_disturbed_holds(ground: Ground) -> None:
    found = verdict(ground)
    assert (found.broken, found.notes) == ((), ())


@pytest.mark.parametrize(
    "path",
    [
        "commits/3",
        "offsets/3",
        "offsets/0",
        "commits/9",
        "state/0/0/4.delta",
        "state/0/0/3.snapshot",
        "state/0/7/3.delta",
        "sources/0/0",
        "state/1/_metadata/metadata",
        "notes.txt",
    ],
)
def test_a_file_that_the_run_did_not_write_is_named(ground: Ground, path: str) -> None:
    content = ground.held(SOURCE).get("commits/2", b"x")
    ground.put(f"{TARGET}/{path}", content)
    (broken,) = verdict(ground).broken
    assert broken.discrepancy.place == path
    assert "a file that the run did not write" in str(broken.discrepancy)


def test_many_of_them_are_counted(ground: Ground) -> None:
    for number in range(25):
        ground.put(f"{TARGET}/state/0/0/{number + 10}.delta")
    broken = verdict(ground).broken
    assert len(broken) == 11
    assert broken[-1].discrepancy.found == "15 more files that the run did not write"


def test_a_job_that_somebody_started_there_and_that_committed_is_said_to_have_gone_on(
    ground: Ground,
) -> None:
    later = Checkpoint(batches=EPOCH + 3).files()
    ours = ground.held(TARGET)
    storage = ground.disk.open(TARGET)
    for path, content in later.items():
        if path not in ours and not path.startswith(("offsets/0", "commits/0", "commits/1")):
            put(storage, path, content)
    found = verdict(ground)
    assert found.broken == ()
    assert any("has gone on to 4 since, started by somebody else" in note for note in found.notes)


def test_a_commit_alone_is_no_job_that_went_on(ground: Ground) -> None:
    ground.put(f"{TARGET}/commits/3", b'v1\n{"nextBatchWatermarkMs":0}')
    ground.put(f"{TARGET}/offsets/3", b"v1\n{}")
    assert {broken.discrepancy.place for broken in verdict(ground).broken} == {
        "commits/3",
        "offsets/3",
    }


def test_what_a_file_system_or_a_lock_leaves_there_is_nobodys(ground: Ground) -> None:
    for path in ("offsets/.2.crc", "state/0/0/.4.delta.aaaa.tmp", "_stateshift/found"):
        ground.put(f"{TARGET}/{path}")
    assert verdict(ground).broken == ()
