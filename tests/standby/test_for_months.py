"""A standby that runs for months takes no more of anything than one that runs for an hour."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

from stateshift.migration import round_compaction
from tests.migration.test_warm import Ended
from tests.support.ground import TARGET, running_spec
from tests.support.living import LivingGround


@dataclass(frozen=True)
class Taken:
    """The most that a standby has taken since it was looked at last, and after how many rounds:
    rounds are told as one now and then, so that what it takes rises and falls.
    """

    rounds: int = 0
    journal_bytes: int = 0
    plans: int = 0
    files: int = 0
    memory: int = 0

    def at_most(self, other: Taken) -> Taken:
        return Taken(*(max(pair) for pair in zip(astuple(self), astuple(other), strict=True)))


class Months(LivingGround):
    """A job that commits a batch or two a round, and is tidied up now and then."""

    def __init__(self, folder: Path, marks: tuple[int, ...]) -> None:
        super().__init__(folder)
        self.job.moods, self.job.retained = {}, 20
        self.marks, self.taken, self.most = list(marks), list[Taken](), Taken()
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
        if self.sleeps % 3 == 0:
            self.most = self.most.at_most(self._take())
        if self.rounds >= self.marks[0]:
            self.taken.append(self.most.at_most(self._take()))
            self.marks.pop(0)
            self.most = Taken()
        if not self.marks:
            raise Ended

    def _forget_what_the_test_keeps(self) -> None:
        oldest = self.job.epoch - 60
        for states in (self.job.states, self.job.ever):
            for epoch in [epoch for epoch in states if epoch < oldest]:
                del states[epoch]

    def _take(self) -> Taken:
        place = self.workdir().path
        return Taken(
            self.rounds,
            sum(file.stat().st_size for file in place.rglob("journal*") if file.is_file()),
            len(list((place / "plans").iterdir())),
            len(self.disk.snapshot(TARGET)),
            tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0,
        )


def run(folder: Path, *marks: int) -> list[Taken]:
    ground = Months(folder, marks)
    with pytest.raises(Ended):
        ground.apply(running_spec(mode="warm", cutover="never"))
    return ground.taken


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(round_compaction, "ROUNDS_MAX", 12)
    monkeypatch.setattr(round_compaction, "ROUNDS_KEPT", 4)
    yield


def flat(early: Taken, late: Taken) -> None:
    for name in ("journal_bytes", "plans", "files", "memory"):
        assert getattr(late, name) <= 1.3 * getattr(early, name), (name, early, late)


@pytest.mark.usefixtures("forgetful")
def test_twice_as_many_rounds_take_no_more(tmp_path: Path) -> None:
    early, late = run(tmp_path, 30, 60)
    flat(early, late)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_rounds_take_no_more_than_two_hundred(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        early, *_, late = run(tmp_path, 200, 1_800, 2_000)
    finally:
        tracemalloc.stop()
    flat(early, late)
