"""Jobs that are brought over while they run, on a disk and a cluster in memory."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.clusters.protocol import JobState, JobStatus, Silent, StopRequest, Submission
from stateshift.errors import ClusterError, Interrupted, PlanError, StalePlan, StorageError
from stateshift.formats.marks import (
    INDEX,
    RELEASED,
    WAIT,
    WAITING,
    encode_tag,
    fence_owner,
    is_meant,
)
from stateshift.migration import round_compaction, warm_rounds
from stateshift.migration.context import RunContext
from stateshift.migration.stages import stop
from stateshift.report import Report
from stateshift.specification import JobSpec, Spec
from stateshift.steering import Steering, Throttle
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import ProcessGone
from tests.contracts.faulty import Killed
from tests.support.checkpoints import put
from tests.support.ground import SOURCE, TARGET, Ground, spec_of
from tests.support.living import (
    LivingGround,
    LivingJob,
    Watched,
    startable_by_spark,
    state_at,
    state_of_standby,
    warm_spec,
)


@pytest.fixture
def ground(tmp_path: Path) -> LivingGround:
    return LivingGround(tmp_path)


@pytest.mark.row("T-1", "T-5")
def test_what_does_not_change_is_brought_before_the_job_is_stopped(ground: LivingGround) -> None:
    ground.job.moods = dict.fromkeys(ground.job.moods, 0.0)
    report = ground.warm()
    assert report.state == "finished"
    workdir = ground.workdir()
    rounds = [p for p in report.jobs[0].phases if p.name.startswith("round")]
    assert rounds and sum(p.files for p in rounds) >= 24
    moved = workdir.read("plans/2.json")
    copied = [
        i
        for p in moved["phases"]
        if p["name"] == "copy"
        for s in p["steps"]
        if s["kind"] == "CopyFiles"
        for i in s["items"]
    ]
    assert sorted(item[0] for item in copied) == ["state/0/0/13.delta", "state/0/1/13.delta"], (
        "the last batch's"
    )
    kinds = {p["name"]: [s["kind"] for s in p["steps"]] for p in moved["phases"]}
    assert "halt" not in kinds and "FenceSource" in kinds["copy"], (
        "as long as the last files take, and no longer"
    )
    assert kinds["copy"].count("StageFiles") == kinds["publish"].count("CopyFiles") > 0
    assert not any(path.startswith("_stateshift/staged") for path in ground.held(TARGET))


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_job_does_meanwhile_its_last_state_arrives(tmp_path: Path, seed: int) -> None:
    ground = LivingGround(tmp_path, seed)
    ground.job.moods = {"batch": 0.02, "tidy": 0.01, "back": 0.004}
    report = ground.warm(rounds=3)
    assert report.state == "finished"
    assert ground.there is not None
    assert not migration.verify(ground.workdir(), ground.adapters).broken
    source = ground.held(SOURCE)
    assert fence_owner(source[f"commits/{ground.job.epoch + 1}"]) == "run-run"


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(20))
def test_taken_back_nothing_is_left_of_it_and_the_job_goes_on(tmp_path: Path, seed: int) -> None:
    ground = LivingGround(tmp_path, seed)
    ground.job.moods = {"batch": 0.02, "tidy": 0.01, "back": 0.004}
    ground.warm(rounds=2)
    ground.rollback(discard_progress=True)
    assert ground.held(TARGET) == {}
    epoch, state = state_at(ground.disk.open(SOURCE))
    assert epoch is not None and state == ground.job.expected(epoch)
    assert ground.job.running and not ground.locks()


def test_a_job_that_writes_as_fast_as_it_is_brought_is_not_stopped(ground: LivingGround) -> None:
    ground.job.moods = {"batch": 0.04, "tidy": 0.0, "back": 0.0}
    with pytest.raises(PlanError, match=r"writes .* are copied") as caught:
        ground.warm(until="remaining < 1ms", rounds=4)
    assert "cutover" in (caught.value.hint or "") and caught.value.exit_code == 4
    assert ground.job.running and not ground.cluster.stops


def test_a_job_that_is_another_one_by_then_is_not_followed(ground: LivingGround) -> None:
    proposal = ground.propose(warm_spec())
    ground.put(f"{SOURCE}/metadata", b'{"id":"99999999-2222-3333-4444-555555555555"}')
    with pytest.raises(StalePlan):
        ground.apply(proposal)
    assert ground.job.running and not ground.cluster.stops


# -- started before the old one is stopped


def prepared_spec(**keys: object) -> Spec:
    return spec_of(
        spec_clusters={"ours": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}},
        source_cluster="ours",
        target_cluster="ours",
        submit={"command": "go", "prepare": True},
        source_submit={"command": "back"},
        **keys,
    )


class Early(LivingGround):
    """The target's job comes up at once, and says that it waits; it goes on when it is released."""

    waits = True

    def _start(self, submission: Submission) -> None:
        if submission.location != TARGET or WAIT not in submission.environment:
            super()._start(submission)
            return
        assert self.job.running, "it is there to be started before the old one is stopped"
        self.tag = submission.tag
        if self.waits:
            put(self.disk.open(TARGET), WAITING, encode_tag(submission.tag))

    def released(self) -> bool:
        content = self.disk.snapshot(TARGET).get(RELEASED)
        return is_meant(content, self.tag)


