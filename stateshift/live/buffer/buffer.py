"""A buffer at work: the queue in memory, the log on disk, and the thread that writes.

`offer` and `read` are called by any number of threads. None of them waits for a write: what comes
in goes to memory, and the one thread that writes takes all that has come in meanwhile, and syncs it
once. A producer that wants to know that its records are durable asks `wait`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stateshift.errors import PlanError
from stateshift.live.buffer.folder import Folder, Position, check_reader
from stateshift.live.buffer.frames import encode_record
from stateshift.live.buffer.log import Files, Log
from stateshift.live.buffer.queue import (
    Limits,
    OfferedRecords,
    Queue,
    RefusedError,
    records_in,
    removable,
)

logger = logging.getLogger(__name__)

COMMIT_BYTES = 4 << 20  # what is written and synced at once
SEGMENT_BYTES_MAX = 64 << 20
SEGMENTS_LEAST = 16  # so many fit into the disk's bound: it is given back in parts
RETRY_SECONDS = 1.0  # after a write that failed, nobody is accepted for so long
TICK_SECONDS = 1.0  # how often old records are looked for
REQUESTS_IN_MEMORY = 64  # so many of the largest requests fit into memory
LINE_MEMORY = 1024  # a request has so many lines at most as memory has room for at this size

PAST_HINT = "start the reader from what is there: option start=earliest, and a new checkpoint"


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """A reader: its name, the number that it reads next, and the time when it said so."""

    name: str
    next: int
    at: float


@dataclass(frozen=True, slots=True)
class Status:
    """A buffer as it is: records `first` to `next` - 1 can be read."""

    id: str
    first: int
    next: int
    waiting: int
    refused: int
    memory_bytes: int
    memory_limit: int
    disk_bytes: int
    disk_limit: int
    refusal: str | None
    failure: str | None
    readers: tuple[ReaderStatus, ...]


class GoneError(PlanError):
    """A record that is not there any more, or that this buffer has not yet promised."""


class Buffer:
    """A buffer whose directory this process holds."""

    def __init__(self, folder: Folder, limits: Limits, files: Files | None = None) -> None:
        self.id = folder.ensure()
        self.limits = limits
        self._folder = folder
        segment_bytes = min(SEGMENT_BYTES_MAX, limits.disk // SEGMENTS_LEAST)
        self._log = Log(folder.segments, segment_bytes, files)
        self._queue = Queue(limits, self._log.next, self._log.disk_bytes)
        self._positions = folder.positions()
        self._changed = threading.Condition()
        self._positions_lock = threading.Lock()
        self._failed_at = float("-inf")
        self._looked_at = float("-inf")
        self._is_closing = False
        self._has_ended = False
        self._writer = threading.Thread(target=self._run_writer, name="buffer-writer", daemon=True)
        self._writer.start()

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def request_bytes_max(self) -> int:
        return self.limits.memory // REQUESTS_IN_MEMORY

    @property
    def request_lines_max(self) -> int:
        return self.limits.memory // LINE_MEMORY

    def offer(self, values: Sequence[bytes]) -> OfferedRecords:
        """Accept records into memory, all or none; RefusedError where there is no room for them,
        the disk fails, or the buffer ends.
        """
        at = time.time_ns() // 1000
        with self._changed:
            if self._is_closing:
                raise self._queue.refuse(len(values), "the buffer ends")
            if self._queue.failure and time.monotonic() < self._failed_at + RETRY_SECONDS:
                raise self._queue.refuse(len(values), self._queue.failure)
            batch = self._queue.offer(values, at)
            self._changed.notify_all()
        return batch

    def wait(self, batch: OfferedRecords) -> None:
        """Wait until records are durable; RefusedError where they could not be written."""
        with self._changed:
            self._changed.wait_for(lambda: batch.is_settled or self._has_ended)
        if not batch.is_written:
            fact = batch.failure or "the buffer has ended"
            raise RefusedError(fact, hint="send it again later: nothing of it was kept")

    def _run_writer(self) -> None:
        """Write until the buffer is closed. If this ends in another way, nobody is accepted."""
        try:
            while self._write_next():
                if time.monotonic() >= self._looked_at + TICK_SECONDS:
                    self._looked_at = time.monotonic()
                    self._remove_old()
        finally:
            with self._changed:
                self._is_closing = self._has_ended = True
                self._changed.notify_all()

    def _write_next(self) -> bool:
        """Write what waits, or wait for it; return whether there is more to do."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closing or self._queue.has_waiting, TICK_SECONDS
            )
            if self._is_closing and not self._queue.has_waiting:
                return False
            batches = self._queue.take(COMMIT_BYTES) if self._queue.has_waiting else []
        if batches and not self._write(batches):
            if self._is_closing:
                return False
            time.sleep(RETRY_SECONDS)
        return True

    def _write(self, batches: Sequence[OfferedRecords]) -> bool:
        """Write and sync records, and return whether that worked."""
        content = encode_batches(batches)
        try:
            self._log.append(content, batches[-1].until)
        except OSError as error:
            failure = f"the disk of the buffer fails: {error.strerror or error}"
            logger.error("%s: %s", self._folder.path, failure)
            with self._changed:
                self._failed_at = time.monotonic()
                self._queue.failed(failure, self._log.disk_bytes)
                self._changed.notify_all()
            return False
        with self._changed:
            self._queue.written(content, self._log.disk_bytes)
            self._changed.notify_all()
        return True

    def _remove_old(self) -> None:
        with self._positions_lock:
            positions = [position.next for position in self._positions.values()]
        try:
            count = removable(self._log.kept(), positions, self._log.disk_bytes, self.limits)
            if count:
                self._log.remove(count)
                logger.info("%s: removed up to record %d", self._folder.path, self._log.first)
        except OSError as error:
            logger.warning("%s: old records stay: %s", self._folder.path, error)
        with self._changed:
            self._queue.disk_bytes = self._log.disk_bytes

    def read(self, number: int, count: int, bytes_max: int) -> bytes:
        """Return durable records from a number on, as bytes; empty where there is none yet.
        GoneError where the record was removed, or was never promised.
        """
        with self._changed:
            promised = self._queue.promised
            blocks = self._queue.recent(number, bytes_max)
        if number > promised:
            raise GoneError(
                f"record {number} was never promised: the next one is {promised}",
                hint="the reader's checkpoint is of another buffer, or of a later copy of this one",
            )
        count = min(count, promised - number)
        if count <= 0:
            return b""
        if blocks:
            return records_in(blocks, number, count, bytes_max)
        try:
            return self._log.read(number, count, bytes_max)
        except LookupError:
            first = self._log.first
            raise GoneError(
                f"record {number} is not there any more: the first one is {first}", hint=PAST_HINT
            ) from None

    def set_position(self, reader: str, number: int) -> None:
        """Note that a reader needs nothing before a number: records without a reader may go."""
        with self._changed:
            promised = self._queue.promised
        if not 0 <= number <= promised:
            raise GoneError(f"reader {reader} is at {number}, but the next record is {promised}")
        position = Position(number, time.time())
        with self._positions_lock:
            self._folder.write_position(check_reader(reader), position)
            self._positions[reader] = position

    def forget(self, reader: str) -> None:
        with self._positions_lock:
            self._positions.pop(reader, None)
            if not self._folder.remove_position(check_reader(reader)):
                path = self._folder.path
                hint = f"stateshift live buffer {path} --status"
                raise PlanError(f"{path} has no reader {reader}", hint=hint)

    def status(self) -> Status:
        with self._positions_lock:
            readers = readers_of(self._positions)
        with self._changed:
            queue = self._queue
            return Status(
                id=self.id,
                first=self._log.first,
                next=queue.promised,
                waiting=queue.next - queue.promised,
                refused=queue.refused,
                memory_bytes=queue.memory_bytes,
                memory_limit=self.limits.memory,
                disk_bytes=queue.disk_bytes,
                disk_limit=self.limits.disk,
                refusal=queue.refusal,
                failure=queue.failure,
                readers=readers,
            )

    def close(self) -> int:
        """Refuse producers, write what waits, and return how many records could not be written."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._writer.join()
        self._log.close()
        with self._changed:
            return self._queue.next - self._queue.promised


def encode_batches(batches: Sequence[OfferedRecords]) -> bytes:
    """Return records as they are written: all before the first of them is synced."""
    parts: list[bytes] = []
    for batch in batches:
        for record in batch.records():
            parts.append(encode_record(record, is_barrier=not parts))
    return b"".join(parts)


def readers_of(positions: dict[str, Position]) -> tuple[ReaderStatus, ...]:
    """Return readers by their names."""
    return tuple(
        ReaderStatus(name, position.next, position.at)
        for name, position in sorted(positions.items())
    )


@contextlib.contextmanager
def open_buffer(folder: Folder, limits: Limits, files: Files | None = None) -> Iterator[Buffer]:
    """Hold a buffer's directory, and close the buffer at the end."""
    with folder.held():
        buffer = Buffer(folder, limits, files)
        try:
            yield buffer
        finally:
            buffer.close()
