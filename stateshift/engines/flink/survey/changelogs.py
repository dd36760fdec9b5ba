"""Whether the parts of a subtask's changelog are of that subtask, by the metadata alone. Pure.

    bases    what the backend last wrote out. After a rescaling they are those of subtasks before
             it that share a key group with this one. Once something was written out there is one
    deltas   the changes since. A rescaling cuts their key groups to those of the new subtask
    twice    the same changes of the same key groups: Flink would apply them twice, and a list gets
             its elements twice

Source: Flink, ChangelogStateBackendHandle.getIntersection, ChangelogStateHandleStreamImpl,
ChangelogKeyedStateBackend (materialization), ChangelogBackendRestoreOperation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.formats.flink.keyed_handles import Changelog, FileDelta, KeyedHandle, MemoryDelta


def faults_of(handle: Changelog) -> Iterator[str]:
    """Yield what shows that a part of the changelog is another subtask's, is missing, or is there
    twice.
    """
    own = _groups(handle)
    if handle.materialization > 0 and not handle.bases:
        yield "its changelog follows a state that was written out, and names none"
    for base in handle.bases:
        groups = _groups(base)
        if groups and own and not _overlap(groups, own):
            yield (
                f"its changelog follows a state of key groups {_shown(groups)}, and "
                f"{_shown(own)} are its own"
            )
    for delta in handle.deltas:
        groups = _groups(delta)
        if groups.start < own.start or groups.stop > own.stop:
            yield (
                f"its changelog has changes of key groups {_shown(groups)}, and "
                f"{_shown(own)} are its own"
            )
    if _holds_twice(handle.deltas):
        yield "its changelog names the same changes twice: Flink would apply them twice"


def _groups(handle: KeyedHandle) -> range:
    return range(handle.first, handle.first + handle.count)


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def _shown(groups: range) -> str:
    return f"{groups.start} to {groups.stop - 1}"


def _holds_twice(deltas: tuple[KeyedHandle, ...]) -> bool:
    seen: list[tuple[object, ...]] = []
    for delta in deltas:
        for changes in _changes_of(delta):
            if changes in seen:
                return True
            seen.append(changes)
    return False


def _changes_of(delta: KeyedHandle) -> Iterator[tuple[object, ...]]:
    """Yield what tells the changes of a delta from others."""
    groups = _groups(delta)
    match delta:
        case FileDelta(parts=parts):
            for offset, stream in parts:
                yield groups, offset, stream
        case MemoryDelta(start=start, end=end, changes=changes) if changes:
            yield groups, start, end, changes
