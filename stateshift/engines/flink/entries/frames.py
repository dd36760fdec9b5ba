"""Changelog files (DSTL) and channel state, read frame by frame: nothing but their frames can be
checked, as they have no checksums. The handle that names a file says what is in it.

    changelog   u1 compressed, then change sets; all that follows is one stream of framed snappy, if
                compressed
    change set  i32 n, n groups                at an offset of its own, counted behind the first
                                               byte, decompressed
    group       i32 n, i32 key group, n * (i32 + change)      key group -1: of the states
                                                              themselves, which come first
    change      u1 operation, ...

Several subtasks write to one changelog. Only its state's serializers tell the meaning of a change.
A flipped bit is seen if it is one of a frame's.

    channels    i32 version 0, then buffers
    buffer      i32 size, that many bytes      at the offsets that the handle of its channel has

The buffers were in flight at an unaligned checkpoint. Records go across their ends, and nothing in
the file says where they begin.

Source: Flink, changelog/fs/StateChangeFormat, AbstractStateChangeFsUploader,
ChangelogStreamHandleReader, checkpoint/channel/ChannelStateSerializerImpl.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stateshift.engines.flink.entries.databases import check_stored, handles_below
from stateshift.engines.flink.streams import Streams
from stateshift.errors import FormatError, TooLarge
from stateshift.formats.flink import snappy_frames
from stateshift.formats.flink.keyed_handles import (
    Changelog,
    FileDelta,
    Incremental,
    KeyedHandle,
    MemoryDelta,
)
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import ChannelPart, expand_channels
from stateshift.formats.flink.stream_handles import StreamHandle
from stateshift.formats.rocksdb.block import Read
from stateshift.formats.stream import Stream
from stateshift.survey import Finding, refuse

COMPRESSED_MAX = 256 * 1024 * 1024

OF_STATES = -1
OPERATIONS = range(10)
_PIECE = 1 << 16

VERSION = 0
HEADER = 4
_SIZE = 4


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
    """Yield faults of the frames of changelog and channel state; `whole` has all subtasks."""
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
                yield refuse(f"{where}: {error.fact}")
        yield from _checked_channels(subtask, where, streams)


def check_operator(operator: OperatorState, streams: Streams) -> None:
    """Raise for damage that is seen at the cost of reading: databases' checksums, and frames."""
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
            yield refuse(f"{where}: a changelog has no file")
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
        yield refuse(f"{where}: its changes have {size} bytes, the metadata says {delta.size}")


def _changes(stream: StreamHandle, offset: int, streams: Streams) -> Stream:
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
    return refuse(f"{where}: {error.fact}", path=path, offset=error.offset)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The number of changes, and their bytes without frames, as a handle counts them."""

    changes: int
    size: int


def read_change_set(data: Stream, groups: Container[int]) -> ChangeSet:
    """Read the change set that begins here to its end; its key groups are among `groups`."""
    changes = size = 0
    seen: set[int] = set()
    for _ in range(_count(data, "groups")):
        at, own, group = data.offset, _count(data, "changes"), _i4(data)
        if group in seen:
            raise FormatError(f"a changelog has key group {group} twice in a change set", None, at)
        _require_group(group, groups, at)
        seen.add(group)
        for _ in range(own):
            size += _skip_change(data)
        changes += own
    return ChangeSet(changes, size)


def check_change(group: int, content: bytes, groups: Container[int]) -> None:
    """Check a change that `_metadata` itself holds."""
    _require_group(group, groups, 0)
    if not content or content[0] not in OPERATIONS:
        raise FormatError("a changelog has a change without a known operation", None, 0)


def _require_group(group: int, groups: Container[int], at: int) -> None:
    if group != OF_STATES and group not in groups:
        fact = f"a changelog has changes of key group {group}, which is not the subtask's"
        raise FormatError(fact, None, at)


def _skip_change(data: Stream) -> int:
    at, size = data.offset, _count(data, "bytes")
    ahead = data.peek(1)  # nothing at the file's end: `take` says so
    if size < 1 or (ahead and ahead[0] not in OPERATIONS):
        raise FormatError("a changelog has a change without a known operation", None, at)
    left = size
    while left:
        left -= len(data.take(min(left, _PIECE)))
    return size


def _count(data: Stream, words: str) -> int:
    at, value = data.offset, _i4(data)
    if value < 0:
        raise FormatError(f"a changelog: {value} {words}", None, at)
    return value


def _i4(data: Stream) -> int:
    return int.from_bytes(data.take(4), "big", signed=True)


def check_version(read: Read) -> None:
    """Check how the file begins."""
    head = read(0, HEADER)
    if len(head) < HEADER:
        raise FormatError("channel state ends within its version", None, len(head))
    version = int.from_bytes(head, "big", signed=True)
    if version != VERSION:
        raise FormatError(f"channel state has version {version}, which is not known", None, 0)


def buffers_of(part: ChannelPart, read: Read, end: int) -> list[tuple[int, int]]:
    """Return beginning and end of each buffer of a channel; together they have its size."""
    buffers = []
    for offset in part.offsets:
        head = read(offset, _SIZE) if HEADER <= offset < end else b""
        if len(head) < _SIZE:
            fact = f"channel state has a buffer at {offset} of {end} bytes"
            raise FormatError(fact, None, offset)
        size = int.from_bytes(head, "big", signed=True)
        stop = offset + _SIZE + size
        if size < 0 or stop > end:
            fact = f"channel state has a buffer of {size} bytes at {offset} of {end}"
            raise FormatError(fact, None, offset)
        buffers.append((offset, stop))
    total = sum(stop - start for start, stop in buffers)
    if total != part.size:
        fact = f"channel state has buffers of {total} bytes, its metadata says {part.size}"
        raise FormatError(fact, None, 0)
    return buffers


def check_apart(buffers: Sequence[tuple[int, int]]) -> None:
    """Check that no buffer of a file lies over another one."""
    reached = 0
    for start, end in sorted(buffers):
        if start < reached:
            raise FormatError("channel state has overlapping buffers", None, start)
        reached = end
