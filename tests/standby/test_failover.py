"""A job is started from its standby, from the standby's storage alone: on a disk and a cluster in
memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import api
from stateshift.api.failovers import fence_again, standby_at
from stateshift.cli.views import plan_text
from stateshift.cli.views.run_html import page
from stateshift.cli.views.run_text import report
from stateshift.clusters.protocol import StopRequest, Submission
from stateshift.documents.plan import plan_facts
from stateshift.documents.run import RunFacts
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
from stateshift.standby.location import failover_spec
from stateshift.step.claims import newest_claim
from stateshift.storage.protocol import Storage
from tests.migration.test_last_copy import damaged, gone, older, standby, unreachable
from tests.migration.test_warm import Ended, Standby
from tests.support.ground import SOURCE, TARGET, running_spec
from tests.support.living import state_at

Lose = Callable[[Standby], None]


def dark(ground: Standby) -> None:
    """The primary's region: its storage gives no answer, and its cluster neither."""
    unreachable(ground)
    ground.cluster.jobs.clear()


def nothing(ground: Standby) -> None:
    """The source is as it was; its job runs on."""
    ground.job.running = True


def fail_over(ground: Standby, primary_is_down: bool = True, workdir: str = "failover") -> Report:
    found = standby_at(TARGET, ground.adapters)
    spec = failover_spec(found, primary_is_down)
    ground.looks = 10**6
    return ground.apply(spec, workdir)


@pytest.mark.row("W-22")
@pytest.mark.parametrize("lose", [dark, gone, damaged, older])
def test_the_job_goes_on_where_its_standby_is(tmp_path: Path, lose: Lose) -> None:
    ground = standby(tmp_path, lose)
    epoch = ground.job.epoch if lose is not older else 11
    ground.job.epoch = epoch  # what the standby has of it
    report = fail_over(ground)
    assert report.state == "finished" and ground.there is not None
    (job,) = report.jobs
    assert job.failover is not None
    assert job.failover.epoch == epoch and job.failover.generation == 2
    assert job.failover.rpo.seconds is not None and job.failover.rpo.seconds > 0
    assert not job.failover.fenced and job.failover.rto_seconds is not None
    claim = newest_claim(ground.target)
    assert claim is not None and (claim.verb, claim.run) == ("failover", "run-failover")
    assert not ground.locks()


@pytest.mark.row("W-22")
def test_who_fed_it_writes_nothing_there_any_more(tmp_path: Path) -> None:
    ground = standby(tmp_path, gone)
    fail_over(ground)
    before = ground.disk.snapshot(TARGET)
    ground.looks = 10
    with pytest.raises(OtherRunError) as caught:
        ground.resume()
    assert caught.value.exit_code == 4 and "taken over by a failover" in caught.value.fact
    with pytest.raises(StateshiftError):
        ground.rollback(discard_progress=True)
    assert ground.disk.snapshot(TARGET) == before


@pytest.mark.row("W-22")
def test_a_feeder_at_work_ends_when_it_is_taken_over(tmp_path: Path) -> None:
    """Also in the middle of a round: the failover waits until whoever writes has asked again."""
    reports: list[Report] = []

    def take_over() -> None:
        ground.job.running = False
        reports.append(fail_over(ground))

    ground = Standby(tmp_path, 1, 60, at_30=take_over)
    ground.job.moods, ground.job.retained = {}, 100
    with pytest.raises(OtherRunError):
        ground.warm(cutover="never")
    assert reports[0].state == "finished" and ground.there is not None
    fences = [fence_owner(content) for content in ground.held(SOURCE).values()]
    assert not any(fences)


@pytest.mark.row("W-22")
def test_a_primary_that_answers_is_stopped_and_fenced(tmp_path: Path) -> None:
    ground = standby(tmp_path, nothing)
    ground.job.running = True
    found = standby_at(TARGET, ground.adapters)
    proposal = ground.propose(failover_spec(found, primary_is_down=False))
    warned = [finding.message for finding in proposal.plans[-1].findings]
    assert any("it is stopped" in message for message in warned), warned
    from_epoch(ground, 11)
    report = ground.apply(proposal, "failover")
    (job,) = report.jobs
    assert job.failover is not None and job.failover.fenced
    assert job.failover.rpo.batches == 1, "the one that it was in when it was stopped"
    assert ground.cluster.stops and not ground.job.running
    fenced = {
        path: fence_owner(content)
        for path, content in ground.held(SOURCE).items()
        if fence_owner(content)
    }
    assert set(fenced.values()) == {"run-failover"}
    assert f"commits/{ground.job.epoch + 1}" in fenced, "it cannot commit another batch"


