"""A checkpoint compacted where it lies: `{"kind": "compact", "in_place": true}`. Pure.

    halt        fence the next batch, so that nobody goes on while this is under way
    transform   N.snapshot, or N.zip and its tables, beside the chain of changes that ends in
                version N
    compare     what the chain holds with what the new files hold, entry by entry
    publish     the fence is lifted: the job may be started
    submit, confirm
    retire      what the new files replace is set aside, into _stateshift/superseded/<N>/, by rename

The new files have the names under which Spark's own maintenance would have written them, so a
restart finds them at any time: there is no moment at which it would read half of the old and half
of the new. Until the job has committed another batch, a rollback puts everything back: afterwards
later versions build on the new tables, and it is refused. Files that were set aside are removed by
whoever needs the space.

A RocksDB version that has its own N.zip is left as it is: to make it again would be to overwrite
what a restart reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from stateshift.engines.bundles import bundle_items
from stateshift.engines.spark.layout import inside
from stateshift.engines.spark.rewrite.files import Reshaping
from stateshift.engines.spark.rewrite.move import Move
from stateshift.formats.marks import FOLDER
from stateshift.formats.spark.names import CheckpointPath, classify
from stateshift.step import MoveFiles, Rename
from stateshift.survey import Facts, FileInfo, Finding, Image, ShardFiles

SUPERSEDED = f"{FOLDER}/superseded"
CHANGES = ("delta", "snapshot", "changelog", "zip")


def set_aside(facts: Facts, reshaping: Reshaping) -> Iterator[MoveFiles]:
    """Yield the steps that set aside files up to version N that no restart from N reads."""
    if not facts.source.traits.get("renames", True):
        return
    renames = []
    for image in facts.source.images:
        folder = f"{SUPERSEDED}/{_version(image)}"
        for file in superseded_files(image, facts.source.files, reshaping.shards):
            renames.append(Rename(file.path, f"{folder}/{file.path}", file.size))
    for number, bundle in enumerate(bundle_items(renames)):
        yield MoveFiles(f"retire/aside-{number}", facts.source.location, tuple(bundle))


def superseded_files(
    image: Image, files: tuple[FileInfo, ...], shards: tuple[ShardFiles, ...]
) -> Iterator[FileInfo]:
    """Yield the files that no restart reads once the rewritten shards are published."""
    kept = set(chain.from_iterable(shard.files for shard in shards))
    if image.planned_state is not None:
        kept.update(image.planned_state.files)
    stores = {(shard.operator, shard.store) for shard in shards}
    for file in files:
        if image.path and not file.path.startswith(f"{image.path}/"):
            continue
        path = file.path.removesuffix(".crc")
        place = classify(inside(image, path))
        if place.area != "state":
            epoch = image.epoch or 0
            if place.version is None:
                is_old = False
            elif place.area == "offsets":
                is_old = place.version < epoch - 1
            else:
                is_old = place.area == "commits" and place.version < epoch
        elif (place.operator or "", place.store or "") in stores:
            is_old = path not in kept and _is_old_state(place, image)
        else:
            is_old = False
        if is_old:
            yield file


def _is_old_state(place: CheckpointPath, image: Image) -> bool:
    if place.kind == "sst":
        return not _plans_a_batch(image)
    if place.kind not in CHANGES or place.version is None:
        return False
    return place.version <= _version(image)


def _plans_a_batch(image: Image) -> bool:
    """Whether a batch was planned and not committed: its zip names tables of older versions."""
    return image.planned is not None and image.planned > (image.epoch or 0)


def _version(image: Image) -> int:
    return (image.epoch or 0) + 1


def of_in_place(move: Move) -> Iterator[Finding]:
    """Report the consequences of a compaction in place: the job, a planned batch, old files."""
    if not move.change.in_place:
        return
    source = move.facts.source
    if move.facts.source_cluster is None:
        yield Finding(
            "warn",
            f"{source.location} is changed where it lies: its job must be stopped. A fence "
            "keeps it from committing while this runs",
            hint="stop it, or name its cluster (source_cluster) in a spec, which stops it for you",
        )
    for image, name in move.named_images:
        if image.epoch is not None and _plans_a_batch(image):
            yield Finding(
                "note",
                f"{name}: batch {image.planned} was "
                "planned and not committed; it runs again, on what is compacted here",
            )
    if source.traits.get("renames", True):
        yield Finding(
            "note",
            f"what is replaced is set aside in {source.location}/{SUPERSEDED}: remove it when you "
            "are sure; rollback puts it back",
        )
    else:
        yield Finding(
            "note",
            f"the storage of {source.location} cannot rename: what is replaced stays where it is, "
            "and Spark tidies it up by itself",
        )
