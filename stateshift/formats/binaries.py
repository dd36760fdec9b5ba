"""Columns of byte strings put together and taken apart, by Arrow and numpy in place of a loop over
records. This module imports pyarrow: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.formats.blocks import Binary, Block, Flags, Ints, cut

_NOTHING = pa.scalar(b"", pa.large_binary())


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


def whole(blocks: Sequence[Block]) -> Block:
    """Return blocks of puts as one."""
    if len(blocks) == 1:
        return blocks[0]
    keys = pa.concat_arrays([block.keys for block in blocks])
    return Block(keys, pa.concat_arrays([block.values for block in blocks]))


def in_order(block: Block) -> Block:
    """Return the block sorted by keys, those of one key in their order; itself if it is sorted."""
    keys = block.keys
    if len(keys) < 2 or pc.all(pc.less_equal(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py():
        return block
    places = pc.sort_indices(keys)
    return Block(keys.take(places), block.values.take(places))


def part(block: Block, start: int, end: int) -> Block:
    """Return some of the records that follow each other, without copying them."""
    return Block(block.keys.slice(start, end - start), block.values.slice(start, end - start))


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
