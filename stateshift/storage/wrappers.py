"""Behaviour added to a storage by wrapping it: Retrying, Throttled, Guarded, Unsynced, Rearranged,
Sparing. The interface stays.

    Throttled(Retrying(storage, ...), pace)  each attempt is not counted twice
    Retrying(Throttled(storage, pace), ...)  each attempt is: the service sees no more than the pace

Only TransientStorageError is retried, and only here.

The number of files a storage is used for at once is learned by trying, as TCP learns a network:

    Width  the law: what rounds of work have moved goes in, a number comes out. No threads, no
           clock
    Lane   one storage's width, shared by all threads of a run that use it; who has to wait sleeps

A width begins with a quarter of what the storage's traits allow at most and doubles while that
brings more. From then on each round adds a little, and one in which each took clearly longer than
it need takes a quarter away. How long each took (as many as are at work, by what they bring a
second) is held against the shortest there was, and not the rate against the best: a smaller width
brings less because it is smaller, and a service that stalls for a moment would be left with a width
of one, forever. A service that says it is too much (429, 503) halves the width at once.
"""

from __future__ import annotations

import logging
import math
import random as randoms
import threading
import time
from abc import ABC
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, Protocol, TypeVar

from stateshift.errors import (
    AlreadyThere,
    Interrupted,
    MissingFile,
    StorageError,
    TransientStorageError,
)
from stateshift.storage import locations
from stateshift.storage.protocol import Content, Storage, Traits
from stateshift.survey import FileInfo, Owned, Room

T = TypeVar("T")

_log = logging.getLogger(__name__)

# An operation on a local disk is logged where it takes as long as this: of thousands of small files
# it takes less time than its record would.
LOCAL_MILLISECONDS = 10.0

# For so long an answer to "who owns this location" counts.
GUARD_SECONDS = 1.0

MORE: Final = 1.1  # a doubling has to bring this much to be followed by another
LONGER: Final = 2.0  # than need be: clearly, and not a machine's mood
# How long one need take grows so, each time that it took longer: services change.
FORGETTING: Final = 1.25
STEPS: Final = 16  # from nothing to the most, by additions

ROUND_SECONDS: Final = 0.1
ROUND_FILES: Final = 8
FILE_BYTES: Final = 256 * 1024  # moving so many takes as long as a file of its own


