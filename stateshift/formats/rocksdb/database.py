"""A RocksDB of several tables, read as one: the entries of each column family.

    CURRENT -> MANIFEST -> the tables of each column family, by their levels

The newest of the writes to a key counts, by its sequence; merges are joined to what was before them
by a comma, as RocksDB's StringAppendTESTOperator does, with which Flink opens its databases. Range
deletions reach into older tables. Tables of level 0 overlap, those of a deeper level do not: one of
them at a time is open.

Each table is held against the MANIFEST as it is read to its end: size, smallest and largest key,
sequences, and the number of entries that its properties claim.

    OPTIONS  [Version] | [DBOptions] | [CFOptions "NAME"] | [TableOptions/BlockBasedTable "NAME"]
               key=value                                     the lines of a section
               # a comment

In a name, a backslash stands before what would end it. The file has no checksum, and RocksDB opens
a database without it: its names can only be held against those of the MANIFEST.

Source: RocksDB, db/version_set.cc, db/merge_helper.cc, options/options_parser.cc,
utilities/merge_operators/string_append/stringappend2.cc.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby, pairwise, starmap
from operator import attrgetter

from stateshift.errors import FormatError
from stateshift.formats.rocksdb.block import Read
from stateshift.formats.rocksdb.manifest import (
    Family,
    Manifest,
    TableFile,
    decode_current,
    decode_manifest,
)
from stateshift.formats.rocksdb.table import (
    BEFORE_ALL,
    DELETES,
    MERGE,
    RangeDeletion,
    SstTable,
    TableEntry,
    in_order,
    open_table,
)

CURRENT = "CURRENT"
DELIMITER = b","
DIGITS_MAX = 20  # of a number of 64 bits
SMALL_MAX = 256 * 1024 * 1024  # a MANIFEST grows to 1 GiB at most, and to some KiB in truth

_OPTIONS = "an OPTIONS file"
_SECTION = re.compile(r'\[([\w/]+)(?:\s+"((?:\\.|[^"\\])*)")?\]')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class FileOf:
    """A file of a database: how its bytes are read, and how many there have to be."""

    read: Read
    size: int

    def whole(self, name: str) -> bytes:
        if self.size > SMALL_MAX:
            raise FormatError(f"{name} has {self.size} bytes, more than RocksDB writes", None, 0)
        content = self.read(0, self.size)
        if len(content) < self.size:
            fact = f"{name} has {len(content)} bytes instead of {self.size}"
            raise FormatError(fact, None, len(content))
        return content


Files = Mapping[str, FileOf]


@dataclass(frozen=True)
class Database:
    """A database whose MANIFEST was read, and whose tables are there."""

    files: Files
    manifest: Manifest

    @property
    def families(self) -> dict[str, Family]:
        return {family.name: family for family in self.manifest.families.values()}

    def open_tables(self) -> None:
        for fact in self._tables():
            self._opened(fact)

    def check_blocks(self) -> None:
        for fact in self._tables():
            table = self._opened(fact)
            with _named(name_of(fact.number)):
                table.check_blocks()

    def entries(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a column family, in the order of the keys."""
        family = self.families[name]
        tables = {number: self._opened(table) for number, table in family.tables.items()}
        deletions = chain.from_iterable(table.deletions for table in tables.values())
        covering = _Covering(deletions)
        levels: list[Iterator[TableEntry]] = []
        for level in _levels(family.tables.values()):
            opened = [(table, tables[table.number]) for table in level]
            levels.append(chain.from_iterable(starmap(self._checked, opened)))
        order = heapq.merge(*levels, key=lambda entry: (entry.key, -entry.sequence))
        for key, writes in groupby(order, key=attrgetter("key")):
            deleted = covering.newest(key)
            operands: list[bytes] = []
            for entry in writes:
                if entry.sequence < deleted or entry.kind in DELETES:
                    break
                operands.append(entry.value)
                if entry.kind != MERGE:
                    break
            value = DELIMITER.join(reversed(operands)) if operands else None
            if value is not None:
                yield key, value

    def _tables(self) -> Iterator[TableFile]:
        for family in self.manifest.families.values():
            yield from family.tables.values()

    def _opened(self, fact: TableFile) -> SstTable:
        name = name_of(fact.number)
        file = self.files[name]
        if file.size != fact.size:
            raise FormatError(
                f"{name} has {file.size} bytes, its MANIFEST says {fact.size}", None, file.size
            )
        with _named(name):
            return open_table(file.read, file.size)

    def _checked(self, fact: TableFile, table: SstTable) -> Iterator[TableEntry]:
        """Yield the table's entries, and check them against the MANIFEST and its properties."""
        count, last = 0, None
        newest = min(fact.last_sequence, self.manifest.last_sequence)
        smallest = fact.smallest.key
        with _named(name_of(fact.number)):
            for entry in in_order(table.blocks(), BEFORE_ALL):
                is_other = last is None and entry.key != smallest  # a deletion may reach further
                if is_other and (entry.key < smallest or not table.deletions):
                    told = "its first key is not the one that its MANIFEST names"
                    raise FormatError(told, None, 0)
                if not fact.first_sequence <= entry.sequence <= newest:
                    raise FormatError(
                        f"a write has sequence {entry.sequence}, its MANIFEST says "
                        f"{fact.first_sequence} to {newest}",
                        None,
                        0,
                    )
                count, last = count + 1, entry
                yield entry
            if last is None and not table.deletions:
                raise FormatError("it holds no entries, and its MANIFEST names keys", None, 0)
            largest = fact.largest.key
            if last is not None and (
                last.key > largest or (last.key < largest and not table.deletions)
            ):
                raise FormatError("its last key is not the one that its MANIFEST names", None, 0)
            claimed = table.number(b"rocksdb.num.entries")
            with_deletions = count + len(table.deletions)
            if claimed is not None and claimed not in (count, with_deletions):
                raise FormatError(
                    f"it holds {count} entries, its properties say {claimed}", None, 0
                )


