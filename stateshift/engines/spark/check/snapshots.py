"""Snapshots compared with the changes they stand for: two ways to one version, which must come to
the same. Reads only.

    version s  =  the snapshot s  =  an older snapshot (or nothing), and every change file up to s
    a tally       entries added up, whatever their order: what both ways have to agree on. A file
                  that only writes is held as hashes of its keys and numbers of its entries

A restart takes the snapshot and never looks at what came before it. Both ways are followed up to
the version of the restart, where the one is read anyway. Only where their tallies differ are the
snapshot's entries looked at one by one; an entry that later changes wrote again is not reported,
nor is anything whose older files are gone. One that is damaged spoils earlier batches. Checkpoint
format 2, whose files only a commit's lineage tells apart, is left out, as are changelogs with
column families that no older snapshot names.

The snapshots of a RocksDB store have to be in the order of their versions:

    3.zip   its MANIFEST has seen 12 writes
    4.zip   its MANIFEST has seen 9           the two have changed places

Nothing in a snapshot says which version it is. But RocksDB counts its writes, and each version goes
on where the one before it ended, whichever machine loaded it. Only a new database begins anew: one
of Spark's offline repartitioning (4.2), whose batch has other partitions, or one that stateshift
has written, whose MANIFEST has the first number of all.

Source: RocksDB, VersionSet.LastSequence; Spark, RocksDB.load and RocksDBFileManager.

Spark from 4.2 on skips snapshots that cannot be loaded: an older one is taken, or none, and the
changes since are replayed (AutoSnapshotLoader; SPARK-54121, SPARK-56216), no more of them than
`autoSnapshotRepair.maxChangeFileReplay`. A setting turns it off: the damage stays a refusal. Seen
with Spark 4.3, both providers: it gets around snapshots that were cut, emptied or changed in one
bit, and around tables that are gone or zeros; not around one bit of a table's block, which RocksDB
reads late, nor where the changes of the snapshot's own version are gone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from stateshift.engines.match import Sided, match_sides
from stateshift.engines.spark import chains, layout
from stateshift.engines.spark.entries.fold import NotNamed, fold_shard, writes_in_time
from stateshift.engines.spark.entries.last_writes import repeated_hashes
from stateshift.engines.spill import Dealing, RecordBatch, in_memory
from stateshift.engines.views import HistoryCheck, Tallies
from stateshift.errors import FormatError, MissingFile, TooLarge, UnknownVersion
from stateshift.formats.blocks import Binary, Flags, RowBlock, binary, join_columns
from stateshift.formats.rocksdb.manifest import MANIFEST, decode_manifest
from stateshift.formats.spans import Words, hash64, missing
from stateshift.formats.spark import rocksdb
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.formats.spark.rocksdb import check_zip, decode_zip_version
from stateshift.formats.spark.state_blocks import decode_snapshot_blocks
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, ShardFiles, Survey, sizes_of
from stateshift.world import ReadFrom

ZIP_MAX = 1 << 28
# As many changes as every Spark that repairs replays; 4.2.0 replays more.
REPLAYED_MAX = 50


def check_histories(
    storage: Storage, survey: Survey, image: Image, tallies: Tallies
) -> HistoryCheck:
    """Return a warning for every snapshot that its changes contradict, by the `tallies`, and for a
    damaged file of what came before it.
    """
    snapshots = 0
    read: set[str] = set()
    findings: list[Finding] = []
    for shard, older in histories(storage, survey, image):
        snapshots += 1
        read.update(older, changes_in(shard.files))
        try:
            is_equal = _agree(storage, image, shard, older, tallies.get(chains.place_of(shard)))
        except FormatError as error:
            fact = f"{error}. Batch {image.epoch} needs it no more; an earlier one may"
            findings.append(Finding("warn", fact, path=error.path))
            continue
        if not is_equal:
            findings += _compared(storage, image, shard, older)
    sizes = sizes_of(survey, read)
    return HistoryCheck(snapshots, tuple(findings), len(sizes), sum(sizes))


def histories(
    storage: Storage, survey: Survey, image: Image
) -> Iterator[tuple[ShardFiles, tuple[str, ...]]]:
    """Yield the shards that begin with a snapshot whose history is there, and the files of that."""
    for shard, store, version in first_snapshots(survey, image):
        older = older_files(storage, store, version)
        if older:
            yield shard, older


class FirstSnapshot(NamedTuple):
    """A shard whose files begin with a snapshot, of this version."""

    shard: ShardFiles
    store: chains.StoreFiles
    version: int


def first_snapshots(survey: Survey, image: Image) -> Iterator[FirstSnapshot]:
    """Yield the shards whose files begin with a snapshot, unless only uuids tell them apart."""
    stores = chains.listed_stores(survey, image)
    for shard in image.shards:
        store = stores.get(chains.place_of(shard))
        if store is None or not shard.files or store.uses_uuids:
            continue
        versions = {path: version for (version, _), path in store.snapshots.items()}
        version = versions.get(shard.files[0])
        if version is not None:
            yield FirstSnapshot(shard, store, version)


def changes_in(files: Iterable[str]) -> tuple[str, ...]:
    """Return the files of changes, without snapshots and their tables."""
    return tuple(path for path in files if path.endswith((".delta", ".changelog")))


def older_files(storage: Storage, store: chains.StoreFiles, version: int) -> tuple[str, ...]:
    """Return the files of the version without its snapshot; none where one is missing."""
    store.snapshots.pop((version, ""), None)
    first_change = min((number for number, _ in store.changes), default=2)
    if not store.snapshots and first_change > 1:
        return ()
    try:
        older = chains.chain(store, version, lambda path: ssts_of(storage, path), lambda path: ())
    except (FormatError, MissingFile):
        return ()
    return () if older.missing else older.files


def _agree(
    storage: Storage,
    image: Image,
    shard: ShardFiles,
    older: tuple[str, ...],
    expected: tuple[int, int] | None,
) -> bool:
    """Whether older files and changes come to what a restart reads, or cannot be followed."""
    if expected is None:
        return False
    without_snapshot = replace(shard, files=older + changes_in(shard.files))
    try:
        tally = tally_of(storage.chunks, without_snapshot, image.settings)
    except (MissingFile, NotNamed, TooLarge, UnknownVersion):
        return True
    return (tally.records, tally.total) == expected


def _compared(
    storage: Storage, image: Image, shard: ShardFiles, older: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield a warning where entries of the snapshot differ from those of the older files."""
    changes = changes_in(shard.files)
    snapshot = tuple(path for path in shard.files if path not in changes)
    blocks = itertools.chain(
        _blocks(storage, image, 0, replace(shard, files=older)),
        _blocks(storage, image, 1, replace(shard, files=snapshot)),
    )
    try:
        differing = sum(match.differing for match in match_sides(blocks))
    except (FormatError, MissingFile):
        return
    if differing:
        yield Finding(
            "warn",
            f"{snapshot[0]} is not what the changes before it come to: {differing} entries "
            "differ, and a restart takes those of the snapshot",
            hint=f"the other state is that of the files up to {older[-1]}",
            path=snapshot[0],
        )


