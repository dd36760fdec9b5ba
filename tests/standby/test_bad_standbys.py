"""A standby that is set up badly, or whose target fails: each ends with what there was before, and
with the way out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.api.failovers import standby_at
from stateshift.cli.views import standby_text
from stateshift.documents.shape import document_of
from stateshift.documents.standby import StandbyDocument, StandbyFacts
from stateshift.errors import OtherRunError, StateshiftError, StorageError
from stateshift.formats.standby import STATE, decode_state
from stateshift.specification.location import relation
from stateshift.standby.location import failover_spec
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo
from tests.migration.test_last_copy import Away, gone, standby
from tests.migration.test_warm import Ended, Standby
from tests.support.ground import SOURCE, TARGET, Around, running_spec
from tests.support.living import state_at
from tests.support.living_flink import LivingFlinkGround
from tests.support.living_flink import warm_spec as flink_spec

ELSEWHERE = "file:///third/orders"


def nothing(ground: Standby) -> None:
    """The source is as it was."""


def started(folder: Path, looks: int = 60) -> Standby:
    ground = standby(folder, nothing, looks)
    ground.job.running = True
    return ground


def test_a_target_that_another_standby_feeds_is_refused(tmp_path: Path) -> None:
    ground = started(tmp_path)
    before = ground.disk.snapshot(TARGET)
    with pytest.raises(StateshiftError) as caught:
        ground.apply(running_spec(mode="warm", cutover="never"), "second")
    assert caught.value.exit_code in (4, 8) and caught.value.hint
    assert ground.disk.snapshot(TARGET) == before
    ground.job.batch()
    ground.looks = 400
    with pytest.raises(Ended):
        ground.resume()
    assert ground.kept[-1] == ground.job.epoch


def test_two_standbys_of_one_source_follow_it_both(tmp_path: Path) -> None:
    ground = started(tmp_path)
    ground.looks = 400
    with pytest.raises(Ended):
        ground.apply(running_spec(target=ELSEWHERE, mode="warm", cutover="never"), "second")
    for _ in range(2):
        ground.job.batch()
    for workdir in ("run", "second"):
        ground.looks = 400
        with pytest.raises(Ended):
            ground.resume(workdir)
    for place in (TARGET, ELSEWHERE):
        assert state_at(ground.disk.open(place)) == (13, ground.job.expected(13))
        found = standby_at(place, ground.adapters)
        assert found.state.epoch == 13 and found.state.location == place


@pytest.mark.parametrize("engine", ["spark", "flink"])
def test_a_standby_on_the_storage_of_its_source_is_warned_of(tmp_path: Path, engine: str) -> None:
    if engine == "spark":
        ground: Any = Standby(tmp_path, 1)
        spec = running_spec(mode="warm", cutover="never")
        moved = running_spec(mode="warm")
    else:
        ground, spec, moved = LivingFlinkGround(tmp_path), flink_spec(cutover="never"), flink_spec()

    def warned(spec: Any) -> list[str]:
        findings = [finding for plan in ground.propose(spec).plans for finding in plan.findings]
        return [finding.message for finding in findings if "same storage" in finding.message]

    assert warned(spec) and not warned(moved)


def test_a_standby_that_a_failover_could_not_start_is_warned_of(tmp_path: Path) -> None:
    ground, fact = Standby(tmp_path, 1), "`failover` cannot start"

    def warned(spec: Any) -> bool:
        findings = [finding for plan in ground.propose(spec).plans for finding in plan.findings]
        return any(fact in finding.message for finding in findings)

    spec = running_spec(mode="warm", cutover="never")
    (job,) = spec.jobs
    bare = replace(spec, jobs=(replace(job, submit=None),))
    assert warned(bare) == (not warned(spec))
    assert warned(bare)


@pytest.mark.parametrize(
    ("like", "warns"),
    [({"context": "east", "resource": "orders"}, True), ({"namespace": "shop"}, False)],
)
def test_a_standby_whose_start_is_read_from_the_side_that_is_lost_is_warned_of(
    tmp_path: Path, like: dict[str, str], warns: bool
) -> None:
    spec = running_spec(mode="warm", cutover="never")
    (job,) = spec.jobs
    assert job.submit is not None
    alike = replace(job, submit=replace(job.submit, options={"like": like}))
    plans = Standby(tmp_path, 1).propose(replace(spec, jobs=(alike,))).plans
    messages = [finding.message for plan in plans for finding in plan.findings]
    assert any("which may be lost with the source" in each for each in messages) == warns


# ---- clocks


class Ahead(Around):
    """A storage whose clock is ahead."""

    seconds = 300.0

    def list(self, under: str = "") -> Iterator[FileInfo]:
        for file in self.inner.list(under):
            yield file._replace(modified=file.modified + self.seconds)

    def stat(self, path: str) -> FileInfo | None:
        found = self.inner.stat(path)
        return None if found is None else found._replace(modified=found.modified + self.seconds)


def test_a_source_whose_clock_is_ahead_hides_no_loss(tmp_path: Path) -> None:
    ground = Standby(tmp_path, 1, 60)
    ground.job.moods, ground.job.retained = {}, 100
    wrap = ground.wrap

    def ahead(storage: Storage) -> Storage:
        wrapped = wrap(storage)
        return Ahead(wrapped) if storage.location == SOURCE else wrapped  # type: ignore[return-value]

    ground.wrap = ahead
    ground.job.batch()
    with pytest.raises(Ended):
        ground.apply(running_spec(mode="warm", cutover="never"))
    found = standby_at(TARGET, ground.adapters)
    committed_at, as_of = found.state.committed_at, found.state.as_of
    assert committed_at is not None and as_of is not None and committed_at > as_of + 200
    lag = StandbyFacts(found, as_of + 60).lag
    assert lag is not None and lag.rpo_seconds == 60
    assert lag.clock_ahead_seconds == pytest.approx(committed_at - as_of)


@pytest.mark.parametrize(
    ("now", "rpo", "ahead"),
    [(1_000_060.0, 70.0, None), (1_000_000.0, 10.0, None), (999_700.0, 0.0, 300.0)],
)
def test_a_machine_whose_clock_is_behind_says_so(
    tmp_path: Path, now: float, rpo: float, ahead: float | None
) -> None:
    ground = started(tmp_path)
    found = standby_at(TARGET, ground.adapters)
    state = replace(found.state, committed_at=999_990.0, as_of=1_000_000.0, at=1_000_001.0)
    lag = StandbyFacts(replace(found, state=state), now).lag
    assert lag is not None and (lag.rpo_seconds, lag.clock_ahead_seconds) == (rpo, ahead)


# ---- a target that fails


def full(ground: Standby) -> Callable[[], None]:
    ground.disk.bytes_max = ground.disk.bytes + 10

    def make_room() -> None:
        ground.disk.bytes_max = None

    return make_room


def expired(ground: Standby) -> Callable[[], None]:
    opened = ground.wrap

    def refuse(storage: Storage) -> Storage:
        if storage.location.startswith("file:///there"):
            return Away(storage)  # type: ignore[return-value]
        return opened(storage)

    ground.wrap = refuse

    def renew() -> None:
        ground.wrap = opened

    return renew


@pytest.mark.parametrize("fail", [full, expired])
def test_a_target_that_fails_keeps_its_image_and_is_fed_again(
    tmp_path: Path, fail: Callable[[Standby], Callable[[], None]]
) -> None:
    ground = started(tmp_path)
    for _ in range(3):
        ground.job.batch()
    mend = fail(ground)
    ground.looks = 400
    with pytest.raises(StorageError) as caught:
        ground.resume()
    assert caught.value.exit_code == 6
    epoch, state = state_at(ground.disk.open(TARGET))
    assert epoch is not None and epoch >= 11 and state in ground.job.ever[epoch]
    mend()
    assert standby_at(TARGET, ground.adapters).state.epoch == 11
    ground.looks = 400
    with pytest.raises(Ended):
        ground.resume()
    assert state_at(ground.disk.open(TARGET))[0] == 14
    assert [kept.epoch for kept in standby_at(TARGET, ground.adapters).state.kept] == [14, 11]


def test_a_full_target_fails_no_failover_that_needs_no_space(tmp_path: Path) -> None:
    ground = standby(tmp_path, gone)
    ground.disk.bytes_max = ground.disk.bytes + 4_000  # for the claim and the lock
    ground.looks = 10**6
    spec = failover_spec(standby_at(TARGET, ground.adapters), primary_is_down=True)
    ground.disk.bytes_max = None if ground.there else ground.disk.bytes_max
    try:
        ground.apply(spec, "failover")
    except StorageError as error:
        assert error.exit_code == 6
        ground.disk.bytes_max = None
        ground.resume("failover")
    assert ground.there is not None


# ---- a state file that somebody has made

HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 1e308, float("inf"), "", "..", "../../etc", "/", "file:///", "\0", "x" * 100_000,
    "s3a://user:secret@elsewhere/orders", "$(reboot)", [], {}, [[]] * 50, {"": {}}, ["x"] * 1_000,
)  # fmt: skip


def places_in(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(value, dict):
        for key, below in value.items():
            yield from places_in(below, (*at, key))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from places_in(below, (*at, number))


def mutated(state: Any, dice: random.Random) -> bytes:
    changed = deepcopy(state)
    for _ in range(dice.randint(1, 3)):
        place = dice.choice(list(places_in(changed))[1:])
        inside = changed
        for key in place[:-1]:
            inside = inside[key]
        if dice.random() < 0.2 and isinstance(inside, dict):
            del inside[place[-1]]
        else:
            inside[place[-1]] = deepcopy(dice.choice(HOSTILE))
    content = json.dumps(changed).encode()
    if dice.random() < 0.2:
        at = dice.randrange(len(content))
        content = content[:at] + bytes([dice.randrange(256)]) + content[at + dice.randint(0, 3) :]
    return content


def test_no_state_file_starts_a_job_elsewhere_or_breaks_a_command(
    tmp_path: Path, seed: int
) -> None:
    ground = standby(tmp_path, gone)
    ground.look = lambda: None  # type: ignore[method-assign]
    state = json.loads(ground.target.read(STATE))
    dice = random.Random(seed)
    refused = 0
    for _ in range(400):
        content = mutated(state, dice)
        ground.put(f"{TARGET}/{STATE}", content)
        try:
            found = standby_at(TARGET, ground.adapters)
            facts = StandbyFacts(found, ground.clock.now())
            assert list(standby_text.standby(facts)) and document_of(StandbyDocument, facts)
            spec = failover_spec(found, primary_is_down=True)
        except StateshiftError as error:
            assert error.exit_code in (2, 3, 4, 6, 8), content[:2000]
            refused += 1
        else:
            assert relation(spec.jobs[0].source, TARGET) == "same", content[:2000]
            assert spec.jobs[0].target is None
    assert refused > 100


def test_nested_and_huge_state_files_are_refused(tmp_path: Path) -> None:
    ground = standby(tmp_path, gone)
    for content in (b"[" * 100_000, b'{"version":' + b"1" * 5_000 + b"}", b"0" * (17 << 20)):
        ground.put(f"{TARGET}/{STATE}", content)
        with pytest.raises(StateshiftError):
            standby_at(TARGET, ground.adapters)


def test_a_damaged_state_file_is_written_again_by_the_next_round(tmp_path: Path) -> None:
    ground = started(tmp_path)
    ground.put(f"{TARGET}/{STATE}", b"damaged")
    ground.job.batch()
    ground.looks = 400
    with pytest.raises(Ended):
        ground.resume()
    assert decode_state(ground.target.read(STATE)).epoch == 12


def test_whoever_was_taken_over_is_told_by_whom(tmp_path: Path) -> None:
    ground = standby(tmp_path, gone)
    ground.looks = 10**6
    spec = failover_spec(standby_at(TARGET, ground.adapters), primary_is_down=True)
    ground.apply(spec, "failover")
    with pytest.raises(OtherRunError) as caught:
        ground.resume()
    assert caught.value.exit_code == 4 and "stateshift status" in (caught.value.hint or "")
