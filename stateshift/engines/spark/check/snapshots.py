"""Snapshots held against the changes they stand for: two ways to one version, which must come to
the same. Reads only.

    version s  =  the snapshot s  =  an older snapshot (or nothing), and every change file up to s

A restart takes the snapshot and never looks at what came before it, so a snapshot that lost
something goes unnoticed until somebody misses it. Both ways are followed up to the version of the
restart, where the one is read anyway, and only where their entries do not add up to the same are
the snapshot's looked at one by one; what later changes have put anew is no longer told. Only where
the older files are still there can it be told; where they are not, or do not decode (no restart
needs them any more), nothing is said. Checkpoint format 2, whose files only a commit's lineage
tells apart, is left out, as are changelogs with column families that no older snapshot names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from stateshift.engines.match import matched
from stateshift.engines.spark.chains import StoreFiles, chain
from stateshift.engines.spark.check.tally import Tally
from stateshift.engines.spark.entries.fold import folded
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.binaries import joined
from stateshift.formats.blocks import Block
from stateshift.formats.spark import rocksdb
from stateshift.formats.spark.names import classify
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, ShardFiles, Survey

ZIP_MAX = 1 << 28


# An operator's id, the number of a shard, and a store of it.
Place = tuple[str, int, str]


def place_of(shard: ShardFiles) -> Place:
    return shard.operator, shard.shard, shard.store


def findings(
    storage: Storage, survey: Survey, image: Image, tallies: Mapping[Place, Tally]
) -> Iterator[Finding]:
    """A warning for every snapshot that a restart begins with, and that its changes contradict.
    `tallies` are of the entries that a restart finds; shards without one could not be read.
    """
    stores = stores_of(survey, image)
    for shard in image.shards:
        store = stores.get(place_of(shard))
        if store is None or not shard.files or store.uses_uuids:
            continue
        snapshot = next((v for v, path in store.snapshots.items() if path == shard.files[0]), None)
        older = older_files(storage, store, snapshot[0]) if snapshot else ()
        if older and not _agree(storage, image, shard, older, tallies.get(place_of(shard))):
            yield from _compared(storage, image, shard, older)


def older_files(storage: Storage, store: StoreFiles, version: int) -> tuple[str, ...]:
    """The files that come to the version without its snapshot; none where one of them is
    missing.
    """
    store.snapshots.pop((version, ""), None)
    if not store.snapshots and min((v for v, _ in store.changes), default=2) > 1:
        return ()
    try:
        found = chain(store, version, lambda path: ssts_of(storage, path), lambda path: ())
    except (FormatError, MissingFile):
        return ()
    return () if found.missing else found.files


def _agree(
    storage: Storage,
    image: Image,
    shard: ShardFiles,
    older: tuple[str, ...],
    expected: Tally | None,
) -> bool:
    """Whether the older files, and the changes since the snapshot, come to what a restart finds;
    or do not decode.
    """
    if expected is None:
        return False
    changes = tuple(path for path in shard.files if path.endswith((".delta", ".changelog")))
    tally = Tally()
    try:
        for store, block in folded(
            storage.chunks, replace(shard, files=older + changes), image.settings
        ):
            tally.add(store, block)
    except (FormatError, MissingFile):
        return True
    return tally == expected


def _compared(
    storage: Storage, image: Image, shard: ShardFiles, older: tuple[str, ...]
) -> Iterator[Finding]:
    own = tuple(path for path in shard.files if not path.endswith((".delta", ".changelog")))
    sides = ((0, replace(shard, files=older)), (1, replace(shard, files=own)))
    blocks = (
        (side, Block(joined(store.encode() + b"\0", block.keys), block.values))
        for side, files in sides
        for store, block in folded(storage.chunks, files, image.settings)
    )
    try:
        differing = sum(found.differing for found in matched(blocks))
    except (FormatError, MissingFile):
        return
    if differing:
        yield Finding(
            "warn",
            f"{own[0]} is not what the changes before it come to: {differing} entries "
            "differ, and a "
            "restart takes those of the snapshot",
            hint=f"the other state is that of the files up to {older[-1]}",
            path=own[0],
        )


def ssts_of(storage: Storage, path: str) -> tuple[str, ...]:
    folder = path.rpartition("/")[0]
    return tuple(
        f"{folder}/SSTs/{t.stored}" for t in rocksdb.decode_zip(storage.read(path, ZIP_MAX)).tables
    )


def stores_of(survey: Survey, image: Image) -> Mapping[Place, StoreFiles]:
    """The image's state files by store, with the paths of the listing."""
    start = f"{image.path}/" if image.path else ""
    found: dict[Place, StoreFiles] = {}
    for path, *_ in survey.files:
        place = classify(path[len(start) :]) if path.startswith(start) else None
        if place is None or place.area != "state":
            continue
        key = (place.operator or "", place.partition or 0, place.store or "")
        found.setdefault(key, StoreFiles(*key, path.rpartition("/")[0])).add(path, place)
    return found