class Coming(Early):
    """Released, it goes on."""

    def _wrap(self, storage: Storage) -> Storage:
        outer = self

        class Going(Watched):
            def write(self, path: str, *rest: Any) -> int:
                written: int = self.inner.write(path, *rest)
                self._seen(path)
                return written

            def move(self, path: str, target_path: str) -> None:
                self.inner.move(path, target_path)
                self._seen(target_path)

            def _seen(self, path: str) -> None:
                if path == RELEASED:
                    LivingGround._start(outer, Submission(outer.tag, "orders", TARGET))

        return Going(storage, self.job)  # type: ignore[return-value]


def test_the_targets_job_is_up_before_the_old_one_is_stopped_and_released_behind_it(
    tmp_path: Path,
) -> None:
    ground = Coming(tmp_path)
    report = ground.apply(prepared_spec(mode="warm"))
    assert report.state == "finished" and ground.released()
    assert len(ground.cluster.submissions) == 1 and len(ground.cluster.stops) == 1
    assert report.jobs[0].phases[1].name == "prepare"


def test_while_the_targets_job_comes_up_the_old_one_may_still_be_steered(tmp_path: Path) -> None:
    """It has not been stopped: a pause, or a cut-over, is not refused."""
    ground = Coming(tmp_path)
    ground.waits = False
    with pytest.raises(ClusterError):
        ground.apply(prepared_spec(mode="warm"))
    progress = migration.progress_of(ground.workdir())
    assert any(step.phase == "prepare" for plan in progress.plans for step in plan.steps.values())
    assert not any(map(migration.is_stopping, progress.plans))
    ground.waits = True
    ground.rollback()


def test_a_job_that_does_not_wait_is_stopped_again_and_the_old_one_runs_on(tmp_path: Path) -> None:
    ground = Coming(tmp_path)
    ground.waits = False
    with pytest.raises(ClusterError, match="was to wait for its image") as caught:
        ground.apply(prepared_spec())
    assert "stateshift.job.wait" in (caught.value.hint or "")
    assert ground.job.running
    ground.rollback()
    assert ground.job.running and [stop.tag for stop in ground.cluster.stops] == [ground.tag]
    assert ground.held(TARGET) == {} and ground.disk.snapshot(TARGET) == {}


class Hasty(Early):
    """The target's job does not wait: it begins from nothing."""

    waits = False

    def _start(self, submission: Submission) -> None:
        super()._start(submission)
        if submission.location == TARGET:
            put(self.disk.open(TARGET), "offsets/0", b"v1")


def test_what_a_job_has_written_that_did_not_wait_is_named_when_it_is_taken_back(
    tmp_path: Path,
) -> None:
    ground = Hasty(tmp_path)
    with pytest.raises(ClusterError, match="was to wait for its image"):
        ground.apply(prepared_spec())
    report = ground.rollback()
    assert report.state == "rolled-back" and ground.job.running
    assert len(report.left) == 1
    assert report.left[0].startswith(
        f"{TARGET}: 1 file that this run did not write (offsets/0): left there"
    )


def test_what_rounds_have_copied_stays_when_only_the_halt_is_taken_back(tmp_path: Path) -> None:
    ground = Coming(tmp_path)

    def becomes_another(request: StopRequest) -> None:
        ground._stop(request)
        ground.put(f"{SOURCE}/metadata", b'{"id":"99999999-2222-3333-4444-555555555555"}')

    ground.cluster._on_stop = becomes_another
    with pytest.raises(StalePlan, match="the halt was taken back"):
        ground.apply(prepared_spec(mode="warm"))
    halts = [
        plan for plan in migration.progress_of(ground.workdir()).plans if plan.purpose == "halt"
    ]
    assert [(plan.undone, plan.left) for plan in halts] == [(True, ())]
    assert ground.held(TARGET), "what rounds have copied"
    report = ground.rollback()
    assert report.left == () and ground.held(TARGET) == {}


def test_one_that_has_died_while_it_waited_is_started_anew(tmp_path: Path) -> None:
    ground = Coming(tmp_path)
    stop = ground.cluster._on_stop

    def dies(request: StopRequest) -> None:
        assert stop is not None
        stop(request)
        ground.cluster.set_state(ground.tag, JobState.FAILED, "no memory")

    ground.cluster._on_stop = dies
    report = ground.apply(prepared_spec(mode="warm"))
    assert report.state == "finished" and not ground.released()
    assert [WAIT in one.environment for one in ground.cluster.submissions] == [True, False]


# -- an image that is kept fresh, and never moved to


class Ended(Exception):
    """The standby's host is gone: no more of it runs."""


