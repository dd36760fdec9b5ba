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
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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

_NOTHING = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Records in the order of their stream."""

    keys: Binary
    values: Binary
    merges: Flags | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        return int(self.keys.nbytes) + int(self.values.nbytes)

    def take(self, places: Ints) -> RowBlock:
        picked = pa.array(places)
        merges = None if self.merges is None else self.merges[places]
        return RowBlock(self.keys.take(picked), self.values.take(picked), merges)

    def mapped(self, key: Change | None, value: Change | None) -> RowBlock:
        """Return the records with keys, or values, changed one by one; None: they stay."""
        keys, values = self.keys, self.values
        if key is not None:
            keys = binary([key(each) for each in keys.to_pylist()])
        if value is not None:
            values = binary([value(each) for each in values.to_pylist()])
        return RowBlock(keys, values, self.merges)

    def records(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield records one by one: for what is shown to a person, and for tests."""
        return zip(self.keys.to_pylist(), self.values.to_pylist(), strict=True)


def binary(items: Sequence[bytes | None]) -> Binary:
    """Return the items as one column, null where an item is None."""
    return pa.array(items, pa.large_binary())


def block_of(records: Iterable[tuple[bytes, bytes | None]]) -> RowBlock:
    """Return the inverse of `records`, without merges."""
    pairs = list(records)
    return RowBlock(binary([key for key, _ in pairs]), binary([value for _, value in pairs]))


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


def join_columns(*parts: Binary | bytes) -> Binary:
    """Return the parts joined row by row; a part that is plain bytes is the same in every row."""
    columns = []
    for part in parts:
        columns.append(pa.scalar(part, pa.large_binary()) if isinstance(part, bytes) else part)
    return pc.binary_join_element_wise(*columns, _NOTHING)


def without_first(column: Binary, count: int) -> Binary:
    """Return each without its first bytes; every item has at least `count`."""
    starts, content = edges(column)
    return cut(cast(bytes, content), starts[:-1] + count, starts[1:])


def without_prefix(column: Binary, prefix: bytes) -> Binary:
    """Return each without the prefix, where it has it."""
    starts, content = edges(column)
    gone = pc.starts_with(column, prefix).to_numpy(zero_copy_only=False) * len(prefix)
    return cut(cast(bytes, content), starts[:-1] + gone, starts[1:])


def edges(column: Binary) -> tuple[Ints, memoryview]:
    """Return the beginning of each item, the end last, and their bytes. There are no nulls."""
    _, offsets, content = column.buffers()
    starts = np.zeros(1, np.int64)
    if offsets:
        starts = np.frombuffer(offsets, np.int64, len(column) + 1, column.offset * 8)
    return starts, memoryview(content if content is not None else b"")


def of_width(matrix: Ints) -> Binary:
    """Return each row of a matrix of bytes as a value of its own."""
    rows, width = matrix.shape
    return binaries(matrix, np.arange(rows + 1) * width)


def binaries(content: Ints, starts: Ints) -> Binary:
    """Return the bytes of an array as a column: items begin at `starts`, the end is last."""
    buffers = [
        None,
        pa.py_buffer(starts.astype(np.int64)),
        pa.py_buffer(np.ascontiguousarray(content)),
    ]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


def lengths(column: Binary) -> Ints:
    """Return the number of bytes of each value."""
    return np.diff(edges(column)[0])


def numerals(numbers: Ints) -> Binary:
    """Return each number in decimal digits."""
    return pa.array(numbers).cast(pa.string()).cast(pa.large_binary())


def varints(numbers: Ints) -> tuple[Ints, Flags]:
    """Return each number as a row of LEB128 bytes, and the used bytes of the row."""
    groups = numbers[:, None].astype(np.int64) >> np.arange(0, 35, 7)
    more = groups >> 7 > 0
    used = np.concatenate((np.ones((len(numbers), 1), bool), more[:, :-1]), axis=1)
    return (groups & 0x7F | more * 0x80).astype(np.uint8), used


def whole(blocks: Sequence[RowBlock]) -> RowBlock:
    """Return blocks of puts as one."""
    if len(blocks) == 1:
        return blocks[0]
    keys = pa.concat_arrays([block.keys for block in blocks])
    return RowBlock(keys, pa.concat_arrays([block.values for block in blocks]))


def in_order(block: RowBlock) -> RowBlock:
    """Return the block sorted by keys, those of one key in their order; itself if it is sorted."""
    keys = block.keys
    if len(keys) < 2 or pc.all(pc.less_equal(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py():
        return block
    places = pc.sort_indices(keys)
    return RowBlock(keys.take(places), block.values.take(places))


def part(block: RowBlock, start: int, end: int) -> RowBlock:
    """Return some of the records that follow each other, without copying them."""
    return RowBlock(block.keys.slice(start, end - start), block.values.slice(start, end - start))


def count_upto(keys: Binary, bound: bytes) -> int:
    """Return the number of these ascending keys that are not after `bound`."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() <= bound:
            low = middle + 1
        else:
            high = middle
    return low
