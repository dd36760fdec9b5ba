"""A job that ran when a run began, and whose move fails before the new one has committed, is started
again where it was; where it cannot be, everybody is told since when it is down, before all else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.clusters.protocol import JobState, Origin, StopRequest, Submission, Trial
from stateshift.errors import (
    JOB_DOWN,
    ClusterError,
    Interrupted,
    PlanError,
    StateshiftError,
    StorageError,
)
from stateshift.journal import OriginNoted, decode_records
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_cluster import MemoryCluster
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, TARGET, Around, Ground, running_spec


class Telling(MemoryCluster):
    """A cluster that tells what its jobs were started with, and tries a start."""

    told: Origin = Origin(why="it does not tell")
    trial: Trial = Trial()

    def origin(self, request: StopRequest, like: Mapping[str, object] | None) -> Origin:
        return self.told

    def try_start(self, submission: Submission) -> Trial:
        return self.trial


class Full(Around):
    """A storage that takes no file."""

    def write(self, path: str, *words: Any, **more: Any) -> Any:
        raise StorageError(f"no space is left for {path}", location=self.inner.location)


class Dead(Full):
    """A storage that does nothing any more once `broken` says so."""

    broken = False

    def __getattr__(self, name: str) -> Any:
        if name not in ("location", "traits") and Dead.broken:
            raise StorageError("it does not answer", location=self.inner.location)
        return super().__getattr__(name)

    def write(self, path: str, *words: Any, **more: Any) -> Any:
        Dead.broken = True
        raise StorageError("it does not answer", location=self.inner.location)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    ground = Ground(tmp_path, cluster=Telling())
    ground.write()
    ground.cluster.run("orders", SOURCE)
    return ground


def dies_there(ground: Ground) -> None:
    """What is started on the target dies."""

    def start(submission: Submission) -> None:
        if submission.location == TARGET:
            ground.cluster.set_state(submission.tag, JobState.FAILED, "no such class")

    ground.cluster._on_start = start


def refused(ground: Ground) -> None:
    ground.cluster.fail()


def full(ground: Ground) -> None:
    def wrap(storage: Storage) -> Any:
        return Full(storage) if storage.location.startswith(TARGET) else storage

    ground.wrap = wrap


def dead(ground: Ground) -> None:
    Dead.broken = False

    def wrap(storage: Storage) -> Any:
        return Dead(storage) if storage.location.startswith("file:///there") else storage

    ground.wrap = wrap


def running(ground: Ground) -> list[str]:
    return [job.location for job in ground.cluster.jobs if job.status.state.alive]


def failed(ground: Ground, **keys: Any) -> StateshiftError:
    with pytest.raises(StateshiftError) as caught:
        ground.apply(running_spec(**keys))
    return caught.value


FAULTS: list[Callable[[Ground], None]] = [full, dead, refused, dies_there]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_whose_move_fails_runs_again_where_it_was(
    ground: Ground, fault: Callable[[Ground], None]
) -> None:
    fault(ground)
    error = failed(ground)
    assert running(ground) == [SOURCE]
    assert not error.fact.startswith("down since")
    assert error.exit_code in (StorageError.exit_code, ClusterError.exit_code)
    assert not migration.status(ground.workdir()).down
    if fault is not dead:
        assert "was started again where it was" in (error.hint or "")
    assert [path for path in ground.held(SOURCE) if "stateshift" in path] == []


@pytest.mark.parametrize("fault", [refused, dies_there])
def test_a_job_that_nothing_can_start_again_is_said_to_be_down(
    ground: Ground, fault: Callable[[Ground], None]
) -> None:
    fault(ground)
    error = failed(ground, source_submit=None)
    assert running(ground) == []
    assert error.exit_code == JOB_DOWN and error.fact.startswith("down since")
    hint = error.hint or ""
    assert "started again where it was" not in hint
    assert f"IS DOWN: orders is stopped: start it again from {SOURCE}" in hint
    status = migration.status(ground.workdir())
    assert status.down and "started again where it was" not in str(status)


def starts_on(ground: Ground) -> None:
    """What is started on the target commits a batch."""

    def start(submission: Submission) -> None:
        extra = Checkpoint(batches=4).files()
        for path in ("offsets/3", "state/0/0/4.delta", "state/0/1/4.delta", "commits/3"):
            if submission.location == TARGET:
                ground.put(f"{TARGET}/{path}", extra[path])

    ground.cluster._on_start = start


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_downtime_counts_from_the_stop_after_which_nothing_ran(
    ground: Ground, by_hand: bool
) -> None:
    refused(ground)
    failed(ground, source_submit=None)
    ground.clock.time += 100
    if by_hand:
        ground.cluster.run("orders", SOURCE)
    starts_on(ground)
    (job,) = ground.resume().jobs
    assert job.downtime_from == "halt"
    assert job.downtime_seconds is not None
    assert (job.downtime_seconds >= 100) is not by_hand


@pytest.mark.parametrize("fault", FAULTS)
def test_a_resume_moves_it_once_that_is_mended(
    ground: Ground, fault: Callable[[Ground], None]
) -> None:
    fault(ground)
    failed(ground)
    Dead.broken = False
    ground.wrap = lambda storage: storage
    starts_on(ground)
    assert ground.resume().state == "finished"
    assert running(ground) == [TARGET]


def test_a_job_whose_source_is_gone_is_not_started_over_nothing(ground: Ground) -> None:
    """It would begin anew, and write everything again."""
    kept = ground.held(SOURCE)

    def vanish(request: StopRequest) -> None:
        for path in ground.held(SOURCE):
            ground.remove(f"{SOURCE}/{path}")

    ground.cluster._on_stop = vanish
    error = failed(ground)
    assert running(ground) == []
    assert error.exit_code == JOB_DOWN and error.fact.startswith("down since")
    for path, content in kept.items():
        ground.put(f"{SOURCE}/{path}", content)
    ground.cluster._on_stop = lambda request: None
    assert ground.rollback().state == "rolled-back"
    assert running(ground) == [SOURCE]


def test_a_job_that_went_on_in_between_runs_again_after_a_second_failure(ground: Ground) -> None:
    refused(ground)
    failed(ground)
    extra = Checkpoint(batches=4).files()
    for path in ("offsets/3", "state/0/0/4.delta", "state/0/1/4.delta", "commits/3"):
        ground.put(f"{SOURCE}/{path}", extra[path])
    refused(ground)
    with pytest.raises(ClusterError) as caught:
        ground.resume()
    assert running(ground) == [SOURCE]
    assert not caught.value.fact.startswith("down since")


def test_what_it_was_started_with_comes_before_what_the_spec_says(ground: Ground) -> None:
    assert isinstance(ground.cluster, Telling)
    ground.cluster.told = Origin({"command": "as it was"}, {"LEVEL": "3"})
    dies_there(ground)
    failed(ground)
    back = [each for each in ground.cluster.submissions if each.location == SOURCE]
    assert [(each.options, each.environment) for each in back] == [
        ({"command": "as it was"}, {"LEVEL": "3"})
    ]


def test_credentials_are_for_the_owner_and_not_in_the_journal(ground: Ground) -> None:
    assert isinstance(ground.cluster, Telling)
    ground.cluster.told = Origin({"arguments": ["--password", "hunter22"]})
    dies_there(ground)
    failed(ground)
    file = ground.workdir().path / "origins.json"
    assert "hunter22" in file.read_text() and file.stat().st_mode & 0o077 == 0
    records, _ = decode_records(ground.workdir().lines.read())
    assert [record.job for record in records if isinstance(record, OriginNoted)] == ["orders"]
    assert b"hunter22" not in ground.workdir().lines.read()


def test_where_that_is_refused_the_spec_is_tried(ground: Ground) -> None:
    assert isinstance(ground.cluster, Telling)
    ground.cluster.told = Origin({"command": "as it was"})

    def start(submission: Submission) -> None:
        if submission.options.get("command") != "back":
            ground.cluster.set_state(submission.tag, JobState.FAILED, "no such class")

    ground.cluster._on_start = start
    failed(ground)
    assert running(ground) == [SOURCE]


def test_who_cannot_be_started_again_is_down_in_all_words(ground: Ground) -> None:
    def start(submission: Submission) -> None:
        ground.cluster.set_state(submission.tag, JobState.FAILED, "no such class")

    ground.cluster._on_start = start
    error = failed(ground)
    assert error.fact.startswith("down since ") and "orders" in error.fact
    assert error.exit_code == JOB_DOWN and isinstance(error, ClusterError)
    report = migration.status(ground.workdir())
    assert report.failure is not None
    assert report.failure.message.startswith("down since ")
    assert report.failure.exit_code == JOB_DOWN
    ground.cluster._on_start = None
    assert ground.rollback().state == "rolled-back"
    assert running(ground) == [SOURCE] and not migration.status(ground.workdir()).down


def test_stop_is_a_choice_and_says_that_the_job_is_down(ground: Ground) -> None:
    dies_there(ground)
    error = failed(ground, spec_on_failure="stop")
    assert running(ground) == []
    assert error.fact.startswith("down since ") and error.exit_code == JOB_DOWN


def test_a_job_that_has_committed_at_the_target_is_never_started_at_the_source(
    ground: Ground,
) -> None:
    def start(submission: Submission) -> None:
        extra = Checkpoint(batches=4).files()
        for path in ("offsets/3", "state/0/0/4.delta", "state/0/1/4.delta", "commits/3"):
            ground.put(f"{submission.location}/{path}", extra[path])
        ground.cluster.set_state(submission.tag, JobState.FAILED, "it died then")

    ground.cluster._on_start = start
    ground.cluster._on_stop = None
    with pytest.raises(StateshiftError) as caught:
        ground.apply(running_spec())
        raise Interrupted("it was confirmed")
    assert SOURCE not in running(ground)
    assert isinstance(caught.value, Interrupted | ClusterError)


def test_a_start_that_is_refused_beforehand_stops_nothing(ground: Ground) -> None:
    assert isinstance(ground.cluster, Telling)
    ground.cluster.trial = Trial("the program was refused: no number")
    error = failed(ground)
    assert isinstance(error, PlanError) and error.exit_code == PlanError.exit_code
    assert ground.cluster.stops == [] and running(ground) == [SOURCE]
    assert "nothing was stopped" in (error.hint or "")
    assert ground.locks() == []


@pytest.mark.parametrize(("command", "said"), [("echo no such flag; exit 3", "no such flag")])
def test_a_check_of_the_spec_refuses_it_as_well(ground: Ground, command: str, said: str) -> None:
    submit = {"command": "go", "submit_check": command}
    spec = running_spec()
    (job,) = spec.jobs
    from dataclasses import replace

    assert job.submit is not None
    checked = replace(spec, jobs=(replace(job, submit=replace(job.submit, check=command)),))
    with pytest.raises(PlanError, match=said) as caught:
        ground.apply(checked)
    assert "ended with 3" in caught.value.fact and running(ground) == [SOURCE]
    assert submit["submit_check"] == command
