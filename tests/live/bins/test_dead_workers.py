"""A worker that stops for good at any effect of a move or a split: once it is evicted, the bins of
the others move on, and its own wait for whoever goes on under its name.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from stateshift.errors import PlanError
from stateshift.live.bins.files import Files, Proposal
from stateshift.live.bins.migration import Carrier, CountCarrier, MoveProgress
from stateshift.live.bins.move_request import (
    Manner,
    check,
    check_count,
    moves_even,
    moves_to,
    steps_of,
)
from stateshift.live.bins.parts import KeyHashing
from stateshift.live.bins.state_acts import evict_everywhere
from stateshift.live.bins.step_table import StepTable
from stateshift.live.bins.watch import Bins, Watch
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Update
from tests.contracts.faulty import Killed
from tests.kill.moments import Doomed, Moments
from tests.live.bins.test_killing import die
from tests.live.bins.workers import BINS, Ground, Reader, alone, count_and_ask

NAMES = ("west", "east", "south")
END = 300  # rows that all have read at the end, at least
LEFT = 60  # of them, that nobody has read before the last move
IMPATIENT = Manner(lead_seconds=0.0, timeout_seconds=0.3, wait_seconds=0.3)
PATIENT = Manner(lead_seconds=0.0)
EFFECTS = 36  # of the worker that dies, in the longest of the events


@cache
def wanted(until: int) -> list[tuple[int, ...]]:
    """What one worker alone puts out that reads so many rows."""
    return alone(count_and_ask, until)


class Group:
    """Three workers that have bins each, and one of them that may die."""

    def __init__(self) -> None:
        self.ground = Ground(count_and_ask, NAMES)
        self.dead: set[str] = set()
        self.until: int | None = END - LEFT  # as far as they read; None: rows never end
        for worker in self.ground.workers.values():
            worker.read(9)
        self.move("east", [2, 3, 4])
        self.move("south", [5, 6])

    # ---------------------------------------------------------------- workers

    def doom(self, name: str, effects: int) -> Moments:
        """Let a worker die, for good, after so many effects from now on."""
        moments = Moments(effects, die)
        worker = self.ground.workers[name]
        worker.storage = Doomed(self.ground.storage, moments)
        self.act(worker, worker.start)
        return moments

    def act(self, worker: Reader, act: Callable[[], None]) -> None:
        """Let a worker act, if it lives."""
        if worker.name not in self.dead:
            try:
                act()
            except Killed:
                self.dead.add(worker.name)

    def work(self, seconds: float = 0.0) -> None:
        """Let each worker do what its thread and its next batch would."""
        for worker in self.ground.workers.values():
            self.act(worker, worker.running.answer)
            self.act(worker, worker.between)
        if self.bins().moves.open is None:
            for worker in self.ground.workers.values():
                self.act(worker, lambda worker=worker: self.read(worker))

    def read(self, worker: Reader) -> None:
        """Read some rows, as long as there are any to be read yet."""
        until = worker.read_to + 6
        if self.until is not None:
            until = min(until, self.until)
        if worker.read_to < until:
            worker.read(until)

    def evict(self, name: str) -> None:
        """Take the name of a worker from it, as the command does."""
        evict_everywhere(self.ground.files, name)

    def go_on_as(self, name: str) -> None:
        """Start an application under the name of one that has died."""
        for runs in self.ground.files.runs():
            if runs.worker == name:
                self.ground.files.run(replace(runs, is_evicted=False, at=runs.at + 1))
        offsets = self.ground.workers[name].offsets
        self.ground.workers[name] = Reader(self.ground, name, offsets)
        self.dead.discard(name)

    # ---------------------------------------------------------------- moves

    def watch(self) -> Watch:
        begun = self.ground.files.begun()
        assert begun is not None
        return Watch(Files(self.ground.storage), begun)

    def bins(self) -> Bins:
        return self.watch().look()

    def move(self, to: str, numbers: list[int], manner: Manner = PATIENT) -> MoveProgress:
        watch = self.watch()
        steps = steps_of(moves_to(watch.look(), to, numbers), manner)
        check(watch.look(), steps, manner)
        return Carrier(watch, steps, manner, wait=self.work).carry()

    def resize(self, count: int, manner: Manner = PATIENT) -> MoveProgress:
        watch = self.watch()
        now = watch.look()
        keyed: dict[tuple[str, str], KeyHashing] = {}
        for part in now.parts:
            known = self.ground.files.keyed(part.runs.operator, part.runs.worker)
            assert known is not None
            keyed[part.runs.operator, part.runs.worker] = known
        check_count(now, count, None, keyed)
        return CountCarrier(watch, (), manner, wait=self.work, count=count).carry()

    def move_between_the_living(self) -> MoveProgress:
        """Move a bin from one of those that live to the other. Rows come until it has moved: they
        read as fast as the machine lets them, and the faster, the later the time of the move.
        """
        self.until = None
        giver, taker = (name for name in NAMES if name not in self.dead)
        now = self.bins()
        number = now.names.index(giver)
        mine = [bin for bin, worker in enumerate(now.assigned) if worker == number]
        here = self.ground.workers[giver].running.ledger.here
        return self.move(taker, [next(bin for bin in mine if bin in here)])

    @property
    def read_to(self) -> int:
        """How many rows the one has read that has read most."""
        return max(worker.read_to for worker in self.ground.workers.values())

    def finish(self) -> list[tuple[int, ...]]:
        """Read to the end, and return all that was put out."""
        end = max(END, self.read_to)
        for _ in range(5):
            for worker in self.ground.workers.values():
                worker.read(end)
                worker.between()
        return self.ground.put_out()


def move_two_ways(group: Group, manner: Manner = IMPATIENT) -> None:
    """Move bins from each of two workers to another one."""
    now = group.bins()
    both = (*moves_to(now, "east", [0, 5]), *moves_to(now, "west", [2]))
    Carrier(group.watch(), steps_of(both, manner), manner, wait=group.work).carry()


def split(group: Group, manner: Manner = IMPATIENT) -> None:
    """Split all bins."""
    group.resize(2 * BINS, manner)


@pytest.mark.long
@pytest.mark.sample(8)
@pytest.mark.parametrize("victim", NAMES)
@pytest.mark.parametrize("event", [move_two_ways, split])
@pytest.mark.parametrize("effects", range(1, EFFECTS + 1))
def test_whatever_a_dead_worker_had_agreed_to_the_others_move_on_once_it_is_evicted(
    effects, event, victim
):
    group = Group()
    group.doom(victim, effects)
    with contextlib.suppress(PlanError):
        event(group)
    if victim not in group.dead:
        return  # it has fewer effects
    group.evict(victim)
    assert victim not in {part.runs.worker for part in group.bins().running}
    assert group.move_between_the_living().state == "finished"
    group.go_on_as(victim)
    assert group.finish() == wanted(group.read_to)
    counts = {worker.running.bins for worker in group.ground.workers.values()}
    assert counts == {group.ground.bins}


@pytest.mark.long
def test_the_effects_of_the_events_are_all_among_those():
    for victim in NAMES:
        for event in (move_two_ways, split):
            group = Group()
            moments = group.doom(victim, 1000)
            event(group, PATIENT)  # what a slow machine proposes again has more effects
            assert 3 < len(moments.seen) <= EFFECTS, (victim, event)


def died_before_it_dealt() -> Group:
    """East has agreed to twice as many bins, and has died before it dealt its own."""
    group = Group()
    group.ground.moves = group.bins().moves.decided
    group.ground.propose_bins(2 * BINS)
    for worker in group.ground.workers.values():
        worker.running.look()
        worker.running.answer()
    assert group.ground.decide() == "applied"
    group.dead.add("east")
    for _ in range(3):
        group.work()
    return group


def test_who_has_not_dealt_is_named_with_the_way_out_and_blocks_nobody_once_evicted():
    group = died_before_it_dealt()
    with pytest.raises(PlanError, match="worker east has 8 bins still") as caught:
        group.move("south", [0])
    assert "stateshift live evict memory://group east" in str(caught.value.hint)
    group.evict("east")
    assert group.move("south", [0]).state == "finished"
    assert group.bins().not_dealt == ()
    group.go_on_as("east")
    assert group.ground.workers["east"].running.bins == 2 * BINS
    assert group.move("south", [4, 5]).state == "finished"
    assert group.finish() == wanted(group.read_to)


def test_bins_of_an_evicted_worker_move_once_somebody_goes_on_under_its_name():
    group = Group()
    group.dead.add("east")
    for seconds in (0.3, 3.0, 30.0):
        moved = group.move("south", [0], replace(IMPATIENT, timeout_seconds=seconds))
        assert moved.state == "aborted"
        if moved.silent == ("east",):
            break  # else the machine is slow, and the others have not answered either
    assert moved.silent == ("east",)
    group.evict("east")
    for to, bin in (("east", 0), ("south", 2)):
        with pytest.raises(PlanError, match="worker east is evicted") as caught:
            group.move(to, [bin])
        assert "start an application" in str(caught.value.hint)
    group.go_on_as("east")
    assert group.move("south", [2, 3]).state == "finished"
    assert group.finish() == wanted(group.read_to)


def test_a_worker_that_is_evicted_while_bins_are_on_their_way_to_it_is_not_forgotten():
    group = Group()
    group.ground.moves = group.bins().moves.decided
    at = group.read_to // 3 + 1
    group.ground.propose([Update(at, bin, 0) for bin in (5, 6)])
    for worker in group.ground.workers.values():
        worker.running.answer()
    assert group.ground.decide() == "applied"
    for name in NAMES:
        group.ground.workers[name].read(at * 3 + 30)
    group.move("south", [bin for bin in range(BINS) if bin not in (5, 6)], PATIENT)
    group.dead.add("west")
    group.evict("west")
    parts = {part.runs.worker: part.is_evicted for part in group.bins().parts}
    assert parts == {"west": True, "east": False, "south": False}
    group.go_on_as("west")
    assert group.finish() == wanted(group.read_to)


@pytest.mark.parametrize(("dead", "bin"), [("west", 0), ("south", 5)])
def test_a_split_that_waits_for_what_an_evicted_worker_has_to_give_says_that_somebody_has_to_start(
    dead, bin
):
    group = Group()
    group.ground.moves = group.bins().moves.decided
    at = group.read_to // 3 + 1
    group.ground.propose([Update(at, bin, 1)])
    for worker in group.ground.workers.values():
        worker.running.answer()
    assert group.ground.decide() == "applied"
    group.dead.add(dead)
    for worker in group.ground.workers.values():
        group.act(worker, lambda worker=worker: worker.read(at * 3 + 30))
    group.evict(dead)
    with pytest.raises(PlanError, match=f"worker {dead} is evicted") as caught:
        group.resize(2 * BINS)
    assert f"start an application as live.Worker(GROUP, '{dead}', …)" in str(caught.value.hint)


def test_state_is_evened_out_among_those_that_run():
    group = Group()
    group.dead.add("east")
    group.evict("east")
    moves = moves_even(group.bins(), 1.0)
    assert {move.source for move in moves} | {move.target for move in moves} <= {0, 2}


def test_nothing_is_evened_out_while_nobody_runs():
    group = Group()
    for name in NAMES:
        group.evict(name)
    with pytest.raises(PlanError, match="nobody runs whom bins could go to") as refused:
        moves_even(group.bins(), 1.0)
    assert refused.value.hint == "start a worker first"


def test_an_evicted_worker_through_which_bins_have_still_to_go_is_not_forgotten():
    ground = Ground(count_and_ask, ["west", "east", "south"])
    for worker in ground.workers.values():
        worker.read(9)
    begun = ground.files.begun()
    assert begun is not None
    watch = Watch(ground.files, begun)
    proposal = Proposal(0, (Update(20, 2, 1), Update(40, 2, 2)), time.time(), 30.0)
    table = StepTable(watch.look(), proposal)
    ground.files.propose(proposal)
    for worker in ground.workers.values():
        worker.running.answer()
    ground.files.decide(0, Decision("applied", 0.0, "test"))
    table.hear(ground.files.answers(0))
    evict_everywhere(ground.files, "east")
    watch.meet()
    bins = watch.look()
    assert {part.runs.worker for part in bins.parts} == {"west", "east", "south"}
    table.watch(bins)
    assert not table.is_complete
    for name in ("west", "south"):
        ground.workers[name].read(200)
    assert {part.runs.worker for part in watch.look().parts} == {"west", "east", "south"}
    runs = next(runs for runs in ground.files.runs() if runs.worker == "east")
    ground.files.run(replace(runs, is_evicted=False, at=1.0))
    heir = Reader(ground, "east", ground.workers["east"].offsets)
    ground.workers["east"] = heir
    watch.meet()
    heir.read(200)
    ground.workers["south"].between()
    ground.workers["south"].read(210)
    table.watch(watch.look())
    assert table.is_complete