class Standby(LivingGround):
    """What is at the target is looked at again and again, also between two writes: whatever can be
    seen there is a state that the job once had. `acts` are what somebody does at a certain look.
    """

    def __init__(
        self, folder: Path, seed: int, looks: int = 600, **acts: Callable[[], None]
    ) -> None:
        super().__init__(folder, seed)
        self.job.moods = {"batch": 0.03, "tidy": 0.01, "back": 0.003}
        self.looks, self.kept = looks, list[int]()
        self.looked_at: dict[str, bytes] = {}
        self.epoch_seen: int | None = None
        self.acts = {int(number.removeprefix("at_")): act for number, act in acts.items()}
        self.lost: set[int] = set()
        self.seeing = threading.Lock()
        self.clock.on_sleep = self._sleep

    def _sleep(self) -> None:
        self.looks -= 1
        self.acts.pop(self.looks, lambda: None)()
        for _ in range(3):
            self.job.live()
        with self.seeing:
            self.look()
        if self.looks < 0:
            raise Ended

    def look(self) -> None:
        if self.there is not None:
            return  # the image is the job's own, which goes on from it
        held = self.disk.snapshot(TARGET)
        if held != self.looked_at:  # the same files show the same
            self.looked_at, self.epoch_seen = held, self.epoch_of(self.held(TARGET))
        if self.epoch_seen is not None:
            self.kept.append(self.epoch_seen)

    def epoch_of(self, held: dict[str, bytes]) -> int | None:
        """Return the batch whose state can be seen, which the job once had; None before there is
        one.
        """
        if not any(path.startswith("commits/") for path in held):
            return None
        if self.job.retained and startable_by_spark(held) is not None:
            assert self.shows_a_time_left(held)
            return None
        see = state_at if self.job.retained else state_of_standby
        epoch, state = see(self.disk.open(TARGET))
        assert epoch is not None
        assert state in self.job.ever[epoch]
        return epoch

    def shows_a_time_left(self, held: dict[str, bytes]) -> bool:
        """Whether the newest batch that was published is one that the job has gone back behind."""
        newest = max(int(path[8:]) for path in held if path.startswith("commits/"))
        there = self.held(SOURCE)
        state = [f"state/0/{shard}/{newest + 1}.delta" for shard in range(self.job.shards)]
        return any(held.get(path) != there.get(path) for path in state)

    def _wrap(self, storage: Storage) -> Storage:
        outer = self

        class Seen(Watched):
            def __getattr__(self, name: str) -> Any:
                act = super().__getattr__(name)
                if (
                    name not in ("write", "create", "move", "remove")
                    or self.inner.location != TARGET
                ):
                    return act

                def behind_a_look(*arguments: Any) -> Any:
                    with outer.seeing:
                        outer.look()
                        return act(*arguments)

                return behind_a_look

        return Seen(storage, self.job)  # type: ignore[return-value]


