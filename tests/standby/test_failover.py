"""A job is started from its standby, from the standby's storage alone: on a disk and a cluster in
memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.api.failovers import fence_again, spec_of_failover, standby_at
from stateshift.clusters.protocol import Submission
from stateshift.errors import (
    ClusterError,
    FormatError,
    JournalError,
    OtherRunError,
    PlanError,
    StateshiftError,
    StorageError,
    UnknownVersion,
)
from stateshift.formats.marks import fence_owner
from stateshift.formats.standby import STATE, claim_path
from stateshift.report import Report
from stateshift.step.claims import newest_claim
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import MemoryStorage
from tests.migration.test_last_copy import damaged, gone, older, standby, unreachable
from tests.migration.test_warm import Ended, Standby
from tests.support.ground import SOURCE, TARGET
from tests.support.living import state_at

Lose = Callable[[Standby], None]


def dark(stage: Standby) -> None:
    """The primary's region: its storage gives no answer, and its cluster neither."""
    unreachable(stage)
    stage.ground.cluster.jobs.clear()


def nothing(stage: Standby) -> None:
    """The source is as it was; its job runs on."""
    stage.job.running = True


def fail_over(stage: Standby, primary_is_down: bool = True, workdir: str = "failover") -> Report:
    found = standby_at(TARGET, stage.ground.adapters)
    spec = spec_of_failover(found, None, primary_is_down)
    stage.looks = 10**6
    return stage.ground.apply(spec, workdir)


def target(stage: Standby) -> MemoryStorage:
    return stage.ground.disk.open(TARGET)


@pytest.mark.row("W-22")
@pytest.mark.parametrize("lose", [dark, gone, damaged, older])
def test_the_job_goes_on_where_its_standby_is(tmp_path: Path, lose: Lose) -> None:
    stage = standby(tmp_path, lose)
    epoch = stage.job.epoch if lose is not older else 11
    stage.job.epoch = epoch  # what the standby has of it
    report = fail_over(stage)
    assert report.state == "finished" and stage.there is not None
    (job,) = report.jobs
    assert job.failover is not None
    assert job.failover.epoch == epoch and job.failover.generation == 2
    assert job.failover.rpo.seconds is not None and job.failover.rpo.seconds > 0
    assert not job.failover.fenced and job.failover.rto_seconds is not None
    claim = newest_claim(target(stage))
    assert claim is not None and (claim.verb, claim.run) == ("failover", "run-failover")
    assert not stage.ground.locks()


@pytest.mark.row("W-22")
def test_who_fed_it_writes_nothing_there_any_more(tmp_path: Path) -> None:
    stage = standby(tmp_path, gone)
    fail_over(stage)
    before = stage.ground.disk.snapshot(TARGET)
    stage.looks = 10
    with pytest.raises(OtherRunError) as caught:
        stage.ground.resume()
    assert caught.value.exit_code == 4 and "taken over by a failover" in caught.value.fact
    with pytest.raises(StateshiftError):
        stage.ground.rollback(discard_progress=True)
    assert stage.ground.disk.snapshot(TARGET) == before


@pytest.mark.row("W-22")
def test_a_feeder_at_work_ends_when_it_is_taken_over(tmp_path: Path) -> None:
    """Also in the middle of a round: the failover waits until whoever writes has asked again."""
    reports: list[Report] = []

    def take_over() -> None:
        stage.job.running = False
        reports.append(fail_over(stage))

    stage = Standby(tmp_path, 1, 60, at_30=take_over)
    stage.job.moods, stage.job.retained = {}, 100
    with pytest.raises(OtherRunError):
        stage.apply(cutover="never")
    assert reports[0].state == "finished" and stage.there is not None
    fences = [fence_owner(content) for content in stage.ground.held(SOURCE).values()]
    assert not any(fences)


@pytest.mark.row("W-22")
def test_a_primary_that_answers_is_stopped_and_fenced(tmp_path: Path) -> None:
    stage = standby(tmp_path, nothing)
    stage.job.running = True
    found = standby_at(TARGET, stage.ground.adapters)
    proposal = stage.ground.propose(spec_of_failover(found, None, primary_is_down=False))
    warned = [finding.message for finding in proposal.plans[-1].findings]
    assert any("it is stopped" in message for message in warned), warned
    from_epoch(stage, 11)
    report = stage.ground.apply(proposal, "failover")
    (job,) = report.jobs
    assert job.failover is not None and job.failover.fenced
    assert job.failover.rpo.batches == 1, "the one that it was in when it was stopped"
    assert stage.ground.cluster.stops and not stage.job.running
    fenced = {
        path: fence_owner(content)
        for path, content in stage.ground.held(SOURCE).items()
        if fence_owner(content)
    }
    assert set(fenced.values()) == {"run-failover"}
    assert f"commits/{stage.job.epoch + 1}" in fenced, "it cannot commit another batch"


