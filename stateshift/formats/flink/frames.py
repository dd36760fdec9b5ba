"""Files of which only the frames are read: the changelog's (DSTL), and channel state. There are no
checksums.

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

from collections.abc import Container, Sequence
from dataclasses import dataclass

from stateshift.errors import FormatError
from stateshift.formats.flink.operator_handles import ChannelPart
from stateshift.formats.rocksdb.block import Read
from stateshift.formats.stream import Stream

OF_STATES = -1
OPERATIONS = range(10)
_PIECE = 1 << 16

VERSION = 0
HEADER = 4
_SIZE = 4


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
    """Read a change to its end; return its size."""
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
