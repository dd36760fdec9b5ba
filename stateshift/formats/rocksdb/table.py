"""An SST opened: its footer, properties and index, and the way to its data blocks and entries.

    blocks ... | footer
    footer     checksum type u8 | metaindex HANDLE | index HANDLE | padding | u32LE version |
               magic u64LE
    metaindex  name -> HANDLE: properties, range deletions, filters
    index      one entry per data block: the last key of that, and its place. A partitioned index is
               an index of such blocks

    index block, where the properties say `index.value.is.delta.encoded`
               entry * | restarts u32LE * | count u32LE
      entry    shared varint | unshared varint | rest of the key | place of the block
      place    shared 0: offset varint | size varint; else the zigzag difference of the size: the
               block follows the one before it directly
    else       as a block of entries is, the value a HANDLE

    data block, as `block` draws it
      entry    key | u64LE (sequence << 8 | type), type 1 put, 2 merge, 0 and 7 delete

RocksDB lets a restart begin at each entry of an index, unless a job asks for fewer. Then nothing is
shared, and the restarts say where entries are: many are read at once. Everything else is read one
by one, from where it begins, and so is what is not as it should be: that says what is wrong.
Entries come in the order of their keys, of one key the newest first.

Source: RocksDB, table/format.cc (Footer, format versions 2 to 5), db/dbformat.h,
block_based/partitioned_index_iterator, table_properties.cc; Spark 3.2 to 4.3 and Flink 1.15 to 2.3
write version 5 through RocksDB 6.20 to 9.8 and ForSt. Checksums of all five kinds (none, CRC32C,
XXH32, XXH64, XXH3) are verified, those of filters too. Tables with hashed indexes, dictionaries, or
made outside of RocksDB are refused rather than misread. Spark writes no range deletions: a table
with any is refused by `decode_sst`, since who reads one table by itself would miss what they delete
in others.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.rocksdb.block import (
    CHECKSUMS,
    SHARING_MAX,
    TRAILER,
    WHAT,
    DataBlock,
    File,
    Handle,
    Read,
    block_entries,
    end_of_entries,
    handle_at,
    locate_errors,
    read_block,
    read_stored,
    varint,
)

if TYPE_CHECKING:
    from stateshift.formats.blocks import Ints
    from stateshift.formats.spans import Content

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

# A key that ends a block, and the place of the block.
IndexEntry = tuple[bytes, Handle]

TOGETHER = 4096  # entries that are read at once
TOGETHER_MIN = 64  # numpy is not loaded for fewer
_SIZE_MAX = 0x80  # of a key: its size is one byte
_VARINT_BYTES = 5

PUT, MERGE = 1, 2
DELETES = (0, 7)


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
        table = SstTable(file, index)
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


def _decode_footer(read: Read, size: int) -> tuple[int, Handle, Handle]:
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


class TableEntry(NamedTuple):
    """One write: the newest sequence of a key counts, merges are added to what was before them."""

    key: bytes
    sequence: int
    kind: int
    value: bytes


BEFORE_ALL = TableEntry(b"", 1 << 56, PUT, b"")


def decode_sst(content: bytes) -> Iterator[TableEntry]:
    """Yield the table's entries in their order: keys ascending, of one key the newest first."""
    return in_order(open_content(content).blocks(), BEFORE_ALL)


def in_order(blocks: Iterable[DataBlock], last: TableEntry) -> Iterator[TableEntry]:
    """Yield the entries of blocks, which have to come after the entry `last`."""
    for block in blocks:
        for entry in entries_of(block):
            same_key = entry.key == last.key
            if entry.key < last.key or (same_key and entry.sequence >= last.sequence):
                fact = f"{WHAT} holds entries that are not in their order"
                raise FormatError(fact, None, block.offset)
            last = entry
            yield entry


def open_content(content: bytes) -> SstTable:
    """Open a table that is held whole."""
    return open_alone(lambda offset, count: content[offset : offset + count], len(content))


def open_alone(read: Read, size: int) -> SstTable:
    """Open a table that is read by itself: one with range deletions is refused."""
    table = open_table(read, size)
    if table.deletions:
        fact = f"{WHAT} has a rocksdb.range_del block, which is not read"
        raise FormatError(fact, None, table.index.offset)
    return table


def entries_of(block: DataBlock) -> Iterator[TableEntry]:
    """Yield a block's entries, each key split from its u64LE trailer (sequence << 8 | type)."""
    unpack = _U64.unpack_from
    for key, value in block_entries(*block):
        if len(key) < 8:
            raise FormatError(f"{WHAT} holds a key without a sequence", None, block.offset)
        tail = unpack(key, len(key) - 8)[0]
        kind = tail & 0xFF
        if kind not in (PUT, MERGE, *DELETES):
            raise FormatError(f"{WHAT} holds an entry of type {kind}", None, block.offset)
        yield TableEntry(key[:-8], tail >> 8, kind, value)
