"""How a standby's image is hidden before its files are changed, and what has to go with it.

A job can go back to an earlier batch and do the later ones again. What rounds copied of the first
time is then stale. Spark reads a stale file only through the image's logs, so they go first: all
commits, then all offsets. Offsets without a commit would not do: Spark takes them for a batch that
it has to finish (MicroBatchExecution.populateStartOffsets), on whatever state is there by then.

A snapshot needs a step of its own. Spark loads a version from the newest snapshot that is not newer
(HDFSBackedStateStoreProvider.loadMap, RocksDB.loadWithChangelog), so one that no round writes over
would still be read after the next image is published. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from stateshift.engines.spark import layout
from stateshift.formats.spark.names import classify
from stateshift.plan import PhaseName
from stateshift.step import KeepBrought
from stateshift.survey import Facts, ShardFiles

BASES = ("snapshot", "zip")


def hiding(facts: Facts, phase: PhaseName) -> tuple[KeepBrought, ...]:
    """Return the steps of a phase, to be done in their order, after which Spark finds no image at
    the target; none where it finds none now.
    """
    target = facts.target.location
    at_target = sorted(paths_at(target, facts.left))
    commits = tuple(filter(layout.is_commit, at_target))
    offsets = tuple(filter(layout.is_offset, at_target))
    if not commits:
        return ()
    without_commits = KeepBrought(f"{phase}/no-commits", target, (), commits)
    if not offsets:
        return (without_commits,)
    return (without_commits, KeepBrought(f"{phase}/no-offsets", target, (), offsets))


def paths_at(location: str, files: Iterable[tuple[str, str]]) -> set[str]:
    """Return the paths of the files (location, path) that are at this location."""
    return {path for place, path in files if place == location}


def without_stale_bases(facts: Facts) -> tuple[KeepBrought, ...]:
    """Return the steps that hide the image and remove stale snapshots which Spark would read in
    place of the coming image's own files; none where there are no such snapshots.
    """
    target = facts.target.location
    bases = _stale_bases(facts)
    if not bases:
        return ()
    return (
        *hiding(facts, "publish"),
        KeepBrought("publish/stale", target, (), tuple(sorted(bases))),
    )


def _stale_bases(facts: Facts) -> set[str]:
    """Return the stale files at the target that Spark would read as snapshots."""
    stale = paths_at(facts.target.location, facts.past)
    bases: set[str] = set()
    for image in facts.source.images:
        for shard in image.shards:
            bases.update(path for path in stale if is_read(path, shard, image.path))
    return bases


def is_read(path: str, shard: ShardFiles, image: str) -> bool:
    """Whether Spark would read this stale file as a snapshot of the shard's state: it is newer than
    the one that the shard's files begin with.
    """
    version = _base_version(path, image)
    if version is None or path in shard.files:
        return False
    folders = {name.rpartition("/")[0] for name in shard.files}
    if path.rpartition("/")[0] not in folders:
        return False
    versions = [_base_version(name, image) or 0 for name in shard.files]
    return version > max(versions, default=0)


def _base_version(path: str, image: str) -> int | None:
    """Return the version of a snapshot, or None for any other file. One that has a unique name is
    read only where a commit names it.
    """
    place = classify(path.removeprefix(layout.under(image, "")))
    is_base = place.area == "state" and place.kind in BASES and not place.uuid
    return place.version if is_base else None
