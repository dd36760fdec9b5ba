"""What is read of a file ahead of what is written: the same bytes, in memory that is bounded,
however it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from stateshift.errors import StorageError, TransientStorageError
from stateshift.step import contents as module
from stateshift.step.contents import FROM_BYTES, PIECES, PIECES_MAX, NewFile, ahead, reading, settle
from stateshift.survey import FileInfo
from tests.support.ground import SOURCE, TARGET, Around, Ground


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    until(lambda: module._free._value == PIECES_MAX)  # every piece was given back
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "ahead"])


def until(so: Callable[[], bool]) -> None:
    last = time.monotonic() + 60
    while not so():
        assert time.monotonic() < last
        time.sleep(0.01)


def numbers(count: int, seen: list[int] | None = None) -> Iterator[bytes]:
    for number in range(count):
        if seen is not None:
            seen.append(number)
        yield b"%d" % number


@pytest.mark.parametrize("count", [0, 1, 2, PIECES, 200])
def test_the_same_chunks_come_in_their_order(count: int) -> None:
    assert list(ahead(numbers(count))) == list(numbers(count))


def test_some_are_read_before_they_are_asked_for_and_not_all() -> None:
    seen = list[int]()
    chunks = ahead(numbers(100, seen))
    assert next(chunks) == b"0"
    until(lambda: len(seen) >= PIECES)
    time.sleep(0.1)
    assert len(seen) <= PIECES + 2, "one was taken, and one waits for its place"
    assert list(chunks) == [b"%d" % number for number in range(1, 100)]


def test_what_goes_wrong_is_raised_behind_what_came_before() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        yield b"b"
        raise TransientStorageError("cut")

    found = list[bytes]()
    with pytest.raises(TransientStorageError, match="cut"):
        for chunk in ahead(broken()):
            found.append(chunk)
    assert found == [b"a", b"b"]


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_who_stops_in_the_middle_leaves_nothing_behind(taken: int) -> None:
    closed = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            closed.set()

    chunks = ahead(endless())
    assert list(islice(chunks, taken)) == [b"x"] * taken
    chunks.close()  # type: ignore[attr-defined]
    until(lambda: closed.is_set() or not taken)  # what was never begun needs no end


def test_an_end_that_fails_is_an_end() -> None:
    def stubborn() -> Iterator[bytes]:
        try:
            yield from [b"x"] * 100
        finally:
            raise OSError("cannot be closed")

    chunks = ahead(stubborn())
    assert next(chunks) == b"x"
    chunks.close()  # type: ignore[attr-defined]


def test_nobody_holds_on_to_what_is_read_when_it_cannot_be_written() -> None:
    """The error's traceback is kept, as by who tells of it."""
    ground, content = Ground(), b"x" * (3 * FROM_BYTES)
    ground.give(SOURCE, large=content)

    def refused(
        path: str, content: Callable[[], Iterator[bytes]], modified: float | None = None
    ) -> int:
        chunks = content()
        next(chunks)
        raise StorageError("full")

    target = ground.world.storage(TARGET)
    with pytest.raises(StorageError, match="full") as kept:
        large = reading(ground.world.storage(SOURCE), info("large", content))
        settle(Refusing(target, refused), NewFile("large", large))
    until(lambda: module._free._value == PIECES_MAX)
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "ahead"])
    assert kept.value.__traceback__ is not None


class Refusing(Around):
    def __init__(self, storage: Any, write: Any) -> None:
        super().__init__(storage)
        self.write = write


def info(path: str, content: bytes) -> FileInfo:
    return FileInfo(path, len(content))


def test_many_at_once_hold_no_more_than_a_few_would() -> None:
    """Each has one of its own; the others share the rest, and none waits for another's."""
    read, lock, most, held = 0, threading.Lock(), 0, 0

    def counted() -> Iterator[bytes]:
        nonlocal read, most, held
        for number in range(30):
            with lock:
                read, held = read + 1, held + 1
                most = max(most, held)
            yield b"%d" % number

    def copied(_: int) -> list[bytes]:
        nonlocal held
        found = []
        for chunk in ahead(counted()):
            time.sleep(0.001)
            found.append(chunk)
            with lock:
                held -= 1
        return found

    files = 40
    with ThreadPoolExecutor(files) as threads:
        every = list(threads.map(copied, range(files)))
    assert every == [list(numbers(30))] * files
    assert most <= PIECES_MAX + 2 * files, "the one at work, the one of its own, and what is shared"
