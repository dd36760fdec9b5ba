"""A large local file in pieces, of which one that is written as it was read is copied by the system
itself.

    piece = reading.read(PIECE)  a thread reads,
    write(descriptor, piece)     and writes what it has read last: the system is handed both files,
                                 not the bytes

That saves the way back out of this process, and where the file system can, nothing is copied at
all: XFS and Btrfs let both files have the same blocks, NFS 4.2 copies where they lie, as with cp.
The bytes that were read are hashed. Between the two the file must not change: an engine never
writes into a file of an image, it replaces it, and who has one open then still reads what it was.
Whatever hinders the system (two file systems, an old kernel), the bytes are written instead.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Final

from stateshift.storage.local import calls

# Read at once, it is still in a core's own cache when it is hashed: with 4 MiB a copy takes twice
# as long.
PIECE: Final = 256 * 1024

_copy_range = getattr(os, "copy_file_range", None)  # Linux


class OpenFile:
    """A file that is read from where its descriptor stands, by one thread at a time."""

    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor: int | None = descriptor
        self._offset = offset

    def read(self, size: int) -> bytes:
        assert self._descriptor is not None
        piece = os.read(self._descriptor, size)
        if len(piece) == PIECE:
            _last.piece, _last.file, _last.offset = piece, self, self._offset
        self._offset += len(piece)
        return piece

    def close(self) -> None:
        """Close the file. Its number may become another's: whoever has a piece has its bytes."""
        descriptor, self._descriptor = self._descriptor, None
        if _last.file is self:
            _last.piece, _last.file = None, None
        if descriptor is not None:
            os.close(descriptor)

    def copy(self, offset: int, size: int, descriptor: int) -> int:
        """Have the system copy to where another descriptor stands. Return how much it copied."""
        if self._descriptor is None or _copy_range is None:
            return 0
        copied = 0
        # A full disk is among the errors: whoever then writes the bytes meets it, too.
        with contextlib.suppress(OSError):
            while copied < size:
                more = _copy_range(self._descriptor, descriptor, size - copied, offset + copied)
                if not more:
                    break
                copied += more
        return copied


class _Last(threading.local):
    """The piece that a thread has read last, while its file is open."""

    piece: bytes | None = None
    file: OpenFile | None = None
    offset: int = 0


_last = _Last()


def write(descriptor: int, piece: bytes) -> None:
    """Write all of a piece."""
    copied = 0
    if piece is _last.piece and _last.file is not None:
        copied = _last.file.copy(_last.offset, len(piece), descriptor)
    if copied < len(piece):
        calls.write(descriptor, memoryview(piece)[copied:])
