"""Bins that move at random between workers that read at random, and die at random."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from stateshift.live.protocol.configuration import Update
from tests.live.bins.workers import BINS, Ground, alone, count_and_ask

NAMES = ("west", "east", "south")
END = 400


def proposed(ground: Ground, random_: random.Random) -> list[Update]:
    """Some bins that go somewhere, ahead of what anybody has read."""
    ahead = max(worker.read_to for worker in ground.workers.values()) // 3
    time = ahead + random_.randrange(-2, 12)
    bins = random_.sample(range(BINS), random_.randrange(1, BINS))
    updates = []
    for bin in bins:
        updates.append(Update(time, bin, random_.randrange(len(NAMES))))
        if random_.random() < 0.3:
            updates.append(
                Update(time + random_.randrange(1, 6), bin, random_.randrange(len(NAMES)))
            )
    return sorted(updates)


def walk(seed: int, kills: bool, homes: Sequence[str]) -> Ground:
    random_ = random.Random(seed)
    ground = Ground(count_and_ask, NAMES, homes=homes)
    for worker in ground.workers.values():
        worker.read(random_.randrange(1, 5))
    is_open = False
    while any(worker.read_to < END for worker in ground.workers.values()):
        worker = ground.workers[random_.choice(NAMES)]
        match random_.randrange(8):
            case 0 if not is_open:
                ground.propose(proposed(ground, random_))
                is_open = True
            case 1 | 2:
                worker.between()
            case 3:
                worker.running.answer()
            case 4 if kills:
                worker.start()
            case _ if not is_open or _is_free(ground, worker):
                worker.read(min(worker.read_to + random_.randrange(1, 40), END))
        if is_open and ground.decide():
            is_open = False
    if is_open:
        for worker in ground.workers.values():
            worker.running.answer()
        ground.decide()
    for _ in range(4):
        for worker in ground.workers.values():
            worker.read(END)
    return ground


def _is_free(ground: Ground, worker: object) -> bool:
    """Whether a batch would not wait for a decision that only this walk can make."""
    open_ = worker.running.moves.open
    return open_ is None and ground.files.proposal(ground.moves - 1) is None


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "homes", [("driver",), ("executors",), ("driver", "executors")], ids="/".join
)
def test_wherever_bins_go_the_rows_are_those_of_one_worker_alone(seed, kills, homes):
    ground = walk(seed, kills, homes)
    wanted = alone(count_and_ask, END, ground.keys)
    assert ground.put_out() == wanted
    assert sum(len(w.running.ledger.here) for w in ground.workers.values()) == BINS
