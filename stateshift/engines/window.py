"""A file that is not read from front to back: of it, the part that was read last is held."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stateshift.errors import FormatError
from stateshift.formats import bounds

WINDOW = 1 << 20
WHAT = "what is read at once of a state file"


class Window:
    """The part of a file that was read last; `chunks` reads the file from an offset on. The first
    look at its end takes what lies before it as well: a table is read from its footer to its index.
    """

    def __init__(
        self, chunks: Callable[[int], Iterator[bytes]], file_size: int, size: int = WINDOW
    ) -> None:
        self._chunks, self._file_size, self._size = chunks, file_size, size
        self._start, self._held = 0, b""

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from an offset on, or fewer where the file ends."""
        end = offset + count
        if not self._holds(offset, end):
            self._require_whole(offset, count)
            self._fill(offset, end)
        return self._held[offset - self._start : end - self._start]

    def _require_whole(self, offset: int, count: int) -> None:
        """Refuse to read more at once than memory has, or than such a file has."""
        if count > bounds.whole() and count > self._file_size - offset:
            raise FormatError(
                f"{count} bytes to be read at once, which the file does not have", None, offset
            )
        bounds.require_whole(count, WHAT)

    def _holds(self, start: int, end: int) -> bool:
        return self._start <= start and end <= self._start + len(self._held)

    def _fill(self, start: int, end: int) -> None:
        first = start
        if end >= self._file_size:
            first = min(start, max(0, self._file_size - self._size))
        wanted = max(end - first, self._size)
        self._held = b"".join(upto(self._chunks(first), wanted))
        self._start = first


def upto(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes; no chunk is asked for behind them."""
    left = size
    while left > 0:
        chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk[:left]
        left -= len(chunk)
