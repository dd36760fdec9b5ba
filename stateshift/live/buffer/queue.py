"""The records that a buffer has accepted, those in memory, and its bounds. Pure: no thread or disk.

                 offered                  written and synced
    producers ────────────▶ waiting ──────────────────────────▶ recent ──▶ forgotten here
                            (memory alone)                      (memory and disk)

Records get their numbers as they are offered. `take` gives waiting ones to whoever writes them, and
`written` or `failed` ends that. Memory holds those that wait, and as many as it has room for of
those written last: readers that keep up never wait for the disk. Memory gives up records that are
on disk, never waiting ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stateshift.errors import StateshiftError
from stateshift.live.buffer.frames import RECORD_HEAD, BufferRecord, skip_records

WAITING_BYTES = 200  # Python takes them for a record that waits, beside its value
BLOCK_BYTES = 1 << 16  # smaller parts are kept in memory as one of this size
ROOM_SHARE = 8  # one part of so many is kept free on disk, where readers allow it

Ack = Literal["disk", "memory"]


class RefusedError(StateshiftError):
    """A producer's records were not accepted: there is no room for them now."""

    exit_code = 6


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a buffer, in bytes, and how long records are kept that all readers have."""

    memory: int
    disk: int
    keep_seconds: float = 3600.0
    ack: Ack = "disk"


@dataclass(eq=False, slots=True)
class OfferedRecords:
    """Records of one producer that were accepted as one; it says itself what became of them."""

    first: int
    at: int
    values: Sequence[bytes]
    is_written: bool = False
    failure: str | None = None

    @property
    def until(self) -> int:
        return self.first + len(self.values)

    @property
    def is_settled(self) -> bool:
        return self.is_written or self.failure is not None

    def records(self) -> list[BufferRecord]:
        return [BufferRecord(self.first + place, self.at, v) for place, v in enumerate(self.values)]


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records that are on disk, and still in memory."""

    first: int
    until: int
    content: bytes


class Queue:
    """The memory of a buffer. Whoever shares it between threads holds a lock."""

    def __init__(self, limits: Limits, promised: int, disk_bytes: int) -> None:
        self.limits = limits
        self.promised = promised  # all records below are synced: what readers may see
        self.next = promised
        self.disk_bytes = disk_bytes
        self.refused = 0
        self.refusal: str | None = None
        self.failure: str | None = None
        self._waiting: deque[OfferedRecords] = deque()
        self._taken: list[OfferedRecords] = []
        self._recent: deque[RecordBlock] = deque()
        self._waiting_memory = 0
        self._waiting_disk = 0
        self._recent_bytes = 0

    @property
    def memory_bytes(self) -> int:
        return self._waiting_memory + self._recent_bytes

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def offer(self, values: Sequence[bytes], at: int) -> OfferedRecords:
        """Accept records, all or none, and give them the next numbers."""
        memory, disk = _memory_of(values), _disk_of(values)
        if self._waiting_memory + memory > self.limits.memory:
            raise self.refuse(len(values), "the memory is full: the disk is slower")
        if self.disk_bytes + self._waiting_disk + disk > self.limits.disk:
            raise self.refuse(len(values), "the disk's bound is reached: readers are behind")
        batch = OfferedRecords(self.next, at, values)
        self.next = batch.until
        self._waiting.append(batch)
        self._waiting_memory += memory
        self._waiting_disk += disk
        self._make_room()
        return batch

    def refuse(self, count: int, fact: str) -> RefusedError:
        """Count records that are not accepted, and return the error that says so."""
        self.refused += count
        self.refusal = fact
        return RefusedError(fact, hint="send it again later: nothing of it was kept")

    def _make_room(self) -> None:
        """Let go of what is on disk anyway, oldest first."""
        while self._recent and self.memory_bytes > self.limits.memory:
            self._recent_bytes -= len(self._recent.popleft().content)

    def take(self, bytes_max: int) -> list[OfferedRecords]:
        """Return the batches that wait longest, one at least; they wait until they are settled."""
        assert not self._taken, "one writes at a time"
        size = 0
        while self._waiting and (not self._taken or size < bytes_max):
            batch = self._waiting.popleft()
            self._taken.append(batch)
            size += _disk_of(batch.values)
        return list(self._taken)

    def written(self, content: bytes, disk_bytes: int) -> None:
        """Note that the batches taken are synced: readers may see them, producers are answered."""
        first, until = self._taken[0].first, self._taken[-1].until
        for batch in self._taken:
            batch.is_written = True
            self._waiting_memory -= _memory_of(batch.values)
            self._waiting_disk -= _disk_of(batch.values)
        self._taken = []
        self.promised = until
        self.failure = None
        self.disk_bytes = disk_bytes
        self._recent_bytes += len(content)
        if self._recent and len(self._recent[-1].content) < BLOCK_BYTES:
            last = self._recent.pop()
            first, content = last.first, last.content + content
        self._recent.append(RecordBlock(first, until, content))
        self._make_room()

    def failed(self, failure: str, disk_bytes: int) -> None:
        """Note that the batches taken are not on disk. They wait again if producers were answered
        already; otherwise those are told, and the numbers go to others.
        """
        self.failure = failure
        self.disk_bytes = disk_bytes
        self._waiting.extendleft(reversed(self._taken))
        self._taken = []
        if self.limits.ack == "memory":
            return
        for batch in self._waiting:
            batch.failure = failure
            self.refuse(len(batch.values), failure)
        self._waiting.clear()
        self._waiting_memory = self._waiting_disk = 0
        self.next = self.promised

    def recent(self, number: int, bytes_max: int) -> list[RecordBlock]:
        """Return the blocks in memory from a number on; none where it has let go of that one."""
        blocks: list[RecordBlock] = []
        size = 0
        for block in self._recent:
            if block.until <= number:
                continue
            if not blocks and block.first > number:
                return []
            blocks.append(block)
            size += len(block.content)
            if size > bytes_max + BLOCK_BYTES:
                break
        return blocks


def records_in(blocks: Sequence[RecordBlock], number: int, count: int, bytes_max: int) -> bytes:
    """Return records from a number on out of blocks, of which the first one has it."""
    content = b"".join(block.content for block in blocks)
    start = skip_records(content, number - blocks[0].first, len(content)).end
    rest = content[start:]
    return rest[: skip_records(rest, count, bytes_max).end]


def _memory_of(values: Sequence[bytes]) -> int:
    return sum(map(len, values)) + WAITING_BYTES * len(values)


def _disk_of(values: Sequence[bytes]) -> int:
    return sum(map(len, values)) + RECORD_HEAD.size * len(values)


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A full segment: the number behind its last record, its size, and its age."""

    until: int
    size: int
    age_seconds: float


def removable(
    segments: Sequence[ClosedSegment], positions: Sequence[int], used: int, limits: Limits
) -> int:
    """Return the number of the oldest segments that may be removed.

    All readers have them; and they are older than `keep`, or the disk's bound is near. Everything
    is kept until somebody has read.
    """
    passed = min(positions, default=0)
    enough = limits.disk - limits.disk // ROOM_SHARE
    count = 0
    for segment in segments:
        is_due = segment.age_seconds >= limits.keep_seconds or used > enough
        if segment.until > passed or not is_due:
            break
        used -= segment.size
        count += 1
    return count
