"""A shard's files folded into its entries: the state, with files forgotten.

    HDFS-backed  [N.snapshot] N.delta ...                key and value are UnsafeRows
    RocksDB      [N.zip SSTs/x.sst ...] N.changelog ...  as RocksDB holds them, without the column
                                                         family's two bytes
    "stateshift.changes-alone": "true"                   a setting: the changelogs' entries alone

Column families have their ids per partition, so two images of one state differ in them; their names
do not. An entry's store is "<store>" without column families and "<store>/<family>" with them.
RocksDB's encoding byte (0x00 before every row) stays where it is: it stands inside of composite
keys and lists too, where only the key's encoder could find it, so images of different providers are
not equal byte for byte. Neither are lists merged with different delimiters (`,` up to 4.1, none
since). Row checksums (4.3) are checked and taken off: they cover the column family's id.

Files come through `read`; neither a shard nor one of its tables need fit into memory. A part needs
those blocks of a table that may hold its keys, and the table's end. Tables, and what changelogs
wrote since, are merged as sorted runs, where the MANIFEST says which tables
do not overlap; all else is settled by hash (see `last_writes`).

A HDFS-backed shard of little files is folded record by record: what Arrow takes for each file, and
for each block, is more than what a few records take in Python. The entries are the same, which is
tested on every golden checkpoint.

    begun = Begun(read, BYTES)       a file that was begun to see how much there is, is continued
    few_rows(begun, shard, settings) -> {key: value}; None for `fold_shard(begun, …)`

Sorted runs are merged without a hash and without piles. A run is writes whose keys ascend, writes
of one key behind each other: the content of a table, or of a level of tables. One block of every
run is held, and the one behind it: the smallest last key among blocks that others follow is a bound
below which nothing more can come, so everything up to it is taken from each run at once, and put in
order. That is nearly free, since the keys of a range begin alike: the eight bytes behind what they
share are a number, and sorting numbers that already ascend in a few runs takes one step for each of
them. If two numbers are the same the keys are looked at.

Writes of one key never lie on both sides of a bound: a block that ends with the key that the next
one begins with is read together with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spark.entries import rocksdb_version, row_checksums
from stateshift.engines.spark.entries.last_writes import (
    Several,
    Writes,
    batch_of,
    settle_writes,
    together,
    writes_of,
)
from stateshift.engines.spark.layout import newest_files
from stateshift.engines.spill import BYTES_MAX, put_aside
from stateshift.engines.window import FrontToBack
from stateshift.errors import FormatError, Incompatible, errors_at
from stateshift.formats.blocks import (
    Binary,
    Flags,
    Ints,
    RowBlock,
    count_upto,
    cut,
    in_order,
    whole,
)
from stateshift.formats.rocksdb.manifest import TableFile
from stateshift.formats.rocksdb.sst_blocks import decode_table
from stateshift.formats.rocksdb.table import ALL_KEYS, KeyRange, open_alone
from stateshift.formats.spans import Spans, Words, missing, numbers_at, spans, words
from stateshift.formats.spark.offset_conf import delimiter, has_row_checksums
from stateshift.formats.spark.rocksdb import ListedTable
from stateshift.formats.spark.state_blocks import (
    decode_changelog_blocks,
    decode_delta_blocks,
    decode_snapshot_blocks,
)
from stateshift.formats.spark.state_files import (
    StateRecord,
    decode_delta,
    decode_snapshot,
    without_row_checksum,
)
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom

# Called with (store, keys): what the files of a shard delete.
Deleted = Callable[[str, Binary], None]

CHANGES_ALONE = "stateshift.changes-alone"

# Later than any sequence number of RocksDB's, which have 56 bits.
_AFTER_TABLES = 1 << 60
PLAINLY = "take this run back (`stateshift rollback WORKDIR`), then compact without keeping tables"


class NotNamed(FormatError):
    """Changes name column families by numbers that nothing before them explains. No damage."""


def fold_shard(
    read: ReadFrom,
    shard: ShardFiles,
    settings: Mapping[str, str],
    bytes_max: int = BYTES_MAX,
    deleted: Deleted | None = None,
) -> Iterator[tuple[str, RowBlock]]:
    """Yield the entries of one shard, with their stores; the same files give the same blocks. More
    than `bytes_max` of what was written is not held in memory. `deleted` is called with the keys
    that the files delete, which no entry shows. The settings may ask for a part of it.
    """
    kinds = {path.rpartition(".")[2] for path in shard.files}
    if kinds <= {"snapshot", "delta"}:
        for block in settle_writes(_rows(read, shard, settings, deleted), b"", bytes_max):
            yield shard.store, block
    elif kinds <= {"zip", "sst", "changelog"}:
        yield from _RocksDB(read, shard, settings, deleted).fold_shard(bytes_max)
    else:
        raise FormatError("these files are not of one state store provider", shard.files[0])


def changes_since(
    shard: ShardFiles, settings: Mapping[str, str], read_before: set[str]
) -> tuple[ShardFiles, Mapping[str, str]]:
    """Return the part of a shard that was not read before, and the settings to fold it with:
    changelogs of a RocksDB shard, or all of it, since a new snapshot is read with its tables.
    """
    base = [path for path in shard.files if path.endswith((".zip", ".sst"))]
    if not read_before.issuperset(base):
        return shard, settings
    zips = newest_files(base, ".zip")[:1]
    new = [path for path in shard.files if path not in read_before]
    if zips:
        settings = {**settings, CHANGES_ALONE: "true"}
    return replace(shard, files=(*zips, *new)), settings


def writes_in_time(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]
) -> Iterator[RowBlock] | None:
    """Return the writes of a shard's files in the order of time, deletes among them; None where
    these do not tell the result: they hold tables, or rows with checksums. No merges are among it:
    changelogs with merges are refused at their end where no zip names column families.
    """
    kinds = {path.rpartition(".")[2] for path in shard.files}
    if kinds <= {"snapshot", "delta"}:
        return (writes.block for writes in _rows(read, shard, settings, None))
    if kinds <= {"changelog"} and not has_row_checksums(settings):
        changes = _RocksDB(read, shard, settings, None).changes(shard.files)
        return (writes.block for writes in changes)
    return None


def last_changes(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str], bytes_max: int = BYTES_MAX
) -> Iterator[RowBlock]:
    """Yield a RocksDB shard's last writes in changelogs, ascending; merges are refused."""

    def without_merges(writes: Writes) -> Writes:
        if writes.block.merges is not None and writes.block.merges.any():
            fact = "changelogs merge values into tables, which are kept"
            raise Incompatible(fact, hint=PLAINLY)
        return writes

    changes = map(without_merges, _RocksDB(read, shard, settings, None).changes(shard.files))
    return merge_runs(in_runs(changes, bytes_max), delimiter(settings), deletes=True)


