"""Sorted runs, merged: the same as settling by hash, for any chain of writes, and in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.engines.spark.entries.fold import Run, in_runs, merge_runs
from stateshift.engines.spark.entries.last_writes import Writes, settle_writes
from stateshift.formats.blocks import RowBlock, binary
from stateshift.formats.rocksdb.manifest import KeyPlace, TableFile, sorted_runs


@dataclass(frozen=True)
class Write:
    key: bytes
    value: bytes | None
    merge: bool
    time: int


# Of varied widths; of long beginnings in common; that end with what others have zeros for.
KEYS = st.sampled_from(
    [
        b"",
        b"\0",
        b"\0" * 8,
        b"\0" * 9,
        b"a",
        b"a\0",
        b"ab",
        b"customer-00000001",
        b"customer-00000002",
        b"customer-000000021",
        b"customer-00000002\0",
        b"customer-9" + b"x" * 30,
        b"customer-9" + b"x" * 29 + b"y",
        b"\xff" * 3,
        b"\xff" * 12,
    ]
)
VALUES = st.none() | st.binary(max_size=3)
CHAINS = st.lists(st.lists(st.tuples(KEYS, VALUES, st.booleans()), max_size=25), max_size=4)


def chain_of(
    drawn: list[list[tuple[bytes, bytes | None, bool]]], merges: bool
) -> list[list[Write]]:
    """Return runs of writes, later runs later: by their keys, and of one key the newest first, as
    tables have them.
    """
    runs, time = [], 0
    for run in drawn:
        writes = []
        for key, value, merge in run:
            writes.append(Write(key, value, merges and merge and value is not None, time))
            time += 1
        runs.append(sorted(writes, key=lambda write: (write.key, -write.time)))
    return runs


def written(writes: list[Write], every: int) -> Iterator[Writes]:
    for start in range(0, len(writes), every):
        some = writes[start : start + every]
        merges = np.array([write.merge for write in some], bool)
        block = RowBlock(
            binary([write.key for write in some]),
            binary([write.value for write in some]),
            merges if merges.any() else None,
        )
        yield Writes(block, np.array([write.time for write in some], np.uint64))


def by_hash(runs: list[list[Write]], between: bytes) -> list[tuple[bytes, bytes | None]]:
    """What the same writes come to when they are settled, by their keys."""
    writes = (each for run in runs for each in written(run, 7))
    return sorted(record for block in settle_writes(writes, between) for record in block.records())


def records(runs: list[Run], between: bytes) -> list[tuple[bytes, bytes | None]]:
    return [record for block in merge_runs(runs, between) for record in block.records()]


@settings(deadline=None, max_examples=300)
@given(CHAINS, st.integers(1, 9), st.booleans(), st.sampled_from((b",", b"")))
def test_sorted_runs_come_to_what_settling_by_hash_comes_to_and_in_order(
    drawn: list[list[tuple[bytes, bytes | None, bool]]], every: int, merges: bool, between: bytes
) -> None:
    runs = chain_of(drawn, merges)
    found = records([written(run, every) for run in runs], between)
    assert found == by_hash(runs, between)


@settings(deadline=None, max_examples=100)
@given(CHAINS, st.integers(1, 9), st.booleans(), st.sampled_from((20, 100, 1 << 20)))
def test_changes_in_any_order_become_runs_in_memory_and_on_disk(
    drawn: list[list[tuple[bytes, bytes | None, bool]]], every: int, merges: bool, bytes_max: int
) -> None:
    first, *rest = chain_of(drawn, merges) or [[]]
    later = sorted((write for run in rest for write in run), key=lambda write: write.time)
    runs = [written(first, every), *in_runs(written(later, every), bytes_max)]
    assert records(runs, b",") == by_hash([first, later], b",")


def test_many_keys_of_one_range_are_told_apart_behind_what_they_share() -> None:
    """The eight bytes behind what the keys share are the same for many of them."""
    keys = [b"prefix-" + b"%02d" % (n % 3) + b"eight-by" + b"%05d" % n for n in range(2000)]
    older = sorted((Write(key, b"old", False, 0) for key in keys), key=lambda write: write.key)
    newer = sorted((Write(key, None, False, 1) for key in keys[::7]), key=lambda w: w.key)
    found = records([written(older, 300), written(newer, 50)], b",")
    assert found == [(key, b"old") for key in sorted(set(keys) - set(keys[::7]))]


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=30)


@given(RANGES)
def test_tables_of_one_run_do_not_overlap_and_there_are_as_few_runs_as_can_be(
    ranges: list[tuple[int, int]],
) -> None:
    tables = []
    for number, (start, size) in enumerate(ranges):
        smallest, largest = KeyPlace(bytes([start]), 0), KeyPlace(bytes([start + size]), 0)
        tables.append(TableFile(number, 0, 1, smallest, largest, 0, 0))
    runs = sorted_runs(tables)
    assert sorted(table.number for run in runs for table in run) == list(range(len(tables)))
    for run in runs:
        ends = [table.largest for table in run]
        begins = [table.smallest for table in run]
        assert all(end < begin for end, begin in zip(ends, begins[1:], strict=False))
    depths = [sum(s <= at <= s + size for s, size in ranges) for at in range(70)]
    assert len(runs) == max(depths, default=0)
