"""Many files at once, where a storage waits for a network: the same evidence, and an end after
the first failure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest

from stateshift.errors import Interrupted, MissingFile
from stateshift.step import CopyFiles
from stateshift.step.contents import each
from stateshift.storage.temporaries import apart, temporary
from stateshift.survey import FileInfo
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from stateshift.world import World
from tests.support.ground import SOURCE, TARGET, Ground

AT_ONCE = 8
FILES = {f"d{n % 7}/{n}": b"%d" % n * n for n in range(1, 101)}
COPY = CopyFiles(
    "copy/0", SOURCE, TARGET, tuple(FileInfo(path, len(FILES[path])) for path in sorted(FILES))
)


@pytest.fixture
def ground() -> Iterator[Ground]:
    found = Ground(disk=MemoryDisk(at_once=AT_ONCE))
    source = found.world.storage(SOURCE)
    for path, content in FILES.items():
        source.write(path, lambda content=content: iter((content,)))  # type: ignore[misc]
    yield found


def test_the_evidence_is_in_the_order_of_the_items_and_does_not_depend_on_how_many_at_once(
    ground: Ground,
) -> None:
    alone = Ground()
    for path, content in FILES.items():
        alone.world.storage(SOURCE).write(path, lambda content=content: iter((content,)))  # type: ignore[misc]
    assert COPY.run(ground.world) == COPY.run(alone.world)
    assert ground.disk.snapshot(TARGET) == FILES


def test_as_many_as_the_storage_says_are_at_work_and_no_more(ground: Ground) -> None:
    meeting, most, at_work, lock = threading.Barrier(AT_ONCE, timeout=30), 0, 0, threading.Lock()

    def met(number: int) -> int:
        nonlocal most, at_work
        with lock:
            at_work += 1
            most = max(most, at_work)
        meeting.wait()  # passes only if AT_ONCE are here together
        with lock:
            at_work -= 1
        return number

    numbers = range(5 * AT_ONCE)
    assert each(ground.world, numbers, met, ground.world.storage(SOURCE)) == list(numbers)
    assert most == AT_ONCE


def test_after_a_failure_no_more_are_begun(ground: Ground) -> None:
    begun, failed = [], threading.Event()

    def one(number: int) -> None:
        begun.append(number)
        if number == 40:
            failed.set()
            raise MissingFile("gone")
        if number > 40:
            failed.wait(60)
            time.sleep(0.5)  # by then it is known

    with pytest.raises(MissingFile):
        each(ground.world, range(1000), one, ground.world.storage(SOURCE))
    assert len(begun) <= 40 + 2 * AT_ONCE


def test_a_repeat_brings_what_the_first_attempt_did_not(ground: Ground) -> None:
    gone = COPY.items[40].path
    ground.world.storage(SOURCE).remove(gone)
    with pytest.raises(MissingFile, match="is gone"):
        COPY.run(ground.world)
    ground.world.storage(SOURCE).write(gone, lambda: iter((FILES[gone],)))
    COPY.run(ground.world)
    assert ground.disk.snapshot(TARGET) == FILES


def test_an_interruption_ends_it_after_the_files_that_are_being_written(ground: Ground) -> None:
    begun = []

    def one(number: int) -> None:
        begun.append(number)
        ground.stop.set()

    with pytest.raises(Interrupted):
        each(ground.world, range(1000), one, ground.world.storage(SOURCE))
    assert 1 <= len(begun) <= AT_ONCE


def test_writers_apart_stay_apart_in_its_threads(ground: Ground) -> None:
    with apart("one"):
        names = each(
            ground.world, range(20), lambda number: temporary("d/a"), ground.world.storage(SOURCE)
        )
        assert set(names) == {temporary("d/a")}
    assert temporary("d/a") not in names


def test_what_was_changed_since_is_found_and_left_by_an_undo(ground: Ground) -> None:
    evidence = COPY.run(ground.world)
    target = ground.world.storage(TARGET)
    target.write(COPY.items[3].path, lambda: iter((b"other",)))
    target.remove(COPY.items[5].path)
    assert [found.place for found in COPY.holds(ground.world, evidence)] == [
        COPY.items[3].path,
        COPY.items[5].path,
    ]
    assert len(COPY.undo(ground.world, evidence)) == 1
    assert list(ground.disk.snapshot(TARGET)) == [COPY.items[3].path]


class Asked(MemoryStorage):
    """Remembers what it was asked about files and places."""

    asked: ClassVar[list[str]] = []

    def stat(self, path: str) -> FileInfo | None:
        self.asked.append(f"stat {path}")
        return super().stat(path)

    def list(self, under: str = "") -> Iterator[FileInfo]:
        self.asked.append(f"list {self.location}")
        return super().list(under)


def asked_by(world: World, ground: Ground, *steps: CopyFiles) -> list[str]:
    opened: dict[str, Asked] = {}
    Asked.asked.clear()
    world = replace(
        world, storage=lambda location: opened.setdefault(location, Asked(ground.disk, location))
    )
    for step in steps:
        step.run(world)
    return list(Asked.asked)


def test_a_target_is_listed_once_and_no_file_is_asked_for_that_was_not_there(
    ground: Ground,
) -> None:
    halves = replace(COPY, items=COPY.items[:50]), replace(COPY, items=COPY.items[50:])
    assert asked_by(ground.world, ground, *halves) == [f"list {TARGET}"]
    assert ground.disk.snapshot(TARGET) == FILES


def test_what_an_earlier_attempt_wrote_is_asked_for_and_recognised_by_digest_alone(
    ground: Ground,
) -> None:
    whole, torn = COPY.items[3], COPY.items[5]
    ground.disk.open(TARGET).write(whole.path, lambda: iter((FILES[whole.path],)))
    ground.disk.open(TARGET).write(torn.path, lambda: iter((b"?" * torn.size,)))
    before = ground.disk.writes
    asked = sorted(asked_by(ground.world, ground, COPY))
    assert asked == sorted([f"list {TARGET}", f"stat {whole.path}", f"stat {torn.path}"])
    assert ground.disk.snapshot(TARGET) == FILES
    assert ground.disk.writes - before == len(FILES) - 1


def test_what_somebody_put_there_since_the_listing_is_replaced_as_it_would_be_after_a_look(
    ground: Ground,
) -> None:
    world = ground.world
    assert not world.found.may_hold(world.storage(TARGET), COPY.items[7].path, worthwhile=True)  # type: ignore[union-attr]
    ground.disk.open(TARGET).write(COPY.items[7].path, lambda: iter((b"other",)))
    COPY.run(world)
    assert ground.disk.snapshot(TARGET) == FILES


def test_for_a_few_files_no_whole_place_is_listed(ground: Ground) -> None:
    few = replace(COPY, items=COPY.items[:2])
    assert asked_by(ground.world, ground, few) == [f"stat {item.path}" for item in few.items]
    assert len(asked_by(replace(ground.world, found=None), ground, COPY)) == len(FILES)