def open_database(files: Files) -> Database:
    """Open the database of these files; CURRENT, MANIFEST and tables have to agree."""
    if CURRENT not in files:
        raise FormatError("a RocksDB has no CURRENT file", None, 0)
    name = decode_current(files[CURRENT].whole(CURRENT))
    if name not in files:
        raise FormatError(f"CURRENT names {name}, which is not there", None, 0)
    with _named(name):
        manifest = decode_manifest(files[name].whole(name))
    numbers = {number_of(own) for own in files if own.endswith(".sst")}
    missing, foreign = manifest.numbers - numbers, numbers - manifest.numbers
    if missing:
        raise FormatError(f"{name} names {name_of(min(missing))}, which is not there", None, 0)
    if foreign:
        fact = f"{name} does not name {name_of(min(foreign))}, whose entries would be lost"
        raise FormatError(fact, None, 0)
    database = Database(files, manifest)
    if len(database.families) < len(manifest.families):
        raise FormatError(f"{name} names two column families the same", None, 0)
    for family in manifest.families.values():
        for level in _levels(family.tables.values()):
            for table, following in pairwise(level):
                if table.largest >= following.smallest:
                    raise FormatError(
                        f"{name}: tables {table.number} and {following.number} of level "
                        f"{table.level} overlap",
                        None,
                        0,
                    )
    return database


def name_of(number: int) -> str:
    """Return a table's file name: its number in at least six digits, then `.sst`."""
    return f"{number:06d}.sst"


def number_of(name: str) -> int:
    """Return the number that a table's name says."""
    digits = name.removesuffix(".sst")
    is_number = digits.isdecimal() and digits.isascii()
    if not is_number or len(digits) > DIGITS_MAX:
        raise FormatError(f"{name[:80]!r} is not the name of a table", None, 0)
    return int(digits)


def _levels(tables: Iterable[TableFile]) -> list[list[TableFile]]:
    """Return tables to be read in a row: each of level 0, those of a deeper level together."""
    groups: list[list[TableFile]] = []
    deeper: dict[int, list[TableFile]] = {}
    for table in tables:
        if table.level == 0:
            groups.append([table])
        else:
            deeper.setdefault(table.level, []).append(table)
    for level in sorted(deeper):
        groups.append(sorted(deeper[level], key=attrgetter("smallest")))
    return groups


class _Covering:
    """The newest range deletion over a key; asked for keys in their order."""

    def __init__(self, deletions: Iterable[RangeDeletion]) -> None:
        self._waiting = sorted(deletions, reverse=True)
        self._open: list[tuple[int, bytes]] = []

    def newest(self, key: bytes) -> int:
        while self._waiting and self._waiting[-1].start <= key:
            deletion = self._waiting.pop()
            heapq.heappush(self._open, (-deletion.sequence, deletion.end))
        while self._open and self._open[0][1] <= key:
            heapq.heappop(self._open)
        if not self._open:
            return 0
        return -self._open[0][0]


@dataclass(eq=False)
class _named:
    _name: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FormatError):
            fact = f"{self._name}: {error.fact}"
            raise type(error)(fact, None, error.offset, hint=error.hint) from error


def decode_options(content: bytes) -> tuple[str, ...]:
    """Return the names of the column families in an OPTIONS file."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{_OPTIONS} is not UTF-8", None, error.start) from error
    kinds: list[str] = []
    families: list[str] = []
    position = 0
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith("["):
            section = _SECTION.fullmatch(stripped)
            if section is None:
                raise FormatError(f"{_OPTIONS} has a section without a name", None, position)
            kinds.append(section[1])
            if section[1] == "CFOptions":
                families.append(_ESCAPED.sub(r"\1", section[2] or ""))
        elif stripped and not stripped.startswith("#") and not (kinds and "=" in stripped):
            raise FormatError(f"{_OPTIONS} has a line that sets nothing", None, position)
        position += len(line.encode("utf-8")) + 1
    for kind in ("Version", "DBOptions"):
        if kind not in kinds:
            raise FormatError(f"{_OPTIONS} has no section [{kind}]", None, len(content))
    return tuple(families)