@pytest.mark.long
@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", [*range(12), 34])
def test_a_standby_can_be_started_from_at_any_time_and_is_never_old(
    tmp_path: Path, seed: int
) -> None:
    """Of a job that keeps its last hundred batches, as Spark does, at each moment between two
    changes of a file. One that has tidied away a batch in between, or has gone back behind what
    was published, leaves a moment in which offsets have to be moved away first.
    """
    ground = Standby(tmp_path, seed, looks=150 if seed % 4 else 600)
    ground.job.retained = 100 if seed % 4 else 0
    if seed % 2:
        ground.job.moods["back"] = 0.0
    with pytest.raises(Ended):
        ground.warm(cutover="never")
    assert len(set(ground.kept)) > 2 and ground.job.running and not ground.cluster.stops
    assert not any(
        path.startswith(("offsets", "commits")) and fence_owner(content)
        for path, content in ground.held(SOURCE).items()
    )
    ground.looks = 10**6
    ground.workdir().steering.ask_cutover(False)
    report = ground.resume()
    assert report.state == "finished" and ground.there is not None


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are told as one that soon."""
    monkeypatch.setattr(round_compaction, "ROUNDS_MAX", 4)
    monkeypatch.setattr(round_compaction, "ROUNDS_KEPT", 2)


@pytest.mark.long
@pytest.mark.usefixtures("forgetful")
@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(8))
def test_a_standby_that_is_kept_for_long_takes_no_more_for_it(tmp_path: Path, seed: int) -> None:
    ground = Standby(tmp_path, seed, 1500)
    ground.look = lambda: None  # type: ignore[method-assign]
    ground.job.moods |= {} if seed % 2 else {"back": 0.0}
    with pytest.raises(Ended):
        ground.warm(cutover="never")
    place, made = (
        ground.workdir(),
        len([line for line in ground.said if "can be started from" in line]),
    )
    progress = migration.progress_of(place)
    assert made > 15 and len(progress.plans) > made
    assert len(list((place.path / "plans").iterdir())) == len(progress.known) < 20
    ground.looks = 10**6
    if seed < 4:
        place.steering.ask_cutover(False)
        assert ground.resume().state == "finished" and ground.there is not None
        assert not migration.verify(place, ground.adapters).broken
    ground.job.batch()
    ground.job.tidy()  # taken back behind its snapshots, it cannot be started from its files alone
    ground.rollback(discard_progress=True)
    assert ground.held(TARGET) == {} and not ground.locks()
    assert not any(fence_owner(content) for content in ground.held(SOURCE).values())


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize("lost", ["commits", "state/0/0"])
def test_a_standby_outlives_what_is_lost_at_its_source(tmp_path: Path, lost: str) -> None:
    """The job need not even notice: it keeps its state in memory."""

    def damage() -> None:
        ground.job.running = False
        kept.append(ground.kept[-1])
        source = ground.disk.open(SOURCE)
        files = [file.path for file in source.list(lost)]
        for path in files if lost == "commits" else [max(files, key=lambda path: len(path))]:
            source.remove(path)

    kept = list[int]()
    ground = Standby(tmp_path, 1, 140, at_60=damage)
    ground.job.moods = {"batch": 0.03, "tidy": 0.0, "back": 0.0}
    with pytest.raises(Ended):
        ground.warm(cutover="never")
    assert set(ground.kept[-50:]) == set(kept)
    lost_words = ("its source cannot be followed: ", "was not kept")
    told = [line for line in ground.said if any(word in line for word in lost_words)]
    assert len(told) == 1, told
    assert "the image before it is" in told[0] or "stays, and can be started from" in told[0]


@pytest.mark.slow
def test_a_standby_of_a_job_that_never_goes_back_can_be_started_from_all_the_time(
    tmp_path: Path,
) -> None:
    """Also when the commits of the round that has brought a snapshot are gone, as the snapshot
    is, at the source.
    """
    ground = Standby(tmp_path, 3, 1200)
    ground.job.moods = {"batch": 0.05, "tidy": 0.01, "back": 0.0}
    with pytest.raises(Ended):
        ground.warm(cutover="never")
    assert ground.job.epoch > 50
    assert not any("has gone back behind" in line for line in ground.said)


def test_a_standby_whose_job_goes_back_shows_nothing_until_it_can_be_started_from_again(
    tmp_path: Path,
) -> None:
    def do_the_last_batches_again() -> None:
        ground.job.back_to(ground.job.epoch - 2)
        for _ in range(2):
            ground.job.batch()

    ground = Standby(tmp_path, 1, 300, at_150=do_the_last_batches_again)
    ground.job.moods = {"batch": 0.0, "tidy": 0.0, "back": 0.0}
    with pytest.raises(Ended):
        ground.warm(cutover="never")
    assert ground.job.times_back == 1 and ground.kept[-1] == ground.job.epoch
    assert any("has gone back behind" in line for line in ground.said)


@pytest.mark.sample(3)
@pytest.mark.parametrize("retained", [0, 100])
@pytest.mark.parametrize("batches_since", [0, 1, 2, 3])
def test_a_snapshot_of_batches_that_the_job_has_gone_back_behind_is_not_started_from(
    tmp_path: Path, retained: int, batches_since: int
) -> None:
    """The standby has the snapshot and not the changes below it, so that no round writes over a
    file of that time; the job has no such snapshot the second time. Until the job is where it was,
    the standby keeps what it has.
    """

    def come_to_a_snapshot() -> None:
        ground.job.batch()
        ground.job.batch()
        ground.job.tidy()

    def go_back_behind_it() -> None:
        assert ground.kept[-1] == 13
        ground.job.back_to(12)
        for _ in range(batches_since):
            ground.job.batch()

    ground = Standby(tmp_path, 1, 200, at_150=come_to_a_snapshot, at_80=go_back_behind_it)
    ground.job.moods, ground.job.retained = {}, retained
    with pytest.raises(Ended):
        ground.warm(cutover="never")
    assert ground.job.epoch == 12 + batches_since
    assert ground.kept[-1] == max(13, ground.job.epoch)


def test_a_standby_of_a_job_that_does_not_run_does_not_move_it(tmp_path: Path) -> None:
    ground = Standby(tmp_path, 1, looks=60)
    ground.job.running, ground.cluster.jobs = False, []
    with pytest.raises(Ended):
        ground.warm(cutover="never")
    assert set(ground.kept) == {ground.job.epoch}
    assert ground.held(SOURCE).keys() >= {"commits/11"} and "commits/12" not in ground.held(SOURCE)


# -- killed, steered, taken back, while the job lives


class Mortal(LivingGround):
    """Whoever works on it is killed at the n-th call of a storage that counts; what it had not
    synced is as a kill leaves it.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.job.moods = {"batch": 0.01, "tidy": 0.005, "back": 0.002}
        self.calls_left: int | None = None
        self.gone = False

    def counts(self, call: str, location: str) -> bool:
        return True

    def _wrap(self, storage: Storage) -> Storage:
        outer = self

        class Dying(Watched):
            def __getattr__(self, name: str) -> Any:
                if outer.gone:
                    raise Killed
                if outer.calls_left is not None and outer.counts(name, self.inner.location):
                    outer.calls_left -= 1
                    if outer.calls_left < 0:
                        outer.calls_left, outer.gone = None, True
                        outer.disk.kill()
                        raise Killed
                return super().__getattr__(name)

        return Dying(storage, self.job)  # type: ignore[return-value]

    def until_killed(self, calls: int, work: Callable[[], Report]) -> Report | None:
        self.calls_left = calls
        try:
            return work()
        except (Killed, ProcessGone):
            return None
        finally:
            self.calls_left, self.gone = None, False


CHANGES = ("write", "create", "move", "remove")
FILES = ("offsets/", "commits/", "state/", "metadata")


class Cut(Mortal, Standby):
    """A standby that is a few batches behind; whoever brings it on is killed before the n-th
    change at the target.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 1)
        self.looks = 3
        self.job.moods, self.job.retained = {}, 100

    def counts(self, call: str, location: str) -> bool:
        return call in CHANGES and location == TARGET

    def work(self, changes: int | None, act: Callable[[], Report]) -> bool:
        """Whether it was killed before that many changes."""
        self.looks, self.calls_left = 80, changes
        try:
            with pytest.raises((Ended, Killed, ProcessGone)) as raised:
                act()
            return raised.type is not Ended
        finally:
            self.calls_left, self.gone = None, False


def behind(folder: Path) -> Cut:
    """Seven batches behind, with a snapshot in between whose older changes a restart does not
    need.
    """
    ground = Cut(folder)
    assert not ground.work(None, lambda: ground.warm(cutover="never"))
    assert ground.kept[-1] == 11
    for batch in range(7):
        ground.job.batch()
        if batch == 4:
            ground.job.tidy()
    ground.clock.time += 600
    return ground


@pytest.mark.long
@pytest.mark.parametrize("offset", [0, pytest.param(5, marks=pytest.mark.slow)])
def test_a_standby_killed_at_any_change_can_be_started_from_there_and_comes_on(
    tmp_path: Path, offset: int
) -> None:
    """By Spark's own rules, and by ours; at the old batch, at the new one, or at one in between."""
    seen, killed, number = [], True, offset
    while killed:
        ground = behind(tmp_path / str(number))
        killed = ground.work(number, ground.resume)
        held = {path for path in ground.held(TARGET) if path.startswith(FILES)}
        assert startable_by_spark(held) is None, f"killed before change {number}"
        epoch, state = state_at(ground.disk.open(TARGET))
        assert epoch is not None and state in ground.job.ever[epoch]
        seen.append(epoch)
        if killed:
            assert not ground.work(None, ground.resume)
            assert ground.kept[-1] == 18
        number += 17
    assert seen == sorted(seen) and seen[-1] == 18
    assert {12, 13, 14, 15, 16, 17} & set(seen), "a standby comes on batch by batch"


