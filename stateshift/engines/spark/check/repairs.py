"""Damaged snapshots that a newer Spark gets around by itself. Reads only.

From 4.2 on a snapshot that cannot be loaded is skipped: an older one is taken, or none, and the
changes since are replayed (AutoSnapshotLoader; SPARK-54121, SPARK-56216). That takes every file of
changes from there on, and no more of them than `autoSnapshotRepair.maxChangeFileReplay`. A RocksDB
state needs changelogs; one of checkpoint format 2 is not spoken of here. A snapshot that loads and
holds other rows than it should is no such case, nor is a table whose blocks are damaged: RocksDB
opens it, and fails when it reads.

Earlier versions fail, and a setting turns it off: the damage stays a refusal.

Seen with Spark 4.3, both providers. It gets around snapshots that were cut, emptied or changed in
one bit, around all of them at once, and around tables that are gone or zeros; not around one bit of
a table's block, nor where the changes of the snapshot's own version are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from stateshift.engines.spark.chains import StoreFiles
from stateshift.engines.spark.check.snapshots import (
    ZIP_MAX,
    changes_in,
    first_snapshots,
    older_files,
    ssts_of,
)
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark.rocksdb import check_zip
from stateshift.formats.spark.state_blocks import decode_snapshot_blocks
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, ShardFiles, Survey

# As many changes as every Spark that repairs replays; 4.2.0 replays more.
REPLAYED_MAX = 50


def repairs(
    storage: Storage, survey: Survey, image: Image, damaged: Collection[str]
) -> Iterator[Finding]:
    """Yield a note for each damaged snapshot that Spark 4.2 and later do without."""
    if not damaged:
        return
    for shard, store, version in first_snapshots(survey, image):
        path = shard.files[0]
        folder = path.rpartition("/")[0]
        is_suspect = any(other.startswith(f"{folder}/") for other in damaged)
        is_broken = is_suspect and _cannot_load(storage, path, store)
        if is_broken and _replays(storage, image, shard, store, version):
            yield Finding(
                "note",
                f"{path}: Spark 4.2 and later can repair this by themselves, from the "
                "snapshot and changes before it (auto snapshot repair); older versions cannot",
                path=path,
            )


def _cannot_load(storage: Storage, path: str, store: StoreFiles) -> bool:
    """Whether Spark fails to load the snapshot, or lacks tables that it names."""
    try:
        if not path.endswith(".zip"):
            for _ in decode_snapshot_blocks(storage.chunks(path)):
                pass
            return False
        check_zip(storage.read(path, ZIP_MAX))
        missing = set(ssts_of(storage, path)) - set(store.ssts.values())
        return bool(missing)
    except (FormatError, MissingFile):
        return True


def _replays(
    storage: Storage, image: Image, shard: ShardFiles, store: StoreFiles, version: int
) -> bool:
    """Whether an older snapshot, or none at all, and the changes since are there and decode."""
    changes = changes_in(shard.files)
    while True:
        older = older_files(storage, store, version)
        if older and _decodes(storage, image, replace(shard, files=older + changes)):
            return True
        older_snapshots = [number for number, _ in store.snapshots if number < version]
        if not older_snapshots:
            return False
        del store.snapshots[max(older_snapshots), ""]


def _decodes(storage: Storage, image: Image, shard: ShardFiles) -> bool:
    if len(changes_in(shard.files)) > REPLAYED_MAX:
        return False
    try:
        for _ in fold_shard(storage.chunks, shard, image.settings):
            pass
    except (FormatError, MissingFile):
        return False
    return True
