"""A file that is taken away in pieces while it is being written."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Pieces(io.RawIOBase):
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