@pytest.mark.long
@pytest.mark.usefixtures("forgetful")
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "keys", [{"rounds": 30}, {"cutover": "manual", "until": "remaining < 1ms"}]
)
def test_rounds_that_are_remembered_as_one_count_and_leave_nothing(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    ground = LivingGround(tmp_path)
    ground.job.moods = {"batch": 0.03, "tidy": 0.004, "back": 0.002}

    def look() -> None:
        if len(ground.clock.waits) == 800:
            ground.workdir().steering.ask_cutover(True)

    ground.clock.on_sleep = look
    report = ground.warm(**keys)
    assert report.state == "finished" and ground.there is not None
    progress = migration.progress_of(ground.workdir())
    assert progress.forgotten["orders"] > 5 and len(progress.known) < 25
    rounds = report.jobs[0].rounds
    assert rounds[0].number == 1 and rounds[-1].number == progress.forgotten["orders"] + len(rounds)
    assert rounds[-1].number >= 30 or "cutover" in keys
    assert not migration.verify(ground.workdir(), ground.adapters).broken
    ground.rollback(discard_progress=True)
    assert ground.held(TARGET) == {} and not ground.locks()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(20))
def test_killed_while_many_rounds_are_told_as_one_its_last_state_arrives(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_compaction, "ROUNDS_MAX", 1)
    dice, ground = random.Random(seed), Mortal(tmp_path, seed)
    ground.job.moods |= {"batch": 0.03}
    proposal = ground.propose(warm_spec(rounds=6))
    report = ground.until_killed(dice.randint(100, 900), lambda: ground.apply(proposal))
    for _ in range(3):
        report = report or ground.until_killed(dice.randint(1, 900), ground.resume)
    report = report or ground.resume()
    assert report.state == "finished" and ground.there is not None
    assert len(ground.cluster.submissions) == 1


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(40))
def test_killed_again_and_again_while_the_job_lives_its_last_state_arrives(
    tmp_path: Path, seed: int
) -> None:
    dice, ground = random.Random(seed), Mortal(tmp_path, seed)
    proposal = ground.propose(warm_spec(rounds=3))
    report = ground.until_killed(dice.randint(1, 250), lambda: ground.apply(proposal))
    for _ in range(4):
        if report is None:
            report = ground.until_killed(dice.randint(1, 250), ground.resume)
    report = report or ground.resume()
    assert report.state == "finished" and ground.there is not None, (
        "what arrived was judged when the job was started"
    )
    assert len(ground.cluster.submissions) == 1
    assert ground.disk.snapshot(TARGET, temporaries=True) == ground.disk.snapshot(TARGET)


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(25))
def test_killed_anywhere_and_taken_back_it_has_left_no_trace(tmp_path: Path, seed: int) -> None:
    dice, ground = random.Random(1000 + seed), Mortal(tmp_path, seed)
    proposal = ground.propose(warm_spec(rounds=3))
    report = ground.until_killed(dice.randint(1, 400), lambda: ground.apply(proposal))
    if (report is not None and report.state == "finished") or ground.there is not None:
        return  # it goes on where it is now, and is not taken back unasked
    ground.until_killed(dice.randint(1, 60), ground.rollback)
    assert ground.rollback().state == "rolled-back"
    assert ground.held(TARGET) == {} and not ground.locks()
    assert not any(fence_owner(content) for content in ground.held(SOURCE).values())
    epoch, state = state_at(ground.disk.open(SOURCE))
    assert epoch is not None and ground.job.running and state == ground.job.expected(epoch)


