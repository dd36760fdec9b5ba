"""Many records as columns: what is done to state a million times is done to a block of them at
once.

    Block
      keys    one byte string a record
      values  one a record; null where the record deletes its key
      merges  which values are merged with what the key holds, instead of put in its place; None
              where none is

The columns are Arrow's, so taking, sorting, joining and hashing them costs no Python per record. A
block is a window on a stream of records, in the stream's order: BLOCK_RECORDS of them or
BLOCK_BYTES, whatever comes first, so memory does not grow with the stream.

This module imports pyarrow, which takes longer than all the rest of a command's start: import it
where state is read, never where a command only looks or plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stateshift.formats import bounds

BLOCK_RECORDS = 1 << 17
BLOCK_BYTES = 32 * 1024 * 1024

# Numpy and Arrow have no types that mypy --strict could tell apart here.
Ints = Any  # a numpy array of int64
Flags = Any  # a numpy array of bool
Numbers = Any  # a numpy array of numbers of another type
Binary = Any  # a pyarrow.LargeBinaryArray
Column = Any  # a pyarrow.Array of any type

# A function that makes another key, or another value, of one.
Change = Callable[[bytes], bytes]

# Arrow's own choice keeps more of the memory that is given back: 30 to 50 MiB of a process's 300.
# Jemalloc is as fast. Another choice stays, and so does that of a program that imports us.
if (
    bounds.is_own_process()
    and pa.default_memory_pool().backend_name == "mimalloc"
    and "jemalloc" in pa.supported_memory_backends()
):
    pa.set_memory_pool(pa.jemalloc_memory_pool())


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Records in the order of their stream."""

    keys: Binary
    values: Binary
    merges: Flags | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        return int(self.keys.nbytes) + int(self.values.nbytes)

    def take(self, places: Ints) -> Block:
        """Return the records at these places, in this order."""
        picked = pa.array(places)
        merges = None if self.merges is None else self.merges[places]
        return Block(self.keys.take(picked), self.values.take(picked), merges)

    def mapped(self, key: Change | None, value: Change | None) -> Block:
        """Return the records with keys, or values, changed one by one; None: they stay."""
        keys, values = self.keys, self.values
        if key is not None:
            keys = binary([key(each) for each in keys.to_pylist()])
        if value is not None:
            values = binary([value(each) for each in values.to_pylist()])
        return Block(keys, values, self.merges)

    def records(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield records one by one: for what is shown to a person, and for tests."""
        return zip(self.keys.to_pylist(), self.values.to_pylist(), strict=True)


def binary(items: Sequence[bytes | None]) -> Binary:
    """Return the items as one column, null where an item is None."""
    return pa.array(items, pa.large_binary())


def block_of(records: Iterable[tuple[bytes, bytes | None]]) -> Block:
    """Return the inverse of `records`, without merges."""
    pairs = list(records)
    return Block(binary([key for key, _ in pairs]), binary([value for _, value in pairs]))


def cut(content: bytes | Numbers, starts: Ints, ends: Ints, missing: Flags | None = None) -> Binary:
    """Return the pieces of `content` (bytes, or an array of them) from each start to its end; null
    where `missing`.

    Content and the gaps between the pieces are laid out as one Arrow array without copying a byte,
    of which every second item is then taken.
    """
    count = len(starts)
    edges = np.empty(2 * count + 1, np.int64)
    edges[0:-1:2], edges[1::2] = starts, ends
    edges[-1] = len(content)
    every = pa.Array.from_buffers(
        pa.large_binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(content)]
    )
    places = np.arange(0, 2 * count, 2)
    return every.take(pa.array(places, mask=missing))