def _blocks(storage: Storage, image: Image, side: int, shard: ShardFiles) -> Iterator[Sided]:
    """Yield the entries of one side, with their store's name before their keys."""
    for store, block in fold_shard(storage.chunks, shard, image.settings):
        yield Sided(side, RowBlock(join_columns(store.encode() + b"\0", block.keys), block.values))


def ssts_of(storage: Storage, path: str) -> tuple[str, ...]:
    """Return the paths of the tables that a zip names."""
    folder = path.rpartition("/")[0]
    decoded = rocksdb.decode_zip(storage.read(path, ZIP_MAX))
    return tuple(f"{folder}/SSTs/{table.stored}" for table in decoded.tables)


_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)

_WRITE_BYTES: Final = 17
BYTES_MAX: Final = 2_000_000 * _WRITE_BYTES  # held in memory

_SCHEMA: Final = pa.schema([("key", pa.uint64()), ("number", pa.uint64()), ("put", pa.bool_())])


@dataclass(slots=True)
class Tally:
    """A count of entries, and a sum of numbers modulo 2^64 that no order changes."""

    records: int = 0
    total: int = 0

    def add(self, store: str, block: RowBlock) -> None:
        self.count(_numbers(store, hash64(block.keys), block.values))

    def count(self, numbers: Words) -> None:
        self.records += len(numbers)
        self.total = (self.total + int(numbers.sum(dtype=np.uint64))) % (1 << 64)