def _rows(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str], deleted: Deleted | None
) -> Iterator[Writes]:
    checked = has_row_checksums(settings)
    part = rocksdb_version.part_in(settings)
    count = 0
    for path in newest_files(shard.files, ".snapshot"):
        with errors_at(path):
            is_snapshot = path.endswith(".snapshot")
            decode = decode_snapshot_blocks if is_snapshot else decode_delta_blocks
            for block in decode(read(path)):
                bare = _whole(row_checksums.off_rows(block) if checked else block)
                writes = rocksdb_version.within(Writes(bare, _times(count, bare)), part)
                own = writes.block
                if deleted is not None and own.values.null_count:
                    deleted(shard.store, own.keys.filter(own.values.is_null()))
                yield writes
                count += len(block)


def _times(start: int, block: RowBlock) -> Ints:
    return np.arange(start, start + len(block), dtype=np.uint64)


def _whole(block: RowBlock) -> RowBlock:
    """Cut rows to whole words: before 2.3, Spark wrote four bytes too many."""
    rows = spans(block.values)
    more = rows.sizes % 8
    if not more.any():
        return block
    values = cut(rows.content, rows.starts, rows.ends - more, missing(block.values))
    return RowBlock(block.keys, values, block.merges)


class _RocksDB:
    """A RocksDB shard being folded."""

    def __init__(
        self,
        read: ReadFrom,
        shard: ShardFiles,
        settings: Mapping[str, str],
        deleted: Deleted | None,
    ) -> None:
        self._read, self._shard, self._deleted = read, shard, deleted
        self._checked = has_row_checksums(settings)
        self._between = delimiter(settings)
        self._part = rocksdb_version.part_in(settings)
        self._version = rocksdb_version.Version(shard.files)
        self._changes_alone = CHANGES_ALONE in settings

    def fold_shard(self, bytes_max: int) -> Iterator[tuple[str, RowBlock]]:
        """Yield the entries: see `fold_shard`."""
        self._version = rocksdb_version.version_of(self._read, self._shard)
        for block in self._settled(bytes_max):
            bare = row_checksums.off_values(block, self._between) if self._checked else block
            yield from self._named(bare)

    def _settled(self, bytes_max: int) -> Iterator[RowBlock]:
        """Yield the result of tables and changelogs: by key, where tables are sorted runs."""
        changes = self.changes(newest_files(self._shard.files, ".zip"))
        if self._changes_alone:
            return settle_writes(changes, self._between, bytes_max)
        if self._version.runs:
            runs = map(self._ascending, self._version.runs)
            return merge_runs([*runs, *in_runs(changes, bytes_max)], self._between)
        tables = (self._written(table, self._part) for table in self._version.snapshot.tables)
        return settle_writes(chain(chain.from_iterable(tables), changes), self._between, bytes_max)

    def _ascending(self, run: Iterable[TableFile]) -> Iterator[Writes]:
        """Yield the part's content of the tables of a run. One with keys that are not the
        MANIFEST's is refused: older writes would win, or a key would be in two parts, or in none.
        """
        after, upto = self._part
        for fact in run:
            first, last = fact.smallest.key, fact.largest.key
            is_before = after is not None and last <= after
            if is_before or (upto is not None and upto < first):
                continue
            begins = after if after is not None and first <= after else None
            ends = upto if upto is not None and upto < last else None
            table = self._version.tables[fact.number]
            for writes in self._written(table, KeyRange(begins, ends)):
                keys = writes.block.keys
                if len(keys) and (keys[0].as_py() < first or last < keys[-1].as_py()):
                    raise FormatError(
                        f"the table {table.stored} holds other keys than the version's MANIFEST "
                        "says: RocksDB would not find them",
                        self._version.zip,
                    )
                yield writes

    def _written(self, table: ListedTable, keys: KeyRange) -> Iterator[Writes]:
        path = self._version.table_paths.get(table.stored)
        if path is None:
            fact = f"the version needs the table {table.stored}, which is not among its files"
            raise FormatError(fact, self._version.zip)
        with errors_at(path):
            file = FrontToBack(partial(self._read, path), table.size)
            if not file.ends_there():
                length = sum(map(len, self._read(path)))
                raise FormatError(f"an SST of {table.size} bytes is {length} long", path, length)
            opened = open_alone(file.read, table.size)
            decoded = decode_table(opened, keys)
            told = self._version.facts.get(rocksdb_version.number_of(table))
            if told is not None and keys == ALL_KEYS:
                decoded = rocksdb_version.check_table(told, opened, decoded)
            for block, sequences in decoded:
                self._report_deleted(block)
                yield Writes(block, sequences)

    def changes(self, paths: Iterable[str]) -> Iterator[Writes]:
        """Yield the writes of the changelogs among files, later than all tables."""
        time, typed = _AFTER_TABLES, False
        for path in paths:
            if not path.endswith(".changelog"):
                continue
            with errors_at(path):
                header, blocks = decode_changelog_blocks(self._read(path))
                typed = typed or header.column_families
                for block in map(row_checksums.off_deletes, blocks) if self._checked else blocks:
                    writes = rocksdb_version.within(Writes(block, _times(time, block)), self._part)
                    self._report_deleted(writes.block)
                    time += len(block)
                    if len(writes.block):
                        yield writes
        if typed and not self._version.snapshot.families:
            fact = "a changelog has column families, and no snapshot before it names them"
            raise NotNamed(fact, self._shard.files[0])

    def _report_deleted(self, block: RowBlock) -> None:
        if self._deleted is None or not block.values.null_count:
            return
        keys = block.keys.filter(block.values.is_null())
        known = list(self._version.snapshot.families.values())
        if known:  # tables also hold deletes of column families that were removed since
            keys = keys.filter(pa.array(np.isin(_families(spans(keys)), known)))
        for store, named in self._named(RowBlock(keys, pa.nulls(len(keys), block.values.type))):
            self._deleted(store, named.keys)

    def _named(self, block: RowBlock) -> Iterator[tuple[str, RowBlock]]:
        """Yield the entries of each column family by its name, its id taken off their keys."""
        store = self._shard.store
        names = {
            number: f"{store}/{name}" for name, number in self._version.snapshot.families.items()
        }
        if not names:
            yield store, block
            return
        keys = spans(block.keys)
        ids = _families(keys)
        nameless = np.flatnonzero(~np.isin(ids, list(names)))
        if len(nameless):
            family = block.keys[int(nameless[0])].as_py()[:2].hex()
            fact = f"a key of the column family {family}, which has no name"
            raise FormatError(fact, self._shard.files[0])
        # Keys begin with the number, and are in the order of it.
        for number in sorted(np.unique(ids).tolist(), key=lambda own: own.to_bytes(2, "little")):
            places = np.flatnonzero(ids == number)
            bare = cut(keys.content, keys.starts[places] + 2, keys.ends[places])
            yield names[number], RowBlock(bare, block.values.take(pa.array(places)))


