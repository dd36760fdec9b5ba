"""What a storage says of a place before anything is written there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateshift.errors import MissingFile, StorageError
from stateshift.storage.hdfs.calls import Quota, Remaining
from stateshift.storage.hdfs.storage import may_write, narrowest
from stateshift.storage.local.storage import LocalStorage
from stateshift.testing.memory_storage import MemoryDisk

NOBODY = 65534


class Answers:
    """The three questions, answered from values; the other calls are not asked."""

    def __init__(
        self, there: dict[str, bool | None], quotas: dict[str, Quota], remaining: Remaining | None
    ) -> None:
        self.there, self.quotas, self.left = there, quotas, remaining

    def may_write(self, directory: str) -> bool | None:
        if directory not in self.there:
            raise MissingFile(directory, location=directory)
        return self.there[directory]

    def quota(self, directory: str) -> Quota | None:
        return self.quotas.get(directory)

    def remaining(self) -> Remaining | None:
        return self.left

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was called")


@pytest.fixture
def nobody() -> Iterator[Path]:
    """Where we may write to `ours` and not to `theirs`, also if it is root who runs this."""
    place = Path(tempfile.mkdtemp())
    (place / "ours").mkdir()
    (place / "theirs").mkdir()
    place.chmod(0o755)
    (place / "theirs").chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.chown(place / "ours", NOBODY, -1)
        os.seteuid(NOBODY)
    try:
        yield place
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(place)


def test_a_folder_that_is_somebody_elses_may_not_be_written_to_nor_what_is_not_yet_below_it(
    nobody: Path,
) -> None:
    assert LocalStorage(str(nobody / "ours" / "deep" / "down")).writable() is True
    theirs = LocalStorage(str(nobody / "theirs" / "deep" / "down"))
    assert theirs.writable() is False
    with pytest.raises(StorageError, match="ermission"):
        theirs.write("a", lambda: iter([b"x"]))


def test_the_room_of_a_local_disk_is_what_it_has_left_for_us(tmp_path: Path) -> None:
    told, room = os.statvfs(tmp_path), LocalStorage(str(tmp_path / "not" / "there")).room()
    assert abs((room.bytes_free or 0) - told.f_bavail * told.f_frsize) < 1 << 30
    assert room.shared == LocalStorage(str(tmp_path)).room().shared


def test_a_place_in_memory_that_is_denied_says_so_and_keeps_to_it() -> None:
    disk = MemoryDisk(bytes_max=10)
    disk.denied.add("file:///theirs")
    storage = disk.open("file:///theirs/orders")
    assert storage.writable() is storage.writable("commits") is False
    assert disk.open("file:///theirs-not").writable() is True
    with pytest.raises(StorageError):
        storage.create("lock", b"")
    assert storage.room().bytes_free == 10


def test_the_nearest_directory_of_hdfs_answers_and_none_is_told_as_that() -> None:
    calls = Answers({"/": False, "/a": True}, {}, None)
    assert may_write(calls, "/a/b/c") is True
    assert may_write(calls, "/b") is False
    assert may_write(Answers({"/": None}, {}, None), "/b") is None


def test_of_the_quotas_above_and_the_datanodes_the_narrowest_counts() -> None:
    quotas = {"/a": Quota(5000, None), "/a/b": Quota(7000, 12), "/": Quota(None, None)}
    room = narrowest(Answers({}, quotas, Remaining(9000, 3)), "/a/b/c", "hdfs://shop/a/b/c")
    assert (room.bytes_free, room.limit, room.copies) == (5000, "the space quota of /a", 3)
    assert (room.files_free, room.files_limit) == (12, "the quota of names of /a/b")
    assert (
        narrowest(Answers({}, {}, Remaining(9000, 3)), "/x", "hdfs://shop/x").limit
        == "its DataNodes"
    )
    assert narrowest(Answers({}, {}, None), "/x", "hdfs://shop/x").bytes_free is None
