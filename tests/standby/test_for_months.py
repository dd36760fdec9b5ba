"""A standby that runs for months takes no more of anything than one that runs for an hour."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stateshift.migration import round_compaction
from tests.migration.test_warm import Ended
from tests.support.ground import TARGET, running_spec
from tests.support.living import LivingGround


@dataclass(frozen=True)
class Taken:
    """What a standby takes after a number of rounds."""

    rounds: int
    journal_bytes: int
    plans: int
    files: int
    memory: int


class Months(LivingGround):
    """A job that commits a batch or two a round, and is tidied up now and then."""

    def __init__(self, folder: Path, marks: tuple[int, ...]) -> None:
        super().__init__(folder)
        self.job.moods, self.job.retained = {}, 20
        self.marks, self.taken = list(marks), list[Taken]()
        self.clock.on_sleep = self._pass_time
        self.sleeps = 0

    @property
    def rounds(self) -> int:
        return sum("has copied" in line for line in self.said)

    def _pass_time(self) -> None:
        self.clock.time += 6
        self.sleeps += 1
        self.job.batch()
        if self.sleeps % 7 == 0:
            self.job.tidy()
            self._forget_what_the_test_keeps()
        if self.rounds >= self.marks[0]:
            self.taken.append(self._take())
            self.marks.pop(0)
        if not self.marks:
            raise Ended

    def _forget_what_the_test_keeps(self) -> None:
        oldest = self.job.epoch - 60
        for states in (self.job.states, self.job.ever):
            for epoch in [epoch for epoch in states if epoch < oldest]:
                del states[epoch]

    def _take(self) -> Taken:
        gc.collect()
        tracemalloc.reset_peak()
        place = self.workdir().path
        return Taken(
            self.rounds,
            sum(file.stat().st_size for file in place.rglob("journal*") if file.is_file()),
            len(list((place / "plans").iterdir())),
            len(self.disk.snapshot(TARGET)),
            tracemalloc.get_traced_memory()[0],
        )


def run(folder: Path, *marks: int) -> list[Taken]:
    ground = Months(folder, marks)
    tracemalloc.start()
    try:
        with pytest.raises(Ended):
            ground.apply(running_spec(mode="warm", cutover="never"))
    finally:
        tracemalloc.stop()
    return ground.taken


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(round_compaction, "ROUNDS_MAX", 12)
    monkeypatch.setattr(round_compaction, "ROUNDS_KEPT", 4)
    yield


def flat(early: Taken, late: Taken) -> None:
    assert late.journal_bytes < 1.3 * early.journal_bytes, (early, late)
    assert late.plans < 1.3 * early.plans + 8, (early, late)
    assert late.files < 1.3 * early.files + 8, (early, late)


@pytest.mark.usefixtures("forgetful")
def test_twice_as_many_rounds_take_no_more(tmp_path: Path) -> None:
    early, late = run(tmp_path, 30, 60)
    flat(early, late)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_rounds_take_no_more_than_two_hundred(tmp_path: Path) -> None:
    early, late = run(tmp_path, 200, 2_000)
    flat(early, late)
    assert late.memory < 1.3 * early.memory, (early, late)
