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
from stateshift.engines.spark.entries.settings import ROW_CHECKSUM, delimiter
from stateshift.engines.spill import BYTES_MAX
from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.formats.blocks import Binary, Block, Ints, cut
from stateshift.formats.rocksdb.sst_blocks import decode_sst_blocks
from stateshift.formats.spans import Spans, missing, spans, words
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, decode_zip
from stateshift.formats.spark.state_blocks import (
    decode_changelog_blocks,
    decode_delta_blocks,
    decode_snapshot_blocks,
)
from stateshift.survey import ShardFiles
from stateshift.world import Read

# (store, keys): what the files of a shard delete.
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
    """The entries of one shard, with their stores; the same files give the same blocks. More than
    `bytes_max` of what was written is not held in memory. `deleted` is called with the keys that
    the files delete, of which no entry tells.
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
    """What an HDFS-backed shard's files write."""
    checked = settings.get(ROW_CHECKSUM) == "true"
    snapshots = [at for at, path in enumerate(shard.files) if path.endswith(".snapshot")]
    count = 0
    for path in shard.files[snapshots[-1] if snapshots else 0 :]:
        try:
            blocks = (
                decode_snapshot_blocks if path.endswith(".snapshot") else decode_delta_blocks
            )(read(path))
            for block in blocks:
                bare = _whole(row_checksums.off_rows(block) if checked else block)
                if deleted is not None and bare.values.null_count:
                    deleted(shard.store, bare.keys.filter(bare.values.is_null()))
                yield Writes(bare, _times(count, bare))
                count += len(bare)
        except FormatError as error:
            raise error.at(path) from error


def _times(start: int, block: Block) -> Ints:
    return np.arange(start, start + len(block), dtype=np.uint64)


def _whole(block: Block) -> Block:
    """Rows are whole words: before 2.3, Spark wrote four bytes too many."""
    found = spans(block.values)
    more = found.sizes % 8
    if not more.any():
        return block
    return Block(
        block.keys,
        cut(found.content, found.starts, found.ends - more, missing(block.values)),
        block.merges,
    )


class _RocksDB:
    """A RocksDB shard being folded. What its zip says is known once everything was read."""

    def __init__(
        self, read: Read, shard: ShardFiles, settings: Mapping[str, str], deleted: Deleted | None
    ) -> None:
        self._read, self._shard, self._deleted = read, shard, deleted
        self._checked, self._between = settings.get(ROW_CHECKSUM) == "true", delimiter(settings)
        self._snapshot, self._typed = RocksDBSnapshot((), 0), False

    def folded(self, bytes_max: int) -> Iterator[tuple[str, Block]]:
        for block in settled(self._writes(), self._between, bytes_max):
            bare = row_checksums.off_values(block, self._between) if self._checked else block
            yield from self._named(bare)

    def _writes(self) -> Iterator[Writes]:
        tables = {
            path.rpartition("/")[2]: path for path in self._shard.files if path.endswith(".sst")
        }
        zips = [at for at, path in enumerate(self._shard.files) if path.endswith(".zip")]
        count = _AFTER_TABLES
        for path in self._shard.files[zips[-1] if zips else 0 :]:
            try:
                if path.endswith(".zip"):
                    self._snapshot = decode_zip(bounds.gathered(self._read(path), "a zip"))
                    for writes in self._tables(tables):
                        self._tell_deleted(writes.block)
                        yield writes
                elif path.endswith(".changelog"):
                    for block in self._changes(path):
                        self._tell_deleted(block)
                        yield Writes(block, _times(count, block))
                        count += len(block)
            except FormatError as error:
                raise error.at(path) from error
        if self._typed and not self._snapshot.families:
            raise FormatError(
                "a changelog has column families, and no snapshot before it names them",
                self._shard.files[0],
            )

    def _tables(self, tables: Mapping[str, str]) -> Iterator[Writes]:
        """What a version's tables hold, one after the other."""
        for table in self._snapshot.tables:
            path = tables.get(table.stored)
            if path is None:
                raise FormatError(
                    f"the version needs the table {table.stored}, which is not among its files"
                )
            bounds.require_whole(table.size, "an SST")
            content = bounds.gathered(self._read(path), "an SST")
            if len(content) != table.size:
                raise FormatError(
                    f"an SST of {table.size} bytes is {len(content)} long", path, len(content)
                )
            try:
                for block, sequences in decode_sst_blocks(content):
                    yield Writes(block, sequences)
            except FormatError as error:
                raise error.at(path) from error

    def _changes(self, path: str) -> Iterable[Block]:
        header, blocks = decode_changelog_blocks(self._read(path))
        self._typed = self._typed or header.column_families
        return map(row_checksums.off_deletes, blocks) if self._checked else blocks

    def _tell_deleted(self, block: Block) -> None:
        if self._deleted is None or not block.values.null_count:
            return
        gone = block.values.is_null()
        keys = block.keys.filter(gone)
        if (
            self._snapshot.families
        ):  # tables also hold deletes of column families that were removed since
            known = list(self._snapshot.families.values())
            keys = keys.filter(pa.array(np.isin(_families(spans(keys)), known)))
        nothing = pa.nulls(len(keys), block.values.type)
        for store, named in self._named(Block(keys, nothing)):
            self._deleted(store, named.keys)

    def _named(self, block: Block) -> Iterator[tuple[str, Block]]:
        """Column families by name, and their ids taken off."""
        names = {
            number: f"{self._shard.store}/{name}"
            for name, number in self._snapshot.families.items()
        }
        if not names:
            yield self._shard.store, block
            return
        found = spans(block.keys)
        ids = _families(found)
        nameless = np.flatnonzero(~np.isin(ids, list(names)))
        if len(nameless):
            first = block.keys[int(nameless[0])].as_py()[:2]
            raise FormatError(
                f"a key of the column family {first.hex()}, which has no name", self._shard.files[0]
            )
        for number in np.unique(ids).tolist():
            places = np.flatnonzero(ids == number)
            keys = cut(found.content, found.starts[places] + 2, found.ends[places])
            yield names[number], Block(keys, block.values.take(pa.array(places)))


def _families(keys: Spans) -> Ints:
    """The numbers of the keys' column families; -1 for a key that is too short to have one."""
    ids = (words(keys.content, keys.starts) & np.uint64(0xFFFF)).astype(np.int64)
    return np.where(keys.sizes < 2, -1, ids)
