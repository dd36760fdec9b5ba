"""The work of one of Spark's tasks: the bins of its partition, through their stages.

    Assignment   handed to the tasks of a batch: of each partition its bins, as bytes
    Process      kept by a process of Python from one task to the next: bins in memory

Bin b is in partition b % partitions. A task writes one file, under a name that nobody else has,
and returns the results of its bins. One that runs twice writes two: the one that the driver's
commit names exists. A bin that another process had at the last batch is caught up from that one's
files, or read again.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stateshift.errors import Incompatible, MissingFile
from stateshift.live.bins.batches import NOTHING, unread_batch
from stateshift.live.bins.bin_run import BatchResult, BinWork, Memory, Writing, run_works
from stateshift.live.bins.commits import BinSnapshot
from stateshift.live.bins.files import Files
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.redistribution import Redistribution, redistribute
from stateshift.storage.opening import open_patiently

if TYPE_CHECKING:
    import pyarrow

RETURNED = "partition int, came binary"  # of each task one row
FORGOTTEN_AFTER = 50  # commits in which a process has not met a bin


def partition_of(bin: int, partitions: int) -> int:
    """Return the partition that has a bin."""
    return bin % partitions


@dataclass(frozen=True)
class Assignment:
    """A batch of a worker. `home` is unlike that of any other start of it."""

    location: str
    operator: BinOperator
    worker: str
    home: str
    number: int
    bins: int
    parts: tuple[bytes, ...]

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Run one partition, as mapInArrow calls it."""
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "mapInArrow runs in a task"
        partition = context.partitionId()
        filled = [batch for batch in batches if batch.num_rows]
        rows = pyarrow.Table.from_batches(filled) if filled else None
        came = self.run(partition, rows, process_of(self))
        yield pyarrow.record_batch(
            [pyarrow.array([partition], pyarrow.int32()), pyarrow.array([pickle.dumps(came)])],
            ["partition", "came"],
        )

    def run(self, partition: int, rows: pyarrow.Table | None, process: Process) -> BatchResult:
        """Take the bins of a partition through their stages, and write the changes."""
        part: PartitionWork = pickle.loads(self.parts[partition])
        writing = Writing(self.operator.name, self.worker, self.number)
        if part.deals:
            dealt = redistribute(part.deals, process.memory, writing, process.files.write_data)
            process.met([one.bin for one in dealt], self.number)
            return BatchResult([], dealt=dealt)
        batch = NOTHING if rows is None else unread_batch(rows, self.operator, self.bins)
        expected = {work.bin for work in part.works}
        for bin in () if batch.unread is None else batch.unread.bins:
            if bin not in expected:
                raise Incompatible(
                    f"{self.operator.name}: a row of bin {bin} is in partition {partition}, where "
                    "it was not when the batch was surveyed",
                    hint="the source gives other rows when it is read again: take home='driver'",
                )
        elsewhere = [work for work in part.works if work.is_elsewhere]
        frontier = elsewhere[0].after.at if elsewhere else None
        needed = {work.bin for work in part.works if not work.is_elsewhere}
        by_bin = batch.read(needed, frontier).rows
        works = [replace(work, rows=by_bin.get(work.bin)) for work in part.works]
        came = run_works(works, process.memory, writing, process.files.write_data)
        process.met([work.bin for work in works], self.number)
        process.read_ahead(part.ahead)
        return replace(came, tables=None)


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """The works of a partition, and bins to read ahead. One that redistributes only does that."""

    works: tuple[BinWork, ...]
    ahead: Mapping[int, BinSnapshot]
    deals: tuple[Redistribution, ...] = ()


@dataclass
class Process:
    """A process's memory of a worker from one task to the next."""

    home: str
    files: Files
    memory: Memory
    last_met: dict[int, int] = field(default_factory=dict)

    @classmethod
    def begun(cls, assignment: Assignment, files: Files) -> Process:
        """Return a process that has no bin yet."""
        return cls(assignment.home, files, Memory(assignment.operator, files.read))

    def met(self, bins: Sequence[int], number: int) -> None:
        """Take note of the bins of a batch, and forget those that have long been elsewhere."""
        self.last_met.update(dict.fromkeys(bins, number))
        for bin, last in list(self.last_met.items()):
            if last < number - FORGOTTEN_AFTER:
                del self.last_met[bin]
                self.memory.stores.pop(bin, None)

    def read_ahead(self, ahead: Mapping[int, BinSnapshot]) -> None:
        for bin, kept in ahead.items():
            with contextlib.suppress(MissingFile):  # cleaned up by now: there is a newer one
                self.memory.read_ahead(bin, kept)


_processes: dict[tuple[str, str, str], Process] = {}


def process_of(assignment: Assignment) -> Process:
    """Return this process's memory of a worker; nothing of an earlier start of it."""
    key = (assignment.location, assignment.operator.name, assignment.worker)
    known = _processes.get(key)
    if known is None or known.home != assignment.home:
        files = Files(open_patiently(assignment.location))
        known = _processes[key] = Process.begun(assignment, files)
    return known
