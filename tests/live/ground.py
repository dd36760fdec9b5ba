"""A group without Spark: its folder in memory or on a disk, tasks of its jobs, whoever changes it.

with a Ground a test has a folder and chains; `member()` is a process that runs them, `run` one
task of a batch, `change` a controller, between whose looks a test can let tasks run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow
import pyarrow.compute

from stateshift.live import acts, code, proposals
from stateshift.live.folder import ChainWorker, Folder
from stateshift.live.member import Group, Member, TaskPlace
from stateshift.live.proposals import ChangeProgress, ChangeRequest, Patience, read_group
from stateshift.live.protocol.chains import Link, NewChain, OnError, ProposedChange, When
from stateshift.live.task import Chain, Task, declare
from stateshift.storage.protocol import Storage, Traits
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage

GROUP = "memory://m/group"
SCHEMA = pyarrow.schema([("v", pyarrow.int64()), ("k", pyarrow.int64())])
OURS = Group("", owners=("us",))  # the owner of all files of a disk in memory


def giving(k: int, column: str = "k") -> code.Function:
    """Return a function that gives rows a number: by that a test knows which one they met."""

    def give(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        values = pyarrow.array([k] * batch.num_rows, pyarrow.int64())
        if column in batch.schema.names:
            return batch.set_column(batch.schema.names.index(column), column, values)
        return batch.append_column(column, values)

    return give


def raising(message: str = "no model") -> code.Function:
    """Return a function that raises an error for any rows, and is well on none."""
    give = giving(0)

    def fail(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        if batch.num_rows:
            raise ValueError(message)
        return give(batch)

    return fail


def rows(*values: int) -> pyarrow.RecordBatch:
    """Return rows as they come into a chain."""
    return pyarrow.RecordBatch.from_pydict({"v": pyarrow.array(values, pyarrow.int64())})


def numbers(batches: Sequence[Any], column: str = "k") -> list[int]:
    """Return a column of what came out of a chain."""
    found: list[int] = []
    for batch in batches:
        found += batch.column(column).to_pylist()
    return found


@dataclass
class Ground:
    """A group's folder; on a disk in memory, unless it is given another storage."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    storage: Storage | None = None

    @property
    def folder(self) -> Folder:
        """The folder, as another process would open it."""
        return Folder(self.storage or self.disk.open(GROUP))

    def chain(self, name: str = "score", k: int = 0, **more: Any) -> Chain:
        """Declare a chain that gives rows a number."""
        schema = more.pop("schema", SCHEMA)
        functions = more.pop("functions", (giving(k),))
        chain = Chain(name, Group(GROUP), schema, functions, **more)
        declare(chain, self.folder)
        return chain

    def member(self, trust: Group = OURS, storage: Storage | None = None) -> Member:
        """Return what a new process knows of the group."""
        place = Folder(storage) if storage is not None else self.folder
        return Member(place, self.disk.open(f"{GROUP}/code"), trust)

    def text(self, path: str, content: bytes | None = None) -> bytes:
        """Return a file of the folder, after it was written by somebody who may not."""
        if content is not None:
            self.folder.storage.write(path, lambda: iter((content,)))
        return self.folder.storage.read(path)


@dataclass(frozen=True)
class Slot:
    """Where a task of a query runs."""

    query: str = "q"
    batch: int = 0
    partition: int = 0
    run_id: str = "run"


def task(chain: Chain, member: Member, slot: Slot) -> Task:
    """Return one task of a batch."""
    worker = ChainWorker(chain.name, slot.query, slot.partition)
    return Task(chain, member, TaskPlace(worker, slot.batch), slot.run_id)


def run(chain: Chain, member: Member, batch: int, *parts: Any, **more: Any) -> list[Any]:
    """Run one task of a batch, over rows that come in parts; return all that comes out."""
    return list(running(chain, member, batch, *parts, **more))


def running(chain: Chain, member: Member, batch: int, *parts: Any, **more: Any) -> Iterator[Any]:
    """Yield what comes out of one task of a batch, part by part."""
    slot = Slot(batch=batch, **more)
    return task(chain, member, slot).run(iter(parts or (rows(1, 2),)))


def asked(
    chains: Mapping[str, code.Function],
    when: When = "batch",
    on_error: OnError = "fail",
    **more: Any,
) -> ChangeRequest:
    """Return a change that gives each chain one new function."""
    packages = {name: code.package(function) for name, function in chains.items()}
    new = {
        name: NewChain((Link(package.digest, package.name),), when)
        for name, package in packages.items()
    }
    return ChangeRequest("replace", new, "epoch", tuple(packages.values()), on_error, **more)


def propose(folder: Folder, what: ChangeRequest) -> ProposedChange:
    """Propose a change that nobody has checked."""
    return proposals.propose(folder, read_group(folder), what)


def change(
    folder: Folder,
    what: ChangeRequest,
    work: Callable[[], object] = lambda: None,
    seconds: float = 10.0,
) -> ChangeProgress:
    """Check, propose and carry a change, while tasks do some work between two looks."""
    now = read_group(folder)
    acts.check_request(folder, now, what)
    proposed = proposals.propose(folder, now, what)
    patience = Patience(seconds, what.unattended)
    return proposals.follow(folder, now, proposed, patience, lambda carried: work())


class SharedCreates(MemoryStorage):
    """A storage on which two may create one file."""

    @property
    def traits(self) -> Traits:
        return Traits(renames=True, keeps_times=True, exclusive=False)
