"""How many at once: the law on values, on a simulated service, and among threads."""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from stateshift.errors import TransientStorageError
from stateshift.step.contents import each
from stateshift.storage.wrappers import ROUND_FILES, Lane, Patience, Retrying, Width
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.support.ground import Clock, Ground

MOST = 64


def width_after(*rates: float, most: int = MOST) -> int:
    width = Width(most)
    for rate in rates:
        width.measured(rate)
    return width.now


def test_it_begins_with_a_quarter_and_never_with_none() -> None:
    assert [Width(most).now for most in (1, 2, 8, 64)] == [1, 1, 2, 16]


@pytest.mark.parametrize(
    ("rates", "width"),
    [
        ((100,), 32),  # whatever the first round brings is more than nothing
        ((100, 190), 64),
        ((100, 190, 300), 64),  # never beyond the most
        ((100, 105), 32),  # a doubling that brings nothing is the last one
        ((100, 105, 100), 36),  # from then on by additions
        ((100, 105, 100, 100), 27),  # until each takes more than twice as long as it need
        ((100, 105, 40), 24),  # each takes clearly longer: a quarter off
        ((100, 105, 40, 40), 18),  # and again while it does
        ((100, 105, 40, 40, 100), 22),  # until it does not
        ((100, 190, 300, 210), 64),  # a machine's mood
    ],
)
def test_it_doubles_while_that_brings_more_then_adds_and_takes_a_quarter_off_for_less(
    rates: tuple[float, ...], width: int
) -> None:
    assert width_after(*rates) == width


def test_a_service_that_pushes_back_halves_it_and_ends_the_doubling() -> None:
    width = Width(MOST)
    width.measured(100)
    width.pushed_back()
    assert width.now == 16
    width.measured(500)
    assert width.now == 20
    for _ in range(20):
        width.pushed_back()
    assert width.now == 1


def simulated(
    rate_of: Callable[[int], float], rounds: int, seed: int, most: int = MOST
) -> list[int]:
    """The widths on a service that brings `rate_of` a width, give or take a tenth."""
    width, seen, random_ = Width(most), [], random.Random(seed)
    for _ in range(rounds):
        width.measured(rate_of(width.now) * random_.uniform(0.9, 1.1))
        seen.append(width.now)
    return seen


@pytest.mark.parametrize("seed", range(20))
def test_where_each_waits_for_a_network_it_comes_to_use_all_it_may(seed: int) -> None:
    assert min(simulated(lambda width: 2.0 * width, 60, seed)[5:]) > MOST // 2


@pytest.mark.parametrize("seed", range(20))
def test_where_many_hinder_each_other_it_stays_near_what_brings_most(seed: int) -> None:
    best = 20
    seen = simulated(
        lambda width: width if width <= best else best * (best / width) ** 2, 400, seed
    )
    middle = sum(seen[50:]) / len(seen[50:])
    assert best / 2 <= middle <= best * 2


@pytest.mark.parametrize("stalled", [1, 5, 20, 100])
def test_a_service_that_stalls_for_a_while_is_used_as_before_when_it_is_well_again(
    stalled: int,
) -> None:
    width = Width(MOST)
    for _ in range(20):
        width.measured(2.0 * width.now)
    assert width.now == MOST
    for _ in range(stalled):
        width.measured(0.1 * width.now)
    for _ in range(2 * 16):
        width.measured(2.0 * width.now)
    assert width.now == MOST


def test_a_service_that_is_slower_from_now_on_is_not_asked_by_one_alone() -> None:
    width = Width(MOST)
    for _ in range(20):
        width.measured(2.0 * width.now)
    for _ in range(40):
        width.measured(0.1 * width.now)
    assert width.now == MOST


