"""Behaviour added to a storage by wrapping it: Retrying, Throttled, Guarded, Unsynced. The
interface stays.

    Throttled(Retrying(storage, ...), pace)  each attempt is not counted twice
    Retrying(Throttled(storage, pace), ...)  each attempt is: the service sees no more than the pace

Only TransientStorageError is retried, and only here.
"""

from __future__ import annotations

import logging
import random as randoms
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol, TypeVar

from stateshift.errors import AlreadyThere, MissingFile, StorageError, TransientStorageError
from stateshift.storage import locations
from stateshift.storage.lanes import Lane
from stateshift.storage.protocol import Content, Storage, Traits
from stateshift.survey import FileInfo, Owned, Room

T = TypeVar("T")

_log = logging.getLogger(__name__)

# An operation on a local disk is logged where it takes as long as this: of thousands of small files
# it takes less time than its record would.
LOCAL_MILLISECONDS = 10.0

# For so long an answer to "who owns this location" counts.
GUARD_SECONDS = 1.0


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


class Retrying:
    """Every operation, repeated while it fails with what may pass.

    A stream goes on where it had got to.

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
    def location(self) -> str:
        return self._storage.location

    @property
    def traits(self) -> Traits:
        return self._traits

    def list(self, under: str = "") -> Iterator[FileInfo]:
        # Whole or not at all: half of one listing and half of another are no listing.
        return iter(self._again("list", under, lambda: tuple(self._storage.list(under))))

    def stat(self, path: str) -> FileInfo | None:
        return self._again("stat", path, lambda: self._storage.stat(path))

    def read(self, path: str, size_max: int | None = None) -> bytes:
        return self._again("read", path, lambda: self._storage.read(path, size_max))

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

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        return self._again("write", path, lambda: self._storage.write(path, content, modified))

    def create(self, path: str, content: bytes) -> None:
        attempts = count(1)

        def once() -> None:
            first = next(attempts) == 1
            try:
                self._storage.create(path, content)
            except AlreadyThere:
                if first or self._storage.read(path) != content:
                    raise

        self._again("create", path, once)

    def move(self, path: str, target_path: str) -> None:
        attempts = count(1)

        def once() -> None:
            first = next(attempts) == 1
            try:
                self._storage.move(path, target_path)
            except MissingFile:
                if first or self._storage.stat(target_path) is None:
                    raise

        self._again("move", path, once)

    def remove(self, path: str) -> None:
        self._again("remove", path, lambda: self._storage.remove(path))

    def prune(self, under: str = "") -> None:
        self._again("prune", under, lambda: self._storage.prune(under))

    def sync(self) -> None:
        self._again("sync", "", self._storage.sync)

    def room(self) -> Room:
        return self._again("free space of", "", self._storage.room)

    def writable(self, under: str = "") -> bool | None:
        return self._again("permission of", under, lambda: self._storage.writable(under))

    def owners(self) -> Iterator[Owned]:
        return iter(self._again("owners of", "", lambda: tuple(self._storage.owners())))

    def own(self, owned: Owned) -> None:
        self._again("own", owned.path, lambda: self._storage.own(owned))

    def checksum(self, path: str) -> str | None:
        return self._again("checksum of", path, lambda: self._storage.checksum(path))

    def _again(self, verb: str, path: str, operation: Callable[[], T]) -> T:
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


class _Bucket:
    def __init__(self, clock: Clock, burst_seconds: float) -> None:
        self._clock = clock
        self._burst_seconds = burst_seconds
        self._lock = threading.Lock()
        self._debt = 0.0  # beyond what is held; below zero: tokens at hand
        self._seen = clock.now()
        self._unlimited = False

    def take(self, count: float, rate: float | None) -> float:
        """Take tokens. Return the seconds to wait before using them."""
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


class Throttled:
    """No faster than the pace: each call is an operation, each byte read or written counts."""

    def __init__(self, storage: Storage, pace: Pace) -> None:
        self._storage = storage
        self._pace = pace

    @property
    def location(self) -> str:
        return self._storage.location

    @property
    def traits(self) -> Traits:
        return self._storage.traits

    def list(self, under: str = "") -> Iterator[FileInfo]:
        return self._at_pace().list(under)

    def stat(self, path: str) -> FileInfo | None:
        return self._at_pace().stat(path)

    def read(self, path: str, size_max: int | None = None) -> bytes:
        content = self._at_pace().read(path, size_max)
        self._pace.bytes(len(content))
        return content

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        return self._paced(self._at_pace().chunks(path, offset, size))

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        return self._at_pace().write(path, lambda: self._paced(content()), modified)

    def create(self, path: str, content: bytes) -> None:
        storage = self._at_pace()
        self._pace.bytes(len(content))
        storage.create(path, content)

    def move(self, path: str, target_path: str) -> None:
        self._at_pace().move(path, target_path)

    def remove(self, path: str) -> None:
        self._at_pace().remove(path)

    def prune(self, under: str = "") -> None:
        self._at_pace().prune(under)

    def sync(self) -> None:
        self._at_pace().sync()

    def room(self) -> Room:
        return self._at_pace().room()

    def writable(self, under: str = "") -> bool | None:
        return self._at_pace().writable(under)

    def owners(self) -> Iterator[Owned]:
        return self._at_pace().owners()

    def own(self, owned: Owned) -> None:
        self._at_pace().own(owned)

    def checksum(self, path: str) -> str | None:
        return self._at_pace().checksum(path)

    def _at_pace(self) -> Storage:
        """Return the storage, once one more operation is within the pace."""
        self._pace.operation()
        return self._storage

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