def test_a_primary_that_gives_no_answer_is_not_passed_over_unless_somebody_says_so(
    tmp_path: Path,
) -> None:
    stage = standby(tmp_path, unreachable)
    stage.ground.cluster.find_source = refuse  # type: ignore[method-assign]
    before = stage.ground.disk.snapshot()
    found = standby_at(TARGET, stage.ground.adapters)
    proposal = stage.ground.propose(spec_of_failover(found, None, primary_is_down=False))
    (refusal,) = proposal.refusals
    assert "cannot be kept from going on" in refusal.message
    assert "--primary-is-down" in (refusal.hint or "")
    with pytest.raises(PlanError):
        stage.ground.apply(proposal, "failover")
    assert stage.ground.disk.snapshot() == before


def from_epoch(stage: Standby, epoch: int) -> None:
    """The job is started from this epoch of its own, whatever the primary has done since."""

    def start(submission: Submission) -> None:
        found, state = state_at(target(stage))
        assert found == epoch and state == stage.job.expected(epoch)
        stage.there = stage.job.moved_to(TARGET)
        stage.there.epoch = epoch
        stage.there.batch()

    stage.ground.cluster._on_start = start
    stage.looks = 10**6


def refuse(*arguments: object) -> None:
    raise ClusterError("no answer", cluster="ours")


@pytest.mark.row("W-22")
def test_a_primary_that_wakes_up_is_fenced_by_the_same_command(tmp_path: Path) -> None:
    stage = standby(tmp_path, nothing)
    stage.job.running = False
    report = fail_over(stage)
    assert report.jobs[0].failover is not None and not report.jobs[0].failover.fenced
    wrap = stage.ground.wrap
    unreachable(stage)
    found = standby_at(TARGET, stage.ground.adapters)
    stage.ground.cluster.find_source = refuse  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="still cannot be kept"):
        fence_again(found, stage.ground.adapters)
    stage.ground.wrap = wrap
    for _ in range(2):  # by cron
        fenced = fence_again(found, stage.ground.adapters)
        assert fenced.cannot_go_on and f"commits/{stage.job.epoch + 1}" in fenced.paths
    owners = set(filter(None, map(fence_owner, stage.ground.held(SOURCE).values())))
    assert owners == {"run-failover"}


def test_a_failover_that_is_not_finished_is_resumed_and_not_begun_again(tmp_path: Path) -> None:
    stage = standby(tmp_path, gone)
    stage.ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(ClusterError):
        fail_over(stage)
    found = standby_at(TARGET, stage.ground.adapters)
    assert found.is_taken_over
    with pytest.raises(JournalError) as caught:
        fence_again(found, stage.ground.adapters)
    assert "stateshift resume" in (caught.value.hint or "")
    del stage.ground.cluster.submit  # type: ignore[attr-defined]
    assert stage.ground.resume("failover").state == "finished" and stage.there is not None


def test_taken_back_the_standby_is_fed_again(tmp_path: Path) -> None:
    stage = standby(tmp_path, nothing)
    stage.job.running = False
    stage.ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(ClusterError):
        fail_over(stage, primary_is_down=False)
    stage.ground.rollback("failover")
    claim = newest_claim(target(stage))
    assert claim is not None and (claim.generation, claim.verb) == (1, "standby")
    assert not any(map(fence_owner, stage.ground.held(SOURCE).values()))
    stage.job.running, stage.looks = True, 400
    stage.job.batch()
    with pytest.raises(Ended):
        stage.ground.resume()
    assert stage.kept[-1] == stage.job.epoch


@pytest.mark.row("W-22")
def test_what_is_published_between_its_plan_and_its_claim_is_started_from(tmp_path: Path) -> None:
    """And is not taken for the first commit of the job that it starts."""
    stage = standby(tmp_path, nothing)
    stage.job.running = True
    found = standby_at(TARGET, stage.ground.adapters)
    proposal = stage.ground.propose(spec_of_failover(found, None, primary_is_down=True))
    stage.job.batch()
    stage.looks = 400
    with pytest.raises(Ended):
        stage.ground.resume()
    assert stage.kept[-1] == 12
    from_epoch(stage, 12)
    (job,) = stage.ground.apply(proposal, "failover").jobs
    assert job.failover is not None and job.failover.epoch == 12
    assert stage.there is not None and stage.there.epoch == 13


