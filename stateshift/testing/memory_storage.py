"""A disk in memory, shared by the storages that are opened on it: the twin that every test may use.

    MemoryDisk       one machine: files by their full location, and what of them a crash would leave
      kill()           as SIGKILL: who had it open has no effect any more; temporary files stay
      crash(random)    as a power cut: also, each write that was not synced is kept, torn or lost
      snapshot()       what is there, for assertions
    MemoryStorage    one location on a disk

A crash is as unkind as XFS or ext4 may be: a rename that was not preceded by fsync can leave the
new name with the old content, with none, or with the first part of the new. The effects of
`create`, `move` and `remove` are never lost. Directories exist, so that a file cannot take the
place of one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random as randoms
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import filterfalse

from stateshift.storage import failures, locations
from stateshift.storage.protocol import CHUNK, Content, Traits
from stateshift.storage.temporaries import is_temporary, temporary, unique_temporary
from stateshift.survey import FileInfo, Owned, Room


class ProcessGone(BaseException):
    """The process that this storage belonged to was killed: nothing it still does has an effect."""


_OURS = Owned("", "us", "ours", 0o644)


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    modified: float
    storage: int = 0  # through which it was written
    number: int = 0  # of all writes that were not durable at once
    stamp: str = ""


@dataclass(slots=True)
class _History:
    """The durable content (None for nothing) and every write since: a crash chooses one."""

    durable: _File | None
    writes: list[_File] = field(default_factory=list)

    def survivor(self, random: randoms.Random) -> _File | None:
        choices = [self.durable, *self.writes]
        chosen = random.choice(choices)
        if chosen is None or chosen is self.durable or random.random() < 0.5:
            return chosen
        return replace(chosen, content=chosen.content[: random.randint(0, len(chosen.content))])

    def settle(self, storage: int, inherited: int) -> None:
        """Make durable the last write of a storage, or up to number `inherited`, and all before."""
        for place in reversed(range(len(self.writes))):
            write = self.writes[place]
            if write.storage == storage or write.number <= inherited:
                self.durable = write
                del self.writes[: place + 1]
                return


class MemoryDisk:
    """Files by their full location. Thread-safe; everything it lists is in order."""

    def __init__(
        self, now: Callable[[], float] = lambda: 0.0, bytes_max: int | None = None, at_once: int = 1
    ) -> None:
        self.at_once = at_once
        self.lock = threading.RLock()
        self.now = now
        self.bytes_max = bytes_max
        self.bytes = 0
        self.denied: set[str] = set()  # locations at and below which nobody may write
        self.generation = 0
        self.writes = 0
        self._storages = 0
        self._stamps = 0
        self._files: dict[str, _File] = {}
        self._directories: set[str] = set()
        self.owned: dict[str, Owned] = {}
        self._unsynced: dict[str, _History] = {}
        self._writing: set[str] = set()

    def open(self, location: str) -> MemoryStorage:
        return MemoryStorage(self, location)

    def kill(self) -> None:
        with self.lock:
            self.generation += 1
            self._writing.clear()

    def crash(self, random: randoms.Random) -> None:
        with self.lock:
            self.kill()
            for name, history in sorted(self._unsynced.items()):
                self._drop(name)
                survivor = history.survivor(random)
                if survivor is not None:
                    self._store(name, survivor)
            self._unsynced.clear()

    def snapshot(self, location: str = "", temporaries: bool = False) -> dict[str, bytes]:
        prefix = _above_all(locations.normal(location)) if location else ""
        with self.lock:
            names = [name for name in sorted(self._files) if name.startswith(prefix)]
            if not temporaries:
                names = list(filterfalse(is_temporary, names))
            return {name[len(prefix) :]: self._files[name].content for name in names}

    def register(self) -> int:
        with self.lock:
            self._storages += 1
            return self._storages

    def names(self, below: str) -> list[str]:
        prefix = _above_all(below)
        return sorted(name for name in self._files if name.startswith(prefix))

    def everything(self, top: str) -> list[str]:
        names = sorted({*self._files, *self._directories})
        return [name for name in names if _lies_at(name, top)]

    def get(self, name: str) -> _File | None:
        return self._files.get(name)

    def is_directory(self, name: str) -> bool:
        return name in self._directories

    def make_way(self, name: str) -> None:
        if self.is_denied(name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        if name in self._directories:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        for directory in _above(name):
            if directory in self._files:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
            self._directories.add(directory)

    def is_denied(self, name: str) -> bool:
        return any(f"{name}/".startswith(_above_all(place)) for place in self.denied)

    def check_room(self, size: int) -> None:
        if self.bytes_max is not None and self.bytes + size > self.bytes_max:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def begin(self, name: str) -> str:
        temp = temporary(name)
        if temp in self._writing:
            temp = unique_temporary(name)
        self._writing.add(temp)
        self._drop(temp)
        self._store(temp, _File(b"", 0.0))
        return temp

    def end(self, temp: str, generation: int, collected: bytes) -> None:
        """Tidy up after a write. A process that was killed does not: its file stays."""
        with self.lock:
            if generation == self.generation:
                self._writing.discard(temp)
                self._drop(temp)
            elif temp in self._files and temp not in self._writing:
                self._drop(temp)
                self._store(temp, _File(collected, 0.0))

    def put(self, name: str, file: _File, durable: bool) -> None:
        before = self._files.get(name)
        if durable:
            self._unsynced.pop(name, None)
        else:
            self.writes += 1
            file = replace(file, number=self.writes)
            self._unsynced.setdefault(name, _History(before)).writes.append(file)
        self._drop(name)
        self._store(name, file)

    def delete(self, name: str) -> None:
        self._unsynced.pop(name, None)
        self._drop(name)

    def settle(self, storage: int, top: str, opened: int) -> None:
        below = _above_all(top)
        for name, history in list(self._unsynced.items()):
            inherited = opened if name.startswith(below) else 0
            history.settle(storage, inherited)
            if not history.writes:
                del self._unsynced[name]

    def prune(self, top: str) -> None:
        for name in filter(is_temporary, self.names(top)):
            if name not in self._writing:
                self._drop(name)
        in_use: set[str] = set()
        for name in self._files:
            in_use.update(_above(name))
        empty = self._directories - in_use
        self._directories -= {directory for directory in empty if _lies_at(directory, top)}

    def _store(self, name: str, file: _File) -> None:
        if not file.stamp:
            self._stamps += 1
            file = replace(file, stamp=f"{self._stamps:x}")
        self._files[name] = file
        self.bytes += len(file.content)

    def _drop(self, name: str) -> None:
        gone = self._files.pop(name, None)
        self.owned.pop(name, None)
        self.bytes -= len(gone.content) if gone is not None else 0


class MemoryStorage:
    """A location on a MemoryDisk."""

    def __init__(self, disk: MemoryDisk, location: str) -> None:
        self._disk = disk
        self._location = locations.normal(location)
        self._id = disk.register()
        self._generation = disk.generation
        self._opened = disk.writes

    @property
    def location(self) -> str:
        return self._location

    @property
    def traits(self) -> Traits:
        return Traits(
            renames=True,
            keeps_times=True,
            renames_once=True,
            owners=True,
            at_once=self._disk.at_once,
        )

    def list(self, under: str = "") -> Iterator[FileInfo]:
        start = len(_above_all(self._location))
        with self._alive() as disk:
            names = filterfalse(is_temporary, disk.names(self._full(under)))
            files = {name[start:]: disk.get(name) for name in names}
        return iter([_info(path, file) for path, file in files.items() if file is not None])

    def stat(self, path: str) -> FileInfo | None:
        full = self._full(path)
        with self._alive() as disk:
            file = disk.get(full)
        return None if file is None else _info(path, file)

    def read(self, path: str, size_max: int | None = None) -> bytes:
        content = self._file(path).content
        if size_max is not None and len(content) > size_max:
            raise failures.too_large(self._location, path, len(content), size_max)
        return content

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        assert offset >= 0, "whoever reads an offset refuses one below zero"
        content = self._file(path).content
        for start in range(offset, len(content), CHUNK):
            yield content[start : start + CHUNK]

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        full = self._full(path)
        with self._alive() as disk, self._translated(path):
            disk.make_way(full)
            temp = disk.begin(full)
        collected = bytearray()
        try:
            for chunk in content():
                with self._alive() as disk, self._translated(path):
                    disk.check_room(len(collected) + len(chunk))
                collected += chunk
            with self._alive() as disk, self._translated(path):
                disk.make_way(full)
                when = disk.now() if modified is None else modified
                disk.put(full, _File(bytes(collected), when, self._id), durable=False)
        finally:
            self._disk.end(temp, self._generation, bytes(collected))
        return len(collected)

    def create(self, path: str, content: bytes) -> None:
        full = self._full(path)
        with self._alive() as disk, self._translated(path):
            if disk.get(full) is not None or disk.is_directory(full):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), full)
            disk.make_way(full)
            disk.check_room(len(content))
            disk.put(full, _File(content, disk.now(), self._id), durable=True)

    def move(self, path: str, target_path: str) -> None:
        full, target = self._full(path), self._full(target_path)
        with self._alive() as disk, self._translated(target_path):
            file = self._file(path)
            if disk.get(target) is not None or disk.is_directory(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            disk.make_way(target)
            disk.delete(full)
            disk.put(target, file, durable=True)

    def remove(self, path: str) -> None:
        full = self._full(path)
        with self._alive() as disk, self._translated(path):
            if disk.is_directory(full):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), full)
            disk.delete(full)

    def prune(self, under: str = "") -> None:
        with self._alive() as disk:
            disk.prune(self._full(under))

    def sync(self) -> None:
        with self._alive() as disk:
            disk.settle(self._id, self._location, self._opened)

    def room(self) -> Room:
        with self._alive() as disk:
            free = None if disk.bytes_max is None else max(0, disk.bytes_max - disk.bytes)
        return Room(free, None, 1, "the disk in memory", "its disk")

    def writable(self, under: str = "") -> bool | None:
        full = self._full(under)
        with self._alive() as disk:
            return not disk.is_denied(full)

    def owners(self) -> Iterator[Owned]:
        start = len(_above_all(self._location))
        with self._alive() as disk:
            names = filterfalse(is_temporary, disk.everything(self._location))
            owners = {name[start:]: disk.owned.get(name, _OURS) for name in names}
        return iter([owned._replace(path=path) for path, owned in owners.items()])

    def own(self, owned: Owned) -> None:
        full = self._full(owned.path)
        with self._alive() as disk:
            before = disk.owned.get(full, _OURS)
            given = {key: value for key, value in owned._asdict().items() if value is not None}
            disk.owned[full] = before._replace(**given)

    def checksum(self, path: str) -> str | None:
        """Return None, as a file system that keeps no checksums."""
        return None

    def _full(self, path: str) -> str:
        locations.check_path(path)
        return _above_all(self._location) + path if path else self._location

    def _file(self, path: str) -> _File:
        full = self._full(path)
        with self._alive() as disk:
            file = disk.get(full)
        if file is None:
            raise failures.missing(self._location, path)
        return file

    @contextlib.contextmanager
    def _alive(self) -> Iterator[MemoryDisk]:
        with self._disk.lock:
            if self._generation != self._disk.generation:
                raise ProcessGone
            yield self._disk

    @contextlib.contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise failures.from_os(error, self._location, path) from error


def _info(path: str, file: _File) -> FileInfo:
    return FileInfo(path, len(file.content), file.modified, file.stamp)


def _above(name: str) -> Iterator[str]:
    start = name.index("://") + 3
    for position in range(name.find("/", start), len(name)):
        if name[position] == "/" and position > start:
            yield name[:position]


def _above_all(location: str) -> str:
    return location if location.endswith("/") else location + "/"


def _lies_at(name: str, top: str) -> bool:
    return name == top or name.startswith(_above_all(top))
