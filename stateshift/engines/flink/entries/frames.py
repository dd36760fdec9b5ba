"""Changelog files and channel state, read frame by frame: nothing but their frames can be checked,
as they have no checksums. The handle that names a file says what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stateshift.engines.flink.entries.databases import check_stored, handles_below
from stateshift.engines.flink.streams import Streams
from stateshift.errors import FormatError, TooLarge
from stateshift.formats.flink import snappy_frames
from stateshift.formats.flink.frames import (
    buffers_of,
    check_apart,
    check_change,
    check_version,
    read_change_set,
)
from stateshift.formats.flink.keyed_handles import (
    Changelog,
    FileDelta,
    Incremental,
    KeyedHandle,
    MemoryDelta,
)
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import expand_channels
from stateshift.formats.flink.stream_handles import StreamHandle
from stateshift.formats.stream import Stream
from stateshift.survey import Finding

COMPRESSED_MAX = 256 * 1024 * 1024


@dataclass(slots=True)
class Ranges:
    """Ranges of key groups, which may be as wide as damaged bytes say."""

    found: list[range] = field(default_factory=list)

    def __contains__(self, group: object) -> bool:
        return any(group in one for one in self.found)


Changes = tuple[object, ...]  # what tells a set of changes from others
Owned = Mapping[Changes, Ranges]  # the key groups of all subtasks that name such a set


def checked_frames(
    operator: OperatorState, streams: Streams, whole: OperatorState | None = None
) -> Iterator[Finding]:
    """Yield the faults of the frames of an operator's changelog and channel state. `whole` has all
    subtasks, where the operator has some of them.
    """
    owned = _owned(whole or operator)
    for subtask in operator.all_subtasks:
        where = f"operator {operator.id.hex()}, subtask {subtask.index}"
        for delta in _deltas(subtask.managed_keyed):
            if isinstance(delta, FileDelta):
                yield from _checked_file_delta(delta, where, streams, owned)
                continue
            (changes,) = _changes_in(delta)
            try:
                for group, content in delta.changes:
                    check_change(group, content, owned[changes])
            except TooLarge:  # which says nothing of the image
                raise
            except FormatError as error:
                yield Finding("refuse", f"{where}: {error.fact}")
        yield from _checked_channels(subtask, where, streams)


def check_operator(operator: OperatorState, streams: Streams) -> None:
    """Raise for what can be seen to be damaged at the cost of reading: the checksums of
    databases, and frames.
    """
    for subtask in operator.all_subtasks:
        for handle in handles_below(subtask.managed_keyed, Incremental):
            check_stored(handle, streams)
    refused = next(checked_frames(operator, streams), None)
    if refused is not None:
        raise FormatError(refused.message, refused.path, refused.offset)


def _deltas(handle: KeyedHandle | None) -> Iterator[FileDelta | MemoryDelta]:
    match handle:
        case FileDelta() | MemoryDelta():
            yield handle
        case Changelog(deltas=deltas):
            for delta in deltas:
                yield from _deltas(delta)


def _owned(operator: OperatorState) -> Owned:
    """Return the key groups of each set of changes. After a rescaling, subtasks name those of one
    subtask before it, each for its own key groups, and pass over the others.
    """
    owned: dict[Changes, Ranges] = {}
    for subtask in operator.all_subtasks:
        for delta in _deltas(subtask.managed_keyed):
            for changes in _changes_in(delta):
                groups = range(delta.first, delta.first + delta.count)
                owned.setdefault(changes, Ranges()).found.append(groups)
    return owned


def _changes_in(delta: FileDelta | MemoryDelta) -> Sequence[Changes]:
    if isinstance(delta, MemoryDelta):
        return [(delta.start, delta.end, delta.changes)]
    return delta.parts


def _checked_file_delta(
    delta: FileDelta, where: str, streams: Streams, owned: Owned
) -> Iterator[Finding]:
    size = 0
    for offset, stream in delta.parts:
        if stream is None:
            yield Finding("refuse", f"{where}: a changelog has no file")
            return
        try:
            groups = owned[offset, stream]
            size += read_change_set(_changes(stream, offset, streams), groups).size
        except TooLarge:  # which says nothing of the image
            raise
        except FormatError as error:
            yield _refusal(error, where, stream, streams)
            return
    if size != delta.size:
        yield Finding(
            "refuse", f"{where}: its changes have {size} bytes, the metadata says {delta.size}"
        )


def _changes(stream: StreamHandle, offset: int, streams: Streams) -> Stream:
    """Return the change set at an offset of a file."""
    compressed = streams.head(stream, 1)
    if compressed not in (b"\0", b"\1"):
        raise FormatError("a changelog has an invalid compression flag", None, 0)
    if offset < 0:
        raise FormatError(f"a changelog has changes at {offset}", None, 0)
    if compressed == b"\0":
        return Stream(streams.chunks(stream, 1 + offset), "a changelog")
    content = streams.head(stream, COMPRESSED_MAX)
    if len(content) == COMPRESSED_MAX:
        raise FormatError(
            f"a compressed changelog of more than {COMPRESSED_MAX} bytes is not read", None, 0
        )
    plain = snappy_frames.decompress(content[1:], "a compressed changelog")
    return Stream((plain[offset:],), "a changelog")


def _checked_channels(subtask: SubtaskState, where: str, streams: Streams) -> Iterator[Finding]:
    buffers: dict[StreamHandle, list[tuple[int, int]]] = {}
    for channel in expand_channels((*subtask.inputs, *subtask.outputs)):
        stream = channel.stream
        if stream is None:
            continue
        read = streams.reader(stream)
        try:
            if stream not in buffers:
                check_version(read)
            own = buffers.setdefault(stream, [])
            own += buffers_of(channel.part, read, stream.size)
        except TooLarge:  # which says nothing of the image
            raise
        except FormatError as error:
            yield _refusal(error, where, stream, streams)
            return
    for stream, own in buffers.items():
        try:
            check_apart(own)
        except TooLarge:  # which says nothing of the image
            raise
        except FormatError as error:
            yield _refusal(error, where, stream, streams)


def _refusal(error: FormatError, where: str, stream: StreamHandle, streams: Streams) -> Finding:
    path = streams.places.file_of(stream)
    return Finding("refuse", f"{where}: {error.fact}", path=path, offset=error.offset)
