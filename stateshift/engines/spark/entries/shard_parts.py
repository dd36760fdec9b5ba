"""A shard cut into parts, each read by itself, by whoever: together they hold its entries, each
once; one behind the other, in its order. Pure.

    part  keys after one and up to another, of a RocksDB shard whose tables are sorted runs. The
          blocks of those are read that may hold such keys, and all changelogs. Which tables may,
          the MANIFEST says: one that holds other keys is refused

    "stateshift.shard-part": "[AFTER, UPTO]"    keys in hexadecimal, or null

A part stands among the settings that a reader of entries is given anyway; Spark has none that begin
like it. Other shards are read whole: to cut them by the hash of their keys, all of them had to be
decoded for each part, which is most of the work (1 million entries of a snapshot: 0.99 s of CPU as
one, 0.88 and 0.90 in two halves).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spark.entries.last_writes import Writes
from stateshift.formats.blocks import Binary, Flags
from stateshift.formats.rocksdb.table import ALL_KEYS, KeyRange

SHARD_PART = "stateshift.shard-part"


def encode_part(keys: KeyRange) -> str:
    """Return the value of the setting that asks for these keys."""
    return json.dumps([None if key is None else key.hex() for key in keys])


def part_in(settings: Mapping[str, str]) -> KeyRange:
    """Return the keys that the settings ask for."""
    if SHARD_PART not in settings:
        return ALL_KEYS
    after, upto = json.loads(settings[SHARD_PART])
    return KeyRange(_key(after), _key(upto))


def parts_between(bounds: Sequence[bytes]) -> list[KeyRange]:
    """Return the parts that end with these keys, and the one behind the last of them."""
    return [KeyRange(*ends) for ends in pairwise((None, *bounds, None))]


def within(writes: Writes, keys: KeyRange) -> Writes:
    """Return the writes to these keys, whatever their order."""
    conditions = list(_conditions(writes.block.keys, keys))
    if not conditions:
        return writes
    places = np.flatnonzero(np.logical_and.reduce(conditions))
    return Writes(writes.block.take(places), writes.when[places])


def _conditions(keys: Binary, wanted: KeyRange) -> Iterator[Flags]:
    after, upto = wanted
    if after is not None:
        is_after = pc.greater(keys, pa.scalar(after, pa.large_binary()))
        yield is_after.to_numpy(zero_copy_only=False)
    if upto is not None:
        is_before = pc.less_equal(keys, pa.scalar(upto, pa.large_binary()))
        yield is_before.to_numpy(zero_copy_only=False)


def _key(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
