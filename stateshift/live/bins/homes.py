"""The homes of a worker's bins: the driver's own process, or those of Spark's tasks.

InDriver      the fastest home, as far as one core goes
InExecutors   a worker grows with its cluster: the driver sees no rows but those that are put
              out, and its one commit names every task's pieces

batch        repartitioned by bin, and kept for two looks at it; bin b is in partition
             b % partitions
survey       the batch as the driver knows it: its bins, and the last moments of the source
Assignment   handed to the tasks of a batch: of each partition its bins, as bytes
Process      kept by a process of Python from one task to the next: bins in memory

A task takes its bins through their stages, writes one file, under a name that nobody else has, and
returns the results. One that runs twice writes two: the one that the driver's commit names exists.
A bin that another process had at the last batch is caught up from that one's files, or read again.
"""

from __future__ import annotations

import contextlib
import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow

from stateshift.errors import ClusterError, Incompatible, MissingFile
from stateshift.live.bins.batches import NOTHING, RowBatch, Rows, integers, unread_batch
from stateshift.live.bins.bin_run import BatchResult, BinWork, Memory, Writing, run_works
from stateshift.live.bins.commits import BinSnapshot, RedistributedBin
from stateshift.live.bins.files import Files
from stateshift.live.bins.hashing import HASH, key_kinds
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.redistribution import Redistribution, redistribute
from stateshift.live.bins.times import Moment
from stateshift.live.protocol.configuration import HASH_BITS, bits_of
from stateshift.storage.opening import open_patiently

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

Frame = Any  # a DataFrame of Spark
RETURNED = "partition int, came binary"  # of each task one row
FORGOTTEN_AFTER = 50  # commits in which a process has not met a bin


class InDriver:
    """All bins of a worker in this process."""

    def __init__(self, files: Files, operator: BinOperator, worker: str) -> None:
        self.files, self.operator, self.worker = files, operator, worker
        self.memory = Memory(operator, files.read)

    @contextmanager
    def reading(self, rows: Frame | pyarrow.Table, bins: int) -> Iterator[RowBatch]:
        """Bring a batch here; its rows are read once it is known of which bins."""
        table = rows if isinstance(rows, pyarrow.Table) else rows.toArrow()
        yield unread_batch(table, self.operator, bins)

    def run(self, number: int, works: Sequence[BinWork]) -> BatchResult:
        writing = Writing(self.operator.name, self.worker, number)
        return run_works(works, self.memory, writing, self.files.write_data)

    def redistribute(self, number: int, parts: Sequence[Redistribution]) -> list[RedistributedBin]:
        writing = Writing(self.operator.name, self.worker, number)
        bins = redistribute(parts, self.memory, writing, self.files.write_data)
        here = {one.bin for one in bins}
        stores = self.memory.stores.items()
        self.memory.stores = {bin: known for bin, known in stores if bin in here}
        return bins

    def read_ahead(self, bin: int, kept: BinSnapshot) -> None:
        self.memory.read_ahead(bin, kept)


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
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "mapInArrow runs in a task"
        partition = context.partitionId()
        filled = [batch for batch in batches if batch.num_rows]
        rows = pyarrow.Table.from_batches(filled) if filled else None
        key = (self.location, self.operator.name, self.worker)
        known = _processes.get(key)
        if known is None or known.home != self.home:
            files = Files(open_patiently(self.location))
            known = _processes[key] = Process.begun(self, files)
        came = self.run(partition, rows, known)
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


@dataclass(slots=True)
class PartitionWork:
    """The works of a partition, and bins to read ahead. One that redistributes only does that."""

    works: list[BinWork] = field(default_factory=list)
    ahead: dict[int, BinSnapshot] = field(default_factory=dict)
    deals: list[Redistribution] = field(default_factory=list)


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


class Tasks(Protocol):
    """The place where tasks run: Spark, or its twin."""

    def partitions(self) -> int: ...

    def reading(self, rows: Frame, bins: int) -> AbstractContextManager[RowBatch]:
        """Spread a batch's rows over the partitions by bin; return the batch without rows."""
        ...

    def run(self, assignment: Assignment) -> dict[int, BatchResult]:
        """Run all partitions, over the rows of the batch that is read; return their results."""
        ...


