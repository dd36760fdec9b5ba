"""RocksDB's MANIFEST: which tables make up a database, as a log of edits. One edit is written, that
names them all, or one more behind those that are there; any number is read.

    edit    FIELD*                numbers are varints, SIZED is a varint size and so many bytes
    FIELD   1 SIZED comparator | 2 log number | 9 previous log | 10 oldest log | 3 next file | 4
            last sequence | 200 column family | 201 SIZED its name: it is created | 202 it is
            dropped | 203 largest family | 5 level, SIZED key | 6 level, number: a table is gone |
            TABLE | 300 edits that follow in the same group | 8193 and above: SIZED, ignored by who
            does not know it
    TABLE   7, 100, 102 or 103 | level | number | [102: path] | size | SIZED smallest | SIZED
            largest
            | [not 7] smallest sequence | largest sequence | [103: OPTION* 1]
    OPTION  number | SIZED. From 64 to 127 it must be known by who reads it

Keys have their sequence and type behind them. Edits are the records of a log, cut where a block of
32768 bytes ends:

    log  (crc32c u32LE, masked | size u16LE | type u8 | content)*      types: 1 whole, 2 first, 3
                                                                      middle, 4 last

Less than a header's bytes at the end of a block are zeros. The checksum covers type and content.
RocksDB itself takes a log whose last record is cut as one without it: a MANIFEST then lacks the
newest tables without a word. Here it is refused.

Source: RocksDB, db/log_format.h, db/log_reader.cc, db/version_edit.h and .cc (EncodeTo,
DecodeFrom); NewFile4 without optional fields is what 6.20 to 9.8 read. CURRENT names the MANIFEST.
Column families of RocksDB's own Spark does not use: its are parts of the keys. Flink has one for
each state. Blob files are refused: neither engine writes them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.crc32c import masked_crc32c
from stateshift.formats.rocksdb.block import encode_varint as varint
from stateshift.formats.rocksdb.block import varint as read_varint

MANIFEST, CURRENT = "MANIFEST-000001", b"MANIFEST-000001\n"
FIRST_TABLE = 2  # of a database that we make: the number before it is its MANIFEST's
BOTTOM = 6  # of RocksDB's seven levels the last, whose tables are never compacted for their size
DEFAULT_FAMILY = "default"

_COMPARATOR = b"leveldb.BytewiseComparator"
DELETE, PUT = 0, 1
_LAST_SEQUENCE = 1
_WHAT = "a MANIFEST"
_CURRENT = re.compile(rb"MANIFEST-[0-9]+\n")
SEQUENCE_MAX = (1 << 56) - 1
_IGNORED_FROM = 1 << 13
_MUST_KNOW = 1 << 6
_END_OF_OPTIONS, _PATH = 1, 65

BLOCK, HEADER = 32_768, 7  # of the log
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_HEADER = struct.Struct("<IHB")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts of a table that a MANIFEST, and Spark's metadata, need to name it. `first` and
    `last` follow its smallest and its largest key: sequence << 8 | type.
    """

    size: int
    records: int
    smallest: bytes
    largest: bytes
    first: int = PUT
    last: int = PUT


