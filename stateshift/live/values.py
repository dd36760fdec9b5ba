"""Values in the files of a group's folder, of its chains and of its bins; and a wait for files of
others.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from stateshift.errors import (
    AlreadyThere,
    FormatError,
    MissingFile,
    PlanError,
    StorageError,
    TransientStorageError,
)
from stateshift.live.protocol.chains import decode, encode
from stateshift.storage.protocol import Storage
from stateshift.storage.temporaries import apart

T = TypeVar("T")

SMALL = 1 << 20  # bytes; larger files say so
POLL_SECONDS = 0.01
POLL_SECONDS_MAX = 0.5


class ValueFiles:
    """A folder's files on any storage; `hints` are by kinds of values that cannot be read."""

    hints: ClassVar[Mapping[type, str]] = {}

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @property
    def location(self) -> str:
        return self.storage.location

    def _first(self, kind: type[T], path: str, value: T) -> T:
        """Create a file if it is absent; return what it holds, by whomever."""
        try:
            self.storage.create(path, encode(value))
        except AlreadyThere:
            held = self._read(kind, path)
            assert held is not None, "what was created is never removed while it is asked for"
            return held
        return value

    def _create(self, path: str, content: bytes, size_max: int = SMALL) -> None:
        """Create a file with a content that nobody else has; AlreadyThere where it is another's. It
        is our own where the answer to an earlier try was lost.
        """
        try:
            self.storage.create(path, content)
        except AlreadyThere:
            if self._bytes(path, size_max) != content:
                raise

    def _all(self, kind: type[T], under: str) -> tuple[T, ...]:
        """Return the values below a place, in the order of their names."""
        paths = sorted(file.path for file in self.storage.list(under))
        found = [self._read(kind, path) for path in paths if path.endswith(".json")]
        return tuple(one for one in found if one is not None)

    def _read(self, kind: type[T], path: str, size_max: int = SMALL) -> T | None:
        content = self._bytes(path, size_max)
        if content is None:
            return None
        try:
            return decode(kind, content, f"{self.location}/{path}")
        except FormatError as error:
            raise error.with_hint(self.hints.get(kind)) from None

    def _bytes(self, path: str, size_max: int = SMALL) -> bytes | None:
        try:
            return self.storage.read(path, size_max)
        except MissingFile:
            return None

    def _write(self, path: str, content: bytes) -> None:
        # Several processes may write one file at once, each whole.
        with apart(f"{socket.gethostname()}:{os.getpid()}:{id(self.storage)}"):
            self.storage.write(path, lambda: iter((content,)))

    def _write_durably(self, path: str, content: bytes) -> None:
        """Write a file that whoever starts after a crash of the machine has to read."""
        self._write(path, content)
        self.storage.sync()


@contextmanager
def proposing(what: str, nothing: str, location: str) -> Iterator[None]:
    """Tell whoever proposes that somebody else was first, or that `nothing` was done of it."""
    try:
        yield
    except AlreadyThere:
        raise PlanError(
            f"somebody else has proposed {what} in this moment",
            hint=live_command("status", location),
        ) from None
    except TransientStorageError:
        raise
    except StorageError as error:
        hint = f"{nothing}: when that is mended, run this command again"
        raise error.with_hint(hint) from None


def live_command(*words: str) -> str:
    """Return a command about a group, to be pasted."""
    return shlex.join(("stateshift", "live", *words))


def number_in(name: str) -> int | None:
    """Return the number that names a file or a directory; None where somebody else put it."""
    return int(name) if name.isdecimal() and name.isascii() else None


@dataclass(eq=False)
class Pause:
    """A wait that is a little longer each time that nothing has happened."""

    _wait: Callable[[float], None]
    _seconds: float = field(default=POLL_SECONDS, init=False)

    def __call__(self) -> None:
        self._wait(self._seconds)
        self._seconds = min(self._seconds * 1.1, POLL_SECONDS_MAX)
