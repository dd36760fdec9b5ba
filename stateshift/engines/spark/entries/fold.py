"""A shard's files folded into its entries: what the state is, with files forgotten.

    HDFS-backed  [N.snapshot] N.delta ...                key and value are UnsafeRows
    RocksDB      [N.zip SSTs/x.sst ...] N.changelog ...  key and value as RocksDB holds them, but
                                                         for the column
                                                         family's two bytes, which become part of
                                                         the store's name

    folded(read, shard, settings) -> (store, Block) ...     puts only, every live key exactly once

Column families have their ids per partition, so two images of one state differ in them; their names
do not. An entry's store is "<store>" without column families and "<store>/<family>" with them.
RocksDB's encoding byte (0x00 before every row) stays where it is: it stands inside of composite
keys and lists too, where only the key's encoder could find it, so images of different providers are
not equal byte for byte. Neither are lists merged with different delimiters (`,` up to 4.1, none
since). Row checksums (4.3) are checked and taken off: they cover the column family's id.

Files come through `read`. A shard need not fit into memory (see `last_writes`), one of its tables
does: RocksDB's are seldom larger than 64 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries import row_checksums
from stateshift.engines.spark.entries.last_writes import Writes, settled
from stateshift.engines.spark.layout import newest_files
from stateshift.engines.spill import BYTES_MAX
from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.formats.blocks import Binary, Block, Ints, cut
from stateshift.formats.rocksdb.sst_blocks import decode_sst_blocks
from stateshift.formats.spans import Spans, missing, spans, words
from stateshift.formats.spark.offset_conf import ROW_CHECKSUM, delimiter
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, decode_zip
from stateshift.formats.spark.state_blocks import (
    decode_changelog_blocks,
    decode_delta_blocks,
    decode_snapshot_blocks,
)
from stateshift.survey import ShardFiles
from stateshift.world import Read

# Called with (store, keys): what the files of a shard delete.
Deleted = Callable[[str, Binary], None]

# Later than any sequence number of RocksDB's, which have 56 bits.
_AFTER_TABLES = 1 << 60


def folded(
    read: Read,
    shard: ShardFiles,
    settings: Mapping[str, str],
    bytes_max: int = BYTES_MAX,
    deleted: Deleted | None = None,
) -> Iterator[tuple[str, Block]]:
    """Yield the entries of one shard, with their stores; the same files give the same blocks. More
    than `bytes_max` of what was written is not held in memory. `deleted` is called with the keys
    that the files delete, which no entry shows.
    """
    kinds = {path.rpartition(".")[2] for path in shard.files}
    if kinds <= {"snapshot", "delta"}:
        for block in settled(_rows(read, shard, settings, deleted), b"", bytes_max):
            yield shard.store, block
    elif kinds <= {"zip", "sst", "changelog"}:
        yield from _RocksDB(read, shard, settings, deleted).folded(bytes_max)
    else:
        raise FormatError("these files are not of one state store provider", shard.files[0])


def _rows(
    read: Read, shard: ShardFiles, settings: Mapping[str, str], deleted: Deleted | None
) -> Iterator[Writes]:
    """Yield what an HDFS-backed shard's files write."""
    checked = settings.get(ROW_CHECKSUM) == "true"
    count = 0
    for path in newest_files(shard.files, ".snapshot"):
        try:
            for block in _bare_rows(read, path, checked):
                if deleted is not None and block.values.null_count:
                    deleted(shard.store, block.keys.filter(block.values.is_null()))
                yield Writes(block, _times(count, block))
                count += len(block)
        except FormatError as error:
            raise error.at(path) from error


def _bare_rows(read: Read, path: str, checked: bool) -> Iterator[Block]:
    """Yield a file's records, rows without checksums and of whole words."""
    is_snapshot = path.endswith(".snapshot")
    decode = decode_snapshot_blocks if is_snapshot else decode_delta_blocks
    for block in decode(read(path)):
        yield _whole(row_checksums.off_rows(block) if checked else block)


def _times(start: int, block: Block) -> Ints:
    return np.arange(start, start + len(block), dtype=np.uint64)


def _whole(block: Block) -> Block:
    """Cut rows to whole words: before 2.3, Spark wrote four bytes too many."""
    rows = spans(block.values)
    more = rows.sizes % 8
    if not more.any():
        return block
    values = cut(rows.content, rows.starts, rows.ends - more, missing(block.values))
    return Block(block.keys, values, block.merges)