def tally_of(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str], bytes_max: int = BYTES_MAX
) -> Tally:
    """Return the tally of the entries that a shard's files come to."""
    tally = Tally()
    blocks = writes_in_time(read, shard, settings)
    if blocks is not None:
        writes = (_HashedWrites.of(shard.store, block) for block in blocks)
        dealing = Dealing(_SCHEMA, lambda each: each.keys, _HashedWrites.batch, _HashedWrites.read)
        for held in in_memory(writes, dealing, bytes_max):
            if held:
                _count_held(tally, held)
        return tally
    for store, block in fold_shard(read, shard, settings):
        tally.add(store, block)
    return tally


@dataclass(frozen=True, slots=True, eq=False)
class _HashedWrites:
    """A number for each key, and one for each entry; no `put` is a delete."""

    keys: Words
    numbers: Words
    puts: Flags

    @classmethod
    def of(cls, store: str, block: RowBlock) -> _HashedWrites:
        keys = hash64(block.keys)
        return cls(keys, _numbers(store, keys, block.values), ~missing(block.values))

    @classmethod
    def read(cls, batch: RecordBatch) -> Iterator[_HashedWrites]:
        keys, numbers, puts = batch.columns
        yield cls(keys.to_numpy(), numbers.to_numpy(), puts.to_numpy(zero_copy_only=False))

    def batch(self) -> RecordBatch:
        columns = [pa.array(self.keys), pa.array(self.numbers), pa.array(self.puts)]
        return pa.record_batch(columns, schema=_SCHEMA)

    @property
    def size(self) -> int:
        return len(self.keys) * _WRITE_BYTES


def _numbers(store: str, keys: Words, values: Binary) -> Words:
    """Return a number for each entry of a store, by the hash of its key."""
    name = hash64(binary([store.encode()]))[0]
    mixed = (keys + name) * _FIRST ^ hash64(values)
    mixed = (mixed ^ mixed >> np.uint64(32)) * _SECOND
    return mixed ^ mixed >> np.uint64(29)


def _count_held(tally: Tally, held: list[_HashedWrites]) -> None:
    keys = np.concatenate([write.keys for write in held])
    counted = np.concatenate([write.puts for write in held])
    again = repeated_hashes(keys)
    if again is not None:
        order = np.argsort(keys[again], kind="stable")
        ordered = keys[again][order]
        is_last = np.append(ordered[1:] != ordered[:-1], True)
        counted[again[order[~is_last]]] = False
    numbers = np.concatenate([write.numbers for write in held])
    tally.count(numbers[counted])


