"""Writes settled: of everything that was ever written to a key, what it holds in the end.

    Writes      a block of puts, deletes and merges, and when each was written
    settled(writes, between) -> Block ...      puts only, every live key exactly once

The last write of a key counts; merges are joined, by the delimiter `between`, to the last value
that was put, or to each other. Keys are found to be the same by a hash of 64 bits and then by their
bytes.

What is held in memory is `bytes_max` of writes. Where there are more, they are dealt onto piles by
their keys' hash, on disk, and settled pile by pile; a pile that is too large is dealt again. The
order of what comes out depends on the writes and on `bytes_max` alone.

Where the time goes (1 million entries of RocksDB tables, exported, 2.3 s of CPU with start-up;
entry by entry it was 7.8): putting the keys of the tables together 0.4, what is done for each of
their 4 KiB blocks (checksum, decompression, index) 0.6, hashing and sorting the keys here 0.1,
copying what is kept 0.3, writing Parquet 0.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spill import BYTES_MAX, LEVELS, PILES, Piles, pile_of
from stateshift.formats.blocks import Binary, Block, Flags, Ints
from stateshift.formats.spans import Words, hash64, missing

# Blocks that are smaller on average are put together first: each costs as much as some thousand
# entries do.
SMALL = 1024 * 1024

_SCHEMA = pa.schema(
    [
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("merge", pa.bool_()),
        ("when", pa.uint64()),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Writes:
    """`when` orders the writes of a key; at the same time, a later one is later."""

    block: Block
    when: Words

    @property
    def size(self) -> int:
        return self.block.size


def settled(
    writes: Iterable[Writes], between: bytes, bytes_max: int = BYTES_MAX, level: int = 0
) -> Iterator[Block]:
    coming, held, size = iter(writes), [], 0
    for one in coming:
        held.append(one)
        size += one.size
        if size > bytes_max and level < LEVELS:
            break
    else:
        if size < SMALL * len(held):
            held[:] = _together(held)
        yield from _settled(held, between)
        return
    with Piles(PILES, _SCHEMA) as piles:
        for one in chain(_given_up(held), coming):
            piles.deal(_batch(one), pile_of(one.block.keys, level))
        for _, pile in piles.each():
            yield from settled(map(_writes, pile), between, bytes_max, level + 1)


def _given_up(held: list[Writes]) -> Iterator[Writes]:
    """One after the other, each forgotten when it is handed out."""
    held.reverse()
    while held:
        yield held.pop()


def _settled(writes: list[Writes], between: bytes) -> Iterator[Block]:
    """Writes that fit into memory; the list is emptied, so that nothing is held longer than it
    is needed.
    """
    if not writes:
        return
    hashes = np.concatenate([hash64(one.block.keys) for one in writes])
    again = _repeated(hashes)
    kept = np.ones(len(hashes), bool)
    joined: Block | None = None
    if again is not None:
        kept[again] = False
        several = _Several.of(writes, again, hashes[again])
        last, joined = several.lasts(between)
        kept[again[last]] = True
        del several
    start = 0
    for one in _given_up(writes):
        live = kept[start : start + len(one.block)] & ~missing(one.block.values)
        start += len(one.block)
        if live.any():
            yield _puts(one.block if live.all() else one.block.take(np.flatnonzero(live)))
    if joined is not None:
        yield joined


def _repeated(hashes: Words) -> Ints | None:
    """Which hashes are there more than once; None where each is there once, which is the rule in
    a snapshot.
    """
    ordered = np.sort(hashes)
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    order = np.argsort(hashes)
    same = hashes[order][1:] == hashes[order][:-1]
    found = np.zeros(len(hashes), bool)
    found[order[1:][same]] = True
    found[order[:-1][same]] = True
    return np.flatnonzero(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Several:
    """The writes of keys that were written more than once, sorted by key and time: `first` begins a
    key, and `places` says where each write was before it was sorted.
    """

    block: Block
    first: Flags
    places: Ints

    @classmethod
    def of(cls, writes: list[Writes], which: Ints, hashes: Words) -> _Several:
        block, when = _picked(writes, which)
        places, first = _grouped(block.keys, hashes, when)
        return cls(block.take(places), first, places)

    def lasts(self, between: bytes) -> tuple[Ints, Block | None]:
        """Which writes are all that is left of their keys; and the keys whose values were
        joined.
        """
        ends = np.append(np.flatnonzero(self.first)[1:], len(self.first)) - 1
        if self.block.merges is None:
            return self.places[ends], None
        at = np.arange(len(self.first))
        begins = np.maximum.accumulate(np.where(self.first, at, 0))
        # What counts begins with the last write that is no merge: behind it where it is a delete.
        deleted = missing(self.block.values)
        bases = np.maximum.accumulate(np.where(self.block.merges & ~self.first, 0, at))
        bases = np.maximum(bases, begins) + (deleted[bases] & (at > bases))
        several = ends > bases[ends]
        if not several.any():
            return self.places[ends], None
        return self.places[ends[~several]], self._joined(
            bases[ends[several]], ends[several], between
        )

    def _joined(self, bases: Ints, ends: Ints, between: bytes) -> Block:
        counts = ends - bases + 1
        starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        pieces = np.repeat(bases - starts[:-1], counts) + np.arange(starts[-1])
        lists = pa.LargeListArray.from_arrays(
            pa.array(starts), self.block.values.take(pa.array(pieces))
        )
        values = pc.binary_join(lists, pa.scalar(between, pa.large_binary()))
        return Block(self.block.keys.take(pa.array(ends)), values)


def _grouped(keys: Binary, hashes: Words, when: Words) -> tuple[Ints, Flags]:
    """The order by key and time, and where in it each key begins."""
    order = np.lexsort((np.arange(len(when)), when, hashes))
    ordered = keys.take(pa.array(order))
    same = pc.equal(ordered.slice(1), ordered.slice(0, len(order) - 1)).to_numpy(
        zero_copy_only=False
    )
    first = np.append([True], ~same)
    if (first[1:] & (hashes[order][1:] == hashes[order][:-1])).any():  # two keys of one hash
        return _grouped(keys, keys.dictionary_encode().indices.to_numpy(), when)
    return order, first


def _picked(writes: list[Writes], which: Ints) -> tuple[Block, Words]:
    """These of all writes, as one block."""
    found, start = [], 0
    for one in writes:
        end = start + len(one.block)
        own = which[np.searchsorted(which, start) : np.searchsorted(which, end)] - start
        found.append(Writes(one.block.take(own), one.when[own]))
        start = end
    (whole,) = _together(found)
    return whole.block, whole.when


def _together(writes: list[Writes]) -> list[Writes]:
    """All as one; none where there are none."""
    if len(writes) < 2:
        return writes
    blocks = [one.block for one in writes]
    merges = [
        block.merges if block.merges is not None else np.zeros(len(block), bool) for block in blocks
    ]
    block = Block(
        pa.concat_arrays([block.keys for block in blocks]),
        pa.concat_arrays([block.values for block in blocks]),
        np.concatenate(merges) if any(block.merges is not None for block in blocks) else None,
    )
    return [Writes(block, np.concatenate([one.when for one in writes]))]


def _puts(block: Block) -> Block:
    return Block(block.keys, block.values)


def _batch(writes: Writes) -> Any:
    block = writes.block
    merges = block.merges if block.merges is not None else np.zeros(len(block), bool)
    return pa.record_batch(
        [block.keys, block.values, pa.array(merges), pa.array(writes.when)], schema=_SCHEMA
    )


def _writes(batch: Any) -> Writes:
    keys, values, merge, when = batch.columns
    merges = merge.to_numpy(zero_copy_only=False)
    return Writes(Block(keys, values, merges if merges.any() else None), when.to_numpy())