class _RocksDB:
    """A RocksDB shard being folded. What its zip says is known once everything was read."""

    def __init__(
        self, read: Read, shard: ShardFiles, settings: Mapping[str, str], deleted: Deleted | None
    ) -> None:
        self._read, self._shard, self._deleted = read, shard, deleted
        self._checked = settings.get(ROW_CHECKSUM) == "true"
        self._between = delimiter(settings)
        self._snapshot, self._typed = RocksDBSnapshot((), 0), False
        self._next_time = _AFTER_TABLES

    def folded(self, bytes_max: int) -> Iterator[tuple[str, Block]]:
        for block in settled(self._writes(), self._between, bytes_max):
            bare = row_checksums.off_values(block, self._between) if self._checked else block
            yield from self._named(bare)

    def _writes(self) -> Iterator[Writes]:
        for path in newest_files(self._shard.files, ".zip"):
            try:
                for writes in self._writes_of(path):
                    self._report_deleted(writes.block)
                    yield writes
            except FormatError as error:
                raise error.at(path) from error
        if self._typed and not self._snapshot.families:
            fact = "a changelog has column families, and no snapshot before it names them"
            raise FormatError(fact, self._shard.files[0])

    def _writes_of(self, path: str) -> Iterator[Writes]:
        """Yield what a zip's tables hold, or a changelog."""
        if path.endswith(".zip"):
            self._snapshot = decode_zip(bounds.gathered(self._read(path), "a zip"))
            yield from self._tables()
        if path.endswith(".changelog"):
            for block in self._changes(path):
                yield Writes(block, _times(self._next_time, block))
                self._next_time += len(block)

    def _tables(self) -> Iterator[Writes]:
        """Yield what a version's tables hold, one after the other."""
        tables = [path for path in self._shard.files if path.endswith(".sst")]
        paths = {path.rpartition("/")[2]: path for path in tables}
        for table in self._snapshot.tables:
            path = paths.get(table.stored)
            if path is None:
                fact = f"the version needs the table {table.stored}, which is not among its files"
                raise FormatError(fact)
            try:
                for block, sequences in decode_sst_blocks(self._table(path, table.size)):
                    yield Writes(block, sequences)
            except FormatError as error:
                raise error.at(path) from error

    def _table(self, path: str, size: int) -> bytes:
        bounds.require_whole(size, "an SST")
        content = bounds.gathered(self._read(path), "an SST")
        if len(content) != size:
            fact = f"an SST of {size} bytes is {len(content)} long"
            raise FormatError(fact, path, len(content))
        return content

    def _changes(self, path: str) -> Iterable[Block]:
        header, blocks = decode_changelog_blocks(self._read(path))
        self._typed = self._typed or header.column_families
        return map(row_checksums.off_deletes, blocks) if self._checked else blocks

    def _report_deleted(self, block: Block) -> None:
        if self._deleted is not None and block.values.null_count:
            for store, named in self._named(self._deletes(block)):
                self._deleted(store, named.keys)

    def _deletes(self, block: Block) -> Block:
        """Return the records that delete keys of column families which are there: tables also hold
        those of column families that were removed since.
        """
        keys = block.keys.filter(block.values.is_null())
        known = list(self._snapshot.families.values())
        if known:
            keys = keys.filter(pa.array(np.isin(_families(spans(keys)), known)))
        return Block(keys, pa.nulls(len(keys), block.values.type))

    def _named(self, block: Block) -> Iterator[tuple[str, Block]]:
        """Yield the entries of each column family by its name, its id taken off their keys."""
        store = self._shard.store
        names = {number: f"{store}/{name}" for name, number in self._snapshot.families.items()}
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
        for number in np.unique(ids).tolist():
            places = np.flatnonzero(ids == number)
            bare = cut(keys.content, keys.starts[places] + 2, keys.ends[places])
            yield names[number], Block(bare, block.values.take(pa.array(places)))


def _families(keys: Spans) -> Ints:
    """Return the numbers of the keys' column families; -1 for a key that is too short to have
    one.
    """
    ids = (words(keys.content, keys.starts) & np.uint64(0xFFFF)).astype(np.int64)
    return np.where(keys.sizes < 2, -1, ids)
