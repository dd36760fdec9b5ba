"""Every byte that a restart reads, read to its end: are the files whole, does each element end
where it should, does each key lie in the group where Flink looks for it? What nothing could tell is
said once, with its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stateshift.engines.flink.check.connectors import checked_coordinator, unlikely_versions
from stateshift.engines.flink.check.elements import Walk
from stateshift.engines.flink.entries.databases import checked_databases
from stateshift.engines.flink.entries.frames import checked_frames
from stateshift.engines.flink.image import flink_image, metadata_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.engines.views import Part
from stateshift.errors import FormatError, StorageError, TooLarge
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.properties import foreign_part
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image

MAX_PARALLELISM = 1 << 15  # KeyGroupRangeAssignment.UPPER_BOUND_MAX_PARALLELISM
BEFORE_1_11 = 2  # the version of `_metadata` that these wrote


def walk_of(storage: Storage, image: Image) -> Walk:
    """Return a walk over the image that has not begun."""
    may_be_old = metadata_of(image).version <= BEFORE_1_11
    return Walk(Streams(storage.chunks, places_of(image)), may_be_old=may_be_old)


def everything(
    storage: Storage, image: Image, part: Part | None = None, walk: Walk | None = None
) -> Iterator[Finding]:
    """Yield a refusal for each piece of state that is damaged, and a note on what has no checksum;
    of one part of the subtasks, where one is named. The `walk` has seen it all afterwards.
    """
    if flink_image(image) is None:
        return
    metadata = metadata_of(image)
    walk = walk or walk_of(storage, image)
    yield from _properties(image)
    for operator, whole in zip(operators_in(image, part), metadata.operators, strict=True):
        yield from _of_operator(walk, operator)
        yield from checked_coordinator(operator)
        try:
            yield from checked_databases(operator, walk.streams)
            yield from checked_frames(operator, walk.streams, whole)
        except TooLarge:  # which says nothing of the image
            raise
        except (FormatError, StorageError) as error:
            offset = error.offset if isinstance(error, FormatError) else None
            yield Finding("refuse", f"operator {operator.id.hex()}: {error.fact}", offset=offset)
    # Headers of two ages in one image: a version in one of them is damaged.
    old, new = walk.headers["old"], walk.headers["new"]
    if old and new and walk.may_be_old:
        yield Finding(
            "refuse",
            f"{old} headers of state are of a Flink before 1.7, and {new} are not: one Flink "
            "writes all of an image",
        )
    file = storage.stat(image.first_read[0])
    metadata_size = file.size if file is not None else 0
    walk.ranges[image.first_read[0]] = [(0, metadata_size)]
    yield _without_checksum(walk, metadata_size)


def operators_in(image: Image, part: Part | None) -> tuple[OperatorState, ...]:
    """Return the operators, each with those of its subtasks that are in the part."""
    operators = metadata_of(image).operators
    if part is None:
        return operators
    return tuple(_in_part(operator, part) for operator in operators)


def _in_part(operator: OperatorState, part: Part) -> OperatorState:
    if operator.subtasks is None:
        return operator
    name = operator.id.hex()
    own = tuple(each for each in operator.subtasks if part.holds(name, each.index))
    return replace(operator, subtasks=own)


def _of_operator(walk: Walk, operator: OperatorState) -> Iterator[Finding]:
    own = operator.id.hex()
    if operator.max_parallelism > MAX_PARALLELISM:
        yield Finding(
            "refuse",
            f"operator {own} has max parallelism {operator.max_parallelism}, and Flink "
            f"takes {MAX_PARALLELISM} at most",
        )
    before = walk.misplaced
    walk.versions.clear()
    for subtask in operator.all_subtasks:
        for wrong in walk.subtask(operator, subtask):
            message = f"operator {own}, subtask {subtask.index}: {wrong.fact}"
            yield Finding(
                wrong.level, message, path=wrong.path, offset=wrong.offset, hint=wrong.hint
            )
    yield from unlikely_versions(operator, walk.versions)
    misplaced = walk.misplaced - before
    if misplaced:
        most = operator.max_parallelism
        yield Finding(
            "refuse",
            f"operator {own}: {misplaced} entries lie in other key groups than those of their "
            f"keys, for max parallelism {most}",
        )


def _properties(image: Image) -> Iterator[Finding]:
    """Check the Java objects in `_metadata`: Flink reads all of it before anything else."""
    path = image.first_read[0]
    try:
        foreign = foreign_part(metadata_of(image).properties)
    except FormatError as error:
        yield Finding("refuse", f"{path}: {error.fact}", path=path)
        return
    if foreign is not None:
        yield Finding(
            "refuse",
            f"{path} holds {foreign!r}, which Flink does not have: it cannot read it",
            path=path,
        )


def _without_checksum(walk: Walk, metadata_size: int) -> Finding:
    """Return what a changed bit could change unseen: Flink's formats have no checksum outside of
    RocksDB's files.
    """
    size = walk.unprotected + metadata_size
    message = (
        f"{size:,} bytes have no checksum in Flink's format ({metadata_size:,} of "
        f"_metadata, {walk.unprotected:,} of "
        "state): a changed bit that still makes a value of its type is not seen there"
    )
    if walk.undecoded:
        names = sorted(walk.classes)
        whose = f" ({', '.join(names)})" if names else ""
        message += (
            f"; of {walk.undecoded:,} only the lengths were checked, as their serializers are not "
            f"known here{whose}"
        )
    return Finding("note", message)
