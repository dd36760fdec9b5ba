"""Bytes of an image: its metadata, and what the streams in it name. Nothing else opens a file of Flink's.

    Streams(read, places)
      .chunks(stream, start)    the bytes of a stream from there on
      .head(stream, size)       its first bytes

`read` opens a path below the image's root, from an offset on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from stateshift.engines.flink.places import Places
from stateshift.errors import MissingFile
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

METADATA_MAX = 1 << 31
Read = Callable[[str, int], Iterator[bytes]]


@lru_cache(maxsize=2)
def decoded(content: bytes) -> Metadata:
    """Read again for every operator of an image, and the same each time."""
    return decode_metadata(content)


@dataclass(frozen=True)
class Streams:
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
        return b"".join(_upto(self.chunks(stream), size))

    def _path(self, stream: RelativeFile | AbsoluteFile | Segment) -> str:
        path = self.places.path_of(stream)
        if path is None:
            raise MissingFile(f"{stream.path} is not below {self.places.root}", location=stream.path)
        return path


def _upto(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The first `size` bytes."""
    left = size
    for chunk in chunks:
        if left <= 0:
            return
        yield chunk[:left]
        left -= len(chunk)