class Clock(Protocol):
    """The clock of a World, so that tests need not wait."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True)
class Patience:
    """How often to try, and how long to wait in between.

    Waits are exponential with full jitter: at random between nothing and a bound that starts at
    `seconds_first`, doubles each time and never exceeds `seconds_max`: thirteen seconds in all
    on average and 25 at most, beside what the attempts take.
    """

    attempts_max: int = 8
    seconds_first: float = 0.2
    seconds_max: float = 20.0

    def bound(self, attempt: int) -> float:
        """Return the most seconds to wait after this attempt, of which the first is 1."""
        return min(self.seconds_max, self.seconds_first * 2.0 ** (attempt - 1))


PATIENCE = Patience()


class _Wrapper(ABC):
    _storage: Storage

    @property
    def location(self) -> str:
        return self._storage.location

    @property
    def traits(self) -> Traits:
        return self._storage.traits

    def _do(self, verb: str, path: str, operation: Callable[[], T]) -> T:
        return operation()

    def list(self, under: str = "") -> Iterator[FileInfo]:
        return self._do("list", under, lambda: self._storage.list(under))

    def stat(self, path: str) -> FileInfo | None:
        return self._do("stat", path, lambda: self._storage.stat(path))

    def read(self, path: str, size_max: int | None = None) -> bytes:
        return self._do("read", path, lambda: self._storage.read(path, size_max))

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        return self._do("write", path, lambda: self._storage.write(path, content, modified))

    def create(self, path: str, content: bytes) -> None:
        self._do("create", path, lambda: self._storage.create(path, content))

    def move(self, path: str, target_path: str) -> None:
        self._do("move", path, lambda: self._storage.move(path, target_path))

    def remove(self, path: str) -> None:
        self._do("remove", path, lambda: self._storage.remove(path))

    def prune(self, under: str = "") -> None:
        self._do("prune", under, lambda: self._storage.prune(under))

    def sync(self) -> None:
        self._do("sync", "", self._storage.sync)

    def room(self) -> Room:
        return self._do("free space of", "", self._storage.room)

    def writable(self, under: str = "") -> bool | None:
        return self._do("permission of", under, lambda: self._storage.writable(under))

    def owners(self) -> Iterator[Owned]:
        return self._do("owners of", "", self._storage.owners)

    def own(self, owned: Owned) -> None:
        self._do("own", owned.path, lambda: self._storage.own(owned))

    def checksum(self, path: str) -> str | None:
        return self._do("checksum of", path, lambda: self._storage.checksum(path))


class Retrying(_Wrapper):
    """Every operation, repeated while it fails with what may pass; a stream goes on where it was.

    An answer can be lost after its effect has happened. If a repeated `create` finds the path taken
    by exactly our content, it takes it for its own: what is created exclusively has to say whose it
    is. A repeated `move` whose source is gone and whose target is there has happened.

    A failure is also a sign that fewer at once would be better: the storage's lane narrows.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        random: randoms.Random | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._random = random or randoms.Random()
        self._patience = patience
        # The bound of files in flight; None if there is one at a time.
        at_once = storage.traits.at_once
        self._lane = Lane(at_once, clock.now) if at_once > 1 else None
        self._traits = replace(storage.traits, lane=self._lane)
        self._shown = locations.redact(storage.location.rstrip("/"))
        local = storage.location.startswith("file:")
        self._logged_milliseconds = LOCAL_MILLISECONDS if local else 0.0

    @property
    def traits(self) -> Traits:
        return self._traits

    def list(self, under: str = "") -> Iterator[FileInfo]:
        # Whole or not at all: half of one listing and half of another are no listing.
        return iter(self._do("list", under, lambda: tuple(self._storage.list(under))))

    def owners(self) -> Iterator[Owned]:
        return iter(self._do("owners of", "", lambda: tuple(self._storage.owners())))

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        attempt, began, first = 0, time.perf_counter(), offset
        while True:
            try:
                for chunk in self._storage.chunks(path, offset, size):
                    offset += len(chunk)
                    attempt = 0  # it moves: what counts is failing at one place
                    yield chunk
            except TransientStorageError as error:
                attempt += 1
                self._wait("read", path, attempt, error)
            else:
                self._log_done("read", path, began, offset - first)
                return

    def create(self, path: str, content: bytes) -> None:
        attempts = count(1)

        def once() -> None:
            first = next(attempts) == 1
            try:
                self._storage.create(path, content)
            except AlreadyThere:
                if first or self._storage.read(path) != content:
                    raise

        self._do("create", path, once)

    def move(self, path: str, target_path: str) -> None:
        attempts = count(1)

        def once() -> None:
            first = next(attempts) == 1
            try:
                self._storage.move(path, target_path)
            except MissingFile:
                if first or self._storage.stat(target_path) is None:
                    raise

        self._do("move", path, once)

    def _do(self, verb: str, path: str, operation: Callable[[], T]) -> T:
        attempt, began = 0, time.perf_counter()
        while True:
            try:
                result = operation()
            except TransientStorageError as error:
                attempt += 1
                self._wait(verb, path, attempt, error)
            else:
                self._log_done(verb, path, began, result)
                return result

    def _log_done(self, verb: str, path: str, began: float, result: object) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            milliseconds = (time.perf_counter() - began) * 1000
            if milliseconds >= self._logged_milliseconds:
                amount = ""
                if isinstance(result, tuple):
                    amount = f", {len(result)} files"
                elif isinstance(result, bytes):
                    amount = f", {len(result)} bytes"
                elif isinstance(result, int) and not isinstance(result, bool):
                    amount = f", {result} bytes"
                _log.debug("%s %s/%s: %.1f ms%s", verb, self._shown, path, milliseconds, amount)

    def _wait(self, verb: str, path: str, attempt: int, error: TransientStorageError) -> None:
        attempts_max = self._patience.attempts_max
        if attempt >= attempts_max:
            # Not transient any more: whoever reads from here while writing there must not begin
            # again.
            raise StorageError(
                f"{error.fact} (given up after {attempt} attempts)",
                location=error.location,
                hint=error.hint or "stateshift resume WORKDIR",
            ) from error
        if self._lane is not None:
            self._lane.pushed_back()
        seconds = self._random.uniform(0, self._patience.bound(attempt))
        _log.warning(
            "%s %s/%s: attempt %d of %d failed, again in %.1f s: %s",
            *(verb, self._shown, path, attempt, attempts_max, seconds),
            locations.redact(error.fact),
        )
        self._clock.sleep(seconds)


