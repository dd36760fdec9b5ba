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
later versions build on the new tables, and it is refused. What was set aside is removed by whoever
needs the room.

A RocksDB version that has its own N.zip is left as it is: to make it anew would be to overwrite
what a restart reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.bundles import bundled
from stateshift.engines.spark.rewrite.files import Reshaping
from stateshift.engines.spark.rewrite.wishes import Wishes
from stateshift.formats.marks import FOLDER
from stateshift.formats.spark.names import classify
from stateshift.step import FenceSource, LiftFence, MoveFiles, Rename
from stateshift.survey import Facts, FileInfo, Finding, Image, ShardFiles

SUPERSEDED = f"{FOLDER}/superseded"
CHANGES = ("delta", "snapshot", "changelog", "zip")


def lifted(fences: list[FenceSource]) -> Iterator[LiftFence]:
    for number, fence in enumerate(fences):
        yield LiftFence(f"publish/lift-{number}", fence.location, fence.paths)


def set_aside(facts: Facts, reshaping: Reshaping) -> Iterator[MoveFiles]:
    """Everything that no restart from version N would read, as far as it is of N or older."""
    if not facts.source.traits.get("renames", True):
        return
    found = (
        Rename(file.path, f"{SUPERSEDED}/{(image.epoch or 0) + 1}/{file.path}", file.size)
        for image in facts.source.images
        for file in superseded(image, facts.source.files, reshaping.shards)
    )
    for number, bundle in enumerate(bundled(found)):
        yield MoveFiles(f"retire/aside-{number}", facts.source.location, tuple(bundle))


def superseded(
    image: Image, files: tuple[FileInfo, ...], shards: tuple[ShardFiles, ...]
) -> Iterator[FileInfo]:
    kept = {path for shard in shards for path in shard.files}
    kept |= set(image.planned_state.files if image.planned_state is not None else ())
    stores = {(shard.operator, shard.store) for shard in shards}
    epoch = image.epoch or 0
    # A zip of the planned batch names tables of versions before it: Spark tidies up those that
    # nobody needs.
    keeps_tables = image.planned is not None and image.planned > epoch
    for file in files:
        if image.path and not file.path.startswith(f"{image.path}/"):
            continue
        path = file.path.removesuffix(".crc")
        place = classify(path[len(image.path) + 1 :] if image.path else path)
        if place.area == "state" and (place.operator or "", place.store or "") in stores:
            old = place.kind in CHANGES and place.version is not None and place.version <= epoch + 1
            table = place.kind == "sst" and not keeps_tables
            if (old or table) and path not in kept:
                yield file
        # The two last planned batches are looked at by a restart, and the last commit.
        elif place.version is not None and (
            (place.area == "offsets" and place.version < epoch - 1)
            or (place.area == "commits" and place.version < epoch)
        ):
            yield file


def of_in_place(wishes: Wishes, facts: Facts) -> Iterator[Finding]:
    if not wishes.in_place:
        return
    source = facts.source
    if facts.source_cluster is None:
        yield Finding(
            "warn",
            f"{source.location} is changed where it lies: its job must be stopped. A fence "
            "keeps it from committing "
            "while this runs",
            hint=(
                "stop it, or name its cluster in the spec (source_cluster) so that it is "
                "stopped for you"
            ),
        )
    for image in source.images:
        if image.planned is not None and image.epoch is not None and image.planned > image.epoch:
            yield Finding(
                "note",
                f"{image.name or image.path or source.location}: batch {image.planned} was "
                "planned and not "
                "committed; it runs again, on what is compacted here",
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
