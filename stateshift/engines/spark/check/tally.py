"""The sums of entries, to see whether two ways to a state come to the same without holding it.

    Tally            a count and a sum, the same in whatever order entries come
    tally_of(files)  of what a shard's files come to

If files only write one behind the other, a hash of each key and the number of each entry are all
that is held: the last write of a key counts. Tables and merges have to be folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Final

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.fold import folded, writes_in_time
from stateshift.engines.spark.entries.last_writes import repeated_hashes
from stateshift.engines.spill import (
    LEVELS,
    PILES,
    Piles,
    RecordBatch,
    hand_out,
    hold,
    pile_of_hashes,
)
from stateshift.formats.blocks import Binary, Block, Flags, binary
from stateshift.formats.spans import Words, hash64, missing
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)

_WRITE_BYTES: Final = 17
BYTES_MAX: Final = 2_000_000 * _WRITE_BYTES  # held in memory

_SCHEMA: Final = pa.schema([("key", pa.uint64()), ("number", pa.uint64()), ("put", pa.bool_())])


@dataclass(slots=True)
class Tally:
    """A count of entries and a sum of a number for each, modulo 2^64: the same in whatever order
    they come, and equal for other entries only by chance.
    """

    records: int = 0
    total: int = 0

    def add(self, store: str, block: Block) -> None:
        self.count(_numbers(store, hash64(block.keys), block.values))

    def count(self, numbers: Words) -> None:
        self.records += len(numbers)
        self.total = (self.total + int(numbers.sum(dtype=np.uint64))) % (1 << 64)


def tally_of(
    read: ReadFrom,
    shard: ShardFiles,
    settings: Mapping[str, str],
    bytes_max: int = BYTES_MAX,
) -> Tally:
    """Return the tally of the entries that a shard's files come to."""
    tally = Tally()
    blocks = writes_in_time(read, shard, settings)
    if blocks is not None:
        _count_lasts(tally, _hashed(shard.store, blocks), bytes_max)
        return tally
    for store, block in folded(read, shard, settings):
        tally.add(store, block)
    return tally


@dataclass(frozen=True, slots=True, eq=False)
class _Writes:
    """A number for each key, and one for each entry; no `put` is a delete."""

    keys: Words
    numbers: Words
    puts: Flags

    @property
    def size(self) -> int:
        return len(self.keys) * _WRITE_BYTES


def _hashed(store: str, blocks: Iterable[Block]) -> Iterator[_Writes]:
    for block in blocks:
        keys = hash64(block.keys)
        yield _Writes(keys, _numbers(store, keys, block.values), ~missing(block.values))


def _numbers(store: str, keys: Words, values: Binary) -> Words:
    """Return a number for each entry of a store, by the hash of its key."""
    name = hash64(binary([store.encode()]))[0]
    mixed = (keys + name) * _FIRST ^ hash64(values)
    mixed = (mixed ^ mixed >> np.uint64(32)) * _SECOND
    return mixed ^ mixed >> np.uint64(29)


def _count_lasts(tally: Tally, writes: Iterator[_Writes], bytes_max: int, level: int = 0) -> None:
    """Count the last writes of all keys, but for deletes. `level` says how often the writes were
    put onto piles already.
    """
    held, are_all = hold(writes, bytes_max if level < LEVELS else inf)
    if not are_all:
        _count_piles(tally, chain(hand_out(held), writes), bytes_max, level)
    elif held:
        _count_held(tally, held)


def _count_piles(tally: Tally, writes: Iterable[_Writes], bytes_max: int, level: int) -> None:
    with Piles(PILES, _SCHEMA) as piles:
        for write in writes:
            columns = [pa.array(write.keys), pa.array(write.numbers), pa.array(write.puts)]
            batch = pa.record_batch(columns, schema=_SCHEMA)
            piles.deal(batch, pile_of_hashes(write.keys, level))
        for _, pile in piles.each():
            _count_lasts(tally, map(_writes_of, pile), bytes_max, level + 1)


def _writes_of(batch: RecordBatch) -> _Writes:
    keys, numbers, puts = batch.columns
    return _Writes(keys.to_numpy(), numbers.to_numpy(), puts.to_numpy(zero_copy_only=False))


def _count_held(tally: Tally, held: list[_Writes]) -> None:
    keys = np.concatenate([write.keys for write in held])
    counted = np.concatenate([write.puts for write in held])
    again = repeated_hashes(keys)
    if again is not None:
        order = np.argsort(keys[again], kind="stable")
        ordered = keys[again][order]
        is_last = np.append(ordered[1:] != ordered[:-1], True)
        counted[again[order[~is_last]]] = False
    numbers = np.concatenate([write.numbers for write in held])
    tally.count(numbers[counted])