def test_a_primary_that_gives_no_answer_is_not_passed_over_unless_somebody_says_so(
    tmp_path: Path,
) -> None:
    ground = standby(tmp_path, unreachable)
    ground.cluster.find_source = refuse  # type: ignore[method-assign]
    before = ground.disk.snapshot()
    found = standby_at(TARGET, ground.adapters)
    proposal = ground.propose(failover_spec(found, primary_is_down=False))
    (refusal,) = proposal.refusals
    assert "cannot be kept from going on" in refusal.message
    assert "--primary-is-down" in (refusal.hint or "")
    with pytest.raises(PlanError):
        ground.apply(proposal, "failover")
    assert ground.disk.snapshot() == before


def from_epoch(ground: Standby, epoch: int) -> None:
    """The job is started from this epoch of its own, whatever the primary has done since."""

    def start(submission: Submission) -> None:
        found, state = state_at(ground.target)
        assert found == epoch and state == ground.job.expected(epoch)
        ground.there = ground.job.moved_to(TARGET)
        ground.there.epoch = epoch
        ground.there.batch()

    ground.cluster._on_start = start
    ground.looks = 10**6


def refuse(*arguments: object) -> None:
    raise ClusterError("no answer", cluster="ours")


@pytest.mark.row("W-22")
def test_a_primary_that_wakes_up_is_fenced_by_the_same_command(tmp_path: Path) -> None:
    ground = standby(tmp_path, nothing)
    ground.job.running = False
    report = fail_over(ground)
    assert report.jobs[0].failover is not None and not report.jobs[0].failover.fenced
    wrap = ground.wrap
    unreachable(ground)
    found = standby_at(TARGET, ground.adapters)
    ground.cluster.find_source = refuse  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="still cannot be kept"):
        fence_again(found, ground.adapters)
    ground.wrap = wrap
    for _ in range(2):  # by cron
        fenced = fence_again(found, ground.adapters)
        assert fenced.cannot_go_on and f"commits/{ground.job.epoch + 1}" in fenced.paths
    owners = set(filter(None, map(fence_owner, ground.held(SOURCE).values())))
    assert owners == {"run-failover"}


def test_the_primary_is_looked_for_as_the_spec_says_each_time(tmp_path: Path) -> None:
    """By its tag or its ids: a job under another name would be taken for one that is down."""
    ground = standby(tmp_path, nothing)
    ground.job.running = False
    state = json.loads(ground.target.read(STATE))
    state["spec"]["jobs"][0]["stop"] = {"tag": "orders-7", "seconds_max": 5}
    ground.put(f"{TARGET}/{STATE}", json.dumps(state).encode())
    fail_over(ground)
    asked: list[StopRequest] = []
    find = ground.cluster.find_source
    ground.cluster.find_source = lambda of: asked.append(of) or find(of)  # type: ignore
    fence_again(standby_at(TARGET, ground.adapters), ground.adapters)
    assert {(one.tag, one.seconds_max) for one in asked} == {("orders-7", 5.0)}


def test_a_failover_that_is_not_finished_is_resumed_and_not_begun_again(tmp_path: Path) -> None:
    ground = standby(tmp_path, gone)
    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(ClusterError):
        fail_over(ground)
    found = standby_at(TARGET, ground.adapters)
    assert found.is_taken_over
    with pytest.raises(JournalError) as caught:
        fence_again(found, ground.adapters)
    assert "stateshift resume" in (caught.value.hint or "")
    del ground.cluster.submit  # type: ignore[attr-defined]
    assert ground.resume("failover").state == "finished" and ground.there is not None


def test_taken_back_the_standby_is_fed_again(tmp_path: Path) -> None:
    ground = standby(tmp_path, nothing)
    ground.job.running = False
    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(ClusterError):
        fail_over(ground, primary_is_down=False)
    back = ground.rollback("failover")
    assert back.jobs[0].failover is None, "nothing was lost"
    claim = newest_claim(ground.target)
    assert claim is not None and (claim.generation, claim.verb) == (1, "standby")
    assert not any(map(fence_owner, ground.held(SOURCE).values()))
    ground.job.running, ground.looks = True, 400
    ground.job.batch()
    with pytest.raises(Ended):
        ground.resume()
    assert ground.kept[-1] == ground.job.epoch


@pytest.mark.row("W-22")
def test_what_is_published_between_its_plan_and_its_claim_is_started_from(tmp_path: Path) -> None:
    """And is not taken for the first commit of the job that it starts."""
    ground = standby(tmp_path, nothing)
    ground.job.running = True
    found = standby_at(TARGET, ground.adapters)
    proposal = ground.propose(failover_spec(found, primary_is_down=True))
    ground.job.batch()
    ground.looks = 400
    with pytest.raises(Ended):
        ground.resume()
    assert ground.kept[-1] == 12
    from_epoch(ground, 12)
    (job,) = ground.apply(proposal, "failover").jobs
    assert job.failover is not None and job.failover.epoch == 12
    assert ground.there is not None and ground.there.epoch == 13


