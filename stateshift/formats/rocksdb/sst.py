"""RocksDB's table files (SST, block-based), read without RocksDB.

    blocks ... | footer: checksum type u8 | metaindex HANDLE | index HANDLE | padding | u32LE version | magic u64LE
    block      content | compression u8 | checksum u32LE          HANDLE = varint offset, varint size of the content
    content    entries | restarts u32LE* | count u32LE
    entry      shared varint | unshared varint | value size varint | rest of the key | value
    index      one entry per data block, the value a HANDLE. With `index.value.is.delta.encoded` there is no value size,
               and where the key shares something the value is the zigzag difference of the size: the block follows the
               one before it directly
    user entry key | u64LE (sequence << 8 | type), type 1 put, 2 merge, 0 and 7 delete

Source: RocksDB, table/format.cc (Footer, format versions 2 to 5), block_based/block.cc, table_properties.cc,
db/dbformat.h, util/compression.h; Spark 3.2 to 4.3 writes version 5 through RocksDB 6.20 to 9.8. Checksums of all five
kinds (none, CRC32C, XXH32, XXH64, XXH3) are verified. Tables of other kinds (hashed or partitioned indexes, range
deletions, dictionaries, ingested files) Spark does not write; they are refused rather than misread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import cramjam
import xxhash

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats import snappy
from stateshift.formats.crc32c import crc32c, masked_crc32c

PUT, MERGE = 1, 2
DELETES = (0, 7)

_MAGIC = 0x88E241B785F4CFF7
_FOOTER, _TRAILER = 53, 5
# How often its size the keys of a block may come to: of 16 entries only the first has its key whole.
_SHARING_MAX = 16
# How often its stored size a block may hold: lz4 has one byte for 255, zstd three for 128 KiB, of which RocksDB's
# blocks of some KiB never come near.
_EXPANSION_MAX = {4: 255, 5: 255, 7: 4096}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_WHAT = "an SST"


class TableEntry(NamedTuple):
    """One write: the newest sequence of a key counts, merges are added to what was before them."""

    key: bytes
    sequence: int
    kind: int
    value: bytes


BEFORE_ALL = TableEntry(b"", 1 << 56, PUT, b"")


class _Handle(NamedTuple):
    offset: int
    size: int


class DataBlock(NamedTuple):
    """A block of entries, decompressed, and where it stands in the table."""

    content: bytes
    offset: int


def decode_sst(content: bytes) -> Iterator[TableEntry]:
    """The table's entries in their order: keys ascending, of one key the newest first."""
    return in_order(data_blocks(content), BEFORE_ALL)


def in_order(blocks: Iterable[DataBlock], last: TableEntry) -> Iterator[TableEntry]:
    """The entries of blocks that come after the entry `last`."""
    for block in blocks:
        for entry in entries_of(block):
            if entry.key < last.key or (entry.key == last.key and entry.sequence >= last.sequence):
                raise FormatError(f"{_WHAT} holds entries that are not in their order", None, block.offset)
            last = entry
            yield entry


def data_blocks(content: bytes) -> Iterator[DataBlock]:
    """The table's blocks of entries, each checked as it comes."""
    check, metaindex, index = _decode_footer(content)
    delta = _check_properties(content, metaindex, check)
    end = 0
    for handle in _index(_block(content, index, check), index, delta):
        if handle.offset < end:  # or a small index could name one block over and over
            raise FormatError(f"{_WHAT} has blocks that are not behind each other", None, handle.offset)
        end = handle.offset + handle.size + _TRAILER
        yield DataBlock(_block(content, handle, check), handle.offset)


def entries_of(block: DataBlock) -> Iterator[TableEntry]:
    unpack = _U64.unpack_from
    for key, value in _entries(*block):
        if len(key) < 8:
            raise FormatError(f"{_WHAT} holds a key without a sequence", None, block.offset)
        tail = unpack(key, len(key) - 8)[0]
        kind = tail & 0xFF
        if kind not in (PUT, MERGE, *DELETES):
            raise FormatError(f"{_WHAT} holds an entry of type {kind}", None, block.offset)
        yield TableEntry(key[:-8], tail >> 8, kind, value)


