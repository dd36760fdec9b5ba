"""A file is created, and the answer that says so is lost, however often it is asked again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from stateshift import live
from stateshift.errors import AlreadyThere, PlanError, TransientStorageError
from stateshift.live.bins.files import Files, Proposal
from stateshift.live.bins.worker import Delivery
from stateshift.live.folder import Folder
from stateshift.live.protocol.chains import ProposedChange
from stateshift.live.protocol.configuration import Update
from stateshift.storage.local.storage import LocalStorage
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.live.bins.workers import TIES, Ground, Reader, alone, count_and_ask, table_of
from tests.support.ground import Around

END = 240


class Losing(Around):
    """A storage that loses the answer to the next creation of a path with some text in it: before
    it is done, after it, or so long before that it happens later.
    """

    def __init__(self, storage: MemoryStorage | LocalStorage) -> None:
        super().__init__(storage)
        self.text: str | None = None
        self.way = "after"
        self.late: list[tuple[str, bytes]] = []

    def lose(self, text: str, way: str = "after") -> None:
        self.text, self.way = text, way

    def happen(self) -> None:
        """Let happen what was asked for long ago."""
        for path, content in self.late:
            self.inner.create(path, content)
        self.late = []

    def create(self, path: str, content: bytes) -> None:
        if self.text is None or self.text not in path:
            self.inner.create(path, content)
            return
        self.text = None
        if self.way == "after":
            self.inner.create(path, content)
        elif self.way == "late":
            self.late.append((path, content))
        raise TransientStorageError("timed out", location=self.inner.location)


def two_workers() -> tuple[Losing, Ground]:
    storage = Losing(MemoryStorage(MemoryDisk(), "memory://group"))
    ground = Ground(count_and_ask, ["west", "east"], storage=storage)
    for worker in ground.workers.values():
        worker.read(20)
    return storage, ground


def read(worker: Reader, until: int) -> None:
    """Let a worker do a batch as Spark does it: again, until it is committed."""
    for _ in range(3):
        worker.running.settle()
        last = worker.running.ledger.last
        if last is not None and last.batch == worker.batch:
            worker.batch += 1
            worker.read_to = until
            return
        try:
            worker.read(until)
        except TransientStorageError:
            continue
        else:
            return
    raise AssertionError("the batch is never done")


@pytest.mark.parametrize("way", ["before", "after", "late"])
def test_a_worker_goes_on_from_its_commit_whose_answer_was_lost(way: str) -> None:
    storage, ground = two_workers()
    west = ground.workers["west"]
    for until in range(40, END + 1, 40):
        storage.lose("west/commits/", way)
        with pytest.raises(TransientStorageError):
            west.read(until)
        storage.happen()
        read(west, until)
        ground.workers["east"].read(until)
    assert ground.put_out() == alone(count_and_ask, END)


@pytest.mark.parametrize("way", ["before", "after", "late"])
def test_bins_move_though_the_answer_to_each_commit_is_lost(way: str) -> None:
    storage, ground = two_workers()
    workers = ground.workers
    ground.propose([Update(60 // TIES, bin, 1) for bin in range(4)])
    for worker in workers.values():
        worker.running.answer()
    assert ground.decide() == "applied"
    for until in range(40, END + 1, 40):
        for name, worker in workers.items():
            storage.lose(f"{name}/commits/", way)
            with pytest.raises(TransientStorageError):
                worker.read(until)
            read(worker, until)
            worker.between()
    for worker in workers.values():
        worker.between()
    assert ground.put_out() == alone(count_and_ask, END)


def test_a_commit_that_may_still_be_made_counts_for_what_is_proposed() -> None:
    storage, ground = two_workers()
    west, east = ground.workers.values()
    storage.lose("west/commits/", "late")
    with pytest.raises(TransientStorageError):
        west.read(120)
    ground.propose([Update(60 // TIES, 0, 1)])
    west.running.step()  # between two batches: from before what may still be made
    west.running.answer()
    east.running.answer()
    assert ground.decide() == "aborted"


def test_a_commit_that_is_made_at_last_is_gone_on_from() -> None:
    storage, ground = two_workers()
    west = ground.workers["west"]
    storage.lose("west/commits/", "late")
    with pytest.raises(TransientStorageError):
        west.read(120)
    west.running.look()
    is_made = west.running.files.is_made

    def happening(*words: object) -> bool:
        """It happens once it was looked whether it has."""
        found = is_made(*words)
        storage.happen()
        return found

    west.running.files.is_made = happening
    with pytest.raises(TransientStorageError, match="was made by an earlier try"):
        west.read(130)
    read(west, 120)
    for worker in ground.workers.values():
        worker.read(END)
    assert ground.put_out() == alone(count_and_ask, END)


def test_a_commit_of_another_process_is_not_taken_for_ones_own() -> None:
    storage, ground = two_workers()
    west = ground.workers["west"]
    other = Reader(ground, "west", west.offsets)
    storage.lose("west/commits/", "before")
    with pytest.raises(TransientStorageError):
        west.read(40)
    other.read(60)
    with pytest.raises(PlanError, match="another process has committed"):
        west.read(40)


def test_a_split_goes_on_though_the_answer_to_its_commit_is_lost() -> None:
    storage, ground = two_workers()
    bins = 2 * ground.bins
    ground.propose_bins(bins)
    for worker in ground.workers.values():
        worker.running.answer()
    assert ground.decide() == "applied"
    for name, worker in ground.workers.items():
        storage.lose(f"{name}/commits/")
        with pytest.raises(TransientStorageError):
            worker.between()
        read(worker, 120)
        assert worker.running.bins == bins
        worker.read(END)
    assert ground.put_out() == alone(count_and_ask, END)


def test_a_batch_that_spark_does_again_is_known_and_delivered(tmp_path) -> None:
    delivered: list[Delivery] = []
    worker = live.Worker(str(tmp_path / "group"), "west", count_and_ask, delivered.append)
    worker.stop()
    storage = Losing(worker.files.storage)
    worker.files.storage = storage
    storage.lose("west/commits/")
    with pytest.raises(TransientStorageError):
        worker.step(table_of(range(END), 30), 0, "query")
    context = SimpleNamespace(getLocalProperty=lambda name: "query")
    frame = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    worker(frame, 0)
    rows = [row for one in delivered for row in zip(*one.table.to_pydict().values(), strict=True)]
    assert sorted(rows) == alone(count_and_ask, END)


class Twice(Around):
    """A storage whose own client asks twice, and meets what it has created."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage(MemoryDisk(), "memory://group"))

    def create(self, path: str, content: bytes) -> None:
        self.inner.create(path, content)
        raise AlreadyThere("it is there", location=path)


def data(storage: Twice) -> None:
    Files(storage).write_data("bins/states/visits/west/data/000000001-abc", b"pieces")


def move(storage: Twice) -> None:
    Files(storage).propose(Proposal(0, (Update(3, 1, 1),), 1.0, 30.0, by="me"))


def change(storage: Twice) -> None:
    Folder(storage).propose(ProposedChange("group", 1, "replace", {}, 1.0, 30.0, by="me"), None)


@pytest.mark.parametrize("write", [data, move, change])
def test_what_this_process_has_created_itself_is_nobody_elses(
    write: Callable[[Twice], None],
) -> None:
    storage = Twice()
    write(storage)
    write(storage)


def test_another_proposal_of_this_number_is_somebody_elses() -> None:
    storage = Twice()
    move(storage)
    with pytest.raises(AlreadyThere):
        Files(storage).propose(Proposal(0, (Update(3, 1, 0),), 1.0, 30.0, by="me"))
