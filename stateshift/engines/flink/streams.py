"""Bytes of an image: its metadata, and what the streams in it name. Nothing else opens a file of
Flink's.

    Streams(read, places)
      .chunks(stream, start)  the bytes of a stream from there on
      .head(stream, size)     its first bytes
      .reader(stream)         a function of offset and count, for a file that is not read from front
                              to back

`read` opens a path below the image's root, from an offset on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from stateshift.engines.flink.places import Places
from stateshift.errors import FormatError, MissingFile
from stateshift.formats import bounds
from stateshift.formats.flink.metadata import Metadata, decode_metadata
from stateshift.formats.flink.stream_handles import (
    AbsoluteFile,
    EmptySegment,
    Inline,
    KeyGroupsStream,
    RelativeFile,
    Segment,
    StreamHandle,
)

WINDOW = 1 << 20
Read = Callable[[str, int], Iterator[bytes]]


@lru_cache(maxsize=2)
def decoded(content: bytes) -> Metadata:
    """Read again for every operator of an image, and the same each time."""
    return decode_metadata(content)


@dataclass(frozen=True)
class Streams:
    """Read access to the bytes of one image's streams, wherever they lie: in the metadata, in a
    file of their own, or in a segment of one.
    """

    read: Read
    places: Places

    def chunks(self, stream: StreamHandle, start: int = 0) -> Iterator[bytes]:
        match stream:
            case Inline(_, content):
                yield content[start:]
            case EmptySegment():
                return
            case KeyGroupsStream(stream=inner):
                if inner is not None:
                    yield from self.chunks(inner, start)
            case Segment(start=first, size=size):
                yield from _upto(self.read(self._path(stream), first + start), size - start)
            case RelativeFile() | AbsoluteFile():
                yield from self.read(self._path(stream), start)

    def head(self, stream: StreamHandle, size: int) -> bytes:
        if size < 0:
            raise FormatError(f"invalid size {size}", None, None)
        return bounds.gathered(
            _upto(self.chunks(stream), size), "what is read at once of a state file"
        )

    def reader(self, stream: StreamHandle, window: int = WINDOW) -> Callable[[int, int], bytes]:
        """Return a function that gives `count` bytes from an offset on, or fewer where the stream
        ends. It holds a `window` of what it read last.
        """
        return _Window(self, stream, window).read

    def _path(self, stream: RelativeFile | AbsoluteFile | Segment) -> str:
        path = self.places.path_of(stream)
        if path is None:
            raise MissingFile(
                f"{stream.path} is not below {self.places.root}", location=stream.path
            )
        return path


class _Window:
    """The part of a stream that was read last. The first look at its end takes what lies before it
    as well: a table is read from its footer to its index.
    """

    def __init__(self, streams: Streams, stream: StreamHandle, size: int) -> None:
        self._streams, self._stream, self._size = streams, stream, size
        self._start, self._held = 0, b""

    def read(self, offset: int, count: int) -> bytes:
        self._require_whole(offset, count)
        end = offset + count
        if not self._holds(offset, end):
            self._fill(offset, end)
        return self._held[offset - self._start : end - self._start]

    def _require_whole(self, offset: int, count: int) -> None:
        """Refuse to read more at once than memory has, or than such a file has."""
        if count > bounds.whole() and count > self._stream.size - offset:
            raise FormatError(
                f"{count} bytes to be read at once, which the file does not have", None, offset
            )
        bounds.require_whole(count, "what is read at once of a state file")

    def _holds(self, start: int, end: int) -> bool:
        return self._start <= start and end <= self._start + len(self._held)

    def _fill(self, start: int, end: int) -> None:
        first = start
        if end >= self._stream.size:
            first = min(start, max(0, self._stream.size - self._size))
        wanted = max(end - first, self._size)
        self._held = b"".join(_upto(self._streams.chunks(self._stream, first), wanted))
        self._start = first


def _upto(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes."""
    left = size
    for chunk in chunks:
        if left <= 0:
            return
        yield chunk[:left]
        left -= len(chunk)