# -- while it stops


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lasts seconds elsewhere is over at once here."""
    monkeypatch.setattr(warm_rounds, "STOPPING_SECONDS", 0.005)


class Slow(LivingGround):
    """Far away, and takes its time to stop: `acts` are what it does until it has."""

    def __init__(self, folder: Path, seed: int = 1, *acts: Callable[[Slow], None]) -> None:
        super().__init__(folder, seed)
        self.disk.at_once = 8
        self.job.moods, self.acts = dict.fromkeys(self.job.moods, 0.0), acts

    def _stop(self, request: StopRequest) -> None:
        for act in self.acts if request.location == SOURCE else ():
            act(self)
        self.job.running = False

    def beside(self, location: str) -> list[str]:
        """What lies beside the image, but for the index that every image of ours has."""
        found = self.disk.snapshot(location)
        return [path for path in found if path.startswith("_stateshift/") and path != INDEX]

    def last_batch(self) -> None:
        """It is still there for as long as it takes to bring it."""
        self.job.batch()
        names = {f"state/0/{shard}/{self.job.epoch + 1}.delta" for shard in range(2)}
        until = time.monotonic() + 60
        while not names <= set(self.held(TARGET)) and time.monotonic() < until:
            time.sleep(0.01)


@pytest.mark.row("T-1", "T-5")
def test_what_a_job_still_commits_is_brought_before_it_has_gone(tmp_path: Path) -> None:
    ground = Slow(tmp_path, 1, Slow.last_batch)
    assert ground.warm().state == "finished" and ground.there is not None
    count = len(list((ground.workdir().path / "plans").iterdir()))
    plans = [ground.workdir().read(f"plans/{number}.json") for number in range(count)]
    purposes = [plan["purpose"] for plan in plans]
    assert purposes == ["warm", "halt", *["warm"] * (count - 3), "move"] and count > 3
    assert not [
        s
        for p in plans[-1]["phases"]
        if p["name"] == "copy"
        for s in p["steps"]
        if s["kind"] == "CopyFiles"
    ]
    assert not migration.verify(ground.workdir(), ground.adapters).broken
    assert fence_owner(ground.held(SOURCE)[f"commits/{ground.job.epoch + 1}"]) == "run-run"
    assert ground.beside(SOURCE) == []
    assert not any("staged" in path for path in ground.beside(TARGET))
    ground.rollback(discard_progress=True)
    assert ground.held(TARGET) == {} and not ground.locks()
    assert ground.beside(SOURCE) == ground.beside(TARGET) == []


def test_a_fence_that_was_ready_is_not_put_over_what_the_job_has_committed(tmp_path: Path) -> None:
    ground = Slow(tmp_path, 1, Slow.last_batch)
    find = ground.cluster.find_source

    def late(request: StopRequest) -> JobStatus:
        """A zombie commits while we look at what it has left."""
        if not ground.job.running and ground.job.epoch == 12:
            ground.job.batch()
        return find(request)

    ground.cluster.find_source = late  # type: ignore[method-assign]
    ground.warm()
    held = ground.held(SOURCE)
    assert fence_owner(held["commits/13"]) is None and fence_owner(held["commits/14"]) == "run-run"
    assert ground.beside(SOURCE) == []


@pytest.mark.parametrize("when", ["before", "behind"])
def test_stopped_in_vain_it_leaves_nothing_at_its_source(tmp_path: Path, when: str) -> None:
    """It has become another one meanwhile."""
    other = b'{"id":"99999999-2222-3333-4444-555555555555"}'
    ground = Slow(
        tmp_path,
        1,
        *([Slow.last_batch] if when == "behind" else []),
        lambda ground: ground.put(f"{SOURCE}/metadata", other),
    )
    with pytest.raises(StalePlan):
        ground.warm()
    assert ground.job.running and ground.beside(SOURCE) == []
    ground.rollback()
    assert ground.held(TARGET) == {} and ground.beside(TARGET) == ground.beside(SOURCE) == []


class Full(Slow):
    """Nothing can be written at the target until it has stopped."""

    stopping = False

    def _stop(self, request: StopRequest) -> None:
        self.stopping = True
        super()._stop(request)
        self.stopping = False

    def _wrap(self, storage: Storage) -> Storage:
        outer = self

        class Failing(Watched):
            def __getattr__(self, name: str) -> Any:
                if name == "write" and outer.stopping and self.inner.location == TARGET:
                    outer.refused = True
                    raise outer.error
                return super().__getattr__(name)

        return Failing(storage, self.job)  # type: ignore[return-value]

    refused = False
    error: Exception = StorageError("no space left", location=TARGET)

    def wait(self) -> None:
        until = time.monotonic() + 60
        while not self.refused and time.monotonic() < until:
            time.sleep(0.01)


def test_what_cannot_be_brought_while_it_stops_is_brought_afterwards(tmp_path: Path) -> None:
    ground = Full(tmp_path, 1, lambda ground: ground.job.batch(), Full.wait)  # type: ignore[arg-type]
    assert ground.warm().state == "finished" and ground.there is not None
    assert ground.refused


@pytest.mark.long
@pytest.mark.parametrize(
    "error", [StorageError("no space left", location=TARGET), KeyError("a bug of ours")]
)
def test_what_fails_while_it_stops_is_not_tried_at_each_look(
    tmp_path: Path, error: Exception
) -> None:
    def pause(ground: Slow) -> None:
        """It may be tried again."""
        time.sleep(1.5)

    ground = Full(tmp_path, 1, lambda ground: ground.job.batch(), Full.wait, pause)  # type: ignore[arg-type]
    ground.error = error
    assert ground.warm().state == "finished" and ground.there is not None
    assert ground.refused
    assert len(list((ground.workdir().path / "plans").iterdir())) <= 20
    assert any(
        "nothing more is copied while the job stops, for now" in line for line in ground.said
    )


@pytest.mark.usefixtures("often")
@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(20))
def test_whatever_it_does_while_it_stops_its_last_state_arrives(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    moods = dice.choices((LivingJob.batch, LivingJob.tidy, LivingJob.back), (4, 2, 1), k=12)

    def one(mood: Callable[[LivingJob], None]) -> Callable[[Slow], None]:
        return lambda ground: (mood(ground.job), time.sleep(dice.random() * 0.03))[0]

    ground = Slow(tmp_path, seed, *map(one, moods))
    report = ground.warm()
    assert report.state == "finished" and ground.there is not None, (
        "what arrived was judged when the job was started"
    )
    assert not migration.verify(ground.workdir(), ground.adapters).broken


class Distant(Mortal):
    """Many calls at once, of which one is the last; and it commits while it stops."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.disk.at_once = 8
        self.job.moods = dict.fromkeys(self.job.moods, 0.0)

    def _stop(self, request: StopRequest) -> None:
        for _ in range(4 if request.location == SOURCE else 0):
            self.job.batch()
            time.sleep(0.03)
        self.job.running = False


