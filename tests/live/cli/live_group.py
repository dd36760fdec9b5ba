"""A group whose workers are played: the tasks of a query's batches, run here and now, or by a
thread as long as a command waits for them. No Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow

from stateshift import live
from stateshift.live.folder import ChainWorker, Folder
from stateshift.live.member import Group, Member, TaskPlace
from stateshift.live.task import Task
from stateshift.storage.opening import open_storage

SCHEMA = pyarrow.schema([("id", pyarrow.int64()), ("k", pyarrow.int64())])

FUNCTIONS = """
import pyarrow


def two(batch):
    twos = pyarrow.array([2] * batch.num_rows, pyarrow.int64())
    return batch.set_column(1, "k", twos)


def odd(batch):
    is_odd = [number.as_py() % 2 == 1 for number in batch.column("id")]
    return batch.filter(pyarrow.array(is_odd, pyarrow.bool_()))


def timed(batch, inner):
    return inner(batch)


def raises(batch):
    if batch.num_rows:
        raise ValueError("no model")
    return batch


def words(batch):
    return batch.set_column(1, "k", pyarrow.array(["x"] * batch.num_rows, "string"))


NOTHING = 7
"""


def one(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    ones = pyarrow.array([1] * batch.num_rows, pyarrow.int64())
    return batch.set_column(1, "k", ones)


class Played:
    """A query with one chain: `partitions` workers, each a process of its own."""

    def __init__(
        self, root: Path | str, chain: str = "score", query: str = "q", partitions: int = 2
    ):
        self.location = root if isinstance(root, str) else str(root / "group")
        self.chain = live.chain(chain, self.location, SCHEMA, one)
        self.query, self.partitions = query, partitions
        self.batch = -1
        self.start_again()
        self.out: list[int] = []

    def start_again(self) -> None:
        """Start the query again: processes that know nothing yet."""
        self.members = [self._member() for _ in range(self.partitions)]

    def _member(self) -> Member:
        code = open_storage(f"{self.location}/code")
        return Member(Folder(open_storage(self.location)), code, Group(""))

    @property
    def folder(self) -> Folder:
        return Folder(open_storage(self.location))

    def run_batch(self) -> list[int]:
        """Run the next batch, four rows a task; return the column k of what comes out."""
        self.batch += 1
        self.out = []
        for partition, member in enumerate(self.members):
            here = TaskPlace(ChainWorker(self.chain.name, self.query, partition), self.batch)
            rows = pyarrow.table({"id": [0, 1, 2, 3], "k": [0] * 4}, SCHEMA).to_batches()
            for out in Task(self.chain, member, here, "run").run(iter(rows)):
                self.out += out.column("k").to_pylist()
        return self.out

    def has_acknowledged(self, number: int) -> bool:
        """Whether every worker has acknowledged a change."""
        words = [path for path in self.folder.words(number) if "acknowledged" in path]
        return len(words) == self.partitions

    @contextmanager
    def running(self, until: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Run batch after batch meanwhile, in a thread."""
        stop = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            while not stop.wait(0.01) and not until():
                try:
                    self.run_batch()
                except BaseException as error:
                    errors.append(error)
                    return

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not errors, errors
