"""Writes settled: of everything that was ever written to a key, what it holds in the end.

The last write of a key counts; merges are joined, by the delimiter `between`, to the last value
that was put, or to each other. Keys are found to be the same by a hash of 64 bits and then by their
bytes.

`bytes_max` of writes are held in memory. If there are more, they are dealt onto piles by their
keys' hash, on disk, and settled pile by pile; a pile that is too large is dealt again. The order of
what comes out depends on the writes and on `bytes_max` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spill import BYTES_MAX, Dealing, RecordBatch, hand_out, in_memory
from stateshift.formats.blocks import Binary, Flags, Ints, RowBlock
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

    block: RowBlock
    when: Words

    @property
    def size(self) -> int:
        return self.block.size


def settle_writes(
    writes: Iterable[Writes], between: bytes, bytes_max: int = BYTES_MAX
) -> Iterator[RowBlock]:
    """Yield each key's last value, in blocks of puts."""
    dealing: Dealing[Writes] = Dealing(
        _SCHEMA, lambda each: hash64(each.block.keys), batch_of, lambda batch: (writes_of(batch),)
    )
    for held in in_memory(writes, dealing, bytes_max):
        if held:
            yield from _settled(held, between)


def _settled(writes: list[Writes], between: bytes) -> Iterator[RowBlock]:
    """Settle writes that fit into memory; the list is emptied to free them early."""
    if sum(write.size for write in writes) < SMALL * len(writes):
        writes[:] = together(writes)
    kept, joined = _lasts(writes, between)
    start = 0
    for write in hand_out(writes):
        block = write.block
        live = kept[start : start + len(block)] & ~missing(block.values)
        start += len(block)
        if live.any():
            puts = block if live.all() else block.take(np.flatnonzero(live))
            yield RowBlock(puts.keys, puts.values)
    if joined is not None:
        yield joined


def _lasts(writes: list[Writes], between: bytes) -> tuple[Flags, RowBlock | None]:
    """Return the places of the last writes that stay, and the keys whose values were joined."""
    hashes = np.concatenate([hash64(write.block.keys) for write in writes])
    kept = np.ones(len(hashes), bool)
    again = repeated_hashes(hashes)
    if again is None:
        return kept, None
    several = Several.of(writes, again, hashes[again])
    last, joined = several.lasts(between)
    kept[again] = False
    kept[again[last]] = True
    return kept, joined


def repeated_hashes(hashes: Words) -> Ints | None:
    """Return the hashes that are there twice or more; None where each is there once."""
    ordered = np.sort(hashes)
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    order = np.argsort(hashes)
    same = hashes[order][1:] == hashes[order][:-1]
    is_again = np.zeros(len(hashes), bool)
    is_again[order[1:][same]] = True
    is_again[order[:-1][same]] = True
    return np.flatnonzero(is_again)


@dataclass(frozen=True, slots=True, eq=False)
class Several:
    """Repeated keys' writes by key and time: `first` begins a key; `places` are from before."""

    block: RowBlock
    first: Flags
    places: Ints

    @classmethod
    def of(cls, writes: list[Writes], which: Ints, hashes: Words) -> Several:
        picked, start = [], 0
        for write in writes:
            end = start + len(write.block)
            own = which[np.searchsorted(which, start) : np.searchsorted(which, end)] - start
            picked.append(Writes(write.block.take(own), write.when[own]))
            start = end
        (whole,) = together(picked)
        places, first = _grouped(whole.block.keys, hashes, whole.when)
        return cls(whole.block.take(places), first, places)

    def lasts(self, between: bytes) -> tuple[Ints, RowBlock | None]:
        """Return the places of the last writes that stay, and the keys whose values were joined."""
        ends = np.append(np.flatnonzero(self.first)[1:], len(self.first)) - 1
        if self.block.merges is None:
            return self.places[ends], None
        at = np.arange(len(self.first))
        begins = np.maximum.accumulate(np.where(self.first, at, 0))
        # The writes that count begin with the last one that is no merge: behind it where it is a
        # delete.
        deleted = missing(self.block.values)
        bases = np.maximum.accumulate(np.where(self.block.merges & ~self.first, 0, at))
        bases = np.maximum(bases, begins) + (deleted[bases] & (at > bases))
        several = ends > bases[ends]
        if not several.any():
            return self.places[ends], None
        joined = self._joined(bases[ends[several]], ends[several], between)
        return self.places[ends[~several]], joined

    def _joined(self, bases: Ints, ends: Ints, between: bytes) -> RowBlock:
        counts = ends - bases + 1
        starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        pieces = np.repeat(bases - starts[:-1], counts) + np.arange(starts[-1])
        lists = pa.LargeListArray.from_arrays(
            pa.array(starts), self.block.values.take(pa.array(pieces))
        )
        values = pc.binary_join(lists, pa.scalar(between, pa.large_binary()))
        return RowBlock(self.block.keys.take(pa.array(ends)), values)


def _grouped(keys: Binary, hashes: Words, when: Words) -> tuple[Ints, Flags]:
    """Return the order by key and time, and where in it each key begins."""
    order = np.lexsort((np.arange(len(when)), when, hashes))
    ordered = keys.take(pa.array(order))
    same = pc.equal(ordered.slice(1), ordered.slice(0, len(order) - 1))
    first = np.append([True], ~same.to_numpy(zero_copy_only=False))
    same_hash = hashes[order][1:] == hashes[order][:-1]
    if (first[1:] & same_hash).any():  # two keys of one hash
        return _grouped(keys, keys.dictionary_encode().indices.to_numpy(), when)
    return order, first


def together(writes: list[Writes]) -> list[Writes]:
    """Return all as one, in a list; none where there are none."""
    if len(writes) < 2:
        return writes
    blocks = [write.block for write in writes]
    keys = pa.concat_arrays([block.keys for block in blocks])
    values = pa.concat_arrays([block.values for block in blocks])
    merges = None
    if any(block.merges is not None for block in blocks):
        merges = np.concatenate(list(map(_merges, blocks)))
    when = np.concatenate([write.when for write in writes])
    return [Writes(RowBlock(keys, values, merges), when)]


def _merges(block: RowBlock) -> Flags:
    """Return the flags of values that are merged, in a block that may have none."""
    return np.zeros(len(block), bool) if block.merges is None else block.merges


def batch_of(writes: Writes) -> RecordBatch:
    """Return writes as they are put aside."""
    block = writes.block
    columns = [block.keys, block.values, pa.array(_merges(block)), pa.array(writes.when)]
    return pa.record_batch(columns, schema=_SCHEMA)


def writes_of(batch: RecordBatch) -> Writes:
    """Return writes that were put aside."""
    keys, values, merge, when = batch.columns
    merges = merge.to_numpy(zero_copy_only=False)
    return Writes(RowBlock(keys, values, merges if merges.any() else None), when.to_numpy())
