"""An SST opened: its footer, properties and index, and the way to its data blocks.

    blocks ... | footer
    footer     checksum type u8 | metaindex HANDLE | index HANDLE | padding | u32LE version |
               magic u64LE
    metaindex  name -> HANDLE: properties, range deletions, filters
    index      one entry per data block (`table_index`), in a form of its own where the properties
               say `index.value.is.delta.encoded`. A partitioned index is an index of such blocks

Source: RocksDB, table/format.cc (Footer, format versions 2 to 5),
block_based/partitioned_index_iterator, table_properties.cc; Spark 3.2 to 4.3 and Flink 1.15 to 2.3
write version 5 through RocksDB 6.20 to 9.8 and ForSt. Checksums of all five kinds (none, CRC32C,
XXH32, XXH64, XXH3) are verified, those of filters too. Tables with hashed indexes, dictionaries, or
made outside of RocksDB are refused rather than misread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.rocksdb.block import (
    CHECKSUMS,
    TRAILER,
    WHAT,
    DataBlock,
    File,
    Handle,
    Read,
    block_entries,
    handle_at,
    locate_errors,
    read_block,
    read_stored,
    varint,
)
from stateshift.formats.rocksdb.table_index import IndexEntry, entries_of_index

MAGIC = 0x88E241B785F4CFF7
FOOTER = 53
RANGE_DELETION = 15
NEWER = 6  # RocksDB 8.6 and later, where the job asks for it
BINARY, PARTITIONED = 0, 2

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_PROPERTIES, _DELETIONS = b"rocksdb.properties", b"rocksdb.range_del"
_DICTIONARY = b"rocksdb.compression_dict"
_NONE: Mapping[bytes, bytes] = MappingProxyType({})


class NotRead(UnknownVersion):
    """The table is of a kind that RocksDB writes and that is not read here: it may be whole."""


class RangeDeletion(NamedTuple):
    """Writes older than `sequence` to keys from `start` up to, without, `end` are deleted."""

    start: bytes
    end: bytes
    sequence: int


EndedBlock = tuple[bytes, DataBlock]


class KeyRange(NamedTuple):
    """Keys after one, up to another and with this one; None is no bound."""

    after: bytes | None = None
    upto: bytes | None = None


ALL_KEYS = KeyRange()


@dataclass(frozen=True)
class SstTable:
    """An SST whose footer, metaindex and properties were read and checked."""

    file: File
    index: Handle
    delta: bool = False
    partitioned: bool = False
    properties: Mapping[bytes, bytes] = field(default_factory=lambda: _NONE)
    deletions: tuple[RangeDeletion, ...] = ()

    def blocks(self, keys: KeyRange = ALL_KEYS) -> Iterator[DataBlock]:
        """Yield the blocks that may hold some `keys`, in the order of those, each checked."""
        for _, block in self.blocks_by_end(keys):
            yield block

    def blocks_by_end(self, keys: KeyRange) -> Iterator[EndedBlock]:
        """Yield the same blocks, each with the key at which the index has it end."""
        offset = 0
        for end, handle in self._entries_of_index(keys):
            offset = _end_behind(offset, handle)
            yield end, DataBlock(read_block(self.file, handle), handle.offset)

    def check_blocks(self) -> None:
        """Check the blocks of entries against their checksums, as they are stored."""
        handles = (handle for _, handle in self._entries_of_index(ALL_KEYS))
        for handle in _behind_each_other(handles):
            read_stored(self.file, handle)

    def ends(self) -> Iterator[IndexEntry]:
        """Yield a key before the next block's keys, and the place, of each block of entries."""
        return self._entries_of_index(ALL_KEYS)

    def number(self, name: bytes) -> int | None:
        """Return a property that is a varint."""
        value = self.properties.get(name)
        if not value:
            return None
        number, _ = varint(value, 0, len(value))
        return number

    def _entries_of_index(self, keys: KeyRange) -> Iterator[IndexEntry]:
        top = self._within(self.index, keys, b"")
        if not self.partitioned:
            yield from top
            return
        # Read before the first data block: the partitions lie behind all of those.
        ends, partitions = [], []
        for end, partition in top:
            ends.append(end)
            partitions.append(partition)
        last = b""
        for top_end, partition in zip(ends, _behind_each_other(partitions), strict=True):
            for end, handle in self._within(partition, keys, last):
                if end > top_end:
                    raise _out_of_order(partition)
                yield end, handle
            last = top_end

    def _within(self, place: Handle, keys: KeyRange, last: bytes) -> Iterator[IndexEntry]:
        """Yield an index block's entries for some keys. All are after the `last` one before it."""
        trailer = 0 if self.number(b"rocksdb.index.key.is.user.key") else 8
        after, upto = keys
        for key, handle in entries_of_index(read_block(self.file, place), place, self.delta):
            end = key[: len(key) - trailer]
            if end < last:
                raise _out_of_order(place)
            last = end
            if after is not None and end <= after:
                continue
            yield end, handle
            if upto is not None and end > upto:
                return


def _out_of_order(index: Handle) -> FormatError:
    return FormatError(f"{WHAT} has an index that is not in the order of keys", None, index.offset)


