"""A job goes home from its standby, on a disk and a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stateshift import api, migration
from stateshift.api.failovers import spec_of_failback, standby_at
from stateshift.cli.views import standby_text
from stateshift.clusters.protocol import JobState, StopRequest, Submission
from stateshift.documents.standby import StandbyFacts
from stateshift.errors import (
    ClusterError,
    JournalError,
    OtherRunError,
    PlanError,
    StateshiftError,
    StorageError,
)
from stateshift.formats.marks import ASIDE, fence_owner
from stateshift.formats.standby import STATE
from stateshift.report import Report
from stateshift.specification import Spec, parse_spec, to_plain_spec
from stateshift.specification.standby import spec_again, spec_home
from stateshift.standby.location import failover_spec
from stateshift.step.claims import newest_claim
from stateshift.storage.protocol import Content, Storage
from tests.migration.test_last_copy import standby
from tests.migration.test_warm import Ended, Standby
from tests.standby.test_failover import Dying, Gone, refuse
from tests.support.ground import SOURCE, TARGET, Around, Ground, spec_of
from tests.support.living import LivingJob, Watched, state_at

HOME, AWAY = SOURCE, TARGET  # of the job: where the failover took it from, and to
KEPT, LOST = 11, 13  # the standby's batch, and the last one that was committed at home


class Region(Ground):
    """The job runs at its standby since a failover; `job` is what it does there."""

    def __init__(self, ground: Standby) -> None:
        super().__init__(ground.folder, ground.clock, cluster=ground.cluster, disk=ground.disk)
        assert ground.there is not None
        self.job, self.lost = ground.there, ground.job
        self.job.moods = {"batch": 0.05, "tidy": 0.02}
        self.at_home: LivingJob | None = None
        self.wrap = lambda storage: Watched(storage, self.job)  # type: ignore[return-value]
        self.cluster._on_stop, self.cluster._on_start = self._stop, self._start
        self.clock.on_sleep = self.job.live

    def _stop(self, request: StopRequest) -> None:
        if request.location == AWAY:
            self.job.batch()
            self.job.running = False

    def _start(self, submission: Submission) -> None:
        if submission.location == AWAY:
            self.job.running = True
            return
        epoch, state = state_at(self.source)
        assert (epoch, state) == (self.job.epoch, self.job.expected(self.job.epoch))
        self.at_home = self.job.moved_to(HOME)
        self.at_home.batch()

    def spec(self) -> Spec:
        return spec_of_failback(standby_at(AWAY, self.adapters), None, self.adapters)

    def back(self, workdir: str = "failback") -> Report:
        return self.apply(self.spec(), workdir)

    def role(self) -> str:
        facts = StandbyFacts(standby_at(AWAY, self.adapters), 0.0)
        shown = " ".join(f"{block}" for block in standby_text.standby(facts))
        words = {"going-home": "a failback takes it home", "went-home": "has gone home"}
        assert words.get(facts.role, "") in shown
        return facts.role

    def aside(self, run: str = "run-failback") -> dict[str, bytes]:
        folder = f"{ASIDE}{run}/"
        found = self.disk.snapshot(HOME)
        return {
            path.removeprefix(folder): content
            for path, content in found.items()
            if path.startswith(folder)
        }


def region(folder: Path, batches: int = 5) -> Region:
    """Two batches were lost by the failover; the job has done some since, others than at home."""
    ground = standby(folder, lambda ground: None)
    for _ in range(LOST - KEPT):
        ground.job.batch()
    ground.job.running = False
    ground.cluster.jobs.clear()

    def start(submission: Submission) -> None:
        epoch, state = state_at(ground.target)
        assert (epoch, state) == (KEPT, ground.job.expected(KEPT))
        ground.there = ground.job.moved_to(AWAY)
        ground.there.epoch, ground.there.retained = KEPT, 100
        for _ in range(batches):
            ground.there.batch()

    ground.cluster._on_start = start
    ground.looks = 10**6
    found = standby_at(AWAY, ground.adapters)
    report = ground.apply(failover_spec(found, primary_is_down=False), "failover")
    assert report.jobs[0].failover is not None and report.jobs[0].failover.fenced
    return Region(ground)


def fences(held: dict[str, bytes]) -> set[str]:
    return {path for path, content in held.items() if fence_owner(content) is not None}


@pytest.mark.row("W-23")
@pytest.mark.parametrize("batches", [1, 2, 5])
def test_the_job_goes_home_and_what_only_home_had_is_kept(tmp_path: Path, batches: int) -> None:
    ground = region(tmp_path, batches)
    before = ground.held(HOME)
    assert fences(before) and ground.role() == "failed-over"
    report = ground.back()
    assert report.state == "finished" and ground.at_home is not None
    assert ground.role() == "went-home" and not ground.locks()
    assert not ground.job.running and fences(ground.held(AWAY))
    assert not fences(ground.held(HOME)), "the old fence is lifted"
    epoch, state = state_at(ground.source)
    assert (epoch, state) == (ground.at_home.epoch, ground.at_home.expected(ground.at_home.epoch))
    # Whatever home had is there in its old place, or is set aside: nothing is deleted.
    now, aside = ground.held(HOME), ground.aside()
    for path, content in before.items():
        assert content in (now.get(path), aside.get(path)), path
    lost = {f"commits/{LOST}", f"offsets/{LOST}", f"state/0/0/{LOST + 1}.delta"}
    assert lost <= aside.keys()
    assert not migration.verify(ground.workdir("failback"), ground.adapters).broken


def test_a_job_that_has_ended_there_goes_home_all_the_same(tmp_path: Path) -> None:
    ground = region(tmp_path)
    tag = ground.cluster.submissions[-1].tag
    ground.cluster.set_state(tag, JobState.FAILED, "no memory")
    ground.job.running = False
    ground.clock.time += 600
    before = ground.held(HOME)
    assert ground.back().state == "finished" and ground.at_home is not None
    now, aside = ground.held(HOME), ground.aside()
    for path, content in before.items():
        assert content in (now.get(path), aside.get(path)), path


class Counting(Around):
    """The bytes that are written at home."""

    def __init__(self, inner: Storage, written: dict[str, int]) -> None:
        super().__init__(inner)
        self.written = written

    def write(self, path: str, content: Content, *rest: object) -> int:
        size: int = self.inner.write(path, content, *rest)
        self.written[path] = size
        return size


@pytest.mark.row("W-23")
def test_only_what_differs_is_copied(tmp_path: Path) -> None:
    ground = region(tmp_path)
    ground.job.moods = {}
    before, written = ground.held(HOME), dict[str, int]()
    wrap = ground.wrap

    def counted(storage: Storage) -> Storage:
        if storage.location != HOME:
            return wrap(storage)
        return Counting(wrap(storage), written)  # type: ignore[return-value]

    ground.wrap = counted
    ground.back()
    after = ground.held(AWAY)
    state = {path for path in written if path.startswith("state/")}
    assert state and not any(after[path] == before.get(path) for path in state)
    same = {path for path in after if path.startswith("state/") and after[path] == before.get(path)}
    assert len(same) >= 2 * KEPT
    copied = sum(step.bytes for step in ground_steps(ground, "BringFiles"))
    assert copied > sum(written.values())


def ground_steps(ground: Region, kind: str) -> Iterator[object]:
    workdir = ground.workdir("failback")
    for adopted in migration.progress_of(workdir).plans:
        plan = workdir.read_plan(adopted.plan, adopted.fingerprint)
        yield from (step for step in plan if step.kind == kind)


@pytest.mark.row("W-23")
def test_taken_back_home_is_as_it_was_byte_for_byte(tmp_path: Path) -> None:
    ground = region(tmp_path)
    before = ground.disk.snapshot(HOME)
    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(StateshiftError):
        ground.back()
    del ground.cluster.submit  # type: ignore[attr-defined]
    report = ground.rollback("failback")
    assert report.state == "rolled-back"
    assert ground.disk.snapshot(HOME) == before
    assert ground.job.running and ground.role() == "failed-over"
    assert not fences(ground.held(AWAY))
    assert ground.back("again").state == "finished"


def test_discarded_after_its_first_batch_home_is_as_it_was_and_the_batch_is_kept(
    tmp_path: Path,
) -> None:
    ground = region(tmp_path)
    before = ground.disk.snapshot(HOME)
    ground.back()
    with pytest.raises(PlanError, match="committed"):
        ground.rollback("failback")
    report = ground.rollback("failback", discard_progress=True)
    after = ground.disk.snapshot(HOME)
    assert {path: after.get(path) for path in before} == before
    (left,) = report.jobs[0].left
    assert ".later-" in left
    assert all(path.startswith(ASIDE) for path in after.keys() - before.keys())
    assert ground.job.running and ground.role() == "failed-over"


@pytest.mark.row("W-23")
def test_afterwards_a_standby_is_kept_again_by_one_command(tmp_path: Path) -> None:
    ground = region(tmp_path)
    ground.back()
    (line,) = [line for line in ground.said if "keep a standby" in line]
    file = tmp_path / "failback" / "standby.json"
    assert f"stateshift apply {file} --continuous --yes" in line
    spec = parse_spec(file.read_text())
    ran = ground.job
    ground.job = ground.at_home  # type: ignore[assignment]
    ground.job.moods, looks = {"batch": 0.05}, iter(range(40))

    def live() -> None:
        ground.job.live()
        if next(looks, None) is None:
            raise Ended

    ground.clock.on_sleep = live
    before = ground.held(AWAY)
    with pytest.raises(Ended):
        ground.apply(spec, "standby")
    assert ground.role() == "standby"
    claim = newest_claim(ground.target)
    assert claim is not None and (claim.generation, claim.verb) == (4, "standby")
    epoch, state = state_at(ground.target)
    assert epoch is not None and epoch > ran.epoch and state == ground.job.expected(epoch)
    assert not fences(ground.held(AWAY))
    found, folder = ground.disk.snapshot(AWAY), f"{ASIDE}run-standby/"
    for path, content in before.items():
        assert content in (found.get(path), found.get(folder + path)), path
    # The failback is not taken back behind a standby that was built on it.
    with pytest.raises(StateshiftError):
        ground.rollback("failback", discard_progress=True)
    assert ground.disk.snapshot(AWAY) == found
    # The region is lost once more.
    ground.job.running = False
    with suppress(KeyError):
        ground.cluster.jobs.clear()
    ground.cluster._on_start = None
    again = standby_at(AWAY, ground.adapters)
    assert failover_spec(again, primary_is_down=True).jobs[0].takes_over is not None


@pytest.mark.row("W-23")
@pytest.mark.parametrize("moment", range(1, 62, 3))
def test_killed_at_any_change_it_is_resumed_or_taken_back(tmp_path: Path, moment: int) -> None:
    ground = region(tmp_path, 3)
    ground.job.moods = {}
    before = ground.disk.snapshot(HOME)
    wrap, moments = ground.wrap, [moment]
    ground.wrap = lambda storage: Dying(wrap(storage), moments)  # type: ignore[assignment, return-value]
    killed = False
    try:
        ground.back()
    except Gone:
        killed = True
    ground.wrap = wrap
    if not ground.workdir("failback").exists:
        ground.back()
    elif killed and moment % 2 == 0:
        with suppress(PlanError):
            ground.rollback("failback")
            assert ground.disk.snapshot(HOME) == before and ground.job.running
            assert ground.role() == "failed-over"
            assert ground.back("again").state == "finished"
            return
        ground.resume("failback")
    else:
        assert ground.resume("failback").state == "finished"
    assert ground.at_home is not None and ground.role() == "went-home"
    starts = [one for one in ground.cluster.submissions if one.location == HOME]
    assert len(starts) == 1
    now, aside = ground.held(HOME), ground.aside()
    for path, content in before.items():
        if not path.startswith("_stateshift/"):
            assert content in (now.get(path), aside.get(path)), path


@pytest.mark.parametrize("moment", range(1, 62, 6))
def test_a_rollback_that_is_killed_is_resumed(tmp_path: Path, moment: int) -> None:
    ground = region(tmp_path, 3)
    ground.job.moods = {}
    before = ground.disk.snapshot(HOME)
    ground.cluster.submit = refuse  # type: ignore[assignment]
    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(StateshiftError):
        ground.back()
    del ground.cluster.submit  # type: ignore[attr-defined]
    wrap, moments = ground.wrap, [moment]
    ground.wrap = lambda storage: Dying(wrap(storage), moments)  # type: ignore[assignment, return-value]
    with suppress(Gone):
        ground.rollback("failback")
    ground.wrap = wrap
    ground.rollback("failback")
    assert ground.disk.snapshot(HOME) == before
    assert ground.job.running and ground.role() == "failed-over"


def away(ground: Region) -> None:
    opened = ground.wrap

    def refused(storage: Storage) -> Storage:
        if storage.location.startswith(HOME):
            raise StorageError("no answer", location=storage.location)
        return opened(storage)

    ground.wrap = refused


def silent(ground: Region) -> None:
    find = ground.cluster.find_source

    def refused(request: StopRequest) -> object:
        return refuse() if request.location == HOME else find(request)

    ground.cluster.find_source = refused  # type: ignore[assignment]
    for path in fences(ground.held(HOME)):
        ground.source.remove(path)


def alive(ground: Region) -> None:
    ground.cluster.run("orders", HOME)


@pytest.mark.row("W-23")
@pytest.mark.parametrize(("spoil", "code"), [(away, 6), (silent, 4), (alive, 4)])
def test_home_that_cannot_be_gone_back_to_is_refused_and_nothing_is_changed(
    tmp_path: Path, spoil: Callable[[Region], None], code: int
) -> None:
    ground = region(tmp_path)
    ground.job.moods = {}
    spoil(ground)
    before = ground.disk.snapshot()
    with pytest.raises(StateshiftError) as caught:
        ground.back()
    assert caught.value.exit_code == code, caught.value.fact
    assert ground.disk.snapshot() == before and ground.job.running


def test_one_of_two_failbacks_takes_the_job_home(tmp_path: Path) -> None:
    ground = region(tmp_path)
    first, second = ground.propose(ground.spec()), ground.propose(ground.spec())
    assert ground.apply(first, "failback").state == "finished"
    with pytest.raises(OtherRunError) as caught:
        ground.apply(second, "second")
    assert caught.value.exit_code in (4, 8)
    assert len([one for one in ground.cluster.submissions if one.location == HOME]) == 1


def test_while_one_is_at_work_another_is_told_so(tmp_path: Path) -> None:
    ground = region(tmp_path)
    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(StateshiftError):
        ground.back()
    assert ground.role() == "going-home"
    with pytest.raises(OtherRunError, match="failback"):
        ground.spec()
    with pytest.raises(OtherRunError, match="failback"):
        failover_spec(standby_at(AWAY, ground.adapters), primary_is_down=True)


def test_a_place_where_no_job_was_failed_over_to_has_no_home(tmp_path: Path) -> None:
    kept = standby(tmp_path / "kept", lambda ground: None)
    with pytest.raises(PlanError, match="was not started from its standby") as caught:
        spec_of_failback(standby_at(AWAY, kept.adapters), None, kept.adapters)
    assert caught.value.exit_code == 4 and "stateshift status" in (caught.value.hint or "")
    kept.cluster.submit = refuse  # type: ignore[assignment]
    kept.job.running, kept.looks = False, 10**6
    found = standby_at(AWAY, kept.adapters)
    with pytest.raises(ClusterError):
        kept.apply(failover_spec(found, primary_is_down=True), "failover")
    with pytest.raises(JournalError) as unfinished:
        spec_of_failback(standby_at(AWAY, kept.adapters), None, kept.adapters)
    assert "stateshift resume" in (unfinished.value.hint or "")
    ground = region(tmp_path / "gone")
    ground.back()
    with pytest.raises(PlanError, match="gone home"):
        ground.spec()


def test_who_was_never_told_how_it_is_started_at_home_is_told_by_a_spec(tmp_path: Path) -> None:
    ground = region(tmp_path)
    state = json.loads(ground.target.read(STATE))
    home = state.pop("home")
    ground.put(f"{AWAY}/{STATE}", json.dumps(state).encode())
    with pytest.raises(PlanError) as caught:
        ground.spec()
    assert "--spec FILE" in (caught.value.hint or "")
    found = standby_at(AWAY, ground.adapters)
    feeder = {
        "name": "orders",
        "checkpoint_location": HOME,
        "remote_location": AWAY,
        "mode": "warm",
        "cutover": "never",
        "target_cluster": "ours",
        "submit": {"command": "go"},
    }
    without = parse_spec(json.dumps({**home, "jobs": [feeder]}))
    with pytest.raises(PlanError, match="source_cluster"):
        spec_of_failback(found, without, ground.adapters)
    own = parse_spec(json.dumps({**home, "jobs": [{**feeder, "source_cluster": "ours"}]}))
    spec = spec_of_failback(found, own, ground.adapters)
    assert ground.apply(spec, "failback").state == "finished"


def test_a_standby_without_a_source_cluster_says_so_in_its_state_file(tmp_path: Path) -> None:
    ground = Standby(tmp_path, 1, 20)
    keys = {"mode": "warm", "cutover": "never", "target_cluster": "ours"}
    clusters = {"ours": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}}
    spec = spec_of(spec_clusters=clusters, submit={"command": "go"}, **keys)
    with pytest.raises(Ended):
        ground.apply(spec)
    assert standby_at(AWAY, ground.adapters).state.home is None


def test_the_way_home_and_the_standby_after_it_keep_what_the_spec_says() -> None:
    """Whoever is started, from where, on which cluster, by which brokers."""
    (job,) = json.loads(to_text(feeder_spec()))["jobs"]
    home = spec_home(feeder_spec(), feeder_spec().jobs[0])
    assert parse_spec(to_text(home)) == home
    (back,) = home.jobs
    assert (back.source, back.target) == (AWAY, HOME) and back.submit != back.source_submit
    assert (back.source_cluster, back.target_cluster) == ("b", "a")
    assert back.kafka is not None and back.kafka.bootstrap_servers == "a:1"
    again = spec_again(home, back)
    assert parse_spec(to_text(again)) == again
    (kept,) = json.loads(to_text(again))["jobs"]
    assert kept.pop("set_aside") is True
    assert kept == job


def feeder_spec() -> Spec:
    clusters = {}
    for name in ("a", "b"):
        clusters[name] = {"kind": "command", "find": "f", "submit": name, "stop": "t"}
    return spec_of(
        mode="warm",
        cutover="never",
        standby={"rpo": "5min"},
        source_cluster="a",
        target_cluster="b",
        submit={"command": "at b"},
        source_submit={"command": "at a"},
        kafka={"bootstrap_servers": "b:1", "source_bootstrap_servers": "a:1"},
        spec_clusters=clusters,
    )


def to_text(spec: Spec) -> str:
    return json.dumps(to_plain_spec(spec))


def test_its_plan_tells_what_is_lost_and_where_it_is_kept(tmp_path: Path) -> None:
    ground = region(tmp_path)
    proposal = ground.propose(ground.spec())
    assert [plan.purpose for plan in proposal.plans] == ["aside", "warm", "halt", "move"]
    told = " ".join(finding.message for plan in proposal.plans for finding in plan.findings)
    assert f"is at epoch {LOST}, and the failover went on from {KEPT}" in told
    assert "are set aside" in told


def test_a_program_takes_it_home_as_the_command_does(tmp_path: Path) -> None:
    ground = region(tmp_path)
    done = api.failback(AWAY, workdir=tmp_path / "w", adapters=ground.adapters)
    assert done.state == "finished" and ground.at_home is not None