class InExecutors:
    """All bins of a worker in the processes of Spark's tasks."""

    def __init__(self, location: str, operator: BinOperator, worker: str, tasks: Tasks) -> None:
        self.location, self.operator, self.worker = location, operator, worker
        self.tasks = tasks
        self.home = uuid.uuid4().hex
        self._ahead: dict[int, BinSnapshot] = {}
        self._bins = operator.bins

    def reading(self, rows: Frame, bins: int) -> AbstractContextManager[RowBatch]:
        self._bins = bins
        return self.tasks.reading(rows, bins)

    def run(self, number: int, works: Sequence[BinWork]) -> BatchResult:
        """Take bins through their stages, each in the task of its partition."""
        if not works:
            return BatchResult([])
        partitions = self.tasks.partitions()
        parts = [PartitionWork() for _ in range(partitions)]
        for work in works:
            parts[partition_of(work.bin, partitions)].works.append(work)
        for bin, kept in self._ahead.items():
            parts[partition_of(bin, partitions)].ahead[bin] = kept
        came = self._run(number, parts)
        self._ahead = {}
        done = chain.from_iterable(one.done for one in came)
        outputs = chain.from_iterable(one.outputs for one in came)
        return BatchResult(list(done), tuple(outputs), sum(one.put_out for one in came))

    def redistribute(self, number: int, parts: Sequence[Redistribution]) -> list[RedistributedBin]:
        """Redistribute bins, each in the task of the first one of those that belong together."""
        if not parts:
            return []
        partitions = self.tasks.partitions()
        works = [PartitionWork() for _ in range(partitions)]
        for part in parts:
            works[partition_of(part.sources[0].bin, partitions)].deals.append(part)
        return list(chain.from_iterable(came.dealt for came in self._run(number, works)))

    def _run(self, number: int, parts: Sequence[PartitionWork]) -> list[BatchResult]:
        """Run the tasks of all parts; return the result of each."""
        assignment = Assignment(
            location=self.location,
            operator=self.operator,
            worker=self.worker,
            home=self.home,
            number=number,
            bins=self._bins,
            parts=tuple(pickle.dumps(part, protocol=5) for part in parts),
        )
        came = self.tasks.run(assignment)
        partitions = range(len(parts))
        missing = set(partitions) - set(came)
        if missing:
            raise ClusterError(
                f"{self.operator.name}: nothing came of {len(missing)} of {len(parts)} tasks",
                hint="take home='driver', and tell us which version of Spark this is",
            )
        return [came[partition] for partition in partitions]

    def read_ahead(self, bin: int, kept: BinSnapshot) -> None:
        """Let the next batch's task read a bin that will come, once it has done its own."""
        self._ahead[bin] = kept


Home = InDriver | InExecutors


@dataclass(eq=False)
class SparkTasks:
    """Tasks of Spark, as many as it runs at a time."""

    operator: BinOperator
    _spread: Frame | None = field(default=None, init=False)

    def partitions(self) -> int:
        return max(1, min(int(_session().sparkContext.defaultParallelism), self.operator.bins))

    @contextmanager
    def reading(self, rows: Frame, bins: int) -> Iterator[RowBatch]:
        """Repartition a batch by bin, and keep it until it is done."""
        partitions = self.partitions()
        from pyspark.sql import functions

        numbers = functions.array(*map(functions.lit, partition_numbers(partitions)))
        place = functions.pmod(_bin(bins), functions.lit(partitions)) + 1
        spread = rows.repartition(
            partitions, functions.element_at(numbers, place.cast("int"))
        ).persist()
        try:
            self._spread = spread
            yield _survey(spread, self.operator, bins)
        finally:
            self._spread = None
            spread.unpersist()

    def run(self, assignment: Assignment) -> dict[int, BatchResult]:
        """Run all partitions; over no rows where no batch is read."""
        frame = self._spread
        if frame is None:
            partitions = len(assignment.parts)
            frame = _session().range(0, partitions, 1, partitions).filter("id < 0")
        returned = frame.mapInArrow(assignment, RETURNED).collect()
        return {row.partition: pickle.loads(row.came) for row in returned}


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


@cache
def partition_numbers(partitions: int) -> tuple[int, ...]:
    """Return for each partition an integer that Spark's repartition sends there."""
    from stateshift.formats.spark.placement import signed_hash  # tasks, too, import this module
    from stateshift.formats.spark.types import Atomic

    found: dict[int, int] = {}
    number = 0
    while len(found) < partitions:
        place = signed_hash([number], [Atomic("integer")]) % partitions
        found.setdefault(place, number)
        number += 1
    return tuple(found[partition] for partition in range(partitions))


def _bin(bins: int) -> Column:
    """Return the column of a row's bin: the leading bits of its hash."""
    from pyspark.sql import functions

    bits = bits_of(bins)
    if bits == 0:
        return functions.lit(0)
    return functions.shiftrightunsigned(functions.col(HASH), HASH_BITS - bits).cast("int")


def _survey(frame: Frame, operator: BinOperator, bins: int) -> RowBatch:
    """Return a batch without its rows, by one aggregation."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import to_arrow_schema

    times = [functions.col(name).alias(f"at{at}") for at, name in enumerate(operator.time)]
    moment = functions.struct(*times)
    partition = operator.promise.partition
    aggregated = frame.groupBy(*([] if partition is None else [partition])).agg(
        functions.max(moment).alias("last"),
        functions.count(functions.lit(1)).alias("size"),
        functions.collect_set(_bin(bins)).alias("bins"),
    )
    named = functions.lit("") if partition is None else functions.col(partition)
    columns = [named.alias("partition"), "size", "bins"]
    columns += [functions.col(f"last.at{at}").alias(f"last{at}") for at in range(len(times))]
    batch = surveyed_batch(aggregated.filter("size > 0").select(*columns).toArrow(), len(times))
    if not batch.size:
        return batch
    schema = to_arrow_schema(frame.select(*operator.key).schema)  # kinds as the other home has them
    return batch._replace(key_kinds=key_kinds(schema, operator.key))


def surveyed_batch(table: pyarrow.Table, times: int) -> RowBatch:
    """Return the batch of an aggregation, of which the table has a row a partition."""
    if table.num_rows == 0:
        return NOTHING
    bins: set[int] = set()
    for one in table.column("bins").to_pylist():
        bins |= set(one)
    rows: Mapping[int, Rows | None] = dict.fromkeys(sorted(bins))
    names = map(str, table.column("partition").to_pylist())  # as the other home says them
    columns = [integers(table, f"last{at}").tolist() for at in range(times)]
    seen: dict[str, Moment] = dict(zip(names, zip(*columns, strict=True), strict=True))
    return RowBatch(rows, seen, sum(table.column("size").to_pylist()))
