"""Files of which little is held.

Window       one that is not read from front to back: the part that was read last
FrontToBack  a table: its end, by which it is opened, and the place where its blocks are read
GrowingFile  one that is taken away in pieces while it is being written
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.storage.protocol import CHUNK

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WINDOW = 1 << 20
WHAT = "what is read at once of a state file"


@dataclass(eq=False)
class Window:
    """The part of a file that was read last; `chunks` reads the file from an offset on. The first
    look at its end takes what lies before it as well: a table is read from its footer to its index.
    """

    _chunks: Callable[[int], Iterator[bytes]]
    _file_size: int
    _size: int = WINDOW
    _start: int = field(default=0, init=False)
    _held: bytes = field(default=b"", init=False)

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from an offset on, or fewer where the file ends."""
        end = offset + count
        holds = self._start <= offset and end <= self._start + len(self._held)
        if not holds:
            if count > bounds.whole() and count > self._file_size - offset:
                raise FormatError(
                    f"{count} bytes to be read at once, which the file does not have", None, offset
                )
            bounds.require_whole(count, WHAT)
            first = offset
            if end >= self._file_size:
                first = min(offset, max(0, self._file_size - self._size))
            wanted = max(end - first, self._size)
            self._held = b"".join(upto(self._chunks(first), wanted))
            self._start = first
        return self._held[offset - self._start : end - self._start]


class FrontToBack:
    """A file whose end is read first, and what is before it in one reading, piece by piece."""

    def __init__(self, chunks: Callable[[int], Iterator[bytes]], file_size: int) -> None:
        self._chunks, self._file_size = chunks, file_size
        self._end_start = 0 if file_size <= CHUNK else file_size - WINDOW
        self._start, self._held = 0, b""
        self._coming: Iterator[bytes] | None = None

    def ends_there(self) -> bool:
        """Whether the file is as long as it was said to be."""
        return self._end_start + len(self._end) == self._file_size

    @cached_property
    def _end(self) -> bytes:
        """The end of the file, and one byte that should not be there."""
        size = self._file_size - self._end_start
        return b"".join(upto(self._chunks(self._end_start), size + 1))

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from an offset on, or fewer where the file ends."""
        start = offset - self._start
        if start >= 0 and start + count <= len(self._held):
            return self._held[start : start + count]
        if offset >= self._end_start:
            start = offset - self._end_start
            return self._end[start : start + count]
        bounds.require_whole(count, WHAT)
        is_there = self._start <= offset <= self._start + len(self._held)
        if self._coming is None or not is_there:
            self._coming = self._chunks(offset)
            self._start, self._held = offset, b""
        coming = self._coming
        while self._start + len(self._held) < offset + count:
            chunk = next(coming, None)
            if chunk is None:
                break
            self._held = self._held[offset - self._start :] + chunk
            self._start = offset
        start = offset - self._start
        return self._held[start : start + count]


def upto(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes; no chunk is asked for behind them."""
    left = size
    while left > 0:
        chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk[:left]
        left -= len(chunk)


class GrowingFile(io.RawIOBase):
    """A file that forgets what was taken from it."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, content: ReadableBuffer) -> int:
        piece = bytes(content)
        self._held.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def taken(self) -> bytes:
        piece = b"".join(self._held)
        self._held.clear()
        return piece
