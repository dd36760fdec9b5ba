"""How often a survey asks its storage for the small files: on a remote one each read is a round
trip, and behind the halt of a move the job is down meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from threading import Barrier, BrokenBarrierError

import pytest

from stateshift.engines.spark.small_files import KEPT_EACH, KEPT_FILES, Reading
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.errors import MissingFile
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.engines.spark.golden import NAMES, golden
from tests.support.checkpoints import put

WHERE = "file:///c/orders"


class Counting(MemoryStorage):
    """Counts how often each file is read whole."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(disk, WHERE)
        self.reads: Counter[str] = Counter()

    def read(self, path: str, size_max: int | None = None) -> bytes:
        self.reads[path] += 1
        return super().read(path, size_max)


def _counting(name: str, at_once: int) -> Counting:
    storage = Counting(MemoryDisk(at_once=at_once))
    source = golden(name)
    for info in source.list():
        storage.write(info.path, partial(_whole, source, info.path), info.modified)
    return storage


def _whole(source: Storage, path: str) -> Iterator[bytes]:
    yield source.read(path)


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("thorough", [False, True], ids=["quick", "thorough"])
@pytest.mark.parametrize("name", NAMES)
def test_a_survey_reads_each_small_file_once(name: str, thorough: bool, at_once: int) -> None:
    storage = _counting(name, at_once)
    survey.survey(storage, thorough=thorough)
    sizes = {info.path: info.size for info in storage.list()}
    again = {path for path, count in storage.reads.items() if count > 1}
    assert {path for path in again if sizes.get(path, 0) <= KEPT_EACH} == set()


@pytest.mark.parametrize("name", NAMES)
def test_reading_ahead_changes_nothing_of_what_is_said(name: str) -> None:
    one_by_one = survey.survey(_counting(name, at_once=1))
    together = survey.survey(_counting(name, at_once=8))
    assert together == one_by_one


class Meeting(Counting):
    """Lets a read go on once as many others wait as shall be under way together."""

    def __init__(self, disk: MemoryDisk, together: int) -> None:
        super().__init__(disk)
        self.barrier = Barrier(together)

    def read(self, path: str, size_max: int | None = None) -> bytes:
        self.barrier.wait(timeout=60)
        return super().read(path, size_max)


def test_small_files_are_read_beside_each_other() -> None:
    storage = Meeting(MemoryDisk(at_once=4), together=4)
    paths = [f"offsets/{number}" for number in range(4)]
    for path in paths:
        put(storage, path, b"v1")
    reading = Reading(storage, "")
    try:
        reading.read_ahead(paths)
    except BrokenBarrierError:
        pytest.fail("the files were read one after the other")
    assert [reading.content(path) for path in paths] == [b"v1"] * 4
    assert storage.reads == Counter(paths)


def test_what_is_missing_or_large_is_left_to_whoever_needs_it() -> None:
    storage = Counting(MemoryDisk(at_once=4))
    put(storage, "large", bytes(KEPT_EACH + 1))
    reading = Reading(storage, "")
    reading.read_ahead(["missing", "large"])
    assert reading.findings == []
    assert reading.content("large") == bytes(KEPT_EACH + 1)
    assert storage.reads["large"] == 2
    with pytest.raises(MissingFile):
        reading.content("missing")


def test_no_more_files_are_kept_than_memory_is_meant_for() -> None:
    storage = Counting(MemoryDisk())
    reading = Reading(storage, "")
    for number in range(KEPT_FILES + 1):
        put(storage, str(number), b"x")
        reading.content(str(number))
    reading.content(str(KEPT_FILES))
    reading.content("0")
    assert storage.reads[str(KEPT_FILES)] == 1
    assert storage.reads["0"] == 2
