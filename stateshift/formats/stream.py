"""Bytes read front to back, in whatever pieces they come, always knowing the offset of the next
one.

    Stream.take(n)     exactly n bytes, or FormatError at the offset where the bytes ended
    Stream.peek(n)     up to n bytes, left where they are
    Stream.at_end()    nothing is left
    lines(chunks)      (offset, line) without the newline; one line at a time is held

Memory holds bytes that have arrived and were asked for: a length claimed by the bytes themselves
never makes us allocate anything. A piece longer than `bounds` allows is not held: either the bytes
end before it does, or it is refused as too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stateshift.errors import FormatError
from stateshift.formats import bounds


class Stream:
    """A reader over chunks. `what` names the format in the errors."""

    __slots__ = ("_buffer", "_chunks", "_done", "_position", "_start", "_what")

    def __init__(self, chunks: Iterable[bytes], what: str) -> None:
        self._chunks = iter(chunks)
        self._buffer = b""
        self._position = 0
        self._start = 0
        self._done = False
        self._what = what

    @property
    def offset(self) -> int:
        return self._start + self._position

    def take(self, count: int) -> bytes:
        if count < 0:
            raise FormatError(f"{self._what}: a length of {count}", None, self.offset)
        end = self._position + count
        if end > len(self._buffer):
            if count > bounds.piece():
                # Do the bytes hold as many? They are counted, and not held.
                left = len(self._buffer) - self._position
                for chunk in self._chunks:
                    left += len(chunk)
                    if left >= count:
                        bounds.require_piece(count, f"a record in {self._what}", self.offset)
                raise self._ends_early(count, left)
            self._fill(count)
            end = self._position + count
            if end > len(self._buffer):
                raise self._ends_early(count, len(self._buffer) - self._position)
        piece = self._buffer[self._position : end]
        self._position = end
        return piece

    def _ends_early(self, count: int, left: int) -> FormatError:
        fact = f"{self._what} ends early: {count} bytes expected, {left} left"
        return FormatError(fact, None, self.offset + left)

    def peek(self, count: int) -> bytes:
        if self._position + count > len(self._buffer):
            self._fill(count)
        return self._buffer[self._position : self._position + count]

    def at_end(self) -> bool:
        return not self.peek(1)

    def rest(self) -> Iterator[bytes]:
        while not self.at_end():
            piece = self._buffer[self._position :]
            self._position = len(self._buffer)
            yield piece

    def _fill(self, count: int) -> None:
        """Gather chunks until `count` bytes are held, or there are no more."""
        held = [self._buffer[self._position :]] if self._position < len(self._buffer) else []
        self._start += self._position
        self._position = 0
        size = len(held[0]) if held else 0
        while size < count and not self._done:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._done = True
            elif chunk:
                held.append(bytes(chunk))
                size += len(chunk)
        self._buffer = held[0] if len(held) == 1 else b"".join(held)


def lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its offset; what follows the last newline is one unless it is empty."""
    offset = 0
    held: list[bytes] = []  # the pieces of a line that goes on: joined once, however many there are
    size = 0
    for chunk in chunks:
        first, *more = chunk.split(b"\n")
        size += len(first)
        bounds.require_piece(size, "a line", offset)
        held.append(first)
        if not more:
            continue
        *whole, last = more
        for line in (b"".join(held), *whole):
            yield offset, line
            offset += len(line) + 1
        held, size = [last], len(last)
    if line := b"".join(held):
        yield offset, line


def regroup(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of exactly `size`; only the last may be shorter."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        whole = len(held) - len(held) % size
        for start in range(0, whole, size):
            yield bytes(held[start : start + size])
        del held[:whole]
    if held:
        yield bytes(held)
