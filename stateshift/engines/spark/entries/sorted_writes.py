"""Writes that lie in the order of their keys, merged: what `settle_writes` does, without a hash and
without piles, and in order.

A run is writes whose keys ascend, writes of one key behind each other: the content of a table, or
of a level of tables. One block of every run is held, and the one behind it: the smallest last key
among blocks that others follow is a bound below which nothing more can come, so everything up to it
is taken from each run at once, and put in order. That is nearly free, since the keys of a range
begin alike: the eight bytes behind what they share are a number, and sorting numbers that already
ascend in a few runs takes one step for each of them. If two numbers are the same the keys are
looked at.

Writes of one key never lie on both sides of a bound: a block that ends with the key that the next
one begins with is read together with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spark.entries.last_writes import (
    Several,
    Writes,
    batch_of,
    together,
    writes_of,
)
from stateshift.engines.spill import BYTES_MAX, put_aside
from stateshift.formats.blocks import Binary, Flags, Ints, RowBlock, count_upto, in_order, whole
from stateshift.formats.spans import Words, missing, numbers_at

# The number of writes of a run on disk that are read at once.
CHUNK_RECORDS = 1 << 15

Run = Iterable[Writes]


def merge_runs(runs: Sequence[Run], between: bytes, deletes: bool = False) -> Iterator[RowBlock]:
    """Yield each key's last value, keys ascending, in puts; also deletes if asked for."""
    cursors = [_Cursor(iter(run)) for run in runs]
    while cursors := [cursor for cursor in cursors if cursor.fill()]:
        lasts = [cursor.last() for cursor in cursors if cursor.goes_on]
        bound = min(lasts, default=None)
        taken = [cursor.taken(bound) for cursor in cursors]
        parts = [writes for writes in taken if len(writes.block)]
        block = _settled(parts, between, deletes)
        if len(block):
            yield block


def in_runs(writes: Iterable[Writes], bytes_max: int = BYTES_MAX) -> list[Run]:
    """Return writes that come in time's order as runs, beyond `bytes_max` in temporary files."""
    runs: list[Run] = []
    held: list[Writes] = []
    size = 0
    for write in writes:
        held.append(write)
        size += write.size
        if size > bytes_max:
            batch = batch_of(_sorted(held))
            starts = range(0, batch.num_rows, CHUNK_RECORDS)
            pieces = map(partial(batch.slice, length=CHUNK_RECORDS), starts)
            runs.append(map(writes_of, put_aside(pieces)))
            held, size = [], 0
    if held:
        runs.append([_sorted(held)])
    return runs


def _sorted(writes: list[Writes]) -> Writes:
    """Return the writes by key and time; without merges, only the last write of a key."""
    (all_writes,) = together(writes)
    order = pc.sort_indices(all_writes.block.keys).to_numpy()  # which keeps the order of equal keys
    if all_writes.block.merges is None:
        keys = all_writes.block.keys.take(pa.array(order))
        order = order[np.append(~_equal_to_next(keys), True)]
    return Writes(all_writes.block.take(order), all_writes.when[order])


@dataclass(slots=True)
class _Cursor:
    """How far a run has been merged: the block that is held, and the one behind it."""

    coming: Iterator[Writes]
    held: Writes | None = None
    following: Writes | None = field(init=False)

    def __post_init__(self) -> None:
        self.following = self._next()

    def fill(self) -> bool:
        """Hold writes, if any are left, and return whether they are."""
        if self.held is not None and len(self.held.block):
            return True
        if self.following is None:
            return False
        self.held, self.following = self.following, self._next()
        while self.following is not None:
            first = self.following.block.keys[0].as_py()
            if self.last() != first:  # else the block ends with the key that the next begins with
                break
            (self.held,) = together([self.held, self.following])
            self.following = self._next()
        return True

    @property
    def goes_on(self) -> bool:
        return self.following is not None

    def last(self) -> bytes:
        assert self.held is not None, "filled before"
        return bytes(self.held.block.keys[-1].as_py())

    def taken(self, bound: bytes | None) -> Writes:
        """Take the writes up to a key, this one included."""
        assert self.held is not None, "filled before"
        held, count = self.held, len(self.held.block)
        if bound is not None:
            count = count_upto(held.block.keys, bound)
        self.held = _part(held, count, len(held.block))
        return _part(held, 0, count)

    def _next(self) -> Writes | None:
        for writes in self.coming:
            if len(writes.block):
                return writes
        return None


