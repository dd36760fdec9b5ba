"""Every place in `_metadata` that names bytes, in the file's order; and the same metadata with
other places.

`whole` is where a handle's size is not the file's: a changelog's file is shared by several
subtasks, each of which reads it from an offset of its own, so that it is only of use as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from stateshift.formats.flink.keyed_handles import (
    Changelog,
    FileDelta,
    Incremental,
    KeyedHandle,
    KeyGroups,
    Named,
)
from stateshift.formats.flink.metadata import Metadata, SubtaskState
from stateshift.formats.flink.operator_handles import ChannelHandle, Partitioned
from stateshift.formats.flink.stream_handles import (
    EmptySegment,
    FileHandle,
    Inline,
    KeyGroupsStream,
    StreamHandle,
    files_of,
)

Change = Callable[[StreamHandle, bool], StreamHandle | None]


@dataclass(frozen=True, slots=True)
class Reference:
    """`role`: keyed, operator, raw keyed, raw operator, channels; `operator`: id in hexadecimal."""

    operator: str
    subtask: int
    role: str
    stream: StreamHandle
    whole: bool = False


def references(metadata: Metadata) -> Iterator[Reference]:
    """Yield all, inline ones as well. An operator's coordinator is always inline, and left out."""
    for operator in metadata.operators:
        own = operator.id.hex()
        for subtask in operator.all_subtasks:
            for role, stream, whole in _of_subtask(subtask):
                if stream is not None:
                    yield Reference(own, subtask.index, role, stream, whole)


def files_named(metadata: Metadata) -> Iterator[FileHandle]:
    """Yield the files that are named, each as often as it is."""
    for reference in references(metadata):
        yield from files_of(reference.stream)


def _of_subtask(subtask: SubtaskState) -> Iterator[tuple[str, StreamHandle | None, bool]]:
    if subtask.managed_operator is not None:
        yield "operator", subtask.managed_operator.stream, False
    if subtask.raw_operator is not None:
        yield "raw operator", subtask.raw_operator.stream, False
    for stream, whole in keyed_streams(subtask.managed_keyed):
        yield "keyed", stream, whole
    for stream, whole in keyed_streams(subtask.raw_keyed):
        yield "raw keyed", stream, whole
    for channel in (*subtask.inputs, *subtask.outputs):
        yield "channels", channel.stream, False


def keyed_streams(handle: KeyedHandle | None) -> Iterator[tuple[StreamHandle | None, bool]]:
    """Yield the streams of keyed state, and whether each is only of use as a whole."""
    match handle:
        case KeyGroups():
            yield handle.stream, False
        case Incremental():
            yield handle.meta, False
            for _, stream in (*handle.shared, *handle.private):
                yield stream, False
        case Changelog():
            for inner in (*handle.bases, *handle.deltas):
                yield from keyed_streams(inner)
        case FileDelta():
            for _, stream in handle.parts:
                yield stream, True


def with_streams(metadata: Metadata, change: Change) -> Metadata:
    """Return the state with its bytes in other places, those of merged files as plain files."""
    operators = []
    for operator in metadata.operators:
        if operator.subtasks is not None:
            subtasks = tuple(_subtask(subtask, change) for subtask in operator.subtasks)
            operator = replace(operator, subtasks=subtasks)
        operators.append(operator)
    return replace(metadata, operators=tuple(operators))


def _subtask(subtask: SubtaskState, change: Change) -> SubtaskState:
    def channels(handles: tuple[ChannelHandle, ...]) -> tuple[ChannelHandle, ...]:
        return tuple(replace(h, stream=_changed(h.stream, change, False)) for h in handles)

    return replace(
        subtask,
        managed_operator=_partitioned(subtask.managed_operator, change),
        raw_operator=_partitioned(subtask.raw_operator, change),
        managed_keyed=with_keyed_streams(subtask.managed_keyed, change),
        raw_keyed=with_keyed_streams(subtask.raw_keyed, change),
        inputs=channels(subtask.inputs),
        outputs=channels(subtask.outputs),
    )


def _partitioned(handle: Partitioned | None, change: Change) -> Partitioned | None:
    if handle is None:
        return None
    merging = handle.merging
    if merging is None or not (merging.empty or isinstance(handle.stream, EmptySegment)):
        return replace(handle, merging=None, stream=_changed(handle.stream, change, False))
    # File merging wrote nothing for it.
    return replace(handle, merging=None, stream=None) if handle.states else None


def with_keyed_streams(handle: KeyedHandle | None, change: Change) -> KeyedHandle | None:
    """Return the handle with each of its streams changed."""
    match handle:
        case KeyGroups():
            return replace(handle, stream=_changed(handle.stream, change, False))
        case Incremental():
            return replace(
                handle,
                meta=_changed(handle.meta, change, False),
                shared=_with_changed_files(handle.shared, change),
                private=_with_changed_files(handle.private, change),
            )
        case Changelog():
            return replace(
                handle,
                bases=_with_changed_handles(handle.bases, change),
                deltas=_with_changed_handles(handle.deltas, change),
            )
        case FileDelta():
            parts = tuple(
                (offset, _changed(stream, change, True)) for offset, stream in handle.parts
            )
            return replace(handle, parts=parts)
    return handle


def _with_changed_files(files: tuple[Named, ...], change: Change) -> tuple[Named, ...]:
    return tuple((name, _changed(stream, change, False)) for name, stream in files)


def _with_changed_handles(
    handles: tuple[KeyedHandle, ...], change: Change
) -> tuple[KeyedHandle, ...]:
    changed = (with_keyed_streams(handle, change) for handle in handles)
    return tuple(handle for handle in changed if handle is not None)


def _changed(stream: StreamHandle | None, change: Change, whole: bool) -> StreamHandle | None:
    match stream:
        case None | Inline() | EmptySegment():
            return stream
        case KeyGroupsStream():
            return replace(stream, stream=_changed(stream.stream, change, whole))
    return change(stream, whole)
