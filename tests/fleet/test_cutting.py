"""How large parts are: nobody is idle for long at the end, and no more is cut than that takes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from stateshift.fleet.cutting import IDLE_MAX, PART_BYTES_MIN, Cutter, Settings, ShardAt
from stateshift.survey import ShardFiles

MIB = 1024 * 1024
TABLES = ("state/0/0/9.zip", "state/0/0/SSTs/1.sst")


def cutter(slots: int) -> Cutter:
    def cut_evenly(ask: str, orders) -> Iterator[list[str]]:
        for order in orders:
            yield [str(number) for number in range(order["count"])]

    return Cutter(cut_evenly, slots)


def parts_of(sizes: list[int], slots: int) -> list[list[Settings]]:
    """Return the parts of shards of these sizes."""
    own = cutter(slots)
    shards = [ShardAt("", ShardFiles("0", "default", 0, TABLES), {}, size) for size in sizes]
    return own.settings_of_parts(shards, own.bytes_of_part(sizes))


def seconds(sizes: list[int], slots: int) -> float:
    """Return how long it takes if whoever is idle takes the next part, at a MiB a second."""
    busy = [0.0] * slots
    for size, parts in zip(sizes, parts_of(sizes, slots), strict=True):
        for _ in parts:
            busy[busy.index(min(busy))] += size / MIB / len(parts)
    return max(busy)


@pytest.mark.parametrize(
    ("shards", "slots", "each"),
    [(8, 2, 1), (200, 16, 1), (7, 2, 1), (5, 2, 2), (3, 2, 3), (1, 4, 8), (8, 16, 4)],
)
def test_shards_of_one_size_are_cut_where_somebody_would_be_idle(shards, slots, each):
    found = parts_of([1000 * MIB] * shards, slots)
    assert [len(parts) for parts in found] == [each] * shards


@pytest.mark.parametrize("seed", range(40))
def test_whatever_their_sizes_nobody_is_idle_for_long(seed):
    chance = random.Random(seed)
    slots = chance.choice((2, 3, 8, 16))
    sizes = [chance.choice((1, 10, 100, 4000)) * MIB for _ in range(chance.randint(1, 20))]
    ideal = sum(sizes) / MIB / slots
    least = PART_BYTES_MIN / MIB
    assert seconds(sizes, slots) <= max(ideal * (1 + IDLE_MAX), ideal + 2 * least) + 1e-6


@pytest.mark.parametrize(
    ("sizes", "slots", "idle"),
    [
        ([], 2, False),
        ([0, 0], 2, False),
        ([100], 1, False),
        ([100], 2, True),
        ([101, 100], 2, False),
        ([100] * 3, 2, True),
        ([100] * 4, 2, False),
        ([300, 100, 100, 100], 2, False),
        ([300, 100], 2, True),
        ([100] * 50, 16, True),
    ],
)
def test_somebody_is_idle_where_whole_ones_do_not_come_out_even(sizes, slots, idle):
    assert cutter(slots).leaves_idle(sizes) == idle


@pytest.mark.parametrize("files", [("state/0/0/9.snapshot", "state/0/0/10.delta"), TABLES[:1]])
def test_of_shards_without_tables_nobody_is_asked_where_they_can_be_cut(files):
    def never(ask: str, orders) -> Iterator[list[str]]:
        raise AssertionError(f"{ask} was asked for")

    shards = [ShardAt("", ShardFiles("0", "default", 0, files), {"a": "b"}, 1000 * MIB)]
    assert Cutter(never, 8).settings_of_parts(shards, PART_BYTES_MIN) == [[{"a": "b"}]]


def test_what_is_small_stays_whole():
    assert [len(parts) for parts in parts_of([20 * MIB, 20 * MIB, 20 * MIB], 2)] == [1, 1, 1]
