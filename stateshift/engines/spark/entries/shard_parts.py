"""A shard cut into parts, each read by itself, by whoever: together they hold its entries, each
once. Pure.

    keys  after one key and up to another: of a RocksDB shard whose tables are sorted runs. Of those
          the blocks are read that may hold such keys, and all changelogs. One behind the other the
          parts are the shard in its order
    hash  those whose hash leaves a remainder: of every other shard. All of it is decoded for each
          part; what comes after that is done once

    "stateshift.shard-part": "[AFTER, UPTO, REMAINDER, MODULUS]"    keys in hexadecimal, or null

A part stands among the settings that a reader of entries is given anyway; Spark has none that begin
like it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spark.entries.last_writes import Writes
from stateshift.formats.blocks import Binary, Flags
from stateshift.formats.rocksdb.table import ALL_KEYS, KeyRange
from stateshift.formats.spans import hash64

SHARD_PART = "stateshift.shard-part"


@dataclass(frozen=True, slots=True)
class ShardPart:
    """What is read of a shard; by default all of it."""

    keys: KeyRange = ALL_KEYS
    remainder: int = 0
    modulus: int = 1

    def of(self, writes: Writes) -> Writes:
        """Return those of some writes that are in the part."""
        conditions = list(self._conditions(writes.block.keys))
        if not conditions:
            return writes
        places = np.flatnonzero(np.logical_and.reduce(conditions))
        return Writes(writes.block.take(places), writes.when[places])

    def _conditions(self, keys: Binary) -> Iterator[Flags]:
        after, upto = self.keys
        if after is not None:
            is_after = pc.greater(keys, pa.scalar(after, pa.large_binary()))
            yield is_after.to_numpy(zero_copy_only=False)
        if upto is not None:
            is_before = pc.less_equal(keys, pa.scalar(upto, pa.large_binary()))
            yield is_before.to_numpy(zero_copy_only=False)
        if self.modulus > 1:
            yield hash64(keys) % np.uint64(self.modulus) == np.uint64(self.remainder)

    @property
    def setting(self) -> str:
        """The value of the setting that asks for this part."""
        after, upto = (None if key is None else key.hex() for key in self.keys)
        return json.dumps([after, upto, self.remainder, self.modulus])


def part_in(settings: Mapping[str, str]) -> ShardPart:
    """Return the part that the settings ask for."""
    if SHARD_PART not in settings:
        return ShardPart()
    after, upto, remainder, modulus = json.loads(settings[SHARD_PART])
    return ShardPart(KeyRange(_key(after), _key(upto)), remainder, modulus)


def by_keys(bounds: Sequence[bytes]) -> list[ShardPart]:
    """Return the parts that end with these keys, and the one behind the last of them."""
    return [ShardPart(KeyRange(*ends)) for ends in pairwise((None, *bounds, None))]


def by_hash(count: int) -> list[ShardPart]:
    """Return so many parts of about the same size."""
    return [ShardPart(ALL_KEYS, remainder, count) for remainder in range(count)]


def _key(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
