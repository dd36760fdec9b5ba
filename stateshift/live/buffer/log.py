"""The records on disk: segments, each a file that is named by the number of its first record.

    segments/00000000000000000000.records
    segments/00000000000000131072.records     only the last one is written to

A segment ends where the next one begins. The last one ends with its last whole record; what is
behind it when a log is opened is the torn end of a write that nobody was told of, and is cut off.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from stateshift.errors import FormatError
from stateshift.live.buffer import frames
from stateshift.live.buffer.frames import SEGMENT_HEAD, Extent
from stateshift.live.buffer.queue import ClosedSegment

SUFFIX = ".records"
INDEX_BYTES = 1 << 16  # how far apart the places are at which a segment's reading can begin


class Files:
    """The file system, as a log writes to it; a test has one whose disk is full."""

    def write(self, descriptor: int, content: bytes) -> None:
        """Write all of it, at the end of the file."""
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def sync(self, descriptor: int) -> None:
        """Make the writes survive a loss of power."""
        os.fsync(descriptor)


@dataclass(eq=False)
class Segment:
    """A file of records, and some places in it: numbers, and the offsets of their records."""

    path: Path
    first: int
    until: int
    end: int
    numbers: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbers.append(self.first)
        self.offsets.append(SEGMENT_HEAD.size)

    def remember(self, number: int, offset: int) -> None:
        """Note where a record begins, if it is far enough behind the last place."""
        if offset - self.offsets[-1] >= INDEX_BYTES:
            self.numbers.append(number)
            self.offsets.append(offset)


class Log:
    """All segments of a buffer. One thread appends and removes, any number of them read."""

    def __init__(self, directory: Path, segment_bytes: int, files: Files | None = None) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._files = Files() if files is None else files
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._is_given_up = False
        self._segments = found_segments(directory)
        if self._segments:  # from now on the last whole record is the end
            # Cut off the bytes behind the last whole record, and make the rest survive.
            segment = self._segments[-1]
            with open(segment.path, "r+b") as file:
                file.truncate(segment.end)
                if segment.end < SEGMENT_HEAD.size:
                    file.write(frames.encode_segment_head(segment.first))
                    segment.end = SEGMENT_HEAD.size
                file.flush()
                os.fsync(file.fileno())
            sync_directory(self._directory)

    @property
    def first(self) -> int:
        return self._segments[0].first if self._segments else 0

    @property
    def next(self) -> int:
        return self._segments[-1].until if self._segments else 0

    @property
    def disk_bytes(self) -> int:
        with self._lock:
            return sum(segment.end for segment in self._segments)

    def append(self, content: bytes, until: int) -> None:
        """Write records and sync them. After an OSError nothing of them is there."""
        needs_another = (
            not self._segments or self._is_given_up or self._segments[-1].end >= self._segment_bytes
        )
        if self._descriptor is not None and not needs_another:
            descriptor = self._descriptor
        else:
            self.close()
            if needs_another:
                self._begin_segment()
            path = self._segments[-1].path
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            descriptor = self._descriptor
        segment = self._segments[-1]
        try:
            self._files.write(descriptor, content)
            self._files.sync(descriptor)
        except OSError:
            # The state of a file after a failed sync is not known: nothing more is written to it.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, segment.end)
            self._is_given_up = True
            self.close()
            raise
        with self._lock:
            segment.remember(segment.until, segment.end)
            segment.end += len(content)
            segment.until = until

    def _begin_segment(self) -> None:
        first = self.next
        path = self._directory / f"{first:020}{SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._files.write(descriptor, frames.encode_segment_head(first))
            self._files.sync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(self._directory)
        self._is_given_up = False
        with self._lock:
            if self._segments and self._segments[-1].first == first:  # it was given up empty
                self._segments.pop()
            self._segments.append(Segment(path, first, first, SEGMENT_HEAD.size))

    def remove(self, count: int) -> None:
        """Remove the oldest segments, never the last one."""
        with self._lock:
            old = self._segments[: min(count, len(self._segments) - 1)]
            self._segments = self._segments[len(old) :]
        for segment in old:
            segment.path.unlink(missing_ok=True)

    def kept(self) -> list[ClosedSegment]:
        """Return all segments but the last one, oldest first."""
        now = time.time()
        with self._lock:
            closed = self._segments[:-1]
        return [
            ClosedSegment(each.until, each.end, now - each.path.stat().st_mtime) for each in closed
        ]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read(self, number: int, count: int, bytes_max: int) -> bytes:
        """Return records from a number on, one at least, of one segment; LookupError where the
        record is not there any more, or not yet.
        """
        with self._lock:
            for segment in reversed(self._segments):
                if segment.first <= number < segment.until:
                    break
            else:
                raise LookupError(number)
            place = bisect.bisect_right(segment.numbers, number) - 1
            offset, at = segment.offsets[place], segment.numbers[place]  # at or before it
            end, until = segment.end, segment.until
        try:
            descriptor = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LookupError(segment.path.name) from None
        try:
            while at < number:
                offset, at = self._walk(descriptor, segment, Extent(offset, at), number)
            return _read_some(descriptor, offset, end, min(count, until - number), bytes_max)
        finally:
            os.close(descriptor)

    def _walk(self, descriptor: int, segment: Segment, here: Extent, number: int) -> Extent:
        """Return a place nearer to a record, and remember it."""
        block = os.pread(descriptor, min(INDEX_BYTES, segment.end - here.end), here.end)
        passed = frames.skip_records(block, number - here.number, len(block))
        if not passed.number:
            block = _read_some(descriptor, here.end, segment.end, 1, 0)
            passed = Extent(len(block), 1)
        there = Extent(here.end + passed.end, here.number + passed.number)
        with self._lock:
            if there.number > segment.numbers[-1]:
                segment.remember(there.number, there.end)
        return there


def _read_some(descriptor: int, offset: int, end: int, count: int, bytes_max: int) -> bytes:
    """Return so many whole records, fewer if they are larger than `bytes_max`, but one at least."""
    size = max(bytes_max, INDEX_BYTES)
    while True:
        block = os.pread(descriptor, min(size, end - offset), offset)
        passed = frames.skip_records(block, count, max(bytes_max, 1))
        if passed.number:
            return block[: passed.end]
        if len(block) < size:
            raise FormatError("segment is truncated", offset=offset)
        size *= 2


def found_segments(directory: Path) -> list[Segment]:
    """Return the segments of a directory, the oldest first; reads, and changes nothing."""
    paths = sorted(path for path in directory.iterdir() if path.name.endswith(SUFFIX))
    firsts: list[int] = []
    for path in paths:
        name = path.name.removesuffix(SUFFIX)
        if not (name.isascii() and name.isdigit()):
            raise FormatError("not a segment of a buffer: the name is no number", str(path))
        firsts.append(int(name))
    segments = []
    for place, (path, first) in enumerate(zip(paths, firsts, strict=True)):
        if place + 1 < len(paths):
            until = firsts[place + 1]
            segments.append(Segment(path, first, until, path.stat().st_size))
        else:
            segments.append(_last_segment(path, first))
    return segments


def _last_segment(path: Path, first: int) -> Segment:
    """Return the last segment, up to its last whole record."""
    content = path.read_bytes()
    if len(content) < SEGMENT_HEAD.size or not content.strip(b"\0"):
        return Segment(path, first, first, 0)  # the power went before its head was synced
    try:
        if frames.decode_segment_head(content) != first:
            raise FormatError("the segment's first number is not that of its name", offset=8)
    except FormatError as error:
        raise error.at(str(path)) from None
    whole = frames.whole_records(content, first, SEGMENT_HEAD.size)
    if frames.has_barrier(content, whole.number, whole.end):
        raise FormatError(
            f"record {whole.number} is damaged: records behind it were synced later",
            str(path),
            whole.end,
            hint="put the file back from a copy; or give up the records from "
            f"{whole.number} on: truncate -s {whole.end} {path}",
        )
    return Segment(path, first, whole.number, whole.end)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