@pytest.mark.usefixtures("often")
@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(30))
def test_killed_while_it_stops_its_last_state_arrives(tmp_path: Path, seed: int) -> None:
    dice, ground = random.Random(seed), Distant(tmp_path, seed)
    proposal = ground.propose(warm_spec())
    report = ground.until_killed(dice.randint(100, 600), lambda: ground.apply(proposal))
    report = report or ground.until_killed(dice.randint(1, 250), ground.resume)
    report = report or ground.resume()
    assert report.state == "finished" and ground.there is not None, (
        "what arrived was judged when the job was started"
    )
    assert len(ground.cluster.submissions) == 1


class Timed(LivingGround):
    """Somebody steers at certain times; the job commits a batch a second."""

    def __init__(self, folder: Path, *acts: tuple[float, Callable[[Steering], None]]) -> None:
        super().__init__(folder)
        self.job.moods = dict.fromkeys(self.job.moods, 0.0)
        self.acts, self.began = list(acts), self.clock.time
        self.clock.sleep = self._sleep  # type: ignore[method-assign]

    def _sleep(self, seconds: float) -> None:
        before, clock = self.clock.time, self.clock
        clock.time += seconds
        if int(clock.time) > int(before) and self.job.running:
            self.job.batch()
        while self.acts and clock.time - self.began >= self.acts[0][0]:
            self.acts.pop(0)[1](self.workdir().steering)


def test_told_to_wait_it_is_stopped_when_somebody_says_so_and_not_before(tmp_path: Path) -> None:
    ground = Timed(tmp_path, (90.0, lambda steering: steering.ask_cutover(False)))
    report = ground.warm(cutover="manual")
    assert report.state == "finished" and ground.job.epoch >= 90
    (halt,) = [phase for phase in report.jobs[0].phases if phase.name == "halt"]
    assert halt.start >= 90.0
    assert [one.what for one in report.steered] == ["cutover"]
    assert 2 <= len(report.jobs[0].rounds) < 10, "a batch is not worth a round of its own"


class Restarting:
    """A cluster gives no answer from one time to another. `asked` counts the questions then."""

    def __init__(self, ground: Timed, silent: tuple[float, float]) -> None:
        self.ground, self.silent = ground, silent
        cluster = ground.cluster
        self.asked, self.find_source = 0, cluster.find_source
        cluster.find_source = self.find  # type: ignore[method-assign]

    def find(self, request: StopRequest) -> JobStatus:
        begin, end = self.silent
        if begin <= self.ground.clock.time - self.ground.began < end:
            self.asked += 1
            raise Silent("no answer", cluster="ours")
        return self.find_source(request)


def test_a_cluster_that_restarts_while_a_job_is_followed_is_asked_again(tmp_path: Path) -> None:
    """Somebody asks for the cutover while it is silent: it is heard first."""
    ground = Timed(tmp_path, (12.0, lambda steering: steering.ask_cutover(True)))
    cluster = Restarting(ground, (10.0, 40.0))
    report = ground.warm(cutover="manual")
    assert report.state == "finished" and ground.there is not None
    assert cluster.asked > 1
    (halt,) = [phase for phase in report.jobs[0].phases if phase.name == "halt"]
    assert halt.start >= 40.0
    assert len([line for line in ground.said if "no answer" in line]) == 1


def test_a_cluster_that_stays_silent_ends_following_and_leaves_the_job_alone(
    tmp_path: Path,
) -> None:
    ground = Timed(tmp_path, (3000.0, lambda steering: steering.ask_cutover(True)))
    cluster = Restarting(ground, (10.0, 2000.0))
    with pytest.raises(Silent, match="no answer"):
        ground.warm(cutover="manual")
    assert ground.job.running and ground.clock.time - ground.began > 70.0
    cluster.silent = (0.0, 0.0)
    ground.acts = [(0.0, lambda steering: steering.ask_cutover(True))]
    assert ground.resume().state == "finished"


def test_a_cluster_that_is_silent_just_when_the_halt_is_prepared_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Timed(tmp_path)
    cluster = Restarting(ground, (0.0, 0.0))
    prepare = warm_rounds.prepare

    def prepare_in_silence(context: RunContext, jobs: Sequence[JobSpec]) -> bool:
        now = ground.clock.time - ground.began
        cluster.silent = (now, now + 30.0)
        return prepare(context, jobs)

    monkeypatch.setattr(warm_rounds, "prepare", prepare_in_silence)
    assert ground.warm().state == "finished"
    assert cluster.asked > 1