class Service:
    """Answers each after a second, and refuses those beyond its patience much sooner: a
    simulation in its own time.
    """

    def __init__(self, patience: int, most: int) -> None:
        self.time, self.patience = 0.0, patience
        self.lane = Lane(most, lambda: self.time)
        self.refused = self.answered = 0

    def serve(self, files: int) -> None:
        running: list[tuple[float, int]] = []
        random_ = random.Random(1)
        begun = 0
        while begun < files or running:
            while begun < files and len(running) < self.lane.width:
                self.lane.enter()
                place = len(running) + 1
                seconds = random_.uniform(0.8, 1.2) / (1 if place <= self.patience else 20)
                heapq.heappush(running, (self.time + seconds, place))
                begun += 1
            self.time, place = heapq.heappop(running)
            if place > self.patience:
                self.refused += 1
                self.lane.pushed_back()
                self.lane.leave(None)
            else:
                self.answered += 1
                self.lane.leave(0)


def test_a_service_that_refuses_is_asked_by_fewer_and_seldom_refuses_from_then_on() -> None:
    service = Service(patience=24, most=MOST)
    service.serve(2000)
    early = service.refused
    service.serve(4000)
    assert 8 <= service.lane.width <= 32
    assert service.refused - early < 4000 // 10
    patient = Service(patience=MOST, most=MOST)
    patient.serve(2000)
    assert (patient.refused, patient.lane.width) == (0, MOST)


def test_those_that_were_refused_together_push_back_once() -> None:
    lane = Lane(MOST, lambda: 0.0)
    for _ in range(16):
        lane.enter()
    for _ in range(16):
        lane.pushed_back()
        lane.leave(None)
    assert lane.width == MOST // 8
    lane.pushed_back()  # of a later one
    assert lane.width == MOST // 16


def test_a_lane_that_was_not_full_says_nothing_about_its_width() -> None:
    time = [0.0]
    lane = Lane(MOST, lambda: time[0])
    for _ in range(20 * ROUND_FILES):
        lane.enter()
        time[0] += 1.0
        lane.leave(0)
    assert lane.width == MOST // 4


def test_steps_that_run_beside_each_other_share_a_storage_s_lane() -> None:
    """Two steps of forty files each, on a storage that allows eight at first: never more than
    that are at work.
    """
    disk, lock, now, most = MemoryDisk(at_once=32), threading.Lock(), [0], [0]
    storage = Retrying(MemoryStorage(disk, "memory://m/p"), Clock())
    eight = threading.Barrier(8, timeout=30)

    def one(number: int) -> int:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        eight.wait()  # passes only where eight are at work
        with lock:
            now[0] -= 1
        return number

    world = replace(Ground().world, storage=lambda location: storage)
    results: list[list[int]] = []
    steps = [
        threading.Thread(target=lambda: results.append(each(world, range(40), one, storage)))
        for _ in range(2)
    ]
    for step in steps:
        step.start()
    for step in steps:
        step.join(60)
    assert results == [list(range(40))] * 2
    assert most[0] == 8


def test_after_a_failure_nobody_is_left_in_the_lane() -> None:
    storage = Retrying(MemoryStorage(MemoryDisk(at_once=32), "memory://m/p"), Clock())

    def fail(number: int) -> int:
        if number == 5:
            raise ValueError
        return number

    for _ in range(20):
        with pytest.raises(ValueError):
            each(Ground().world, range(100), fail, storage, storage)
    assert each(Ground().world, range(100), lambda number: number, storage) == list(range(100))


class Busy(MemoryStorage):
    """Says each time that it is too much."""

    def write(self, *_: object) -> int:
        raise TransientStorageError("503 Slow Down")


def test_what_may_pass_narrows_the_lane_of_the_storage_that_said_so() -> None:
    storage = Retrying(Busy(MemoryDisk(at_once=64), "memory://m/p"), Clock(), patience=Patience(3))
    lane = storage.traits.lane
    assert isinstance(lane, Lane)
    with pytest.raises(Exception, match="given up"):
        storage.write("a", lambda: iter((b"",)))
    assert lane.width == 8
