"""The changelog's files (DSTL), as far as their frames go: what a change does, only its state's
serializers tell.

    file        u1 compressed, then change sets; all that follows is one stream of framed snappy, if
                compressed
    change set  i32 n, n groups                at an offset of its own, counted behind the first
                                               byte, decompressed
    group       i32 n, i32 key group, n * (i32 + change)      key group -1: of the states
                                                              themselves, which come first
    change      u1 operation, ...

Several subtasks write to one file. There is no checksum: a flipped bit is seen where it is one of a
frame's.

Source: Flink, changelog/fs/StateChangeFormat, AbstractStateChangeFsUploader,
ChangelogStreamHandleReader.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from stateshift.errors import FormatError
from stateshift.formats.stream import Stream

OF_STATES = -1
OPERATIONS = range(10)
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """How many changes there are, and how many bytes they have without their frames, as a handle
    counts them.
    """

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
        raise FormatError(
            f"a changelog has changes of key group {group}, which is not the subtask's", None, at
        )


def _skip_change(data: Stream) -> int:
    """Read a change to its end; return its size."""
    at, size = data.offset, _count(data, "bytes")
    if size < 1 or not _may_begin_a_change(data.peek(1)):
        raise FormatError("a changelog has a change without a known operation", None, at)
    left = size
    while left:
        left -= len(data.take(min(left, _PIECE)))
    return size


def _may_begin_a_change(ahead: bytes) -> bool:
    """Whether a change may begin so; nothing is ahead at the end of the file, which is said when
    the change is taken.
    """
    return not ahead or ahead[0] in OPERATIONS


def _count(data: Stream, words: str) -> int:
    at, value = data.offset, _i4(data)
    if value < 0:
        raise FormatError(f"a changelog: {value} {words}", None, at)
    return value


def _i4(data: Stream) -> int:
    return int.from_bytes(data.take(4), "big", signed=True)
