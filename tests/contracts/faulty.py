"""Faulty: a storage that tells a plan of every effect, before and after it, and of each piece
inside a write.

    effects = Effects(at(7, Killed))  one plan, shared by every storage of a run
    Faulty(storage, effects)          raises Killed at the seventh moment
    Effects().seen                    what a run without a fault does: as many places to fail at

A plan is called with each moment, from the thread that has the effect. It may raise (the effect
does not happen, if this is before it; its answer is lost, if this is after it), call back, or do
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from stateshift.storage.protocol import Content, Storage, Traits
from stateshift.survey import FileInfo, Owned, Room

Kind = Literal["write", "create", "move", "remove", "prune", "sync", "own"]
When = Literal["before", "inside", "after"]


@dataclass(frozen=True, slots=True)
class Moment:
    """`number` counts from 1 over all storages that share the plan."""

    number: int
    kind: Kind
    when: When
    location: str
    path: str


class Killed(BaseException):
    """What a process that is killed raises: nothing catches it by accident."""


Plan = Callable[[Moment], None]


class Effects:
    """Counts the moments and hands each to the plan; remembers them."""

    def __init__(self, plan: Plan | None = None) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self.seen: list[Moment] = []

    def reach(self, kind: Kind, when: When, location: str, path: str) -> None:
        with self._lock:
            moment = Moment(len(self.seen) + 1, kind, when, location, path)
            self.seen.append(moment)
        if self._plan is not None:
            self._plan(moment)


def at(
    number: int, error: Callable[[], BaseException], first: Callable[[], object] = lambda: None
) -> Plan:
    """At the moment of this number: call `first` (such as `disk.kill`), then raise. Any later
    moment raises too: other threads of a killed process do nothing more either.
    """

    def plan(moment: Moment) -> None:
        if moment.number == number:
            first()
        if moment.number >= number:
            raise error()

    return plan


def once(number: int, error: Callable[[], BaseException]) -> Plan:
    """At the moment of this number raise, and go on as if nothing had been afterwards."""

    def plan(moment: Moment) -> None:
        if moment.number == number:
            raise error()

    return plan


class Stepwise:
    """A storage whose every effect has moments: before it, after it, and inside a write."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def _reach(self, kind: str, when: When, path: str) -> None:
        raise NotImplementedError

    def _pieces(self, path: str, content: Content) -> Iterator[bytes]:
        raise NotImplementedError

    @property
    def location(self) -> str:
        return self._storage.location

    @property
    def traits(self) -> Traits:
        return self._storage.traits

    def list(self, under: str = "") -> Iterator[FileInfo]:
        return self._storage.list(under)

    def stat(self, path: str) -> FileInfo | None:
        return self._storage.stat(path)

    def read(self, path: str, size_max: int | None = None) -> bytes:
        return self._storage.read(path, size_max)

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        return self._storage.chunks(path, offset, size)

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        self._reach("write", "before", path)
        size = self._storage.write(path, lambda: self._pieces(path, content), modified)
        self._reach("write", "after", path)
        return size

    def create(self, path: str, content: bytes) -> None:
        self._around("create", path, lambda: self._storage.create(path, content))

    def move(self, path: str, target_path: str) -> None:
        self._around("move", path, lambda: self._storage.move(path, target_path))

    def remove(self, path: str) -> None:
        self._around("remove", path, lambda: self._storage.remove(path))

    def prune(self, under: str = "") -> None:
        self._around("prune", under, lambda: self._storage.prune(under))

    def sync(self) -> None:
        self._around("sync", "", self._storage.sync)

    def room(self) -> Room:
        return self._storage.room()

    def writable(self, under: str = "") -> bool | None:
        return self._storage.writable(under)

    def owners(self) -> Iterator[Owned]:
        return self._storage.owners()

    def own(self, owned: Owned) -> None:
        self._around("own", owned.path, lambda: self._storage.own(owned))

    def checksum(self, path: str) -> str | None:
        return self._storage.checksum(path)

    def _around(self, kind: Kind, path: str, effect: Callable[[], None]) -> None:
        self._reach(kind, "before", path)
        effect()
        self._reach(kind, "after", path)


class Faulty(Stepwise):
    """A storage whose every effect can fail."""

    def __init__(self, storage: Storage, effects: Effects) -> None:
        super().__init__(storage)
        self._effects = effects

    def _pieces(self, path: str, content: Content) -> Iterator[bytes]:
        for chunk in content():
            half = len(chunk) // 2
            yield chunk[:half]
            self._reach("write", "inside", path)
            yield chunk[half:]

    def _reach(self, kind: Kind, when: When, path: str) -> None:
        self._effects.reach(kind, when, self.location, path)