NEIGHBOURS_MAX = 3  # on either side of the snapshot that a restart reads
LOG_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One snapshot, and how many writes its database has seen."""

    path: str
    version: int
    writes: int


def order_findings(storage: Storage, survey: Survey, image: Image) -> Iterator[Finding]:
    """Yield a refusal for each snapshot of a restart that belongs before or after another one."""
    stores = chains.listed_stores(survey, image)
    for shard in image.shards:
        store = stores.get(chains.place_of(shard))
        if store is None or not shard.files or not shard.files[0].endswith(".zip"):
            continue
        neighbours = _neighbours(store, shard.files[0])
        read = _snapshot(storage, *neighbours.pop(0))
        for path, version in neighbours:
            other = _snapshot(storage, path, version)
            if read and other and _is_exchanged(storage, image, read, other):
                yield Finding(
                    "refuse",
                    f"{read.path} is not of version {read.version}: its RocksDB has seen "
                    f"{read.writes} writes, and that of {other.path} {other.writes}: the two have "
                    "changed places, or are of different runs",
                    path=read.path,
                )
                break


def _neighbours(store: chains.StoreFiles, path: str) -> list[tuple[str, int]]:
    """Return this snapshot first, then those of versions close to its own."""
    versions = {own: version for (version, _), own in store.snapshots.items()}
    version = versions[path]
    before = sorted((number, own) for own, number in versions.items() if number < version)
    behind = sorted((number, own) for own, number in versions.items() if number > version)
    close = [*before[-NEIGHBOURS_MAX:], *behind[:NEIGHBOURS_MAX]]
    return [(path, version), *((own, number) for number, own in close)]


def _snapshot(storage: Storage, path: str, version: int) -> _Snapshot | None:
    """Return the snapshot in a MANIFEST; None where it names none, or is one of ours."""
    try:
        decoded = decode_zip_version(storage.read(path, ZIP_MAX))
        if decoded.manifest is None or decoded.manifest_name == MANIFEST:
            return None
        return _Snapshot(path, version, decode_manifest(decoded.manifest).last_sequence)
    except (FormatError, MissingFile):
        return None  # where a restart needs it, that is said elsewhere


def _is_exchanged(storage: Storage, image: Image, read: _Snapshot, other: _Snapshot) -> bool:
    """Whether the older of two versions has seen more writes, though one database wrote both."""
    older, newer = sorted((read, other), key=lambda snapshot: snapshot.version)
    if older.writes <= newer.writes:
        return False
    partitions = [_partitions(storage, image, each.version - 1) for each in (older, newer)]
    return None not in partitions and partitions[0] == partitions[1]


def _partitions(storage: Storage, image: Image, batch: int) -> int | None:
    path = layout.under(image.path, layout.offset_path(batch))
    try:
        return chains.partitions_of(decode_offsets(storage.read(path, LOG_MAX)).conf)
    except (FormatError, MissingFile):
        return None


def repairs(
    storage: Storage, survey: Survey, image: Image, damaged: Collection[str]
) -> Iterator[Finding]:
    """Yield a note for each damaged snapshot that Spark 4.2 and later do without."""
    if not damaged:
        return
    for first in first_snapshots(survey, image):
        path = first.shard.files[0]
        folder = path.rpartition("/")[0]
        is_suspect = any(other.startswith(f"{folder}/") for other in damaged)
        if is_suspect and _cannot_load(storage, first) and _replays(storage, image, first):
            yield Finding(
                "note",
                f"{path}: Spark 4.2 and later can repair this by themselves, from the "
                "snapshot and changes before it (auto snapshot repair); older versions cannot",
                path=path,
            )


def _cannot_load(storage: Storage, first: FirstSnapshot) -> bool:
    """Whether Spark fails to load the snapshot, or lacks tables that it names."""
    path = first.shard.files[0]
    try:
        if not path.endswith(".zip"):
            for _ in decode_snapshot_blocks(storage.chunks(path)):
                pass
            return False
        check_zip(storage.read(path, ZIP_MAX))
        return not set(ssts_of(storage, path)) <= set(first.store.ssts.values())
    except (FormatError, MissingFile):
        return True


def _replays(storage: Storage, image: Image, first: FirstSnapshot) -> bool:
    """Whether an older snapshot, or none at all, and the changes since are there and decode."""
    shard, store, version = first
    changes = changes_in(shard.files)
    while True:
        older = older_files(storage, store, version)
        replayed = older + changes
        if older and len(changes_in(replayed)) <= REPLAYED_MAX:
            with contextlib.suppress(FormatError, MissingFile):
                for _ in fold_shard(storage.chunks, replace(shard, files=replayed), image.settings):
                    pass
                return True
        older_snapshots = [number for number, _ in store.snapshots if number < version]
        if not older_snapshots:
            return False
        del store.snapshots[max(older_snapshots), ""]