def _behind_each_other(handles: Iterable[Handle]) -> Iterator[Handle]:
    """Yield handles, each of which has to begin behind the one before it."""
    end = 0
    for handle in handles:
        end = _end_behind(end, handle)
        yield handle


def _end_behind(end: int, handle: Handle) -> int:
    """Return a block's end. It begins after this one: an index may not name it twice."""
    if handle.offset < end:
        fact = f"{WHAT} has blocks that overlap, or are not in their order"
        raise FormatError(fact, None, handle.offset)
    return handle.offset + handle.size + TRAILER


def open_table(read: Read, size: int) -> SstTable:
    """Open the table of `size` bytes that `read` gives."""
    check, metaindex, index = _decode_footer(read, size)
    file = File(read, size, check)
    with locate_errors(metaindex.offset):
        return _with_metadata(SstTable(file, index), metaindex)


def _decode_footer(read: Read, size: int) -> tuple[int, Handle, Handle]:
    footer = _read_footer(read, size)
    start = size - FOOTER
    if footer[0] not in CHECKSUMS:
        raise FormatError(f"{WHAT} has the unknown checksum type {footer[0]}", None, start)
    with locate_errors(start):
        metaindex, position = handle_at(footer, 1, FOOTER - 12)
        index, position = handle_at(footer, position, FOOTER - 12)
    if any(footer[position : FOOTER - 12]):  # Footer::EncodeTo fills it with zeros
        fact = f"{WHAT} has non-zero bytes in the padding of its footer"
        raise FormatError(fact, None, start + position)
    return footer[0], metaindex, index


def _read_footer(read: Read, size: int) -> bytes:
    """Read the footer, of a version that is known."""
    if size < FOOTER:
        raise FormatError(f"{WHAT} ends early: it is shorter than its footer", None, size)
    start = size - FOOTER
    footer = read(start, FOOTER)
    if len(footer) < FOOTER:
        raise FormatError(f"{WHAT} ends early: {size} bytes expected", None, start + len(footer))
    (magic,) = _U64.unpack_from(footer, FOOTER - 8)
    (version,) = _U32.unpack_from(footer, FOOTER - 12)
    if magic != MAGIC:
        raise FormatError(f"{WHAT} does not end with its magic: cut off, or no SST", None, size)
    place = size - 12
    if version == NEWER:
        raise NotRead(f"{WHAT} of format version {version}, which is not read", None, place)
    if not 2 <= version <= 5:
        raise UnknownVersion(f"{WHAT} of format version {version}; known are 2 to 5", None, place)
    return footer


def _with_metadata(table: SstTable, metaindex: Handle) -> SstTable:
    """Return the table with what its metaindex names; what we could misread is refused."""
    places: dict[bytes, Handle] = {}
    for name, value in block_entries(read_block(table.file, metaindex), metaindex.offset):
        if value:
            place, _ = handle_at(value, 0, len(value))
            if place.size or name == _PROPERTIES:
                places[name] = place
            else:
                places.pop(name, None)
    if _DICTIONARY in places:
        fact = f"{WHAT} has a rocksdb.compression_dict block, which is not read"
        raise NotRead(fact, None, metaindex.offset)
    properties = places.pop(_PROPERTIES, None)
    if properties is not None:
        table = _with_properties(table, properties)
    deletions = places.pop(_DELETIONS, None)
    if deletions is not None:
        table = replace(table, deletions=_range_deletions(table.file, deletions))
    # All other blocks are checked: we have no use for filters, but RocksDB believes them.
    for name, place in places.items():
        partitions: Iterable[Handle] = (place,)
        if name.startswith(b"partitionedfilter."):
            entries = entries_of_index(read_block(table.file, place), place, table.delta)
            partitions = _behind_each_other(handle for _, handle in entries)
        for partition in partitions:
            read_stored(table.file, partition)
    return table


def _with_properties(table: SstTable, place: Handle) -> SstTable:
    properties = dict(block_entries(read_block(table.file, place), place.offset))
    kind = int.from_bytes(
        properties.get(b"rocksdb.block.based.table.index.type", bytes(4)), "little"
    )
    if kind not in (BINARY, PARTITIONED):
        raise NotRead(f"{WHAT} has an index of an unknown kind", None, place.offset)
    if b"rocksdb.external_sst_file.version" in properties:
        raise NotRead(f"{WHAT} was made outside RocksDB and ingested", None, place.offset)
    table = replace(table, properties=properties, partitioned=kind == PARTITIONED)
    delta = table.number(b"rocksdb.index.value.is.delta.encoded")
    return replace(table, delta=bool(delta))


def _range_deletions(file: File, place: Handle) -> tuple[RangeDeletion, ...]:
    deletions = []
    for key, end in block_entries(read_block(file, place), place.offset):
        if len(key) < 8:
            raise FormatError(f"{WHAT} holds a key without a sequence", None, place.offset)
        (tail,) = _U64.unpack_from(key, len(key) - 8)
        if tail & 0xFF != RANGE_DELETION:
            raise FormatError(f"{WHAT} holds an entry of type {tail & 0xFF}", None, place.offset)
        deletions.append(RangeDeletion(key[:-8], end, tail >> 8))
    return tuple(deletions)
