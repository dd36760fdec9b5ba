"""A rollback that asks a job to stop which is in a batch: it ends the batch first. Killed at every
moment, what it has committed is kept until somebody says what becomes of it, and both ways out lead
to an end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.clusters.protocol import JobState, StopRequest
from stateshift.errors import ClusterError
from stateshift.report import Report
from tests.simulation.ground import JOB, Ground, Mood, Run, Trouble

# Of the moments at which a run is killed, one in so many is taken.
EVERY = {"full": 1, "default": 1, "quick": 5}


def asked_to_stop(folder: Path, mood: Mood, merges: bool, at: int) -> tuple[Ground, Run, bool]:
    """The ground, the run, and whether it was killed."""
    ground = Ground(folder, mood=mood)
    run = ground.plan(merges)
    ground.apply(run)
    ground.ends_batches = True
    outcome = ground.rollback(run, Trouble("kill", at), discard=False)
    ground.look()
    killed = outcome is None
    if killed:
        ground.rollback(run, discard=False)
        ground.look()
    assert run.state == "failed", ground.told
    return ground, run, killed


@pytest.mark.sample(1)
@pytest.mark.parametrize(("mood", "merges"), [("idle", False), ("sleeps", False), ("idle", True)])
@pytest.mark.parametrize("discards", [False, True], ids=["resume", "discard"])
def test_what_a_job_ends_while_it_is_stopped_is_kept_until_it_is_decided(
    tmp_path: Path, mood: Mood, merges: bool, discards: bool, how: str, seed: int
) -> None:
    every = EVERY[how]
    at, killed = seed % every, True
    while killed:
        at += every
        ground, run, killed = asked_to_stop(tmp_path / str(at), mood, merges, at)
        assert ground.epochs(run.target)["a"] == 3 and ground.alive() == 0
        ground.mood = "commits"
        if at % 3 == 0 and not discards:
            ground.cluster.fail()
        for moment in range(1 + at % 7, 40, 9):  # what follows is killed, too
            again = Trouble("kill", moment)
            ground.rollback(run, again) if discards else ground.resume(run, again)
            ground.look()
            if not run.open:
                break
        outcome = ground.rollback(run) if discards else ground.resume(run)
        if isinstance(outcome, ClusterError):
            outcome = ground.resume(run)
        assert isinstance(outcome, Report), outcome
        assert outcome.state == ("rolled-back" if discards else "finished")
        ground.look()
        where = run.source if discards else run.target
        assert ground.alive() == ground.alive(where) == 1
        assert ground.cluster.find_source(StopRequest(JOB, where)).state is JobState.RUNNING
    assert at > 5, "it was killed at several moments"