def _families(keys: Spans) -> Ints:
    """Return the numbers of the keys' column families; -1 for a key that is too short."""
    ids = (words(keys.content, keys.starts) & np.uint64(0xFFFF)).astype(np.int64)
    return np.where(keys.sizes < 2, -1, ids)


# Bytes of files, compressed: so many records that columns are made as soon as they are read one by
# one.
BYTES = 16 * 1024

# A shard that decompresses to more than this is no little one either.
DECODED_BYTES = 64 * BYTES

WORD = 8  # bytes; rows are whole words, but before 2.3 Spark wrote four bytes too many


@dataclass
class Begun:
    """Reads files. One that was begun is continued once, then read again from its beginning."""

    open: ReadFrom
    bytes_max: int = BYTES
    _begun: dict[str, Iterator[bytes]] = field(default_factory=dict)

    def __call__(self, path: str, offset: int = 0) -> Iterator[bytes]:
        if offset:
            return self.open(path, offset)
        begun = self._begun.pop(path, None)
        return self.open(path) if begun is None else begun

    def are_few(self, paths: tuple[str, ...]) -> bool:
        """Whether all of them together are so little; then they have been read."""
        left = self.bytes_max
        for path in paths:
            chunks, held = self.open(path), list[bytes]()
            self._begun[path] = chain(held, chunks)  # for whoever reads it
            for chunk in chunks:
                held.append(chunk)
                left -= len(chunk)
                if left < 0:
                    return False
        return True


