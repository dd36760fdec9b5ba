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
from functools import lru_cache, partial

from stateshift.engines.flink.places import Places
from stateshift.engines.window import WHAT, WINDOW, Window, upto
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

Read = Callable[[str, int], Iterator[bytes]]


@lru_cache(maxsize=2)
def decode_once(content: bytes) -> Metadata:
    """Read again for every operator of an image, and the same each time."""
    return decode_metadata(content)


@dataclass(frozen=True)
class Streams:
    """Access to an image's bytes: in the metadata, in a file, or in a segment of one."""

    read: Read
    places: Places

    def chunks(self, stream: StreamHandle, start: int = 0) -> Iterator[bytes]:
        """Yield a stream from `start` on; a storage might count one below zero from the end."""
        if start < 0:
            raise FormatError(f"state begins at byte {start}", None, None)
        match stream:
            case Inline(_, content):
                yield content[start:]
            case EmptySegment():
                return
            case KeyGroupsStream(stream=inner):
                if inner is not None:
                    yield from self.chunks(inner, start)
            case Segment(start=first, size=size):
                if first < 0:
                    raise FormatError(f"a segment begins at byte {first}", None, None)
                yield from upto(self.read(self._path(stream), first + start), size - start)
            case RelativeFile() | AbsoluteFile():
                yield from self.read(self._path(stream), start)

    def head(self, stream: StreamHandle, size: int) -> bytes:
        if size < 0:
            raise FormatError(f"invalid size {size}", None, None)
        return bounds.gather(upto(self.chunks(stream), size), WHAT)

    def reader(self, stream: StreamHandle, window: int = WINDOW) -> Callable[[int, int], bytes]:
        """Return a function that gives `count` bytes from an offset; a `window` is kept."""
        return Window(partial(self.chunks, stream), stream.size, window).read

    def _path(self, stream: RelativeFile | AbsoluteFile | Segment) -> str:
        path = self.places.path_of(stream)
        if path is None:
            raise MissingFile(
                f"{stream.path} is not below {self.places.root}", location=stream.path
            )
        return path
