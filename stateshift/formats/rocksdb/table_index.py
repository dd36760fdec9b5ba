"""A block of a table's index: the last key of each block of entries, and its place.

    index      entry * | restarts u32LE * | count u32LE
    entry      shared varint | unshared varint | rest of the key | place of the block
    place      shared 0: offset varint | size varint; else the zigzag difference of the size: the
               block follows the one before it directly
    not delta  as a block of entries is, the value a HANDLE

RocksDB lets a restart begin at each entry, unless a job asks for fewer. Then nothing is shared, and
the restarts say where entries are: many are read at once. Everything else is read one by one, from
where it begins, and so is what is not as it should be: that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from stateshift.errors import FormatError
from stateshift.formats.rocksdb.block import (
    SHARING_MAX,
    TRAILER,
    WHAT,
    Handle,
    block_entries,
    end_of_entries,
    handle_at,
    locate_errors,
    varint,
)

if TYPE_CHECKING:
    from stateshift.formats.blocks import Ints
    from stateshift.formats.spans import Content

# A key that ends a block, and the place of the block.
IndexEntry = tuple[bytes, Handle]

TOGETHER = 4096  # entries that are read at once
TOGETHER_MIN = 64  # numpy is not loaded for fewer
_SIZE_MAX = 0x80  # of a key: its size is one byte
_VARINT_BYTES = 5


def entries_of_index(block: bytes, place: Handle, delta: bool) -> Iterator[IndexEntry]:
    """Yield the entries of a block of an index, which is at `place`."""
    with locate_errors(place.offset):
        if not delta:
            for key, value in block_entries(block, place.offset):
                yield key, handle_at(value, 0, len(value))[0]
            return
        end = end_of_entries(block, place.offset)
        position = 0
        if len(block) - end > 4 * TOGETHER_MIN:
            position = yield from _together(block, end)
        yield from _one_by_one(block, position, end, place.offset)


def _together(block: bytes, end: int) -> Generator[IndexEntry, None, int]:
    """Yield entries that are all restarts; return the beginning of the rest."""
    import numpy as np  # a small index is read without it

    content = np.frombuffer(block, np.uint8)
    restarts = np.frombuffer(block, "<u4", offset=end, count=(len(block) - end) // 4 - 1)
    begins = np.append(restarts, end).astype(np.int64)
    if begins[0] != 0 or (np.diff(begins) <= 0).any():
        return 0
    for start in range(0, len(restarts), TOGETHER):
        entries = _between(block, content, begins[start : start + TOGETHER + 1])
        if entries is None:
            return int(begins[start])
        yield from entries
    return end


def _between(block: bytes, content: Content, begins: Ints) -> Iterator[IndexEntry] | None:
    """Return the entries, each of which ends where the next begins; None if one does not."""
    ends = begins[1:]
    keys = begins[:-1] + 2
    if (keys >= ends).any() or content[keys - 2].any():
        return None
    unshared = content[keys - 1]
    offsets, position = _varints(content, keys + unshared, ends)
    sizes, position = _varints(content, position, ends)
    if (unshared >= _SIZE_MAX).any() or (position != ends).any():
        return None
    spans = zip(keys.tolist(), (keys + unshared).tolist(), strict=True)
    handles = map(Handle, offsets.tolist(), sizes.tolist())
    return zip((block[start:stop] for start, stop in spans), handles, strict=True)


def _varints(content: Content, position: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the varints at these positions, and their ends; a bad one's end is after its own."""
    import numpy as np

    numbers, goes_on = np.zeros(len(position), np.int64), np.ones(len(position), bool)
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        byte = np.where(goes_on, content[np.minimum(position, ends - 1)], 0).astype(np.int64)
        numbers |= (byte & 0x7F) << shift
        position = position + goes_on
        goes_on = byte > 0x7F
        if not goes_on.any():
            return numbers, position
    return numbers, np.where(goes_on, ends + 1, position)


def _one_by_one(block: bytes, position: int, end: int, offset: int) -> Iterator[IndexEntry]:
    """Yield the entries from a restart on."""
    key, start, size = b"", 0, 0
    sharable = SHARING_MAX * len(block)
    while position < end:
        shared, unshared = block[position], block[position + 1]  # behind the end stand restarts
        position += 2
        if shared >= 0x80 or unshared >= 0x80:
            shared, position = varint(block, position - 2, end)
            unshared, position = varint(block, position, end)
        rest = position + unshared
        if shared == 0:
            key = block[position:rest]
            start, position = varint(block, rest, end)
            size, position = varint(block, position, end)
        else:
            sharable -= shared
            if shared > len(key) or sharable < 0:
                fact = f"{WHAT}: a key of an index shares more than there is"
                raise FormatError(fact, None, offset)
            key = key[:shared] + block[position:rest]
            zigzag, position = varint(block, rest, end)
            start += size + TRAILER
            size += -(zigzag >> 1) - 1 if zigzag & 1 else zigzag >> 1
        if size < 0:
            raise FormatError(f"{WHAT}: invalid block size {size}", None, offset)
        yield key, Handle(start, size)
