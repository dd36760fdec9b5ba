"""Storages, where bytes live: the one interface, and what it promises.

A storage is opened on a location (a URL) and speaks of paths relative to it, with `/` between
names. The promises every member keeps, and the contract suite checks:

* `write` leaves a whole file or none, also when the process dies in the middle; it replaces what
  was there.
* Nothing written is promised to survive a machine's crash until `sync` has returned. It covers what
  was written through this storage, and what was there when it was opened: an earlier process may
  have been killed before it could sync what we now recognise and leave alone. `create`, `move` and
  `remove` are durable when they return.
* `create` succeeds for exactly one of several that try.
* `list` of a place that is not there is empty; `stat` of it is None; `read` of it raises
  MissingFile.
* A path never leads out of its location: `..`, empty names and a leading slash are refused. The
  empty path is the location itself, so that one that is a single file can be read.
* A name is a file's or a directory's: a `write` that would make it both is refused. Object stores
  have no directories, and there both are files, each whole.
* `list` and `stat` give the same stamp of a file for as long as nobody writes it; one that is
  written again, or put in its place, also with the same size, has another. A storage that cannot
  know gives none.
* Names are bytes a user chose: blanks, `%`, `#`, `?`, `:` and any unicode are taken literally.
* `owners`, `own` are for storages whose traits say so; elsewhere nothing has an owner.
* `checksum` is the storage's own word on a file's content: two that are equal, wherever they come
  from, mean equal bytes, two that differ mean nothing. None where it keeps none, or where asking
  would read the file.
* `room` and `writable` write nothing: they ask, and say None where that is not enough to know. For
  a place that is not there yet the nearest directory above it answers.
* What may pass (a cut connection, a 503) raises TransientStorageError, everything else
  StorageError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from stateshift.survey import FileInfo, Owned, Room

CHUNK = 4 * 1024 * 1024

# Something that can be read from its beginning as often as need be: that is what makes a write
# repeatable.
Content = Callable[[], Iterator[bytes]]


class Input(Protocol):
    """Content that can be read from an offset on as well."""

    def __call__(self, offset: int = 0) -> Iterator[bytes]: ...


class Lane(Protocol):
    """How many files at once a storage is used for at the moment, by all who use it together."""

    def enter(self) -> None: ...

    def leave(self, size: int | None) -> None:
        """One is done, with a file of this size; None where it failed."""
        ...


@dataclass(frozen=True)
class Traits:
    """The abilities beyond the promises; planners ask before they count on them."""

    renames: bool  # `move` is atomic and free, rather than a copy and a delete
    keeps_times: bool  # `write(modified=...)` sets the file's time
    exclusive: bool = True  # `create` is really exclusive between processes
    durable: bool = True  # `sync` is really durable
    # of several that `move` to one path at the same time, all but one are refused
    renames_once: bool = False
    owners: bool = False  # files and directories have an owner, a group and permissions
    # how to make it faster, as a way out for a person; empty where nothing is known
    faster_by: str = ""
    # how many files are worth reading or writing at once at most: many where each waits for a
    # network
    at_once: int = 1
    # how many are worth it now; None where nobody measures
    lane: Lane | None = field(default=None, compare=False)

    @property
    def renames_sooner(self) -> bool:
        """Whether a file gets its name sooner by a rename than by a write."""
        return self.renames_once and self.at_once > 1


class Storage(Protocol):
    """The place of a state's files, all of them named by their path below its location."""

    @property
    def location(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    def list(self, under: str = "") -> Iterator[FileInfo]:
        """Every file below `under`, in any order, without our own temporary files."""
        ...

    def stat(self, path: str) -> FileInfo | None: ...

    def read(self, path: str, size_max: int | None = None) -> bytes:
        """Return the whole file; StorageError if it is larger than `size_max`."""
        ...

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        """Yield the file from `offset` on, in pieces of at most CHUNK bytes. If its `size` is known
        from a listing it need not be asked for again; a file that has another one by now is read
        as it is, as far as one byte beyond.
        """
        ...

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        """Write `content`, whole or not at all, making directories. Return the number of bytes."""
        ...

    def create(self, path: str, content: bytes) -> None:
        """Create `path` with `content` unless it is there (AlreadyThere). Durable."""
        ...

    def move(self, path: str, target_path: str) -> None:
        """Rename within this storage; AlreadyThere by the target, MissingFile by the source."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""
        ...

    def prune(self, under: str = "") -> None:
        """Remove empty directories below `under`, `under` too, and our temporary files in them."""
        ...

    def sync(self) -> None:
        """Make all that was written so far, or was there at opening, survive a crash."""
        ...

    def room(self) -> Room:
        """Return the rest that may be written at the location."""
        ...

    def writable(self, under: str = "") -> bool | None:
        """Whether files may be made in the directory `under`, as far as it can be asked."""
        ...

    def owners(self) -> Iterator[Owned]:
        """Yield the owner of every file and directory, of the location by an empty path."""
        ...

    def own(self, owned: Owned) -> None:
        """Make a file or directory somebody's; what is None stays."""
        ...

    def checksum(self, path: str) -> str | None: ...
