"""A Spark job that moves while it runs: what a round brings, and which files its image is made of
in the end. Pure.

A commit never changes: state of version N + 1 and older is final once batch N is committed, so a
round may copy all of it, and the job's next batches only add to it. In the end each shard's state
can be folded from more than one chain:

    as the source has it      the newest snapshot, and the changes since: after maintenance that is
                              one large file
    as the last round had it  the snapshot that is at the target already, and all changes since

Both are the same state (HDFSBackedStateStoreProvider.loadMap and RocksDB.load take the newest
snapshot that is there, and go on with what follows it), and the one with less to copy is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from stateshift.engines.bundles import copies
from stateshift.engines.rounds import brought_by
from stateshift.engines.spark import layout
from stateshift.engines.spark.places import Rewriting
from stateshift.formats.spark.names import classify
from stateshift.specification import JobSpec
from stateshift.step import BringFiles
from stateshift.survey import Facts, FileInfo, Image, ShardFiles


def warmed(facts: Facts) -> Facts:
    """The facts with, for each shard, the chain of which the most is at the target already. Files
    that are there and no more at the source count as the source's.
    """
    if not facts.brought:
        return facts
    source = facts.source
    there = {
        path: one.file for (place, path), one in facts.brought.items() if place == source.location
    }
    infos = {file.path: file for file in source.files}
    before = {_folder(chain): chain for chain in facts.chains if chain.files}
    images = tuple(_image(image, infos, there, before) for image in source.images)
    needed: set[str] = set()
    for image in images:
        needed.update(image.needed)
    gone = tuple(file for path, file in there.items() if path in needed and path not in infos)
    return replace(facts, source=replace(source, files=(*source.files, *gone), images=images))


def _image(
    image: Image,
    infos: Mapping[str, FileInfo],
    there: Mapping[str, FileInfo],
    before: Mapping[str, ShardFiles],
) -> Image:
    shards, paths = [], set(image.needed)
    for shard in image.shards:
        earlier = before.get(_folder(shard)) if shard.files and image.epoch is not None else None
        other = _gone_on(earlier, (image.epoch or 0) + 1, infos, there) if earlier else None
        if other is None or _size(other, infos, there) >= _size(shard.files, infos, there):
            shards.append(shard)
            continue
        names: set[str] = set()
        for path in shard.files:
            names.update((path, f"{path}.crc"))
        paths -= names
        paths |= {
            n
            for path in other
            for n in (path, f"{path}.crc")
            if n == path or n in infos or n in there
        }
        shards.append(replace(shard, files=other))
    return replace(image, shards=tuple(shards), needed=tuple(sorted(paths)))


def _gone_on(
    chain: ShardFiles, version: int, infos: Mapping[str, FileInfo], there: Mapping[str, FileInfo]
) -> tuple[str, ...] | None:
    """The chain of an earlier round and the changes since, up to the version; None where one is
    missing. Under checkpoint format 2 a change file's name has to be told by another, and the
    source's own chain is taken.
    """
    changes = [
        place for path in chain.files if (place := classify(_inside(path, chain))).kind != "sst"
    ]
    first = max((place.version for place in changes if place.version is not None), default=None)
    if (
        first is None
        or any(place.uuid for place in changes)
        or any(path not in there for path in chain.files)
    ):
        return None
    folder, ending = _folder(chain), _ending(chain.files[0])
    since = tuple(f"{folder}/{number}.{ending}" for number in range(first + 1, version + 1))
    if first > version or any(path not in infos and path not in there for path in since):
        return None
    return (*chain.files, *since)


def _inside(path: str, chain: ShardFiles) -> str:
    """The path below its own checkpoint: that of a workflow has a directory before it."""
    at = path.find(f"state/{chain.operator}/{chain.shard}/")
    return path[max(at, 0) :]


def _ending(path: str) -> str:
    return "changelog" if path.endswith((".zip", ".changelog")) else "delta"


def _folder(chain: ShardFiles) -> str:
    """Where the shard's files lie; SST files lie one deeper."""
    return next((path.rpartition("/")[0] for path in chain.files if "/SSTs/" not in path), "")


def _size(
    files: tuple[str, ...], infos: Mapping[str, FileInfo], there: Mapping[str, FileInfo]
) -> int:
    """What is still to be copied, a file counting for something even where it is empty."""
    return sum(infos[path].size + 1 for path in files if path not in there)


def round_of(job: JobSpec, facts: Facts, rewriting: Rewriting) -> Iterator[BringFiles]:
    """What can be brought now. The commits are the anchors: to go back behind one, a job has to
    have it removed.
    """
    images = facts.source.images
    copied = copies(job, facts, images, rewriting.paths)
    commits = {
        layout.under(i.path, layout.commit_path(i.epoch)) for i in images if i.epoch is not None
    }
    anchors = tuple(file for file in facts.source.files if file.path in commits)
    shards: list[ShardFiles] = []
    for image in images:
        shards.extend(image.shards)
    yield from brought_by(facts, copied, shards, anchors, job.verify != "none")
