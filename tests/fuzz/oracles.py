"""What must hold whatever the bytes are: the judges that fuzzing and the tests have in common.

    attempt(decode, size)  the decoded value; None where it was refused as it should be: by a
                           FormatError that says
                           where, inside of the content
    same(a, b, what)       two ways to the same thing came to the same thing
    affordable(run, size)  no more time and memory than content of that size may ask for

A break is a Broken; anything else that comes out of a decoder is one as well.
"""

from __future__ import annotations

import resource
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from stateshift.errors import FormatError
from stateshift.formats.blocks import RowBlock

# What content of a size may cost: lz4 expands up to 255 times, and what is decoded from it is
# Python's objects. The constant part is a zstd window and what the libraries keep for themselves.
MEMORY_BASE, MEMORY_FACTOR = 64 << 20, 600
SECONDS_BASE, SECONDS_PER_KIB = 2.0, 0.02

T = TypeVar("T")


class Broken(AssertionError):
    """Something that holds for all input did not."""


def attempt(decode: Callable[[], T], size: int | None = None, must_tell: bool = True) -> T | None:
    """The value, or None where it is refused. Without `size` the offset is one of decompressed
    bytes, with an unknown end; without `must_tell` there may be none (what is decoded is no file of
    its own).
    """
    try:
        return decode()
    except FormatError as error:
        if error.offset is None and must_tell:
            raise Broken(f"refused without saying where: {error.fact}") from error
        if error.offset is not None and not 0 <= error.offset <= (
            1 << 62 if size is None else size
        ):
            raise Broken(f"refused at byte {error.offset} of {size}: {error.fact}") from error
        if not error.fact or len(error.fact) > 1000:
            raise Broken(f"not a fact that a person could read: {error.fact[:200]!r}") from error
        return None


def same(one: Any, other: Any, what: str) -> None:
    if one != other:
        raise Broken(f"{what}: {repr(one)[:200]} is not {repr(other)[:200]}")


def records_of(block: RowBlock) -> list[tuple[bytes, bytes | None, bool]]:
    """A block's records as tuples: key, value, whether it is merged."""
    merges = [False] * len(block) if block.merges is None else block.merges.tolist()
    return [
        (key, value, merge) for (key, value), merge in zip(block.records(), merges, strict=True)
    ]


def memory_max(size: int) -> int:
    return MEMORY_BASE + MEMORY_FACTOR * size


def seconds_max(size: int) -> float:
    return SECONDS_BASE + SECONDS_PER_KIB * size / 1024


def affordable(run: Callable[[bytes], None], data: bytes) -> None:
    """Run it on the data, with Python's memory and this thread's time held against what the size
    allows.
    """
    tracemalloc.start()
    began = time.thread_time()
    try:
        run(data)
    finally:
        seconds, peak = time.thread_time() - began, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    check_cost(len(data), seconds / 4, peak)  # counting every allocation makes it slow


class Meter:
    """The same without slowing anything down: the process's peak, which can only be reset where
    Linux lets us.
    """

    def __init__(self) -> None:
        self.slowest = 0.0
        self.largest = 0

    def run(self, run: Callable[[bytes], None], data: bytes) -> None:
        before, began = _peak(), time.thread_time()
        run(data)
        seconds, grown = time.thread_time() - began, _peak() - before
        self.slowest, self.largest = max(self.slowest, seconds), max(self.largest, grown)
        if grown > MEMORY_BASE // 4:
            _reset_peak()
        check_cost(len(data), seconds / 3, grown)  # instrumented code is slower


def check_cost(size: int, seconds: float, memory: int) -> None:
    if seconds > seconds_max(size):
        raise Broken(f"{seconds:.1f} s for {size} bytes")
    if memory > memory_max(size):
        raise Broken(f"{memory >> 20} MiB for {size} bytes")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _reset_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