class KeyPlace(NamedTuple):
    """The place of a write in the order of all: by its key, and of one key the newest first."""

    key: bytes
    age: int


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table by its MANIFEST. Neighbours in a level may share one key."""

    number: int
    level: int
    size: int
    smallest: KeyPlace
    largest: KeyPlace
    first_sequence: int
    last_sequence: int


@dataclass
class Family:
    """A column family and its tables by their numbers."""

    name: str
    tables: dict[int, TableFile] = field(default_factory=dict)


@dataclass
class Manifest:
    """The result of all edits. `families` are by id; `next_file` is the first free number."""

    families: dict[int, Family] = field(default_factory=lambda: {0: Family(DEFAULT_FAMILY)})
    last_sequence: int = 0
    next_file: int = 0

    @property
    def numbers(self) -> set[int]:
        numbers: set[int] = set()
        for family in self.families.values():
            numbers.update(family.tables)
        return numbers


def decode_current(content: bytes) -> str:
    """Return the name of the MANIFEST that CURRENT holds."""
    if not _CURRENT.fullmatch(content):
        raise FormatError("CURRENT does not name a MANIFEST", None, 0)
    return content.removesuffix(b"\n").decode("ascii")


def decode_manifest(content: bytes) -> Manifest:
    """Return the database that the edits of a MANIFEST lead to."""
    manifest = Manifest()
    group = 0
    for offset, record in decode_log(content, _WHAT):
        try:
            left = _Edit(record, manifest).apply()
        except FormatError as error:
            raise FormatError(error.fact, None, offset) from error
        continues = left == group - 1
        if group and not continues:
            raise FormatError(f"{_WHAT}: a group of edits is incomplete", None, offset)
        group = left
    if group:
        fact = f"{_WHAT} is truncated: {group} edits of its last group are not there"
        raise FormatError(fact, None, len(content))
    return manifest


def sorted_runs(tables: Iterable[TableFile]) -> list[list[TableFile]]:
    """Return the tables as few runs: tables of a run are in order and do not overlap."""
    runs: list[list[TableFile]] = []
    ends: list[tuple[KeyPlace, int]] = []  # where each run ends, the first to end on top
    for table in sorted(tables, key=attrgetter("smallest")):
        number = len(runs)
        if ends and ends[0][0] < table.smallest:
            _, number = heappop(ends)
        else:
            runs.append([])
        runs[number].append(table)
        heappush(ends, (table.largest, number))
    return runs


@dataclass(eq=False)
class _Edit:
    """One record, applied to what those before it came to."""

    _data: bytes
    _manifest: Manifest
    _at: int = field(default=0, init=False)

    def apply(self) -> int:
        """Apply the edit; return how many edits follow in the same group."""
        left = family = 0
        name: bytes | None = None
        dropped = False
        gone: list[tuple[int, int]] = []
        added: list[TableFile] = []
        while self._at < len(self._data):
            tag = self._number()
            match tag:
                case 1:
                    order = self._sized()
                    if order != _COMPARATOR:
                        shown = order[:80].decode("utf-8", "replace")
                        fact = f"{_WHAT}: keys are in the order of {shown!r}, which is not known"
                        raise FormatError(fact)
                case 2 | 9 | 10 | 203:
                    self._number()
                case 3:
                    self._manifest.next_file = self._number()
                case 4:
                    self._manifest.last_sequence = self._number()
                case 5:
                    self._number()
                    self._sized()
                case 6:
                    gone.append((self._number(), self._number()))
                case 7 | 100 | 102 | 103:
                    added.append(self._table(tag))
                case 200:
                    family = self._number()
                case 201:
                    name = self._sized()
                case 202:
                    dropped = True
                case 300:
                    left = self._number()
                case _ if tag >= _IGNORED_FROM:
                    self._sized()
                case _:
                    raise FormatError(f"{_WHAT}: an edit has the unknown field {tag}")
        if name is not None:
            if family in self._manifest.families:
                raise FormatError(f"{_WHAT}: column family {family} is created twice")
            try:
                self._manifest.families[family] = Family(name.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise FormatError(f"{_WHAT}: a column family's name is not UTF-8") from error
        self._change(family, gone, added)
        if dropped:
            del self._manifest.families[family]
        return left

    def _change(self, family: int, gone: list[tuple[int, int]], added: list[TableFile]) -> None:
        if family not in self._manifest.families:
            raise FormatError(f"{_WHAT}: an edit of column family {family}, which is not there")
        tables = self._manifest.families[family].tables
        for level, number in gone:
            removed = tables.pop(number, None)
            if removed is None or removed.level != level:
                fact = f"{_WHAT}: table {number} is removed from level {level}, where it is not"
                raise FormatError(fact)
        for table in added:
            if table.number in tables:
                raise FormatError(f"{_WHAT}: table {table.number} is added twice")
            tables[table.number] = table

    def _table(self, tag: int) -> TableFile:
        level, number = self._number(), self._number()
        if tag == 102:
            self._number()
        size = self._number()
        smallest, largest = self._key(), self._key()
        first, last = 0, SEQUENCE_MAX
        if tag != 7:
            first, last = self._number(), self._number()
        if tag == 103:
            while (option := self._number()) != _END_OF_OPTIONS:
                self._sized()
                if option & _MUST_KNOW and option != _PATH:
                    raise FormatError(f"{_WHAT}: a table has the unknown field {option}")
        return TableFile(number, level, size, smallest, largest, first, last)

    def _key(self) -> KeyPlace:
        key = self._sized()
        if len(key) < 8:
            raise FormatError(f"{_WHAT} holds a key without a sequence")
        return KeyPlace(key[:-8], -(int.from_bytes(key[-8:], "little") >> 8))

    def _number(self) -> int:
        try:
            value, self._at = read_varint(self._data, self._at, len(self._data))
        except FormatError as error:
            raise FormatError(f"{_WHAT} is truncated: unterminated varint") from error
        return value

    def _sized(self) -> bytes:
        size = self._number()
        end = self._at + size
        if end > len(self._data):
            raise FormatError(f"{_WHAT}: a field of {size} bytes is larger than its edit")
        content = self._data[self._at : end]
        self._at = end
        return content


def encode_manifest(tables: Mapping[int, TableFacts]) -> bytes:
    """Return the MANIFEST of tables by their numbers. Their keys ascend over all."""
    next_file = max(tables, default=FIRST_TABLE) + 1
    edit = [
        b"\x01" + _sized(_COMPARATOR),
        b"\x02\x00",
        b"\x09\x00",
        b"\x03" + varint(next_file),
        b"\x04" + varint(_LAST_SEQUENCE),
    ]
    edit += [_table(BOTTOM, number, table) for number, table in sorted(tables.items())]
    return b"".join(encode_log(b"".join(edit)))


def with_table(manifest: bytes, number: int, table: TableFacts) -> bytes:
    """Return a MANIFEST with one more table on level 0, of a new sequence and number."""
    edit = (
        b"\x03" + varint(number + 1),
        b"\x04" + varint(table.first >> 8),
        _table(0, number, table),
    )
    return manifest + b"".join(encode_log(b"".join(edit), len(manifest)))


def _table(level: int, number: int, table: TableFacts) -> bytes:
    numbers = varint(level) + varint(number) + varint(table.size)
    keys = b""
    for key, tail in ((table.smallest, table.first), (table.largest, table.last)):
        keys += _sized(key + tail.to_bytes(8, "little"))
    sequence = varint(table.first >> 8)
    return b"\x67" + numbers + keys + sequence + sequence + b"\x01"


def _sized(content: bytes) -> bytes:
    return varint(len(content)) + content


def decode_log(content: bytes, what: str) -> Iterator[tuple[int, bytes]]:
    """Yield each record, with the offset at which it begins."""
    pieces: list[bytes] | None = None  # of the record that has begun
    start = 0
    for offset, kind, piece in _fragments(content, what):
        if kind in (WHOLE, FIRST):
            if pieces is not None:
                raise FormatError(f"{what}: a record begins inside of another", None, offset)
            pieces, start = [], offset
        if pieces is None:
            raise FormatError(f"{what}: a record has no beginning", None, offset)
        pieces.append(piece)
        if kind in (WHOLE, LAST):
            yield start, b"".join(pieces)
            pieces = None
    if pieces is not None:
        raise FormatError(f"{what} is truncated: its last record has no end", None, len(content))


def encode_log(record: bytes, position: int = 0) -> Iterator[bytes]:
    """Yield a record from a position on; a block's last header may have a piece of no bytes."""
    start, is_first = 0, True
    while start < len(record):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            yield bytes(left)
            position += left
            continue
        end = min(start + left - HEADER, len(record))
        piece = record[start:end]
        kinds = (WHOLE, FIRST) if is_first else (LAST, MIDDLE)
        kind = kinds[end < len(record)].to_bytes(1, "little")
        checksum = masked_crc32c(kind + piece)
        yield checksum.to_bytes(4, "little") + len(piece).to_bytes(2, "little") + kind + piece
        start, position, is_first = end, position + HEADER + len(piece), False


def _fragments(content: bytes, what: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, type and content of each piece of a record."""
    position = 0
    while position < len(content):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            if content[position : position + left].strip(b"\0"):
                fact = f"{what}: bytes behind the last record of a block"
                raise FormatError(fact, None, position)
            position += left
            continue
        if position + HEADER > len(content):
            raise FormatError(f"{what} is truncated within a record's header", None, len(content))
        checksum, size, kind = _HEADER.unpack_from(content, position)
        end = position + HEADER + size
        if kind not in (WHOLE, FIRST, MIDDLE, LAST):
            raise FormatError(f"{what}: a record of the unknown type {kind}", None, position)
        if HEADER + size > left:
            raise FormatError(f"{what}: a record crosses the end of its block", None, position)
        if end > len(content):
            fact = f"{what} is truncated within a record of {size} bytes"
            raise FormatError(fact, None, len(content))
        if checksum != masked_crc32c(content[position + 6 : end]):
            fact = f"{what}: a record's checksum does not fit its content"
            raise FormatError(fact, None, position)
        yield position, kind, content[position + HEADER : end]
        position = end