def test_a_cutover_that_was_told_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the word and the stop."""

    def killed(*arguments: object) -> None:
        raise Killed

    ground = Timed(tmp_path, (30.0, lambda steering: steering.ask_cutover(False)))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(stop, "halt", killed)
        ground.warm(cutover="manual")
    assert ground.job.running
    assert ground.resume().state == "finished"
    assert not (ground.workdir().path / "steer" / "cutover").exists()


@pytest.mark.parametrize("at_once", [1, 8])
def test_behind_a_stop_that_failed_a_job_is_followed_again(tmp_path: Path, at_once: int) -> None:
    """It runs on for a night, until somebody resumes."""
    ground = LivingGround(tmp_path)
    ground.disk.at_once = at_once
    ground.job.moods = dict.fromkeys(ground.job.moods, 0.0)

    def late(request: StopRequest) -> None:
        ground.cluster.run("orders", SOURCE)
        raise ClusterError("it still runs after 300 s")

    ground.cluster._on_stop = late
    with pytest.raises(ClusterError):
        ground.warm()
    for _ in range(40):
        ground.job.batch()
    ground.cluster._on_stop = ground._stop
    before = ground.job.epoch
    assert ground.resume().state == "finished" and ground.there is not None
    assert migration.progress_of(ground.workdir()).seen[-1].left.epoch == before, (
        "looked at before it is stopped"
    )


@pytest.mark.long
def test_what_is_left_is_told_at_the_pace_that_the_run_is_held_to(tmp_path: Path) -> None:
    told = list[Any]()
    ground = Timed(
        tmp_path,
        (1.0, lambda steering: told.append(steering.live())),
        (120.0, lambda steering: steering.ask_cutover(True)),
    )
    ground.meter.say = lambda line: None  # type: ignore[method-assign]
    ground.warm(
        cutover="manual", verify={"source": "names"}, spec_throttle={"bytes_per_second": 200}
    )
    left = told[0].left["orders"]
    assert left.round == 0 and left.seconds >= 2 * left.bytes / 200


def test_whoever_asks_it_to_end_is_heard_while_a_cluster_is_waited_for(tmp_path: Path) -> None:
    ground = LivingGround(tmp_path)
    stops = list[threading.Event]()
    adapters = Ground.adapters.fget  # type: ignore[attr-defined]

    def kept(ground: Ground) -> Any:
        made = adapters(ground)
        stops.append(made.stop)
        return made

    def stop(request: StopRequest) -> None:
        """Waits until it is interrupted, as clusters do."""
        ground.workdir().steering.ask_stop()
        assert stops[-1].wait(60)
        raise Interrupted("while the job stops")

    ground.cluster._on_stop = stop
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Ground, "adapters", property(kept))
        ground.warm()
    assert ground.job.running


@pytest.mark.long
def test_outside_of_its_hours_it_is_not_stopped(tmp_path: Path) -> None:
    ground = Timed(tmp_path)
    hour, minute = divmod(int(ground.clock.time) // 60 % 1440 + 5, 60)
    report = ground.warm(cutover=f"{hour % 24:02}:{minute:02}-{(hour + 1) % 24:02}:{minute:02} UTC")
    (halt,) = [phase for phase in report.jobs[0].phases if phase.name == "halt"]
    assert 240.0 <= halt.start <= 300.0


@pytest.mark.long
def test_paused_it_brings_nothing_and_goes_on_afterwards(tmp_path: Path) -> None:
    seen: list[int] = []
    ground = Timed(
        tmp_path,
        (5.0, lambda steering: steering.pause(True)),
        (30.0, lambda steering: seen.append(len(ground.held(TARGET)))),
        (200.0, lambda steering: seen.append(len(ground.held(TARGET)))),
        (201.0, lambda steering: steering.pause(False)),
        (300.0, lambda steering: steering.ask_cutover(True)),
    )
    report = ground.warm(cutover="manual")
    assert report.state == "finished" and seen[0] == seen[1]
    assert [one.what for one in report.steered] == ["pause", "go on", "cutover"]
    assert 150.0 <= report.idle_seconds <= 200.0


def test_what_rounds_have_brought_is_not_called_somebody_elses_when_it_is_taken_back(
    tmp_path: Path,
) -> None:
    """The move is taken back before the rounds: what they brought is still there then."""
    ground = LivingGround(tmp_path)

    def refuse(submission: Submission) -> None:
        if submission.location == TARGET:
            raise ClusterError("no room", cluster="ours", job="orders")
        ground._start(submission)

    ground.cluster._on_start = refuse
    with pytest.raises(ClusterError, match="no room"):
        ground.warm(rounds=2, spec_on_failure="stop")
    ground.put(f"{TARGET}/theirs")
    report = ground.rollback()
    assert report.state == "rolled-back" and ground.job.running
    told = [
        line
        for line in (*report.left, *(line for job in report.jobs for line in job.left))
        if "not write" in line
    ]
    assert len(told) == 1
    assert told[0].startswith(f"{TARGET}: 1 file that this run did not write (theirs)")


def test_asked_to_stop_it_ends_as_by_ctrl_c_and_leaves_a_job_that_has_not_noticed(
    tmp_path: Path,
) -> None:
    ground = Timed(tmp_path, (20.0, lambda steering: steering.ask_stop()))
    before = set(ground.held(SOURCE))
    with pytest.raises(Interrupted):
        ground.warm(cutover="manual")
    assert ground.rollback().state == "rolled-back"
    assert ground.job.running and ground.held(TARGET) == {} and not ground.locks()
    assert before <= set(ground.held(SOURCE))


@pytest.mark.slow
def test_throttled_while_it_is_at_work_it_keeps_to_that(tmp_path: Path) -> None:
    ground = Timed(
        tmp_path,
        (5.0, lambda steering: steering.throttle(Throttle(None, 2.0))),
        (400.0, lambda steering: steering.throttle(Throttle())),
        (600.0, lambda steering: steering.ask_cutover(False)),
    )
    report = ground.warm(cutover="manual")
    assert [(one.what, one.value) for one in report.steered] == [
        ("throttle", "2 requests a second"),
        ("throttle", "as fast as it goes"),
        ("cutover", "ready"),
    ]
    rounds = report.jobs[0].rounds
    slow = [(one, other) for one, other in pairwise(rounds) if 5.0 < one.start < 400.0]
    assert slow and all(other.start - one.start >= one.files / 2.0 for one, other in slow)
