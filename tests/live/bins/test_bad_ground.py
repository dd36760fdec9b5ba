"""A full disk, damaged commits, and workers that do not fit their group."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stateshift import live
from stateshift.errors import FormatError, PlanError, StorageError, UnknownVersion
from stateshift.live.bins.commits import FilePiece, HeldRows
from stateshift.testing.memory_storage import MemoryDisk
from tests.live.bins.workers import Ground, alone, count_and_ask

END = 60


@pytest.mark.parametrize("room", [0, 300, 2000])
def test_a_batch_that_finds_the_disk_full_fails_and_loses_nothing(room: int) -> None:
    disk = MemoryDisk()
    ground = Ground(count_and_ask, ["west"], storage=disk.open("memory://group"))
    west = ground.workers["west"]
    west.read(20)
    disk.bytes_max = disk.bytes + room
    with pytest.raises(StorageError):
        for until in range(30, END, 10):
            west.read(until)
    disk.bytes_max = None
    west.read(END)
    assert ground.put_out() == alone(count_and_ask, END)


def test_a_damaged_commit_is_told_by_its_path() -> None:
    ground = Ground(count_and_ask, ["west"])
    west = ground.workers["west"]
    west.read(20)
    path = "bins/states/count_and_ask/west/commits/000000000"
    content = ground.storage.read(path)
    ground.storage.write(path, lambda: iter((content[:50],)))
    with pytest.raises(FormatError, match="not what stateshift writes there") as raised:
        west.start()
    assert raised.value.path.endswith(path)


@pytest.mark.parametrize("damaged", [[5], 5, [[5, None]], [[5, 3, 0]], [[5, "3", []]]])
def test_others_read_of_rows_held_those_that_wait_for_a_move(damaged: object) -> None:
    ground = Ground(count_and_ask, ["west"])
    ground.workers["west"].read(20)
    first = ground.files.committed("count_and_ask", "west", 0)
    assert first is not None
    pieces = (FilePiece("bins/file", 0, 10),)
    held = (
        HeldRows(1, None, pieces),
        HeldRows(2, 7, pieces),
        HeldRows(3, None, ()),
        HeldRows(4, 9, ()),
    )
    second = replace(first, number=1, held=held)
    ground.files.commit("count_and_ask", "west", second)
    assert ground.files.committed("count_and_ask", "west", 1) == second
    awaited = replace(second, held=(held[1], held[3]))
    assert ground.files.committed_elsewhere("count_and_ask", "west", 1) == awaited
    path = "bins/states/count_and_ask/west/commits/000000001"
    plain = json.loads(ground.storage.read(path)) | {"held": damaged}
    ground.storage.write(path, lambda: iter((json.dumps(plain).encode(),)))
    with pytest.raises(FormatError, match="held"):
        ground.files.committed_elsewhere("count_and_ask", "west", 1)


def test_a_missing_commit_and_missing_data_are_told_by_their_paths() -> None:
    ground = Ground(count_and_ask, ["west"])
    west = ground.workers["west"]
    west.read(20)
    west.read(40)
    data = sorted(ground.files.data("count_and_ask", "west"))
    for path in data:
        ground.storage.remove(path)
    west.start()
    with pytest.raises((FormatError, StorageError)) as missing:
        west.read(END)
    assert any(path in str(missing.value) for path in data)
    ground.storage.remove("bins/states/count_and_ask/west/commits/000000000")
    with pytest.raises(FormatError, match="commit 0 of worker west is missing"):
        west.start()


def worker(folder: object, name: str, operator: object) -> live.Worker:
    """A worker that has started, and ends at once."""
    made = live.Worker(str(folder), name, operator, output=lambda delivery: None)
    made.stop()
    return made


def test_a_worker_with_other_bins_or_another_declaration_is_refused(tmp_path) -> None:
    worker(tmp_path / "group", "west", count_and_ask)
    with pytest.raises(PlanError, match="has 8 bins, and count_and_ask is declared with 16"):
        worker(tmp_path / "group", "east", replace(count_and_ask, bins=16))
    with pytest.raises(
        PlanError, match=r"has output number int64 here, and number .*, n int64 at worker"
    ):
        worker(tmp_path / "group", "east", replace(count_and_ask, out="number long"))
    with pytest.raises(PlanError, match=r"has key .* here"):
        worker(tmp_path / "group", "east", replace(count_and_ask, key=("number",)))


def test_a_group_of_a_newer_version_is_refused(tmp_path) -> None:
    worker(tmp_path / "group", "west", count_and_ask)
    path = tmp_path / "group" / "group.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    with pytest.raises(UnknownVersion, match="written by a newer stateshift"):
        worker(tmp_path / "group", "west", count_and_ask)
