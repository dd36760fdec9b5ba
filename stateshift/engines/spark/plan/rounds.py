"""A Spark job that moves while it runs: the files that a round copies, and those that its image is
made of in the end. Pure.

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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from stateshift.engines.bundles import bare, copies, transfers_of
from stateshift.engines.spark import layout
from stateshift.engines.spark.plan.fingerprint import plan_of, provisional
from stateshift.engines.spark.plan.publication import publish, staging_steps
from stateshift.engines.spark.rewrite.files import reshaping_of
from stateshift.engines.spark.rewrite.move import Move
from stateshift.formats.spark.names import classify
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec, Spec
from stateshift.step import AnyStep
from stateshift.survey import Facts, FileInfo, Image, ShardFiles


def with_shortest_chains(facts: Facts) -> Facts:
    """Return the facts with each shard's chain of which the most is at the target already."""
    if not facts.brought:
        return facts
    source = facts.source
    copied = {}
    for (location, path), held in facts.brought.items():
        if location == source.location:
            copied[path] = held.file
    files = _Files({file.path: file for file in source.files}, copied)
    earlier = {folder_of(chain): chain for chain in facts.chains if chain.files}
    images = tuple(_image(image, files, earlier) for image in source.images)
    needed: set[str] = set()
    for image in images:
        needed.update(image.needed)
    needed -= files.listed.keys()
    gone = tuple(file for path, file in files.copied.items() if path in needed)
    return replace(facts, source=replace(source, files=(*source.files, *gone), images=images))


@dataclass(frozen=True, slots=True)
class _Files:
    """The source's files: those that it lists, and those that are at the target already."""

    listed: Mapping[str, FileInfo]
    copied: Mapping[str, FileInfo]

    def have(self, path: str) -> bool:
        return path in self.listed or path in self.copied

    def left_to_copy(self, paths: Iterable[str]) -> int:
        """Return the bytes that are still to be copied; an empty file counts for something."""
        return sum(self.listed[path].size + 1 for path in paths if path not in self.copied)


def _image(image: Image, files: _Files, earlier: Mapping[str, ShardFiles]) -> Image:
    if image.epoch is None:
        return image
    shards: list[ShardFiles] = []
    needed = set(image.needed)
    for shard in image.shards:
        version = image.epoch + 1
        before = earlier.get(folder_of(shard)) if shard.files else None
        if before is None:
            other = None
        else:
            continued = _continued(before, version, files)
            if continued is None:
                other = None
            else:
                is_less = files.left_to_copy(continued) < files.left_to_copy(shard.files)
                other = continued if is_less else None
        if other is None:
            shards.append(shard)
            continue
        needed.difference_update(shard.files, _checksums(shard.files))
        needed.update(other)
        needed.update(filter(files.have, _checksums(other)))
        shards.append(replace(shard, files=other))
    return replace(image, shards=tuple(shards), needed=tuple(sorted(needed)))


def _checksums(paths: Iterable[str]) -> set[str]:
    return {f"{path}.crc" for path in paths}


def _continued(chain: ShardFiles, version: int, files: _Files) -> tuple[str, ...] | None:
    """Return the chain of an earlier round and the changes since, up to the version; None where one
    is missing. Under checkpoint format 2 a change file's name is in another file, and the source's
    own chain is taken.
    """
    places = [classify(inside(path, chain)) for path in chain.files]
    versioned = [place for place in places if place.kind != "sst"]
    if any(place.uuid for place in versioned):
        newest = None
    else:
        versions = [place.version for place in versioned if place.version is not None]
        newest = max(versions, default=None)
    if newest is None or newest > version:
        return None
    folder = folder_of(chain)
    is_rocksdb = chain.files[0].endswith((".zip", ".changelog"))
    ending = "changelog" if is_rocksdb else "delta"
    since = tuple(f"{folder}/{number}.{ending}" for number in range(newest + 1, version + 1))
    is_copied = files.copied.keys() >= set(chain.files)
    is_complete = is_copied and all(map(files.have, since))
    return (*chain.files, *since) if is_complete else None


def inside(path: str, chain: ShardFiles) -> str:
    """Return the path below its own checkpoint: that of a workflow has a directory before it."""
    at = path.find(f"state/{chain.operator}/{chain.shard}/")
    return path[max(at, 0) :]


def folder_of(chain: ShardFiles) -> str:
    """Return the folder that holds the shard's files; SST files are one deeper."""
    return next((path.rpartition("/")[0] for path in chain.files if "/SSTs/" not in path), "")


def round_plan(spec: Spec, job: JobSpec, facts: Facts, stopping: bool = False) -> Plan:
    """Return the plan of a round; of a job that is `stopping`, it copies what is published, too."""
    move = Move(spec, job, with_shortest_chains(facts))
    facts = move.facts
    copied = copies(job, facts, facts.source.images, move.rewriting.paths)
    commits: set[str] = set()
    shards: list[ShardFiles] = []
    for image in facts.source.images:
        shards.extend(image.shards)
        if image.epoch is not None:
            commits.add(layout.under(image.path, layout.commit_path(image.epoch)))
    # A job that goes back behind one of these commits has to have it removed.
    anchors = tuple(file for file in facts.source.files if file.path in commits)
    steps: list[AnyStep] = []
    steps += transfers_of(facts, copied, shards, anchors, job.verify != "none")
    if stopping:
        bare_move = replace(move, facts=bare(move.facts))
        images, reshaping = bare_move.facts.source.images, reshaping_of(bare_move)
        steps += staging_steps(publish(bare_move, images, reshaping, beforehand=True))
    plan = plan_of(move, phases_of(Phase("copy", tuple(steps))))
    return replace(provisional(plan, move.facts), purpose="warm")
