"""A standby keeps the two newest epochs, and is started from either: on a disk in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stateshift.api.failovers import standby_at
from stateshift.clusters.protocol import Submission
from stateshift.engines.registry import engine
from stateshift.errors import ClusterError, PlanError
from stateshift.formats.marks import FOLDER
from stateshift.formats.standby import STATE, claim_path, decode_state
from stateshift.migration.gathering import Inquiry, image_of_epoch
from stateshift.migration.source_check import damage_of_copy, files_read_lately
from stateshift.specification import JobSpec, Spec
from stateshift.standby.location import failover_spec
from stateshift.survey import Facts, Finding
from stateshift.workdir import Workdir
from tests.engines.flink import golden
from tests.migration.test_warm import Ended, Standby
from tests.standby.test_failover import Dying, Gone
from tests.support.checkpoints import put
from tests.support.entries import entries
from tests.support.ground import TARGET, running_spec
from tests.support.living import State, state_at
from tests.support.living_flink import LivingFlinkGround


def kept_epochs(ground: Standby) -> list[int]:
    """The epochs that the state file names."""
    held = ground.disk.snapshot(TARGET).get(STATE)
    return [] if held is None else [kept.epoch for kept in decode_state(held).kept]


def state_of(ground: Standby, epoch: int) -> State | None:
    """The state that would be restored at this epoch."""
    image = image_of_epoch(engine("spark"), TARGET, ground.disk.open, epoch)
    if image is None:
        return None
    return {
        entry.key: entry.value
        for shard in image.shards
        for entry in entries(ground.disk.open(TARGET).chunks, shard, image.settings)
    }


class Keeping(Standby):
    """At each look, whatever the state file names can be started from."""

    def look(self) -> None:
        super().look()
        if claim_path(2) in self.disk.snapshot(TARGET):
            return  # a failover sets aside what it does not start from
        for epoch in kept_epochs(self):
            assert state_of(self, epoch) in self.job.ever[epoch], f"{epoch} is named, and not there"
        self.pairs.add(tuple(kept_epochs(self)))

    pairs: set[tuple[int, ...]]


@pytest.mark.sample(2)
@pytest.mark.parametrize("back", [0.0, 0.003])
@pytest.mark.parametrize("retained", [0, 100])
@pytest.mark.parametrize("seed", range(2))
def test_every_epoch_that_is_named_can_be_started_from(
    tmp_path: Path, seed: int, retained: int, back: float
) -> None:
    """At each moment between two changes of a file."""
    ground = Keeping(tmp_path, seed, looks=200)
    ground.pairs = set()
    ground.job.retained = retained
    ground.job.moods["back"] = back
    with pytest.raises(Ended):
        ground.apply(running_spec(mode="warm", cutover="never"))
    pairs = [pair for pair in ground.pairs if len(pair) == 2]
    assert pairs and all(newest > before for newest, before in pairs)


# ---- a failover from the one before the newest


def two_epochs(folder: Path) -> Keeping:
    """A standby of a lost job that keeps batches 14 and 11."""
    ground = Keeping(folder, 1, looks=60)
    ground.pairs = set()
    ground.acts = {45: lambda: more(ground), 20: lambda: stop(ground)}
    ground.job.moods, ground.job.retained = {}, 100
    with pytest.raises(Ended):
        ground.apply(running_spec(mode="warm", cutover="never"))
    assert kept_epochs(ground) == [14, 11]
    return ground


def more(ground: Keeping) -> None:
    for _ in range(3):
        ground.job.batch()


def stop(ground: Keeping) -> None:
    ground.job.running = False


def started_at(ground: Standby, epoch: int) -> None:
    """The job that is started next has to find the state of this epoch, and nothing later."""

    def start(submission: Submission) -> None:
        found, state = state_at(ground.disk.open(TARGET))
        assert found == epoch and state in ground.job.ever[epoch]
        ground.there = ground.job.moved_to(TARGET)
        ground.there.epoch = epoch
        ground.there.batch()

    ground.cluster._on_start = start
    ground.looks = 10**6


def spec_at(epoch: int | None, ground: Standby) -> Spec:
    return failover_spec(standby_at(TARGET, ground.adapters), True, epoch)


@pytest.mark.row("W-22")
def test_the_job_goes_on_from_the_epoch_that_is_named(tmp_path: Path) -> None:
    ground = two_epochs(tmp_path)
    started_at(ground, 11)
    report = ground.apply(spec_at(11, ground), "failover")
    (job,) = report.jobs
    assert job.failover is not None and job.failover.epoch == 11
    assert job.failover.rpo.seconds is not None and job.failover.rpo.seconds > 600
    assert state_at(ground.disk.open(TARGET))[0] == 12
    aside = [path for path in ground.disk.snapshot(TARGET) if path.startswith(f"{FOLDER}/aside-2/")]
    assert (
        f"{FOLDER}/aside-2/commits/14" in aside and f"{FOLDER}/aside-2/state/0/0/15.delta" in aside
    )


def test_the_newest_may_be_named_too(tmp_path: Path) -> None:
    ground = two_epochs(tmp_path)
    started_at(ground, 14)
    ground.apply(spec_at(14, ground), "failover")
    assert not any("/aside-" in path for path in ground.disk.snapshot(TARGET))


def test_taken_back_it_is_all_there_again_and_the_standby_goes_on(tmp_path: Path) -> None:
    ground = two_epochs(tmp_path)
    before, submit = ground.held(TARGET), ground.cluster.submit
    ground.looks = 10**6

    def refuse(*arguments: object) -> None:
        raise ClusterError("no answer", cluster="ours")

    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(ClusterError):
        ground.apply(spec_at(11, ground), "failover")
    assert "commits/14" not in ground.held(TARGET)
    ground.rollback("failover")
    assert ground.held(TARGET) == before and kept_epochs(ground) == [14, 11]
    ground.cluster.submit = submit  # type: ignore[method-assign]
    ground.job.running, ground.looks = True, 400
    ground.job.batch()
    with pytest.raises(Ended):
        ground.resume()
    assert kept_epochs(ground) == [15, 14]


@pytest.mark.row("W-22")
@pytest.mark.sample(6)
@pytest.mark.parametrize("moment", [*range(1, 8), *range(8, 32, 4)])
def test_killed_at_any_change_a_failover_from_it_is_resumed(tmp_path: Path, moment: int) -> None:
    ground = two_epochs(tmp_path)
    started_at(ground, 11)
    ground.look = lambda: None  # type: ignore[method-assign]
    wrap, moments = ground.wrap, [moment]
    ground.wrap = lambda storage: Dying(wrap(storage), moments)  # type: ignore[assignment, return-value]
    try:
        ground.apply(spec_at(11, ground), "failover")
    except Gone:
        ground.wrap = wrap
        if ground.workdir("failover").exists:
            ground.resume("failover")
        else:
            ground.apply(spec_at(11, ground), "failover")
    assert ground.there is not None and len(ground.cluster.submissions) == 1


def test_an_epoch_that_is_not_kept_is_refused_and_those_that_are_named(tmp_path: Path) -> None:
    ground = two_epochs(tmp_path)
    for epoch in (10, 12, 13, 15, 0):
        with pytest.raises(PlanError, match="keeps epoch 14 and 11") as caught:
            spec_at(epoch, ground)
        assert caught.value.exit_code == 4 and "stateshift status" in (caught.value.hint or "")


def test_an_epoch_whose_files_are_gone_is_refused(tmp_path: Path) -> None:
    ground = two_epochs(tmp_path)
    ground.look = lambda: None  # type: ignore[method-assign]
    ground.disk.open(TARGET).remove("offsets/10")
    before = ground.disk.snapshot()
    with pytest.raises(PlanError, match="epoch 11 is not at"):
        ground.propose(spec_at(11, ground))
    assert ground.disk.snapshot() == before


def damaged_inside(ground: Standby) -> None:
    put(ground.disk.open(TARGET), "state/0/1/15.delta", b"\0" * 40)


def missing(ground: Standby) -> None:
    ground.disk.open(TARGET).remove("state/0/1/15.delta")


@pytest.mark.row("W-22")
@pytest.mark.parametrize("damage", [damaged_inside, missing])
def test_where_the_newest_is_damaged_the_one_that_is_whole_is_named_and_not_taken(
    tmp_path: Path, damage: Callable[[Standby], None]
) -> None:
    ground = two_epochs(tmp_path)
    ground.look = lambda: None  # type: ignore[method-assign]
    damage(ground)
    before = ground.held(TARGET)
    with pytest.raises(PlanError, match="cannot be started from its standby") as caught:
        ground.apply(spec_at(None, ground), "failover")
    assert f"stateshift failover {TARGET} --epoch 11" in (caught.value.hint or "")
    assert ground.held(TARGET) == before and not ground.cluster.submissions
    started_at(ground, 11)
    assert ground.apply(spec_at(11, ground), "again").state == "finished"


def test_what_a_round_has_read_is_not_read_again(tmp_path: Path) -> None:
    ground = two_epochs(tmp_path)
    inquiry = Inquiry(spec_at(None, ground), ground.adapters, Workdir(ground.folder / "looks"))
    job = inquiry.spec.jobs[0]
    known = files_read_lately(inquiry, job)
    assert {"state/0/1/12.delta", "state/0/1/15.delta", "offsets/14"} <= known
    damaged_inside(ground)  # somebody writes to it
    assert known - files_read_lately(inquiry, job) == {"state/0/1/15.delta"}
    ground.clock.time += 2 * 3600.0
    assert not files_read_lately(inquiry, job)


def test_where_none_is_whole_nothing_is_started(tmp_path: Path) -> None:
    ground = two_epochs(tmp_path)
    ground.look = lambda: None  # type: ignore[method-assign]
    damaged_inside(ground)
    put(ground.disk.open(TARGET), "state/0/1/12.delta", b"\0" * 40)
    with pytest.raises(PlanError) as caught:
        ground.apply(spec_at(None, ground), "failover")
    assert "--epoch" not in (caught.value.hint or "")
    with pytest.raises(PlanError):
        ground.apply(spec_at(11, ground), "again")
    assert not ground.cluster.submissions


def test_a_state_file_of_the_version_before_is_read(tmp_path: Path) -> None:
    ground = two_epochs(tmp_path)
    state = json.loads(ground.target.read(STATE))
    del state["earlier"]
    ground.put(f"{TARGET}/{STATE}", json.dumps(state).encode())
    assert kept_epochs(ground) == [14]


# ---- Flink


def two_checkpoints(folder: Path) -> LivingFlinkGround:
    ground, seen = LivingFlinkGround(folder), set[int]()

    def sleep() -> None:
        newest = flink_epochs(ground)
        if newest and newest[0] not in seen and len(seen) < 4:
            seen.add(newest[0])
            ground.flink.latest = ground.job.complete()
        if len(seen) >= 4 and len(ground.clock.waits) > 200:
            raise Ended
        for epoch in newest:
            assert image_of_epoch(engine("flink"), TARGET, ground.disk.open, epoch) is not None

    ground.clock.on_sleep = sleep
    with pytest.raises(Ended):
        ground.warm(cutover="never")
    ground.clock.on_sleep = lambda: None
    return ground


def flink_epochs(ground: LivingFlinkGround) -> list[int]:
    held = ground.disk.snapshot(TARGET).get(STATE)
    return [] if held is None else [kept.epoch for kept in decode_state(held).kept]


@pytest.mark.row("W-22")
@pytest.mark.parametrize("back", [0, 1])
def test_a_flink_job_goes_on_from_either_checkpoint(tmp_path: Path, back: int) -> None:
    ground = two_checkpoints(tmp_path)
    kept = flink_epochs(ground)
    assert len(kept) == 2 and kept[0] == kept[1] + 1
    named = [path for path in ground.disk.snapshot(TARGET) if f"{FOLDER}/epoch-" in path]
    # What the one before them needed goes with the next round.
    assert {f"{FOLDER}/epoch-{epoch}/_metadata" for epoch in kept} <= set(named) and len(named) <= 3
    spec = failover_spec(standby_at(TARGET, ground.adapters), True, kept[back])
    found: list[int | None] = []

    def start(location: str) -> None:
        found.append(golden.looked_at(ground.disk, TARGET)[1].images[0].epoch)

    ground.flink.on_start = start
    report = ground.apply(spec, "failover")
    assert report.state == "finished"
    assert golden.looked_at(ground.disk, TARGET)[1].images[0].epoch == kept[back]


def test_a_round_reads_what_is_new_and_a_large_copy_once_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading all of it takes five minutes here. Every epoch that is published was read."""
    ground = Standby(tmp_path, 1, looks=90)
    ground.look = lambda: None  # type: ignore[method-assign]
    ground.job.moods, ground.job.retained = {"batch": 0.01}, 100
    ground.acts = {20: lambda: hours_pass(ground)}
    reads: list[tuple[float, set[str]]] = []

    def slowly(inquiry: Inquiry, job: JobSpec, facts: Facts, known: set[str]) -> Finding | None:
        new = set(facts.source.images[0].state_files).difference(known)
        reads.append((ground.clock.time, new))
        ground.clock.time += 0.01 * len(new) if known else 300.0
        return damage_of_copy(inquiry, job, facts, known)

    monkeypatch.setattr("stateshift.migration.warm_rounds.damage_of_copy", slowly)
    with pytest.raises(Ended):
        ground.apply(running_spec(mode="warm", cutover="never"))
    state = decode_state(ground.disk.snapshot(TARGET)[STATE])
    assert [kept.checked for kept in state.kept] == [True, True]
    began = reads[0][0]
    within = [new for at, new in reads if at - began < 3600.0]
    assert len(within) > 2
    assert sum(map(len, within)) == len(set[str]().union(*within)), "each file once"
    again = [new for at, new in reads if at - began >= 3600.0]
    assert again and not within[0].isdisjoint(again[0])


def hours_pass(ground: Standby) -> None:
    ground.clock.time += 2 * 3600.0