def _decode_footer(content: bytes) -> tuple[int, _Handle, _Handle]:
    if len(content) < _FOOTER:
        raise FormatError(f"{_WHAT} ends early: it is shorter than its footer", None, len(content))
    start = len(content) - _FOOTER
    (magic,) = _U64.unpack_from(content, len(content) - 8)
    (version,) = _U32.unpack_from(content, len(content) - 12)
    if magic != _MAGIC:
        raise FormatError(f"{_WHAT} does not end with its magic: cut off, or no SST", None, len(content))
    if not 2 <= version <= 5:
        raise UnknownVersion(f"{_WHAT} of format version {version}; known are 2 to 5", None, len(content) - 12)
    if content[start] not in _CHECKSUMS:
        raise FormatError(f"{_WHAT} has the unknown checksum type {content[start]}", None, start)
    with _placed(start):
        metaindex, position = _handle(content, start + 1, len(content) - 12)
        index, _ = _handle(content, position, len(content) - 12)
    return content[start], metaindex, index


def _check_properties(content: bytes, metaindex: _Handle, check: int) -> bool:
    """Whether the index is delta-encoded. What we could misread is refused."""
    with _placed(metaindex.offset):
        return _checked_properties(content, metaindex, check)


def _checked_properties(content: bytes, metaindex: _Handle, check: int) -> bool:
    delta = False
    for name, value in _entries(_block(content, metaindex, check), metaindex.offset):
        place = _handle(value, 0, len(value))[0] if value else None
        if name in (b"rocksdb.range_del", b"rocksdb.compression_dict") and place and place.size:
            raise FormatError(f"{_WHAT} has a {name.decode()} block, which is not read", None, metaindex.offset)
        if name == b"rocksdb.properties" and place:
            properties = dict(_entries(_block(content, place, check), place.offset))
            delta = _number(properties, b"rocksdb.index.value.is.delta.encoded")
            if properties.get(b"rocksdb.block.based.table.index.type", bytes(4)) != bytes(4):
                raise FormatError(f"{_WHAT} has an index of an unknown kind", None, place.offset)
            if b"rocksdb.external_sst_file.version" in properties:
                raise FormatError(f"{_WHAT} was made outside RocksDB and ingested", None, place.offset)
        elif place and place.size:  # filters: we have no use for them, but RocksDB believes what they say
            _checked(content, place, check)
    return delta


def _number(properties: dict[bytes, bytes], name: bytes) -> bool:
    return bool(_varint(properties[name], 0, len(properties[name]))[0]) if properties.get(name) else False


def _block(content: bytes, handle: _Handle, check: int) -> bytes:
    """A block's content, checked and decompressed."""
    return _decompressed(_checked(content, handle, check), content[handle.offset + handle.size], handle.offset)


def _checked(content: bytes, handle: _Handle, check: int) -> bytes:
    """A block's content as it is stored."""
    offset, size = handle
    end = offset + size
    if end + _TRAILER > len(content):
        raise FormatError(f"{_WHAT} ends before its block of {size} bytes at {offset} does", None, len(content))
    expected = _CHECKSUMS[check]
    if expected and expected(content[offset:end], content[end]) != _U32.unpack_from(content, end + 1)[0]:
        raise FormatError(f"{_WHAT}: a block's checksum does not fit its content", None, offset)
    return content[offset:end]