def test_two_failovers_at_the_same_time_start_one_job(tmp_path: Path) -> None:
    stage = standby(tmp_path, gone)
    found = standby_at(TARGET, stage.ground.adapters)
    spec = spec_of_failover(found, None, primary_is_down=True)
    stage.looks = 10**6
    first, second = stage.ground.propose(spec), stage.ground.propose(spec)
    assert stage.ground.apply(first, "first").state == "finished"
    with pytest.raises(StateshiftError) as caught:
        stage.ground.apply(second, "second")
    assert caught.value.exit_code in (4, 8)
    assert len(stage.ground.cluster.submissions) == 1


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", FormatError),
        (b'{"version": 1}', FormatError),
        (b'{"version": 99}', UnknownVersion),
        (b"\xff" * 10, FormatError),
    ],
)
def test_a_damaged_state_file_starts_nothing(
    tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    stage = standby(tmp_path, gone)
    stage.ground.put(f"{TARGET}/{STATE}", content)
    before = stage.ground.disk.snapshot()
    with pytest.raises(error):
        fail_over(stage)
    assert stage.ground.disk.snapshot() == before


@pytest.mark.parametrize("key", ["location", "source_of_spec", "spec", "submit"])
def test_a_state_file_that_was_changed_starts_nothing_else(tmp_path: Path, key: str) -> None:
    stage = standby(tmp_path, gone)
    state = json.loads(target(stage).read(STATE))
    match key:
        case "location":
            state["location"] = "file:///elsewhere/orders"
        case "source_of_spec":
            state["spec"]["jobs"][0]["checkpoint_location"] = "file:///elsewhere/orders"
        case "spec":
            state["spec"] = {"jobs": [{"name": "orders"}]}
        case "submit":
            del state["spec"]["jobs"][0]["submit"]
    stage.ground.put(f"{TARGET}/{STATE}", json.dumps(state).encode())
    with pytest.raises(PlanError):
        fail_over(stage)
    assert not stage.ground.cluster.submissions


def test_there_is_no_standby_where_none_was_published(tmp_path: Path) -> None:
    stage = Standby(tmp_path, 1, 10)
    for place in (SOURCE, TARGET):
        with pytest.raises(PlanError, match="no standby"):
            standby_at(place, stage.ground.adapters)
    kept = standby(tmp_path / "kept", gone)
    found = standby_at(TARGET, kept.ground.adapters)
    with pytest.raises(PlanError, match="holds 11, and not 12"):
        spec_of_failover(found, 12, primary_is_down=True)


def test_a_standby_that_becomes_a_move_is_none_any_more(tmp_path: Path) -> None:
    stage = standby(tmp_path, nothing)
    stage.job.running, stage.looks = True, 10**6
    stage.ground.workdir().steering.ask_cutover(True)
    assert stage.ground.resume().state == "finished"
    names = {path.rpartition("/")[2] for path in stage.ground.disk.snapshot(TARGET)}
    assert not names & {STATE.rpartition("/")[2], claim_path(1).rpartition("/")[2]}


def test_a_claim_of_somebody_else_ends_a_standby_before_it_writes(tmp_path: Path) -> None:
    stage = standby(tmp_path, nothing)
    other = replace(newest_claim(target(stage)), run="another", verb="standby")  # type: ignore[type-var]
    target(stage).remove(claim_path(1))
    from stateshift.step.claims import claim

    claim(target(stage), other)  # type: ignore[arg-type]
    before = stage.ground.disk.snapshot(TARGET)
    stage.looks = 10
    with pytest.raises(OtherRunError, match="fed by another standby"):
        stage.ground.resume()
    assert stage.ground.disk.snapshot(TARGET) == before


class Dying:
    """A storage whose process is gone at the n-th change."""

    def __init__(self, storage: Storage, moments: list[int]) -> None:
        self._storage, self._moments = storage, moments

    def __getattr__(self, name: str) -> object:
        act = getattr(self._storage, name)
        if name not in ("write", "create", "move", "remove"):
            return act

        def change(*arguments: object) -> object:
            self._moments[0] -= 1
            if self._moments[0] == 0:
                raise Gone
            return act(*arguments)

        return change


class Gone(BaseException):
    """The process was killed."""


@pytest.mark.row("W-22")
@pytest.mark.parametrize("moment", range(1, 8))
def test_killed_at_any_change_it_is_resumed(tmp_path: Path, moment: int) -> None:
    stage = standby(tmp_path, nothing)
    stage.job.running = False
    from_epoch(stage, 11)
    wrap, moments = stage.ground.wrap, [moment]
    stage.ground.wrap = lambda storage: Dying(wrap(storage), moments)  # type: ignore[assignment, return-value]
    try:
        fail_over(stage, primary_is_down=False)
    except Gone:
        stage.ground.wrap = wrap
        workdir = stage.ground.workdir("failover")
        if workdir.exists:
            stage.ground.resume("failover")
        else:
            fail_over(stage, primary_is_down=False)
    assert stage.there is not None
    assert len(stage.ground.cluster.submissions) == 1
    claim = newest_claim(target(stage))
    assert claim is not None and claim.run == "run-failover"
    owners = set(filter(None, map(fence_owner, stage.ground.held(SOURCE).values())))
    assert owners == {"run-failover"}
