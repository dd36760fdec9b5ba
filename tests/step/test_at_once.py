"""Many files at once, where a storage waits for a network: the same evidence, and an end after the first failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from stateshift.errors import Interrupted, MissingFile
from stateshift.step import CopyFiles
from stateshift.step.at_once import each
from stateshift.storage.memory import MemoryDisk
from stateshift.storage.temporaries import apart, temporary
from stateshift.survey import FileInfo
from tests.support.steps import SOURCE, TARGET, Stage

AT_ONCE = 8
FILES = {f"d{n % 7}/{n}": b"%d" % n * n for n in range(1, 101)}
COPY = CopyFiles("copy/0", SOURCE, TARGET, tuple(FileInfo(path, len(FILES[path])) for path in sorted(FILES)))


@pytest.fixture
def stage() -> Iterator[Stage]:
    found = Stage(disk=MemoryDisk(at_once=AT_ONCE))
    source = found.world.storage(SOURCE)
    for path, content in FILES.items():
        source.write(path, lambda content=content: iter((content,)))  # type: ignore[misc]
    yield found


def test_the_evidence_is_in_the_order_of_the_items_and_does_not_depend_on_how_many_at_once(stage: Stage) -> None:
    alone = Stage()
    for path, content in FILES.items():
        alone.world.storage(SOURCE).write(path, lambda content=content: iter((content,)))  # type: ignore[misc]
    assert COPY.run(stage.world) == COPY.run(alone.world)
    assert stage.disk.snapshot(TARGET) == FILES


def test_as_many_as_the_storage_says_are_at_work_and_no_more(stage: Stage) -> None:
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
    assert each(stage.world, numbers, met, stage.world.storage(SOURCE)) == list(numbers)
    assert most == AT_ONCE


def test_after_a_failure_no_more_are_begun(stage: Stage) -> None:
    begun = []

    def one(number: int) -> None:
        begun.append(number)
        if number == 40:
            raise MissingFile("gone")
        if number > 40:
            time.sleep(0.05)

    with pytest.raises(MissingFile):
        each(stage.world, range(1000), one, stage.world.storage(SOURCE))
    assert len(begun) <= 40 + 2 * AT_ONCE


def test_a_repeat_brings_what_the_first_attempt_did_not(stage: Stage) -> None:
    gone = COPY.items[40].path
    stage.world.storage(SOURCE).remove(gone)
    with pytest.raises(MissingFile, match="is gone"):
        COPY.run(stage.world)
    stage.world.storage(SOURCE).write(gone, lambda: iter((FILES[gone],)))
    COPY.run(stage.world)
    assert stage.disk.snapshot(TARGET) == FILES


def test_an_interruption_ends_it_after_the_files_that_are_being_written(stage: Stage) -> None:
    begun = []

    def one(number: int) -> None:
        begun.append(number)
        stage.stop.set()

    with pytest.raises(Interrupted):
        each(stage.world, range(1000), one, stage.world.storage(SOURCE))
    assert 1 <= len(begun) <= AT_ONCE


def test_writers_apart_stay_apart_in_its_threads(stage: Stage) -> None:
    with apart("one"):
        names = each(stage.world, range(20), lambda number: temporary("d/a"), stage.world.storage(SOURCE))
        assert set(names) == {temporary("d/a")}
    assert temporary("d/a") not in names


def test_what_was_changed_since_is_found_and_left_by_an_undo(stage: Stage) -> None:
    evidence = COPY.run(stage.world)
    target = stage.world.storage(TARGET)
    target.write(COPY.items[3].path, lambda: iter((b"other",)))
    target.remove(COPY.items[5].path)
    assert [found.place for found in COPY.holds(stage.world, evidence)] == [COPY.items[3].path, COPY.items[5].path]
    assert len(COPY.undo(stage.world, evidence)) == 1
    assert list(stage.disk.snapshot(TARGET)) == [COPY.items[3].path]