def test_two_failovers_at_the_same_time_start_one_job(tmp_path: Path) -> None:
    ground = standby(tmp_path, gone)
    found = standby_at(TARGET, ground.adapters)
    spec = failover_spec(found, primary_is_down=True)
    ground.looks = 10**6
    first, second = ground.propose(spec), ground.propose(spec)
    assert ground.apply(first, "first").state == "finished"
    with pytest.raises(StateshiftError) as caught:
        ground.apply(second, "second")
    assert caught.value.exit_code in (4, 8)
    assert len(ground.cluster.submissions) == 1


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
    ground = standby(tmp_path, gone)
    ground.put(f"{TARGET}/{STATE}", content)
    before = ground.disk.snapshot()
    with pytest.raises(error):
        fail_over(ground)
    assert ground.disk.snapshot() == before


@pytest.mark.parametrize("key", ["location", "source_of_spec", "spec", "submit"])
def test_a_state_file_that_was_changed_starts_nothing_else(tmp_path: Path, key: str) -> None:
    ground = standby(tmp_path, gone)
    state = json.loads(ground.target.read(STATE))
    match key:
        case "location":
            state["location"] = "file:///elsewhere/orders"
        case "source_of_spec":
            state["spec"]["jobs"][0]["checkpoint_location"] = "file:///elsewhere/orders"
        case "spec":
            state["spec"] = {"jobs": [{"name": "orders"}]}
        case "submit":
            del state["spec"]["jobs"][0]["submit"]
    ground.put(f"{TARGET}/{STATE}", json.dumps(state).encode())
    with pytest.raises(PlanError):
        fail_over(ground)
    assert not ground.cluster.submissions


def test_there_is_no_standby_where_none_was_published(tmp_path: Path) -> None:
    ground = Standby(tmp_path, 1, 10)
    for place in (SOURCE, TARGET):
        with pytest.raises(PlanError, match="no standby"):
            standby_at(place, ground.adapters)
    kept = standby(tmp_path / "kept", gone)
    found = standby_at(TARGET, kept.adapters)
    with pytest.raises(PlanError, match="keeps epoch 11, and not 12"):
        failover_spec(found, True, 12)


def test_a_standby_that_becomes_a_move_is_none_any_more(tmp_path: Path) -> None:
    ground = standby(tmp_path, nothing)
    ground.job.running, ground.looks = True, 10**6
    ground.workdir().steering.ask_cutover(True)
    assert ground.resume().state == "finished"
    names = {path.rpartition("/")[2] for path in ground.disk.snapshot(TARGET)}
    assert not names & {STATE.rpartition("/")[2], claim_path(1).rpartition("/")[2]}


def test_a_claim_of_somebody_else_ends_a_standby_before_it_writes(tmp_path: Path) -> None:
    ground = standby(tmp_path, nothing)
    other = replace(newest_claim(ground.target), run="another", verb="standby")  # type: ignore[type-var]
    ground.target.remove(claim_path(1))
    from stateshift.step.claims import claim

    claim(ground.target, other)  # type: ignore[arg-type]
    before = ground.disk.snapshot(TARGET)
    ground.looks = 10
    with pytest.raises(OtherRunError, match="fed by another standby"):
        ground.resume()
    assert ground.disk.snapshot(TARGET) == before


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
    ground = standby(tmp_path, nothing)
    ground.job.running = False
    from_epoch(ground, 11)
    wrap, moments = ground.wrap, [moment]
    ground.wrap = lambda storage: Dying(wrap(storage), moments)  # type: ignore[assignment, return-value]
    try:
        fail_over(ground, primary_is_down=False)
    except Gone:
        ground.wrap = wrap
        workdir = ground.workdir("failover")
        if workdir.exists:
            ground.resume("failover")
        else:
            fail_over(ground, primary_is_down=False)
    assert ground.there is not None
    assert len(ground.cluster.submissions) == 1
    claim = newest_claim(ground.target)
    assert claim is not None and claim.run == "run-failover"
    owners = set(filter(None, map(fence_owner, ground.held(SOURCE).values())))
    assert owners == {"run-failover"}


def test_a_program_fails_over_as_the_command_does(tmp_path: Path) -> None:
    ground = standby(tmp_path, gone)
    ground.looks = 10**6
    done = api.failover(
        TARGET, primary_is_down=True, workdir=tmp_path / "w", adapters=ground.adapters
    )
    assert done.state == "finished" and ground.there is not None
    facts = RunFacts(done.report, str(tmp_path / "w"))
    shown = " ".join(f"{block}" for block in report(facts))
    assert "went on" in shown and "may go on: it was said to be down" in shown
    shown = page(facts)
    timeline = shown[shown.index("<h3>Failover</h3>") :]
    assert "last batch that was kept to the job" in timeline
    for name in ("last round", "lost", "prepare", "submit", "confirm"):
        assert f">{name}</text>" in timeline, name
    assert "since the standby was claimed" in timeline
    (job,) = done.report.jobs
    assert job.failover is not None and job.failover.committed_at is not None
    assert job.failover.published_at is not None
    assert job.failover.committed_at <= job.failover.published_at <= job.failover.claimed_at
    with pytest.raises(OtherRunError):
        api.failover(TARGET, primary_is_down=True, adapters=ground.adapters)


