"""Jobs that are brought over while they run, on a disk and a cluster in memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stateshift.clusters.protocol import StopRequest, Submission
from stateshift.errors import PlanError, StalePlan
from stateshift.formats.marks import fence_owner
from stateshift.report import Report
from stateshift.spec import Spec
from stateshift.storage.protocol import Storage
from tests.support.ground import SOURCE, TARGET, Ground, running_spec
from tests.support.living import LivingJob, Watched, state_at


class Stage:
    """A job that lives while it is moved, and goes on where it is started."""

    def __init__(self, folder: Path, seed: int = 1, batches: int = 12) -> None:
        self.ground = Ground(folder)
        self.job = LivingJob(self.ground.disk, SOURCE, random.Random(seed))
        for _ in range(batches):
            self.job.batch()
        self.ground.clock.time += 600
        self.ground.cluster.run("orders", SOURCE)
        self.ground.cluster._on_stop = self._stop
        self.ground.cluster._on_start = self._start
        self.ground.wrap = self._wrap
        self.there: LivingJob | None = None

    def _wrap(self, storage: Storage) -> Storage:
        return Watched(storage, self.job)  # type: ignore[return-value]

    def _stop(self, request: StopRequest) -> None:
        self.job.batch()  # the one that it was in
        self.job.running = False

    def _start(self, submission: Submission) -> None:
        if submission.location == TARGET:
            epoch, state = state_at(self.ground.disk.open(TARGET))
            assert epoch == self.job.epoch
            assert state == self.job.expected(epoch), "what was brought over is not the job's state"
            self.there = self.job.moved_to(TARGET)
            self.there.batch()
        else:
            self.job.running = True

    def apply(self, **keys: object) -> Report:
        return self.ground.apply(warm_spec(**keys))


def warm_spec(**keys: object) -> Spec:
    return running_spec(mode="warm", **keys)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.mark.row("T-1", "T-5")
def test_what_does_not_change_is_brought_before_the_job_is_stopped(stage: Stage) -> None:
    stage.job.moods = dict.fromkeys(stage.job.moods, 0.0)
    report = stage.apply()
    assert report.state == "finished"
    workdir = stage.ground.workdir()
    rounds = [p for p in report.jobs[0].phases if p.name.startswith("round")]
    assert rounds and sum(p.files for p in rounds) >= 24
    moved = workdir.read("plans/2.json")
    copied = [i for p in moved["phases"] if p["name"] == "copy" for s in p["steps"] if s["kind"] == "CopyFiles"
              for i in s["items"]]  # fmt: skip
    assert sorted(item[0] for item in copied) == ["state/0/0/13.delta", "state/0/1/13.delta"], "the last batch's"


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_job_does_meanwhile_its_last_state_arrives(tmp_path: Path, seed: int) -> None:
    stage = Stage(tmp_path, seed)
    stage.job.moods = {"batch": 0.02, "tidy": 0.01, "back": 0.004}
    report = stage.apply(rounds=3)
    assert report.state == "finished"
    assert stage.there is not None
    source = stage.ground.held(SOURCE)
    assert fence_owner(source[f"commits/{stage.job.epoch + 1}"]) == "run-run"


@pytest.mark.parametrize("seed", range(20))
def test_taken_back_nothing_is_left_of_it_and_the_job_goes_on(tmp_path: Path, seed: int) -> None:
    stage = Stage(tmp_path, seed)
    stage.job.moods = {"batch": 0.02, "tidy": 0.01, "back": 0.004}
    stage.apply(rounds=2)
    stage.ground.rollback(discard_progress=True)
    assert stage.ground.held(TARGET) == {}
    epoch, state = state_at(stage.ground.disk.open(SOURCE))
    assert epoch is not None and state == stage.job.expected(epoch)
    assert stage.job.running and not stage.ground.locks()


def test_a_job_that_writes_as_fast_as_it_is_brought_is_not_stopped(stage: Stage) -> None:
    stage.job.moods = {"batch": 0.3, "tidy": 0.0, "back": 0.0}
    with pytest.raises(PlanError, match=r"writes .* are brought") as caught:
        stage.apply(until="remaining < 1ms", rounds=4)
    assert "cutover" in (caught.value.hint or "") and caught.value.exit_code == 4
    assert stage.job.running and not stage.ground.cluster.stops


def test_a_job_that_is_another_one_by_then_is_not_followed(stage: Stage) -> None:
    proposal = stage.ground.propose(warm_spec())
    stage.ground.put(f"{SOURCE}/metadata", b'{"id":"99999999-2222-3333-4444-555555555555"}')
    with pytest.raises(StalePlan):
        stage.ground.apply(proposal)
    assert stage.job.running and not stage.ground.cluster.stops