def _settled(parts: list[Writes], between: bytes, deletes: bool) -> RowBlock:
    """Return the last values of the keys of some parts, each in order."""
    (writes,) = together(parts)
    ordered = _by_key(parts, writes) if len(parts) > 1 else _by_time(writes)
    if ordered is None:
        return _kept(writes.block, None, deletes)
    order, first = ordered
    if writes.block.merges is None:
        return _kept(writes.block, order[np.append(first[1:], True)], deletes)
    last, joined = Several(writes.block.take(order), first, order).lasts(between)
    kept = _kept(writes.block, last, deletes)
    return kept if joined is None else in_order(whole([kept, joined]))


def _kept(block: RowBlock, places: Ints | None, deletes: bool) -> RowBlock:
    """Return the puts, and deletes if asked for, at these places; of all without places."""
    if block.values.null_count and not deletes:
        live = ~missing(block.values)
        places = np.flatnonzero(live) if places is None else places[live[places]]
    puts = RowBlock(block.keys, block.values)
    return puts if places is None else puts.take(places)


def _by_time(writes: Writes) -> tuple[Ints, Flags] | None:
    """Return the order by time of sorted writes, and where keys begin; None without repeats."""
    same = _equal_to_next(writes.block.keys)
    if not same.any():
        return None
    first = np.append([True], ~same)
    return np.lexsort((writes.when, np.cumsum(first))), first


def _by_key(parts: list[Writes], writes: Writes) -> tuple[Ints, Flags]:
    """Return the order by key and time of several parts, and where in it each key begins."""
    keys = writes.block.keys
    numbers = numbers_at(keys, _shared(parts))
    order = np.argsort(numbers, kind="stable")  # which finds what is in order already
    numbers = numbers[order]
    first = np.ones(len(order), bool)
    again = np.append([False], numbers[1:] == numbers[:-1])
    if not again.any():
        return order, first
    places = np.flatnonzero(again | np.append(again[1:], False))
    own, same = _looked_at(keys, writes.when, order[places], numbers[places])
    order[places] = own
    first[places[1:][same]] = False
    return order, first


def _looked_at(keys: Binary, when: Words, own: Ints, numbers: Words) -> tuple[Ints, Flags]:
    """Return the order of writes with shared numbers, and which have the key of the next."""
    own = own[np.lexsort((when[own], numbers))]
    same = _equal_to_next(keys.take(pa.array(own)))
    if (same == (numbers[1:] == numbers[:-1])).all():
        return own, same
    own = own[np.argsort(when[own], kind="stable")]
    own = own[pc.sort_indices(keys.take(pa.array(own))).to_numpy()]
    return own, _equal_to_next(keys.take(pa.array(own)))


def _shared(parts: list[Writes]) -> int:
    """Return the number of bytes that all keys share at their beginning."""
    least = min(part.block.keys[0].as_py() for part in parts)
    most = max(part.block.keys[-1].as_py() for part in parts)
    pairs = zip(least, most, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _equal_to_next(keys: Binary) -> Flags:
    same = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    return same.to_numpy(zero_copy_only=False)


def _part(writes: Writes, start: int, end: int) -> Writes:
    """Return some of the writes that follow each other, without copying them."""
    block, count = writes.block, end - start
    merges = None if block.merges is None else block.merges[start:end]
    part = RowBlock(block.keys.slice(start, count), block.values.slice(start, count), merges)
    return Writes(part, writes.when[start:end])
