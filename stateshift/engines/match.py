"""Two sides of entries held against each other by their keys.

    matched(Sided ...) -> Matched ...       blocks of side 0 and of side 1, in any order

      Matched  same     keys that have the same value on both sides
               removed  entries that only side 0 has
               added    entries that only side 1 has
               changed  entries of either side whose values differ, the same keys in the same order

A sound side has a key once. If one has it several times, its values are matched one for one, and
the rest of them differs.

Up to `bytes_max` is held in memory; where there is more, both sides are dealt onto piles on disk by
the keys' hash, and matched pile by pile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spill import BYTES_MAX, Dealing, Piles, RecordBatch, in_memory
from stateshift.formats.blocks import Binary, Flags, Ints, RowBlock, binary, block_of, whole
from stateshift.formats.spans import Words, hash64

SCHEMA = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary()), ("side", pa.int8())])

Value = bytes | None
Record = tuple[bytes, Value]


class Sided(NamedTuple):
    """A block, and the side that it is of: 0 or 1."""

    side: int
    block: RowBlock

    @property
    def size(self) -> int:
        return self.block.size


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Entries of two sides: `same` are keys; `changed` are those before, and those after."""

    same: Binary
    removed: RowBlock
    added: RowBlock
    changed: tuple[RowBlock, RowBlock]

    @property
    def differing(self) -> int:
        return len(self.removed) + len(self.added) + len(self.changed[0])


def match_sides(sides: Iterable[Sided], bytes_max: int = BYTES_MAX) -> Iterator[Matched]:
    """Yield the same, removed, added and changed entries, a part at a time."""
    dealing: Dealing[Sided] = Dealing(
        SCHEMA, lambda each: hash64(each.block.keys), lambda each: batch_of(*each), with_sides
    )
    for held in in_memory(sides, dealing, bytes_max):
        left, right = _whole(held, 0), _whole(held, 1)
        held.clear()
        one, other = _Side.of(left), _Side.of(right)
        odd = np.union1d(one.again, other.again)
        here, there, apart = _paired(left, one, right, other, odd)
        odd = np.union1d(odd, apart)
        before, after = left.take(here), right.take(there)
        same = np.asarray(pc.equal(before.values, after.values)).astype(bool)
        yield Matched(
            before.keys.take(pa.array(np.flatnonzero(same))),
            left.take(np.flatnonzero(_rest(len(left), here, one.hashes, odd))),
            right.take(np.flatnonzero(_rest(len(right), there, other.hashes, odd))),
            (before.take(np.flatnonzero(~same)), after.take(np.flatnonzero(~same))),
        )
        if len(odd):
            ours, theirs = (np.flatnonzero(np.isin(side.hashes, odd)) for side in (one, other))
            yield _one_by_one(left.take(ours), right.take(theirs))


@dataclass(eq=False)
class Shelf:
    """Entries of both sides put aside on disk until they are matched."""

    _piles: Piles = field(default_factory=lambda: Piles(1, SCHEMA), init=False)

    def put(self, side: int, *blocks: RowBlock) -> None:
        for block in blocks:
            if len(block):
                self._piles.deal(batch_of(side, block), np.zeros(len(block), np.int64))

    def sided(self) -> Iterator[Sided]:
        for _, pile in self._piles.each():
            yield from chain.from_iterable(map(with_sides, pile))

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *error: object) -> None:
        self._piles.close()


def batch_of(side: int, block: RowBlock) -> RecordBatch:
    """Return a block with the side that it is of beside each entry."""
    sides = pa.repeat(pa.scalar(side, pa.int8()), len(block))
    return pa.record_batch([block.keys, block.values, sides], schema=SCHEMA)


def with_sides(batch: RecordBatch) -> Iterator[Sided]:
    """Yield the inverse of `batch_of`, also for batches of both sides."""
    keys, values, side = batch.columns
    sides = side.to_numpy()
    for number in (0, 1):
        places = np.flatnonzero(sides == number)
        if len(places):
            yield Sided(number, RowBlock(keys, values).take(places))


def _whole(held: Iterable[Sided], side: int) -> RowBlock:
    """Return the blocks of one side as one."""
    own = [block for number, block in held if number == side]
    return whole(own) if own else block_of(())


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """A side's hashes, their order, and those that are there more than once."""

    hashes: Words
    order: Ints
    again: Words

    @classmethod
    def of(cls, block: RowBlock) -> _Side:
        hashes = hash64(block.keys)
        order = np.argsort(hashes)
        ordered = hashes[order]
        return cls(hashes, order, ordered[1:][ordered[1:] == ordered[:-1]])

    def without(self, odd: Words) -> Ints:
        """Return the places in the order of their hashes, but for those of odd ones."""
        return self.order[~np.isin(self.hashes[self.order], odd)] if len(odd) else self.order


def _paired(
    left: RowBlock, one: _Side, right: RowBlock, other: _Side, odd: Words
) -> tuple[Ints, Ints, Words]:
    """Return the pairs of equal records of both sides; and hashes that two keys share."""
    ours, theirs = one.without(odd), other.without(odd)
    known, wanted = one.hashes[ours], other.hashes[theirs]
    if not len(known):
        return ours, theirs[:0], wanted[:0]
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    match = known[at] == wanted
    here, there = ours[at[match]], theirs[match]
    left_keys, right_keys = left.keys.take(pa.array(here)), right.keys.take(pa.array(there))
    same = np.asarray(pc.equal(left_keys, right_keys)).astype(bool)
    return here[same], there[same], wanted[match][~same]


def _rest(count: int, paired: Ints, hashes: Words, odd: Words) -> Flags:
    """Return the records that have no partner, and are not odd."""
    rest = np.ones(count, bool)
    rest[paired] = False
    return rest & ~np.isin(hashes, odd) if len(odd) else rest


def _one_by_one(left: RowBlock, right: RowBlock) -> Matched:
    values: dict[bytes, tuple[list[Value], list[Value]]] = {}
    for side, block in enumerate((left, right)):
        for key, value in block.records():
            values.setdefault(key, ([], []))[side].append(value)
    same: list[bytes] = []
    removed, added = list[Record](), list[Record]()
    before, after = list[Record](), list[Record]()
    for key, (ours, theirs) in values.items():
        missing, more = _without(ours, theirs), _without(theirs, ours)
        same += [key] * (len(ours) - len(missing))
        both = min(len(missing), len(more))
        before += [(key, value) for value in missing[:both]]
        after += [(key, value) for value in more[:both]]
        removed += [(key, value) for value in missing[both:]]
        added += [(key, value) for value in more[both:]]
    return Matched(
        binary(same), block_of(removed), block_of(added), (block_of(before), block_of(after))
    )


def _without(values: list[Value], taken: list[Value]) -> list[Value]:
    """Return the values but for those that are also in `taken`, one for one."""
    rest = list(values)
    for value in taken:
        if value in rest:
            rest.remove(value)
    return rest