def _decompressed(data: bytes, kind: int, offset: int) -> bytes:
    if kind == 0:
        return data
    if kind == 1:
        return snappy.decompressed(data, offset)
    if kind not in (4, 5, 7):
        raise FormatError(f"{_WHAT} has a block of unknown compression {kind}", None, offset)
    with _placed(offset):
        raw, position = _varint(data, 0, len(data))
    if raw > min(1 << 30, _EXPANSION_MAX[kind] * len(data) + 64):
        raise FormatError(f"{_WHAT}: a block of {len(data)} bytes claims to hold {raw}", None, offset)
    try:
        if kind == 7:
            room = bytearray(raw)  # no more than was claimed: a frame may expand without end
            out = bytes(room[: cramjam.zstd.decompress_into(data[position:], room)])
        else:
            out = bytes(cramjam.lz4.decompress_block(data[position:], output_len=raw)) if raw else b""
    except (cramjam.DecompressionError, OSError) as error:
        raise FormatError(f"{_WHAT} has a damaged block", None, offset) from error
    if len(out) != raw:
        raise FormatError(f"{_WHAT}: a block claims {raw} bytes and holds {len(out)}", None, offset)
    return out


def _entries(block: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a data, properties or metaindex block."""
    end = _end_of_entries(block, offset)
    position, key = 0, b""
    room = _SHARING_MAX * len(block)
    with _placed(offset):
        while position < end:
            shared, position = _varint(block, position, end)
            unshared, position = _varint(block, position, end)
            size, position = _varint(block, position, end)
            middle = position + unshared
            room -= shared
            if shared > len(key) or middle + size > end or room < 0:
                raise FormatError(f"{_WHAT}: an entry is larger than its block", None, offset)
            key = key[:shared] + block[position:middle]
            position = middle + size
            yield key, block[middle:position]


def _index(block: bytes, place: _Handle, delta: bool) -> Iterator[_Handle]:
    with _placed(place.offset):
        if delta:
            yield from _delta_index(block, place.offset)
            return
        for _, value in _entries(block, place.offset):
            yield _handle(value, 0, len(value))[0]


def _delta_index(block: bytes, offset: int) -> Iterator[_Handle]:
    end = _end_of_entries(block, offset)
    position, handle = 0, _Handle(0, 0)
    while position < end:
        shared, position = _varint(block, position, end)
        unshared, position = _varint(block, position, end)
        position += unshared
        if shared == 0:
            handle, position = _handle(block, position, end)
        else:
            zigzag, position = _varint(block, position, end)
            change = zigzag >> 1 if not zigzag & 1 else -(zigzag >> 1) - 1
            handle = _Handle(handle.offset + handle.size + _TRAILER, handle.size + change)
        if handle.size < 0:
            raise FormatError(f"{_WHAT}: a block of {handle.size} bytes", None, offset)
        yield handle


def _end_of_entries(block: bytes, offset: int) -> int:
    count = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * count
    if len(block) < 4 or count >> 31 or end < 0:
        raise FormatError(f"{_WHAT}: a block without restarts, or with a hashed index", None, offset)
    return end


def _handle(data: bytes, position: int, end: int) -> tuple[_Handle, int]:
    offset, position = _varint(data, position, end)
    size, position = _varint(data, position, end)
    return _Handle(offset, size), position


@contextmanager
def _placed(offset: int) -> Iterator[None]:
    """What is wrong inside of a block is said to be at the block's place: within, bytes are counted as they come out
    of the compression."""
    try:
        yield
    except FormatError as error:
        raise error if error.offset is not None else FormatError(error.fact, None, offset) from error


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position < end and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise FormatError(f"{_WHAT}: a number that does not end")


def _xxh3(data: bytes, last: int) -> int:
    """XXH3 leaves the last byte out and mixes it in afterwards (format.cc, ModifyChecksumForLastByte)."""
    return (xxhash.xxh3_64_intdigest(data) ^ last * 0x6B9083D9) & 0xFFFFFFFF


_CHECKSUMS: dict[int, Callable[[bytes, int], int] | None] = {
    0: None,
    1: lambda data, last: masked_crc32c(bytes((last,)), crc32c(data)),
    2: lambda data, last: xxhash.xxh32_intdigest(data + bytes((last,))),
    3: lambda data, last: xxhash.xxh64_intdigest(data + bytes((last,))) & 0xFFFFFFFF,
    4: _xxh3,
}