class Width:
    """Additive increase, multiplicative decrease, between 1 and `most`."""

    def __init__(self, most: int) -> None:
        assert most >= 1
        self.most = most
        self.now = max(1, most // 4)
        self._rate = 0.0
        self._seconds = math.inf  # that one need take
        self._doubling = True

    def measured(self, rate: float) -> None:
        """A round has ended that moved so much a second."""
        seconds = self.now / rate
        if self._doubling:
            self._doubling = rate > self._rate * MORE
            self._set(self.now * 2 if self._doubling else self.now)
            self._rate = rate
        elif seconds > self._seconds * LONGER:
            self._set(self.now * 3 // 4)
            self._seconds *= FORGETTING
        else:
            self._set(self.now + max(1, self.most // STEPS))
        self._seconds = min(self._seconds, seconds)

    def pushed_back(self) -> None:
        """The service has said that it is too much."""
        self._set(self.now // 2)
        self._doubling = False

    def _set(self, width: int) -> None:
        self.now = min(self.most, max(1, width))


class Lane:
    """Thread-safe. `now` is a clock's, in seconds."""

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self._width = Width(most)
        self._now = now
        self._free = threading.Condition()
        self._inside = 0
        # How many have not left of those that were inside when the service pushed back.
        self._too_many = 0
        self._round = _Round(now())

    @property
    def most(self) -> int:
        return self._width.most

    @property
    def width(self) -> int:
        return self._width.now

    def enter(self) -> None:
        """Wait until one more may be at work. An empty lane begins a new round."""
        with self._free:
            self._free.wait_for(lambda: self._inside < self._width.now)
            if self._inside == 0:
                self._round = _Round(self._now())
            self._inside += 1

    def leave(self, size: int | None) -> None:
        """One is done, with a file of this size; None where it failed."""
        with self._free:
            full = self._inside >= self._width.now
            self._inside -= 1
            if self._too_many:
                self._too_many -= 1
                self._round = _Round(self._now())
            elif size is not None:
                self._round.add(size, full)
                self._end_round()
            self._free.notify_all()

    def pushed_back(self) -> None:
        with self._free:
            if not self._too_many:
                self._width.pushed_back()
                self._too_many = max(1, self._inside)

    def _end_round(self) -> None:
        ended = self._round
        seconds = self._now() - ended.began
        if ended.files < max(ROUND_FILES, self._width.now) or seconds < ROUND_SECONDS:
            return
        if ended.full * 2 > ended.files:  # it was bounded by the width
            self._width.measured(ended.work / seconds)
        self._round = _Round(self._now())


@dataclass(eq=False)
class _Round:
    began: float
    files: int = field(default=0, init=False)
    full: int = field(default=0, init=False)
    work: float = field(default=0.0, init=False)

    def add(self, size: int, full: bool) -> None:
        self.files += 1
        self.full += full
        self.work += 1 + size / FILE_BYTES


class Pace:
    """A limit of speed: a token bucket for bytes and one for operations, shared by all threads of
    all storages it is given to.

    Rates may be changed at any time; None means as fast as it goes. A bucket holds what
    `burst_seconds` bring. Taking more than it holds is allowed and waited for afterwards, so that
    one chunk may be larger than the bucket.
    """

    def __init__(
        self,
        clock: Clock,
        bytes_per_second: float | None = None,
        operations_per_second: float | None = None,
        burst_seconds: float = 1.0,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.operations_per_second = operations_per_second
        self._clock = clock
        self._bytes = _Bucket(clock, burst_seconds)
        self._operations = _Bucket(clock, burst_seconds)

    def operation(self) -> None:
        self._clock_sleep(self._operations.take(1, self.operations_per_second))

    def bytes(self, count: int) -> None:
        self._clock_sleep(self._bytes.take(count, self.bytes_per_second))

    def _clock_sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._clock.sleep(seconds)


class StoppedPace(Pace):
    """A pace without a limit, which ends with Interrupted once `stop` is set."""

    def __init__(self, clock: Clock, stop: threading.Event) -> None:
        super().__init__(clock)
        self._stop = stop

    def operation(self) -> None:
        if self._stop.is_set():
            raise Interrupted("the call was cancelled")

    def bytes(self, count: int) -> None:
        self.operation()


class _Bucket:
    def __init__(self, clock: Clock, burst_seconds: float) -> None:
        self._clock = clock
        self._burst_seconds = burst_seconds
        self._lock = threading.Lock()
        self._debt = 0.0  # beyond what is held; below zero: tokens at hand
        self._seen = clock.now()
        self._unlimited = False

    def take(self, count: float, rate: float | None) -> float:
        if not rate:
            self._unlimited = True  # as most are: no lock, and no look at the clock
            return 0.0
        with self._lock:
            now = self._clock.now()
            if self._unlimited:  # a limit begins: nothing is owed, and nothing saved up
                self._unlimited, self._seen, self._debt = False, now, 0.0
            # A clock that is set back must not make anybody wait for it.
            passed, self._seen = max(0.0, now - self._seen), now
            self._debt = max(self._debt - passed * rate, -self._burst_seconds * rate) + count
            return max(0.0, self._debt / rate)


@dataclass(eq=False)
class Throttled(_Wrapper):
    """No faster than the pace: each call is an operation, each byte read or written counts."""

    _storage: Storage
    _pace: Pace

    def read(self, path: str, size_max: int | None = None) -> bytes:
        content = super().read(path, size_max)
        self._pace.bytes(len(content))
        return content

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        chunks = self._do("read", path, lambda: self._storage.chunks(path, offset, size))
        return self._paced(chunks)

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        return super().write(path, lambda: self._paced(content()), modified)

    def create(self, path: str, content: bytes) -> None:
        self._pace.operation()
        self._pace.bytes(len(content))
        self._storage.create(path, content)

    def _do(self, verb: str, path: str, operation: Callable[[], T]) -> T:
        self._pace.operation()
        return operation()

    def _paced(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._pace.bytes(len(chunk))
            yield chunk


class Guarded(Throttled):
    """No faster than the pace, and nothing is written once somebody else owns the location:
    `refuse` raises then. It is asked before a write, and once more before the file gets its name,
    but not more often than each GUARD_SECONDS: a new owner waits that long before it writes.
    """

    def __init__(
        self, storage: Storage, pace: Pace, refuse: Callable[[], None], clock: Clock
    ) -> None:
        super().__init__(storage, pace)
        self._refuse, self._clock = refuse, clock
        self._asked_at = float("-inf")

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        self._ask()
        return super().write(path, lambda: self._asking_last(content()), modified)

    def create(self, path: str, content: bytes) -> None:
        self._ask()
        super().create(path, content)

    def move(self, path: str, target_path: str) -> None:
        self._ask()
        super().move(path, target_path)

    def remove(self, path: str) -> None:
        self._ask()
        super().remove(path)

    def _asking_last(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        yield from chunks
        self._ask()

    def _ask(self) -> None:
        now = self._clock.now()
        if not 0 <= now - self._asked_at < GUARD_SECONDS:
            self._refuse()
            self._asked_at = now


class Unsynced(Throttled):
    """No faster than the pace, and never synced. The system writes to the disk when it likes: a
    process that is killed loses nothing, a power cut may lose any file that was written. `create`,
    `move` and `remove` are as durable as ever.
    """

    def sync(self) -> None:
        """Return at once."""


@dataclass(eq=False)
class Rearranged(_Wrapper):
    """A storage as if some of its files were elsewhere, for reading: what would be there is looked
    at before anything is touched. `places` are the files by the path that they are given: the
    storage that holds each, and its path there. Files that are `gone` are not seen. It
    lists its own storage's files.
    """

    _storage: Storage
    _places: Mapping[str, tuple[Storage, str]]
    _gone: Collection[str] = ()

    @classmethod
    def renamed(cls, storage: Storage, names: Mapping[str, str]) -> Rearranged:
        """Return a storage after renames; `names` are by the path that a file has now."""
        return cls(storage, {new: (storage, path) for path, new in names.items()}, names.keys())

    def list(self, under: str = "") -> Iterator[FileInfo]:
        given: dict[str, str] = {}
        for path, (storage, name) in self._places.items():
            if storage is self._storage:
                given[name] = path
        start = f"{under}/" if under else ""
        for file in self._storage.list():
            if file.path in self._gone and file.path not in given:
                continue
            path = given.get(file.path, file.path)
            if path.startswith(start):
                yield file._replace(path=path)

    def stat(self, path: str) -> FileInfo | None:
        storage, name = self.place_of(path)
        if storage is self._storage and name == path and path in self._gone:
            return None
        found = storage.stat(name)
        return None if found is None else found._replace(path=path)

    def read(self, path: str, size_max: int | None = None) -> bytes:
        storage, name = self._require(path)
        return storage.read(name, size_max)

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        storage, name = self._require(path)
        return storage.chunks(name, offset, size)

    def checksum(self, path: str) -> str | None:
        storage, name = self._require(path)
        return storage.checksum(name)

    def place_of(self, path: str) -> tuple[Storage, str]:
        """Return the storage that a file is read from, and its path there."""
        return self._places.get(path, (self._storage, path))

    def _require(self, path: str) -> tuple[Storage, str]:
        if path in self._gone and path not in self._places:
            raise MissingFile(f"{path} is set aside", location=self.location)
        return self.place_of(path)


@dataclass(eq=False)
class Sparing(_Wrapper):
    """Files that were there before are not lost: one of them that is to be written over or removed
    is moved to a folder first. `old` gives the folder and the paths of such files. A path of them
    that is in the folder already holds a newer file, which goes.
    """

    _storage: Storage
    _old: Callable[[], tuple[str, Collection[str]] | None]

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        self._spare(path)
        return super().write(path, content, modified)

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        return self._storage.chunks(path, offset, size)

    def remove(self, path: str) -> None:
        if not self._spare(path):
            super().remove(path)

    def _spare(self, path: str) -> bool:
        """Move an old file to the folder; whether there was one."""
        folder, paths = self._old() or ("", ())
        if path not in paths:
            return False
        aside = f"{folder}/{path}"
        if self._storage.stat(aside) is not None or self._storage.stat(path) is None:
            return False
        self._storage.move(path, aside)
        return True
