"""A giver or a taker that is killed at any of its effects, and two processes of one name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from stateshift.errors import PlanError
from stateshift.live.protocol.configuration import Update
from tests.contracts.faulty import Killed
from tests.kill.moments import Doomed, Moment, Moments
from tests.live.bins.workers import Ground, Reader, alone, count_and_ask

END, MOVE_AT = 150, 20
EFFECTS = {"west": 70, "east": 70}


def die(moment: Moment) -> None:
    """End the process that had this effect."""
    raise Killed(moment)


@cache
def wanted() -> list[tuple[int, ...]]:
    """What one worker alone puts out."""
    return alone(count_and_ask, END)


class Story:
    """West gives a half of its bins to east and gets some back; one of the two is killed, once or
    twice, after so many effects.
    """

    def __init__(self, victim: str, *kills: int) -> None:
        self.ground = Ground(count_and_ask, ["west", "east"])
        self.victim = self.ground.workers[victim]
        self.kills = list(kills)
        self.moments: list[Moments] = []
        self._start()

    def _start(self) -> None:
        """Start the victim's process, which dies when its time has come."""
        moments = Moments(self.kills.pop(0) if self.kills else None, die)
        self.moments.append(moments)
        self.victim.storage = Doomed(self.ground.storage, moments)
        try:
            self.victim.start()
        except Killed:
            self._start()

    def tell(self) -> Ground:
        """Tell it to the end."""
        workers = self.ground.workers.values()
        for worker in workers:
            self._do(lambda worker=worker: worker.read(9))
        self._move([Update(MOVE_AT, bin, 1) for bin in range(4)])
        self._move([Update(MOVE_AT + 12, bin, 0) for bin in range(2)])
        for until in (40, 62, 80, 100, 125, END, END, END):
            for worker in workers:
                self._do(lambda worker=worker, until=until: worker.read(until))
                self._do(worker.between if worker is not self.victim else self._between)
        return self.ground

    def _between(self) -> None:
        self.victim.between()

    def _move(self, updates: list[Update]) -> None:
        self.ground.propose(updates)
        for worker in self.ground.workers.values():
            self._do(lambda worker=worker: worker.running.answer())
        assert self.ground.decide() == "applied"

    def _do(self, act: Callable[[], None]) -> None:
        """Do something, again where the process has died of it."""
        try:
            act()
        except Killed:
            self._start()
            self._do(act)


@pytest.mark.sample(10)
@pytest.mark.parametrize("victim", EFFECTS)
@pytest.mark.parametrize("number", range(1, EFFECTS["west"] + 1))
def test_who_is_killed_at_any_effect_goes_on(number: int, victim: str) -> None:
    assert Story(victim, number).tell().put_out() == wanted()


@pytest.mark.sample(10)
@pytest.mark.parametrize("victim", EFFECTS)
@pytest.mark.parametrize("second", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("first", range(3, EFFECTS["west"], 4))
def test_who_is_killed_twice_goes_on(first: int, second: int, victim: str) -> None:
    assert Story(victim, first, second).tell().put_out() == wanted()


@pytest.mark.parametrize("victim", EFFECTS)
def test_every_kind_of_effect_is_among_those_at_which_they_are_killed(victim: str) -> None:
    story = Story(victim)
    story.tell()
    seen = story.moments[0].seen
    kinds = {_kind(moment.label) for moment in seen}
    assert kinds == {_kind(moment.label) for moment in seen[: EFFECTS[victim]]}
    assert {"after create data", "before create commits"} <= kinds


REMOVALS = 6


@pytest.mark.parametrize("number", range(REMOVALS))
def test_who_is_killed_while_it_cleans_up_goes_on(number: int) -> None:
    moments = _many_batches(None)[1].seen
    removals = [place for place, one in enumerate(moments, 1) if " remove " in one.label]
    ground, killed = _many_batches(removals[number * len(removals) // REMOVALS])
    assert len(killed.seen) < len(moments)
    assert ground.put_out() == wanted()


def _many_batches(at: int | None) -> tuple[Ground, Moments]:
    """Read the log in so many batches that files are let go of."""
    ground = Ground(count_and_ask, ["west"])
    west, moments = ground.workers["west"], Moments(at, die)
    west.storage = Doomed(ground.storage, moments)
    west.start()
    for until in range(1, END + 1, 2):
        try:
            west.read(until)
        except Killed:
            west.storage = ground.storage
            west.start()
    west.read(END)
    return ground, moments


def _kind(label: str) -> str:
    """Return an effect, and what kind of file it is on."""
    what, path = label.split(" group:")
    return f"{what} {path.rpartition('/')[0].rpartition('/')[2]}"


# ----------------------------------------------------------------------------- two of one name

MOMENTS = 8  # of a batch


@pytest.mark.parametrize("number", range(1, MOMENTS + 1))
@pytest.mark.parametrize("name", ["west", "east"])
def test_of_two_processes_of_one_name_one_ends_and_nothing_is_doubled(
    name: str, number: int
) -> None:
    ground = Ground(count_and_ask, ["west", "east"])
    workers = ground.workers
    for worker in workers.values():
        worker.read(9)
    ground.propose([Update(MOVE_AT, bin, 1) for bin in range(4)])
    for worker in workers.values():
        worker.running.answer()
    assert ground.decide() == "applied"
    workers["west"].read(70 if name == "east" else 40)
    first = workers[name]
    second = Reader(ground, name, first.offsets)
    moments = Moments(number, lambda moment: second.read(75))
    first.storage = Doomed(ground.storage, moments)
    first.start()
    with pytest.raises(PlanError, match="another process has committed"):
        first.read(80)
        second.read(85)
    winner = first if first.running.ledger.number > second.running.ledger.number else second
    workers[name] = winner
    winner.storage = ground.storage
    winner.start()
    for _ in range(3):
        for worker in workers.values():
            worker.read(END)
    assert ground.put_out() == wanted()
