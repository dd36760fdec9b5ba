"""The calls of an HDFS file system, whichever way it is reached: over HTTP (`web`) or natively
(`native`).

Paths are whole, from the root of the file system. Every call raises the StorageErrors of this
package; one that may pass is transient, and nothing here is tried twice but on the next NameNode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Status:
    """One file or directory; `name` is its last name, as a listing gives it."""

    name: str
    is_file: bool
    size: int
    modified: float
    owner: str = ""
    group: str = ""
    mode: int = 0
    id: int | None = None  # of the inode, where it is known


@dataclass(frozen=True)
class Quota:
    """Bytes count as often as they are kept; names are files and directories; None: no quota."""

    bytes_left: int | None
    names_left: int | None


@dataclass(frozen=True)
class Remaining:
    """Bytes on all DataNodes, and how often each byte of a new file is kept."""

    bytes: int
    copies: int


class HdfsCalls(Protocol):
    """The calls of NameNodes and DataNodes, over HTTP or natively."""

    def status(self, path: str) -> Status | None: ...

    def children(self, path: str) -> Iterator[Status]:
        """Yield the entries of a directory; none if it is not there, or is a file."""
        ...

    def open(self, path: str, offset: int, length: int | None) -> Iterator[bytes]:
        """The file's bytes; fewer than there are is a TransientStorageError, never a short end."""
        ...

    def create(self, path: str, chunks: Iterator[bytes]) -> int:
        """Write or replace a file, and make its directories. A failure may leave half of it."""
        ...

    def rename(self, path: str, target: str, replace: bool) -> None:
        """Rename, atomically. AlreadyThere if the target is and stays; a directory always stays."""
        ...

    def delete(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None: ...

    def set_modified(self, path: str, modified: float) -> None: ...

    def may_write(self, directory: str) -> bool | None:
        """Whether the user may add names to a directory (MissingFile); None where unknown."""
        ...

    def quota(self, directory: str) -> Quota | None:
        """Return the rest of this very directory's quota, None if that is not known."""
        ...

    def remaining(self) -> Remaining | None:
        """Return the rest of the whole file system, None if that is not known."""
        ...

    def own(self, path: str, owner: str | None, group: str | None, mode: int | None) -> None:
        """Owner, group and permissions; None stays."""
        ...

    def checksum(self, path: str) -> str | None:
        """Return HDFS's own checksum of a file, with how it was made; None if it has none."""
        ...