@pytest.mark.row("W-32")
@pytest.mark.parametrize("rule", ['"targets": ["hdfs://elsewhere"]', '"waive": []', "no JSON"])
def test_no_policy_stops_a_failover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    ground = standby(tmp_path, gone)
    ground.looks = 10**6
    policy = tmp_path / "policy.json"
    policy.write_text(f'{{"version": 1, "rules": [{{"name": "never", {rule}}}]}}')
    monkeypatch.setenv("STATESHIFT_POLICY", str(policy))
    done = api.failover(
        TARGET, primary_is_down=True, workdir=tmp_path / "w", adapters=ground.adapters
    )
    assert done.state == "finished"


def test_its_plan_says_what_it_does(tmp_path: Path) -> None:
    ground = standby(tmp_path, gone)
    found = standby_at(TARGET, ground.adapters)
    proposal = ground.propose(failover_spec(found, primary_is_down=True))
    shown = " ".join(f"{block}" for block in plan_text.proposal(plan_facts(proposal), False))
    assert "start it from its standby at epoch 11" in shown
    assert "planned again once the standby is claimed" in shown and "the job runs" not in shown


class DyingBeforeItsStateFile:
    """A storage whose process is gone when an image can be seen and its state file tells of none."""

    def __init__(self, storage: Storage, epoch: int) -> None:
        self._storage, self._epoch = storage, epoch

    def __getattr__(self, name: str) -> object:
        act = getattr(self._storage, name)
        if name != "write" or self._storage.location != TARGET:
            return act

        def write(path: str, *arguments: object) -> object:
            if path == STATE and self._storage.stat(f"commits/{self._epoch}") is not None:
                raise Gone
            return act(path, *arguments)

        return write


@pytest.mark.row("W-22")
def test_what_is_lost_is_told_by_the_image_that_was_published_last(tmp_path: Path) -> None:
    """Also if whoever fed it was killed before the state file told of it."""
    ground = standby(tmp_path, nothing)
    ground.clock.time += 500
    ground.job.batch()
    ground.clock.time += 100
    ground.looks, wrap = 400, ground.wrap
    ground.wrap = lambda storage: DyingBeforeItsStateFile(wrap(storage), 12)  # type: ignore[assignment, return-value]
    with pytest.raises(Gone):
        ground.resume()
    ground.wrap = wrap
    assert standby_at(TARGET, ground.adapters).state.epoch == 11
    ground.job.running = False
    from_epoch(ground, 12)
    before = ground.clock.time
    (job,) = fail_over(ground).jobs
    claim = newest_claim(ground.target)
    assert job.failover is not None and claim is not None and job.failover.epoch == 12
    committed = next(file for file in ground.source.list("commits") if file.path == "commits/12")
    assert job.failover.rpo.seconds == pytest.approx(claim.at - committed.modified, abs=0.01)
    assert claim.at >= before and claim.epoch == 12


@pytest.mark.row("W-22")
@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", range(20, 220, 5))
def test_wherever_its_feeder_dies_what_is_lost_is_told(tmp_path: Path, moment: int) -> None:
    """The job commits meanwhile, and goes on from a batch that it once had."""
    ground, moments = Standby(tmp_path, moment, 10**6), [moment]
    ground.job.moods, ground.job.retained = {"batch": 0.05, "tidy": 0.01}, 100
    wrap = ground.wrap
    ground.wrap = lambda storage: (  # type: ignore[assignment, return-value]
        Dying(wrap(storage), moments) if storage.location == TARGET else wrap(storage)
    )
    with pytest.raises(Gone):
        ground.apply(running_spec(mode="warm", cutover="never"))
    ground.wrap, ground.job.running = wrap, False
    if ground.target.stat(STATE) is None:
        return  # it has no image yet, and no failover
    ground.clock.time += 1000
    epoch = state_at(ground.target)[0]
    assert epoch is not None
    from_epoch(ground, epoch)
    (job,) = fail_over(ground).jobs
    told, claim = job.failover, newest_claim(ground.target)
    assert told is not None and claim is not None and told.epoch == epoch
    committed = {file.path: file.modified for file in ground.source.list("commits")}
    assert told.rpo.seconds == pytest.approx(claim.at - committed[f"commits/{epoch}"], abs=0.01)