def few_rows(
    begun: Begun, shard: ShardFiles, settings: Mapping[str, str]
) -> dict[bytes, bytes] | None:
    """Return every live key with its value, always in one order; None where there is more."""
    files = tuple(newest_files(shard.files, ".snapshot"))
    are_hdfs_backed = all(path.endswith((".snapshot", ".delta")) for path in shard.files)
    if not are_hdfs_backed or not begun.are_few(files):
        return None
    checked = has_row_checksums(settings)
    rows: dict[bytes, bytes] = {}
    bytes_left = DECODED_BYTES
    for path in files:
        with errors_at(path):
            records, bytes_left = _records(begun, path, bytes_left)
            if bytes_left < 0:
                return None
            for key, value, _ in map(without_row_checksum, records) if checked else records:
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value[: len(value) // WORD * WORD]
    return rows


def _records(begun: Begun, path: str, bytes_left: int) -> tuple[list[StateRecord], int]:
    """Return a file's records, and the bytes that may still be decoded; below 0 there is more."""
    decode = decode_snapshot if path.endswith(".snapshot") else decode_delta
    records = []
    for record in decode(begun(path)):
        records.append(record)
        bytes_left -= len(record.key) + len(record.value or b"")
        if bytes_left < 0:
            break
    return records, bytes_left


# The number of writes of a run on disk that are read at once.
CHUNK_RECORDS = 1 << 15

Run = Iterable[Writes]


def merge_runs(runs: Sequence[Run], between: bytes, deletes: bool = False) -> Iterator[RowBlock]:
    """Yield each key's last value, keys ascending, in puts; also deletes if asked for."""
    cursors = [_Cursor(iter(run)) for run in runs]
    while cursors := [cursor for cursor in cursors if cursor.fill()]:
        lasts = [cursor.last() for cursor in cursors if cursor.goes_on]
        bound = min(lasts, default=None)
        taken = [cursor.taken(bound) for cursor in cursors]
        parts = [writes for writes in taken if len(writes.block)]
        block = _settled(parts, between, deletes)
        if len(block):
            yield block


def in_runs(writes: Iterable[Writes], bytes_max: int = BYTES_MAX) -> list[Run]:
    """Return writes that come in time's order as runs, beyond `bytes_max` in temporary files."""
    runs: list[Run] = []
    held: list[Writes] = []
    size = 0
    for write in writes:
        held.append(write)
        size += write.size
        if size > bytes_max:
            batch = batch_of(_sorted(held))
            starts = range(0, batch.num_rows, CHUNK_RECORDS)
            pieces = map(partial(batch.slice, length=CHUNK_RECORDS), starts)
            runs.append(map(writes_of, put_aside(pieces)))
            held, size = [], 0
    if held:
        runs.append([_sorted(held)])
    return runs


def _sorted(writes: list[Writes]) -> Writes:
    """Return the writes by key and time; without merges, only the last write of a key."""
    (all_writes,) = together(writes)
    order = pc.sort_indices(all_writes.block.keys).to_numpy()  # which keeps the order of equal keys
    if all_writes.block.merges is None:
        keys = all_writes.block.keys.take(pa.array(order))
        order = order[np.append(~_equal_to_next(keys), True)]
    return Writes(all_writes.block.take(order), all_writes.when[order])


@dataclass(slots=True)
class _Cursor:
    """How far a run has been merged: the block that is held, and the one behind it."""

    coming: Iterator[Writes]
    held: Writes | None = None
    following: Writes | None = field(init=False)

    def __post_init__(self) -> None:
        self.following = self._next()

    def fill(self) -> bool:
        """Hold writes, if any are left, and return whether they are."""
        if self.held is not None and len(self.held.block):
            return True
        if self.following is None:
            return False
        self.held, self.following = self.following, self._next()
        while self.following is not None:
            first = self.following.block.keys[0].as_py()
            if self.last() != first:  # else the block ends with the key that the next begins with
                break
            (self.held,) = together([self.held, self.following])
            self.following = self._next()
        return True

    @property
    def goes_on(self) -> bool:
        return self.following is not None

    def last(self) -> bytes:
        assert self.held is not None, "filled before"
        return bytes(self.held.block.keys[-1].as_py())

    def taken(self, bound: bytes | None) -> Writes:
        """Take the writes up to a key, this one included."""
        assert self.held is not None, "filled before"
        held, count = self.held, len(self.held.block)
        if bound is not None:
            count = count_upto(held.block.keys, bound)
        self.held = _part(held, count, len(held.block))
        return _part(held, 0, count)

    def _next(self) -> Writes | None:
        for writes in self.coming:
            if len(writes.block):
                return writes
        return None


def _settled(parts: list[Writes], between: bytes, deletes: bool) -> RowBlock:
    """Return the last values of the keys of some parts, each in order."""
    (writes,) = together(parts)
    ordered = _by_key(parts, writes) if len(parts) > 1 else _by_time(writes)
    if ordered is None:
        return _kept(writes.block, None, deletes)
    order, first = ordered
    if writes.block.merges is None:
        return _kept(writes.block, order[np.append(first[1:], True)], deletes)
    last, joined = Several(writes.block.take(order), first, order).lasts(between)
    kept = _kept(writes.block, last, deletes)
    return kept if joined is None else in_order(whole([kept, joined]))


def _kept(block: RowBlock, places: Ints | None, deletes: bool) -> RowBlock:
    """Return the puts, and deletes if asked for, at these places; of all without places."""
    if block.values.null_count and not deletes:
        live = ~missing(block.values)
        places = np.flatnonzero(live) if places is None else places[live[places]]
    puts = RowBlock(block.keys, block.values)
    return puts if places is None else puts.take(places)


def _by_time(writes: Writes) -> tuple[Ints, Flags] | None:
    """Return the order by time of sorted writes, and where keys begin; None without repeats."""
    same = _equal_to_next(writes.block.keys)
    if not same.any():
        return None
    first = np.append([True], ~same)
    return np.lexsort((writes.when, np.cumsum(first))), first


def _by_key(parts: list[Writes], writes: Writes) -> tuple[Ints, Flags]:
    """Return the order by key and time of several parts, and where in it each key begins."""
    keys = writes.block.keys
    least = min(part.block.keys[0].as_py() for part in parts)
    most = max(part.block.keys[-1].as_py() for part in parts)
    pairs = zip(least, most, strict=False)
    numbers = numbers_at(keys, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
    order = np.argsort(numbers, kind="stable")  # which finds what is in order already
    numbers = numbers[order]
    first = np.ones(len(order), bool)
    again = np.append([False], numbers[1:] == numbers[:-1])
    if not again.any():
        return order, first
    places = np.flatnonzero(again | np.append(again[1:], False))
    own, same = _looked_at(keys, writes.when, order[places], numbers[places])
    order[places] = own
    first[places[1:][same]] = False
    return order, first


def _looked_at(keys: Binary, when: Words, own: Ints, numbers: Words) -> tuple[Ints, Flags]:
    """Return the order of writes with shared numbers, and which have the key of the next."""
    own = own[np.lexsort((when[own], numbers))]
    same = _equal_to_next(keys.take(pa.array(own)))
    if (same == (numbers[1:] == numbers[:-1])).all():
        return own, same
    own = own[np.argsort(when[own], kind="stable")]
    own = own[pc.sort_indices(keys.take(pa.array(own))).to_numpy()]
    return own, _equal_to_next(keys.take(pa.array(own)))


def _equal_to_next(keys: Binary) -> Flags:
    same = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    return same.to_numpy(zero_copy_only=False)


def _part(writes: Writes, start: int, end: int) -> Writes:
    """Return some of the writes that follow each other, without copying them."""
    block, count = writes.block, end - start
    merges = None if block.merges is None else block.merges[start:end]
    part = RowBlock(block.keys.slice(start, count), block.values.slice(start, count), merges)
    return Writes(part, writes.when[start:end])
