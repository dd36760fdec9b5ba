"""Whether a job could restart from an image. Reads only.

An image has one epoch. Whatever is wrong with it, there is no other one to go back to.

A deep look reads every byte that a restart reads to its end: are the files whole, does each element
end where it should, is each key in the group where Flink looks for it? Everything that nothing can
tell is reported once, with its size. State of connectors is checked as far as it can be without the
connector: the state of sources' coordinators, and the versions of splits and of what sinks have
still to write. The frame is Flink's own. Inside it, the version and the bytes are the connector's:
any number is a version to somebody, so an unlikely one is said and not refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter

from stateshift.engines.flink.check.elements import Walk
from stateshift.engines.flink.entries.databases import checked_databases
from stateshift.engines.flink.entries.frames import checked_frames
from stateshift.engines.flink.image import flink_image, metadata_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.engines.views import CheckStage, Coverage, DeepCheck, ImageAt, Judged, NumberedPart
from stateshift.errors import FormatError, StorageError, TooLarge
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.operator_state import READER_STATE, decode_source_coordinator
from stateshift.formats.flink.properties import foreign_part
from stateshift.formats.flink.references import files_named
from stateshift.survey import Finding, Image, note, refuse, sizes_of, warn


def judge(at: ImageAt, deep: DeepCheck | None) -> Judged:
    """Return the faults of the image, and its epoch where a job could restart from it."""
    if deep is None:
        return Judged((), at.image.epochs)
    began = perf_counter()
    if flink_image(at.image) is None:
        return Judged((), at.image.epochs)
    may_be_old = metadata_of(at.image).version <= BEFORE_1_11
    walk = Walk(Streams(at.storage.chunks, places_of(at.image)), may_be_old=may_be_old)
    findings = tuple(_everything(at, deep.part, walk))
    seconds = perf_counter() - began
    part = _amount(at, deep.part)
    refused = any(finding.level == "refuse" for finding in findings)
    coverage = None
    if deep.part is not None:
        whole = _amount(at, None)
        coverage = Coverage(part.subtasks, whole.subtasks, part.bytes, whole.bytes)
    return Judged(
        findings,
        () if refused else at.image.epochs,
        stages=(CheckStage("state", seconds, part.files, part.bytes),),
        coverage=coverage,
        no_checksum=walk.ranges_without_checksum(),
        undecoded=tuple(sorted(walk.classes)),
        read=tuple(walk.counts.values()),
    )


@dataclass(frozen=True, slots=True)
class _Amount:
    subtasks: int
    files: int
    bytes: int


def _amount(at: ImageAt, part: NumberedPart | None) -> _Amount:
    operators = operators_in(at.image, part)
    needed = set(at.image.needed_files)
    if part is not None:  # the metadata, and the files that these operators name
        places = places_of(at.image)
        named = files_named(replace(metadata_of(at.image), operators=operators))
        paths = {places.path_of(file) for file in named}
        needed = {*at.image.first_read, *(path for path in paths if path is not None)}
    sizes = sizes_of(at.survey, needed)
    subtasks = sum(len(operator.all_subtasks) for operator in operators)
    return _Amount(subtasks, len(sizes), sum(sizes))


MAX_PARALLELISM = 1 << 15  # KeyGroupRangeAssignment.UPPER_BOUND_MAX_PARALLELISM
BEFORE_1_11 = 2  # the version of `_metadata` that these wrote
# Connectors count their serializers' versions up from 0 or 1; none is known beyond single digits.
LIKELY_VERSIONS = range(256)


def _everything(at: ImageAt, part: NumberedPart | None, walk: Walk) -> Iterator[Finding]:
    """Yield damaged pieces, of `part` where one is named, and a note on what has no checksum."""
    image, metadata = at.image, metadata_of(at.image)
    path = image.first_read[0]
    # Flink reads all of the metadata before anything else, and the Java objects in it.
    try:
        foreign = foreign_part(metadata.properties)
    except FormatError as error:
        yield refuse(f"{path}: {error.fact}", path=path)
    else:
        if foreign is not None:
            message = f"{path} holds {foreign!r}, which Flink does not have: it cannot read it"
            yield refuse(message, path=path)
    for operator, whole in zip(operators_in(image, part), metadata.operators, strict=True):
        yield from _of_operator(walk, operator)
        yield from _check_coordinator(operator)
        try:
            yield from checked_databases(operator, walk.streams)
            yield from checked_frames(operator, walk.streams, whole)
        except TooLarge:  # which says nothing of the image
            raise
        except (FormatError, StorageError) as error:
            offset = error.offset if isinstance(error, FormatError) else None
            yield refuse(f"operator {operator.id.hex()}: {error.fact}", offset=offset)
    # Headers of two ages in one image: a version in one of them is damaged.
    old, new = walk.headers["old"], walk.headers["new"]
    if old and new and walk.may_be_old:
        yield refuse(
            f"{old} headers of state are of a Flink before 1.7, and {new} are not: one Flink "
            "writes all of an image"
        )
    file = at.storage.stat(path)
    metadata_size = file.size if file is not None else 0
    walk.ranges[path] = [(0, metadata_size)]
    yield _without_checksum(walk, metadata_size)


def operators_in(image: Image, part: NumberedPart | None) -> tuple[OperatorState, ...]:
    """Return the operators, each with those of its subtasks that are in the part."""
    operators = metadata_of(image).operators
    if part is None:
        return operators
    return tuple(_in_part(operator, part) for operator in operators)


def _in_part(operator: OperatorState, part: NumberedPart) -> OperatorState:
    if operator.subtasks is None:
        return operator
    name = operator.id.hex()
    own = tuple(each for each in operator.subtasks if part.holds(name, each.index))
    return replace(operator, subtasks=own)


def _of_operator(walk: Walk, operator: OperatorState) -> Iterator[Finding]:
    own = operator.id.hex()
    if operator.max_parallelism > MAX_PARALLELISM:
        yield refuse(
            f"operator {own} has max parallelism {operator.max_parallelism}, and Flink "
            f"takes {MAX_PARALLELISM} at most"
        )
    walk.misplaced = walk.doubted = walk.placed = 0
    walk.versions.clear()
    for subtask in operator.all_subtasks:
        for wrong in walk.subtask(operator, subtask):
            message = f"operator {own}, subtask {subtask.index}: {wrong.fact}"
            yield Finding(
                wrong.level, message, path=wrong.path, offset=wrong.offset, hint=wrong.hint
            )
    for state, versions in sorted(walk.versions.items()):
        for version in sorted(versions):
            if version not in LIKELY_VERSIONS:
                yield _unlikely(operator, f"an element of {state}", version)
    most = operator.max_parallelism
    misplaced, is_sql = walk.misplaced, walk.doubted <= walk.placed
    if is_sql:
        misplaced += walk.doubted
    elif walk.doubted:
        yield Finding(
            "note",
            f"operator {own}: its keys are RowData and do not lie as SQL deals them: a job of "
            "another RowData wrote them, and whether they lie right is not known",
        )
    if misplaced:
        yield refuse(
            f"operator {own}: {misplaced} entries lie in other key groups than those of their "
            f"keys, for max parallelism {most}"
        )


def _without_checksum(walk: Walk, metadata_size: int) -> Finding:
    """Return the files in which a changed bit goes unseen: only RocksDB's have checksums."""
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
    return note(message)


def _check_coordinator(operator: OperatorState) -> Iterator[Finding]:
    """Yield faults of a source's coordinator; the frames of others are their own."""
    names: set[str] = set()
    for subtask in operator.all_subtasks:
        if subtask.managed_operator is not None:
            names.update(state.name for state in subtask.managed_operator.states)
    if operator.coordinator is None or READER_STATE not in names:
        return
    try:
        enumerator = decode_source_coordinator(operator.coordinator.content)
    except FormatError as error:
        yield refuse(f"operator {operator.id.hex()}: {error.fact}")
        return
    if enumerator.version not in LIKELY_VERSIONS:
        yield _unlikely(operator, "the split enumerator", enumerator.version)


def _unlikely(operator: OperatorState, what: str, version: int) -> Finding:
    return warn(
        f"operator {operator.id.hex()}: {what} was written by version {version} of its "
        "connector's serializer, a number that no connector is known to use: Flink fails to "
        "restore it unless the job's connector reads it"
    )
