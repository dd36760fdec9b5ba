"""Sources of several partitions, and sources out of order: rows wait until their time has come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stateshift import live
from stateshift.live.protocol.configuration import Update
from tests.live.bins.workers import KEYS, TIES, Ground, Reader, alone, count_and_ask, table_of

END = 240
PARTITIONED = replace(count_and_ask, promise=live.InOrder(partition="side", partitions=2))
LATE = replace(count_and_ask, promise=live.Watermark(delay=5))


def side(name: str) -> list[int]:
    """The rows of one partition, in their order."""
    return [number for number in range(END) if "lr"[number // 4 % 2] == name]


def read(worker: Reader, numbers: Sequence[int]) -> None:
    """Do a batch of these rows."""
    with worker.home.reading(table_of(numbers, KEYS), worker.running.bins) as batch:
        worker.running.step(batch, worker.batch)
    worker.batch += 1
    worker.deliver()


def test_nothing_is_folded_before_each_partition_has_come():
    ground = Ground(PARTITIONED, ["west"])
    west = ground.workers["west"]
    read(west, side("l"))
    assert west.running.frontier is None
    assert ground.put_out() == []
    assert west.running.ledger.last.counts.held == len(side("l"))


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_partition_that_is_behind_holds_the_rows_of_the_other(seed, kills):
    chance = random.Random(seed)
    ground = Ground(PARTITIONED, ["west", "east"])
    left, right = side("l"), side("r")
    for worker in ground.workers.values():
        read(worker, [left[0], right[0]])
    ground.propose([Update(30, bin, 1) for bin in range(4)])
    for worker in ground.workers.values():
        worker.running.answer()
    assert ground.decide() == "applied"
    for worker in ground.workers.values():
        rest = {"l": left[1:], "r": right[1:]}
        while any(rest.values()):
            name = chance.choice("lllr")
            count = chance.randrange(1, 30)
            read(worker, rest[name][:count])
            rest[name] = rest[name][count:]
            if kills and chance.random() < 0.3:
                batch = worker.batch
                worker.offsets = [0] * (batch + 1)
                worker.start()
    for _ in range(2):
        for worker in ground.workers.values():
            worker.between()
    frontier = ground.workers["west"].running.frontier
    wanted = [row for row in alone(count_and_ask, END) if _moment(row[0]) < frontier]
    assert ground.put_out() == wanted


def _moment(number: int) -> tuple[int, ...]:
    """When a row is put out; one that is seen again behind all others of its time."""
    if number >= 0:
        return (number // TIES, number)
    return ((-number - 1) // TIES + 40, 1 << 64)


def test_behind_a_watermark_rows_are_in_order_and_late_ones_are_left_out():
    ground = Ground(LATE, ["west"])
    west = ground.workers["west"]
    numbers = sorted(range(END), key=lambda number: number + random.Random(number).random() * 9)
    for start in range(0, END, 20):
        read(west, numbers[start : start + 20])
    frontier = west.running.frontier
    assert frontier == ((END - 1) // TIES - 5,)
    wanted = [row for row in alone(count_and_ask, END) if _moment(row[0]) < frontier]
    assert ground.put_out() == wanted
    read(west, [0, 1, 2])
    assert west.running.ledger.last.counts.late == 3
    assert ground.put_out() == wanted
