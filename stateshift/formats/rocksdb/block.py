"""A block of an SST: checked, decompressed, and its entries.

    block    content | compression u8 | checksum u32LE
    HANDLE   varint offset | varint size of the content
    content  entries | restarts u32LE* | count u32LE
    entry    shared varint | unshared varint | value size varint | rest of the key | value

The checksum covers the content as it is stored, and the compression byte behind it. A table is read
through a function, so that one that lies in a storage need not be in memory: `File` holds it, with
the table's size and kind of checksum.

Source: RocksDB, table/format.cc, block_based/block.cc, util/compression.h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import cramjam
import xxhash

from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.formats.crc32c import crc32c, masked_crc32c

Read = Callable[[int, int], bytes]  # offset, count -> so many bytes, or fewer where the file ends

TRAILER = 5
WHAT = "an SST"
_BLOCK = f"a block of {WHAT}"

# How often its size the keys of a block may come to: of 16 entries only the first has its key
# whole.
SHARING_MAX = 16
# How often its stored size a block may hold: lz4 has one byte for 255, zstd three for 128 KiB, of
# which RocksDB's blocks of some KiB never come near.
_EXPANSION_MAX = {4: 255, 5: 255, 7: 4096}
_ZSTD = 7
_U32 = struct.Struct("<I")


class Handle(NamedTuple):
    """A block's place in the table: `offset` and `size` in bytes, without the five-byte trailer."""

    offset: int
    size: int


class File(NamedTuple):
    """A table's bytes, their number, and the kind of checksum that its blocks have."""

    read: Read
    size: int
    check: int


class DataBlock(NamedTuple):
    """A block of entries, decompressed, and its offset in the table."""

    content: bytes
    offset: int


def read_block(file: File, handle: Handle) -> bytes:
    """Return a block's content, checked and decompressed."""
    stored, compression = read_stored(file, handle)
    if compression == 0:
        return stored
    if compression == 1:
        return decompress_snappy(stored, handle.offset)
    if compression not in _EXPANSION_MAX:
        raise FormatError(
            f"{WHAT} has a block of unknown compression {compression}", None, handle.offset
        )
    try:  # what `locate_errors` does, which would take longer than this block
        size, position = varint(stored, 0, len(stored))
    except FormatError as error:
        raise FormatError(error.fact, None, handle.offset) from error
    if size > _EXPANSION_MAX[compression] * len(stored) + 64:
        fact = f"{WHAT}: a block of {len(stored)} bytes claims to hold {size}"
        raise FormatError(fact, None, handle.offset)
    bounds.require_piece(size, _BLOCK, handle.offset)
    packed = stored[position:]
    try:
        if compression == _ZSTD:
            out = bytearray(size)  # no more than was claimed: a frame may expand without end
            content = bytes(out[: cramjam.zstd.decompress_into(packed, out)])
        else:
            content = bytes(cramjam.lz4.decompress_block(packed, output_len=size)) if size else b""
    except (cramjam.DecompressionError, OSError) as error:
        raise FormatError(f"{WHAT} has a damaged block", None, handle.offset) from error
    if len(content) != size:
        fact = f"{WHAT}: a block claims {size} bytes and holds {len(content)}"
        raise FormatError(fact, None, handle.offset)
    return content


def read_stored(file: File, handle: Handle) -> tuple[bytes, int]:
    """Return a block's content as it is stored, and how it is compressed."""
    offset, size = handle
    if offset + size + TRAILER > file.size:
        raise _truncated(handle, file.size)
    raw = file.read(offset, size + TRAILER)
    if len(raw) < size + TRAILER:
        raise _truncated(handle, offset + len(raw))
    content, compression = raw[:size], raw[size]
    checksum = CHECKSUMS[file.check]
    if checksum is None:
        return content, compression
    if checksum(content, compression) != _U32.unpack_from(raw, size + 1)[0]:
        raise FormatError(f"{WHAT}: a block's checksum does not fit its content", None, offset)
    return content, compression


def _truncated(handle: Handle, end: int) -> FormatError:
    fact = f"{WHAT} ends before its block of {handle.size} bytes at {handle.offset} does"
    return FormatError(fact, None, end)


def block_entries(block: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a data, properties or metaindex block."""
    end = end_of_entries(block, offset)
    position, key = 0, b""
    sharable = SHARING_MAX * len(block)
    with locate_errors(offset):
        while position < end:
            shared, position = varint(block, position, end)
            unshared, position = varint(block, position, end)
            size, position = varint(block, position, end)
            middle = position + unshared
            sharable -= shared
            if shared > len(key) or middle + size > end or sharable < 0:
                raise FormatError(f"{WHAT}: an entry is larger than its block", None, offset)
            key = key[:shared] + block[position:middle]
            position = middle + size
            yield key, block[middle:position]


def end_of_entries(block: bytes, offset: int) -> int:
    """Return the offset of a block's restarts; `offset` is the block's own, for errors."""
    count = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * count
    if len(block) < 4 or count >> 31 or end < 0:
        raise FormatError(f"{WHAT}: a block has no restarts, or a hashed index", None, offset)
    return end


def handle_at(data: bytes, position: int, end: int) -> tuple[Handle, int]:
    """Read two varints, a block's offset and its size; return them, and the position behind."""
    offset, position = varint(data, position, end)
    size, position = varint(data, position, end)
    return Handle(offset, size), position


@contextmanager
def locate_errors(offset: int) -> Iterator[None]:
    """Raise errors inside a block at its place: inside, decompressed bytes are counted."""
    try:
        yield
    except FormatError as error:
        if error.offset is not None:
            raise
        raise FormatError(error.fact, None, offset) from error


def varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Read a varint; return it, and the position behind it."""
    if position + 1 < end:  # of one byte, or of two, without a loop
        first, second = data[position], data[position + 1]
        if first < 0x80:
            return first, position + 1
        if second < 0x80:
            return first & 0x7F | second << 7, position + 2
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise FormatError(f"{WHAT} is truncated: unterminated varint")


def encode_varint(number: int) -> bytes:
    """Return a number seven bits a byte, lowest first; the high bit says that more follow."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# By kind: over a block as it is stored, and its compression byte, which XXH3 (4) has mixed in
# afterwards (format.cc, ModifyChecksumForLastByte).
CHECKSUMS: dict[int, Callable[[bytes, int], int] | None] = {
    0: None,
    1: lambda stored, kind: masked_crc32c(bytes((kind,)), crc32c(stored)),
    2: lambda stored, kind: xxhash.xxh32_intdigest(stored + bytes((kind,))),
    3: lambda stored, kind: xxhash.xxh64_intdigest(stored + bytes((kind,))) & 0xFFFFFFFF,
    4: lambda stored, kind: (xxhash.xxh3_64_intdigest(stored) ^ kind * 0x6B9083D9) & 0xFFFFFFFF,
}


def decompress_snappy(data: bytes, start: int) -> bytes:
    """Return a raw snappy block, of RocksDB's or of snappy-java's, decompressed. Its longest copy
    makes 64 bytes of 3.
    """
    try:
        raw = cramjam.snappy.decompress_raw_len(data)
        if raw > 22 * len(data) + 64:
            raise FormatError(f"a snappy block of {len(data)} bytes cannot hold {raw}", None, start)
        bounds.require_piece(raw, "a snappy block", start)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise FormatError("a snappy block is damaged", None, start) from error
