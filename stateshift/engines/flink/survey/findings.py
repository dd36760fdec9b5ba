"""The damage of an image that its metadata and the listing of its files show.

The parts of a subtask's changelog have to be of that subtask:

    bases    what the backend last wrote out. After a rescaling they are those of subtasks before
             it that share a key group with this one. Once something was written out there is one
    deltas   the changes since. A rescaling cuts their key groups to those of the new subtask
    twice    the same changes of the same key groups: Flink would apply them twice, and a list gets
             its elements twice

Source: Flink, ChangelogStateBackendHandle.getIntersection, ChangelogStateHandleStreamImpl,
ChangelogKeyedStateBackend (materialization), ChangelogBackendRestoreOperation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from shlex import quote

from stateshift.engines.flink.entries.operators import sections_in
from stateshift.engines.flink.places import Places, absolute_places
from stateshift.errors import FormatError
from stateshift.formats.flink.key_groups import groups_of
from stateshift.formats.flink.keyed_handles import (
    Changelog,
    FileDelta,
    KeyedHandle,
    KeyGroups,
    MemoryDelta,
)
from stateshift.formats.flink.metadata import Metadata, OperatorState, SubtaskState
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import FileHandle, RelativeFile, Segment, files_of
from stateshift.formats.flink.versions import is_before_promised
from stateshift.survey import FileInfo, Finding, note, refuse, warn

SHOWN_MAX = 5


def findings_of(
    location: str, metadata: Metadata, places: Places, files: tuple[FileInfo, ...]
) -> tuple[Finding, ...]:
    """Return the faults of an image: duplicate operators, key groups with another subtask than
    their own, missing files, key groups beyond their file's end. Notes come last.
    """
    sizes = {file.path: file.size for file in files}
    return (
        *_duplicates(metadata),
        *_divided(metadata),
        *_missing(metadata, places, sizes),
        *_outside(metadata, places),
        *_notes(location, metadata, places),
    )


def _duplicates(metadata: Metadata) -> Iterator[Finding]:
    ids = Counter(operator.id.hex() for operator in metadata.operators)
    for id_, times in sorted(ids.items()):
        if times > 1:
            yield refuse(
                f"operator {id_} occurs {times} times: Flink would restore the last one and lose "
                "the others without a word"
            )


def _divided(metadata: Metadata) -> Iterator[Finding]:
    """Refuse keyed state that is not divided over the subtasks as Flink divides it: at the same
    parallelism each subtask restores its own handle, and looks at no key group of it.
    """
    for operator in metadata.operators:
        subtasks, own = operator.all_subtasks, operator.id.hex()
        numbers = Counter(subtask.index for subtask in subtasks)
        for number, times in sorted(numbers.items()):
            if times > 1:
                yield refuse(
                    f"operator {own}, subtask {number} occurs {times} times: Flink would restore "
                    "the last one and lose the others without a word"
                )
        for subtask in subtasks:
            yield from _misplaced(operator, subtask)
        with_keys = sum(subtask.managed_keyed is not None for subtask in subtasks)
        if 0 < with_keys < operator.parallelism:
            yield note(
                f"operator {own}: {operator.parallelism - with_keys} of {operator.parallelism} "
                "subtasks have no keyed state: they have had no keys, or their state is gone"
            )


def _misplaced(operator: OperatorState, subtask: SubtaskState) -> Iterator[Finding]:
    handle = subtask.managed_keyed
    if handle is None:
        return
    groups = groups_of(subtask.index, operator.max_parallelism, operator.parallelism)
    if (handle.first, handle.count) != (groups.start, len(groups)):
        yield refuse(
            f"operator {operator.id.hex()}, subtask {subtask.index} holds {handle.count} key "
            f"groups from {handle.first} on; its own are {len(groups)} from {groups.start} on"
        )
    if isinstance(handle, Changelog):
        for fault in faults_of(handle):
            yield refuse(f"operator {operator.id.hex()}, subtask {subtask.index}: {fault}")


def _missing(metadata: Metadata, places: Places, sizes: Mapping[str, int]) -> Iterator[Finding]:
    """Refuse each of the first files that are missing or of another size, and the rest at once."""
    refusals = list(_wrong_files(metadata, places, sizes))
    yield from refusals[:SHOWN_MAX]
    more = len(refusals) - SHOWN_MAX
    if more > 0:
        yield refuse(f"{more} more files are missing or of another size")


def _wrong_files(metadata: Metadata, places: Places, sizes: Mapping[str, int]) -> Iterator[Finding]:
    seen: set[tuple[str, int]] = set()
    for reference in references(metadata):
        for file in files_of(reference.stream):
            least = file.size + (file.start if isinstance(file, Segment) else 0)
            if (file.path, least) in seen:
                continue
            seen.add((file.path, least))
            path = places.path_of(file)
            size = None if path is None else sizes.get(path)
            may_be_larger = isinstance(file, Segment) or reference.whole
            if size == least or (size is not None and size > least and may_be_larger):
                continue
            fact, hint = f"{path} has {size} bytes, {least} expected", None
            if size is None:
                fact, hint = _missing_file(file, path, places.root)
            yield refuse(
                f"operator {reference.operator}, subtask {reference.subtask}, "
                f"{reference.role} state: {fact}",
                path=path,
                hint=hint,
            )


def _missing_file(file: FileHandle, path: str | None, root: str) -> tuple[str, str | None]:
    if path is None:
        return (
            f"{file.path} is not below {root}, and cannot be looked at from there",
            "take a canonical savepoint of the job, which has everything in one folder",
        )
    if not isinstance(file, RelativeFile):
        return f"{file.path} is missing", None
    return (
        f"{path} is missing, where the metadata has it beside itself",
        "a checkpoint of Flink 2.2 or 2.3 that was restored from a native savepoint with CLAIM may "
        "look so (FLINK-39964): its files lie in that savepoint, and "
        "`stateshift repair LOCATION --files SAVEPOINT --to NEW` puts them together",
    )


def _outside(metadata: Metadata, places: Places) -> Iterator[Finding]:
    """Yield a refusal for key groups that begin outside of their files, by the metadata alone."""
    for operator in metadata.operators:
        for subtask in operator.all_subtasks:
            handle = subtask.managed_keyed
            if not isinstance(handle, KeyGroups):
                continue
            try:
                sections_in(handle)
            except FormatError as error:
                yield refuse(
                    f"operator {operator.id.hex()}, subtask {subtask.index}: {error.fact}",
                    path=places.file_of(handle.stream),
                )


def _notes(location: str, metadata: Metadata, places: Places) -> Iterator[Finding]:
    if is_before_promised(metadata):
        yield note(
            "written by a Flink before 1.15: that it can be read is not promised; it is read as "
            "far as its format is known",
            hint="a savepoint taken with Flink 1.15 or newer is read whole",
        )
    gather = (
        f"stateshift gather {quote(location)} --to LOCATION makes one folder of it that can lie "
        "anywhere"
    )
    absolute = sum(absolute_places(metadata).values())
    if places.moved is not None:
        was, now = places.moved
        yield warn(
            f"the metadata names files below {was}, which were found below {now}: Flink would look "
            "for them where they were",
            hint=gather,
        )
    elif absolute:
        yield note(
            f"{absolute} of its files are named by their full path: the folder alone is no copy of "
            "it",
            hint=gather,
        )


def faults_of(handle: Changelog) -> Iterator[str]:
    """Yield faults of changelog parts that are another subtask's, missing, or there twice."""
    own = _groups(handle)
    if handle.materialization > 0 and not handle.bases:
        yield "its changelog follows a state that was written out, and names none"
    for base in handle.bases:
        groups = _groups(base)
        overlap = groups.start < own.stop and own.start < groups.stop
        if groups and own and not overlap:
            yield (
                f"its changelog follows a state of key groups {_shown(groups)}, and "
                f"{_shown(own)} are its own"
            )
    named: list[tuple[object, ...]] = []
    for delta in handle.deltas:
        groups = _groups(delta)
        if groups.start < own.start or groups.stop > own.stop:
            yield (
                f"its changelog has changes of key groups {_shown(groups)}, and "
                f"{_shown(own)} are its own"
            )
        match delta:
            case FileDelta(parts=parts):
                named += [(groups, offset, stream) for offset, stream in parts]
            case MemoryDelta(start=start, end=end, changes=changes) if changes:
                named.append((groups, start, end, changes))
    if any(named.count(changes) > 1 for changes in named):
        yield "its changelog names the same changes twice: Flink would apply them twice"


def _groups(handle: KeyedHandle) -> range:
    return range(handle.first, handle.first + handle.count)


def _shown(groups: range) -> str:
    return f"{groups.start} to {groups.stop - 1}"
