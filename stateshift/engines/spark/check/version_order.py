"""Whether the snapshots of a RocksDB store are in the order of their versions. Reads only.

    3.zip   its MANIFEST has seen 12 writes
    4.zip   its MANIFEST has seen 9           the two have changed places

Nothing in a snapshot says which version it is. But RocksDB counts its writes, and each version goes
on where the one before it ended, whichever machine loaded it. Only a new database begins anew: one
of Spark's offline repartitioning (4.2), whose batch has other partitions, or one that stateshift
has written, whose MANIFEST has the first number of all.

Source: RocksDB, VersionSet.LastSequence; Spark, RocksDB.load and RocksDBFileManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import StoreFiles, partitions_of
from stateshift.engines.spark.check.snapshots import ZIP_MAX, place_of, stores_of
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.rocksdb.manifest import MANIFEST, decode_manifest
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.formats.spark.rocksdb import decode_zip_version
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, Survey

NEIGHBOURS_MAX = 3  # on either side of the snapshot that a restart reads
LOG_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One snapshot, and how many writes its database has seen."""

    path: str
    version: int
    writes: int


def findings(storage: Storage, survey: Survey, image: Image) -> Iterator[Finding]:
    """Yield a refusal for each snapshot of a restart that belongs before or after another one."""
    stores = stores_of(survey, image)
    for shard in image.shards:
        store = stores.get(place_of(shard))
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


def _neighbours(store: StoreFiles, path: str) -> list[tuple[str, int]]:
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
    """Return the number of partitions that a batch had; None where no log tells."""
    path = layout.under(image.path, layout.offset_path(batch))
    try:
        return partitions_of(decode_offsets(storage.read(path, LOG_MAX)).conf)
    except (FormatError, MissingFile):
        return None
