"""Handles to the bytes of a piece of state, as `_metadata` holds them.

    tag  value                                       after the tag
    0    None
    1    Inline(name, content)                       utf name, i4 length, bytes
    2    AbsoluteFile(path, size)                    i8 size, utf path
    3    KeyGroupsStream(first, offsets, stream)     legacy: i4 first, i4 n, n * i8, stream handle
    6    RelativeFile(path, size)                    utf path, i8 size     beside `_metadata`
    15   Segment(path, start, size, scope, file_id)  i8, i8, i4 scope, utf path, utf id
    16   EmptySegment()

`name` of Inline is the path that the file would have had: an identity, never opened. `scope` is 0
for files of one checkpoint and 1 for shared ones.

Flink: checkpoint/metadata/MetadataV2V3SerializerBase (deserializeStreamStateHandle); 15 and 16
since 1.20.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stateshift.formats.flink.java_data import DataInput, DataOutput, Longs

DEPTH_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Inline:
    """Bytes kept in `_metadata` itself; `name` identifies them and is never opened (tag 1)."""

    name: str
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)


@dataclass(frozen=True, slots=True)
class AbsoluteFile:
    """A whole file under its absolute path, `size` bytes long (tag 2)."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class RelativeFile:
    """A whole file beside `_metadata`, `path` being its name there (tag 6)."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a file that several subtasks share (tag 15); `scope`: see above."""

    path: str
    start: int
    size: int
    scope: int
    file_id: str


@dataclass(frozen=True, slots=True)
class EmptySegment:
    """A segment into which nothing was written, and so no file (tag 16)."""

    size: int = 0


@dataclass(frozen=True, slots=True)
class KeyGroupsStream:
    """A stream with the offset of each key group from `first` on in it (tag 3, legacy)."""

    first: int
    offsets: Longs
    stream: StreamHandle | None

    @property
    def size(self) -> int:
        return self.stream.size if self.stream is not None else 0


StreamHandle = Inline | AbsoluteFile | RelativeFile | Segment | EmptySegment | KeyGroupsStream
FileHandle = AbsoluteFile | RelativeFile | Segment


def read_stream(data: DataInput, depth: int = 0) -> StreamHandle | None:
    """Read a handle, its tag first; `depth` is how many handles this one lies inside of."""
    at, tag = data.at, data.u1()
    match tag:
        case 0:
            return None
        case 1:
            name = data.utf()
            return Inline(name, data.take(data.i4()))
        case 2:
            size = _size(data)
            return AbsoluteFile(data.utf(), size)
        case 3 if depth < DEPTH_MAX:
            first, count = data.i4(), data.count("key groups")
            return KeyGroupsStream(first, data.longs(count), read_stream(data, depth + 1))
        case 6:
            path = data.utf()
            return RelativeFile(path, _size(data))
        case 15:
            start, size = _size(data), _size(data)
            at, scope = data.at, data.i4()
            if scope not in (0, 1):
                raise data.wrong(f"unknown scope {scope} of a segment", at)
            path = data.utf()
            return Segment(path, start, size, scope, data.utf())
        case 16:
            return EmptySegment()
        case _:
            raise data.wrong(f"unknown tag {tag} of a handle to a stream", at)


def write_stream(out: DataOutput, handle: StreamHandle | None) -> None:
    """Write what `read_stream` reads, byte for byte; None is the tag 0 alone."""
    match handle:
        case None:
            out.u1(0)
        case Inline(name, content):
            out.u1(1)
            out.utf(name)
            out.sized(content)
        case AbsoluteFile(path, size):
            out.u1(2)
            out.i8(size)
            out.utf(path)
        case KeyGroupsStream(first, offsets, stream):
            out.u1(3)
            out.i4(first, len(offsets))
            out.put(offsets.raw)
            write_stream(out, stream)
        case RelativeFile(path, size):
            out.u1(6)
            out.utf(path)
            out.i8(size)
        case Segment(path, start, size, scope, file_id):
            out.u1(15)
            out.i8(start, size)
            out.i4(scope)
            out.utf(path, file_id)
        case EmptySegment():
            out.u1(16)


def files_of(handle: StreamHandle | None) -> Iterator[FileHandle]:
    """Yield the file a handle points to, if it does."""
    match handle:
        case AbsoluteFile() | RelativeFile() | Segment():
            yield handle
        case KeyGroupsStream():
            yield from files_of(handle.stream)


def _size(data: DataInput) -> int:
    at, value = data.at, data.i8()
    if value < 0:
        raise data.wrong(f"invalid size or start {value}", at)
    return value
