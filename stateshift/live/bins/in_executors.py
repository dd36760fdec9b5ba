"""Bins in Spark's tasks: a worker grows with its cluster.

    batch      repartitioned by bin, and kept for two looks at it
    survey     what the driver knows of it: which bins have rows, and how far the source has come
    tasks      one a partition: each takes its bins through their stages, and writes one file
    commit     the driver's: one, it names every task's pieces

Which task has which bin is in `bin_task`. The driver sees no rows but those that are put out.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import chain
from typing import Any, Protocol

from stateshift.errors import ClusterError
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.types import Atomic
from stateshift.live.bins.batches import HASH, NOTHING, Batch, Rows, integers
from stateshift.live.bins.bin_run import BatchResult, BinWork
from stateshift.live.bins.bin_task import RETURNED, Assignment, PartitionWork, partition_of
from stateshift.live.bins.commits import BinSnapshot, RedistributedBin
from stateshift.live.bins.dealing import Redistribution
from stateshift.live.bins.hashing import key_kinds
from stateshift.live.bins.operators import Operator
from stateshift.live.bins.times import Moment
from stateshift.live.protocol.configuration import HASH_BITS, bits_of

Frame = Any  # a DataFrame of Spark


class Tasks(Protocol):
    """The place where tasks run: Spark, or its twin."""

    def partitions(self) -> int:
        """Return how many tasks a batch has."""
        ...

    def reading(self, rows: Any, bins: int) -> AbstractContextManager[Batch]:  # rows: a DataFrame
        """Spread a batch's rows over the partitions by bin, of which there are so many, and return
        what is to be known of it.
        """
        ...

    def run(self, assignment: Assignment) -> dict[int, BatchResult]:
        """Run all partitions, over the rows of the batch that is read; return what came of each."""
        ...


class InExecutors:
    """All bins of a worker in the processes of Spark's tasks."""

    def __init__(self, location: str, operator: Operator, worker: str, tasks: Tasks) -> None:
        self.location = location
        self.operator = operator
        self.worker = worker
        self.tasks = tasks
        self.home = uuid.uuid4().hex
        self._ahead: dict[int, BinSnapshot] = {}
        self._bins = operator.bins

    def reading(self, rows: Any, bins: int) -> AbstractContextManager[Batch]:  # rows: a DataFrame
        """Spread a batch's rows over the partitions."""
        self._bins = bins
        return self.tasks.reading(rows, bins)

    def run(self, number: int, works: Sequence[BinWork]) -> BatchResult:
        """Take bins through their stages, each in the task of its partition."""
        if not works:
            return BatchResult([])
        came = self._run(number, self._parts(works, self.tasks.partitions()))
        self._ahead = {}
        return _together(came)

    def deal(self, number: int, deals: Sequence[Redistribution]) -> list[RedistributedBin]:
        """Deal bins anew, each in a task: that of the first one of those that belong together."""
        if not deals:
            return []
        partitions = self.tasks.partitions()
        parts = []
        for partition in range(partitions):
            mine = tuple(
                each for each in deals if partition_of(each.sources[0].bin, partitions) == partition
            )
            parts.append(pickle.dumps(PartitionWork((), {}, mine), protocol=5))
        dealt: list[RedistributedBin] = []
        for came in self._run(number, tuple(parts)):
            dealt += came.dealt
        return dealt

    def _run(self, number: int, parts: tuple[bytes, ...]) -> list[BatchResult]:
        """Run the tasks of all parts; return what came of each."""
        assignment = Assignment(
            location=self.location,
            operator=self.operator,
            worker=self.worker,
            home=self.home,
            number=number,
            bins=self._bins,
            parts=parts,
        )
        came = self.tasks.run(assignment)
        partitions = len(parts)
        missing = set(range(partitions)) - set(came)
        if missing:
            raise ClusterError(
                f"{self.operator.name}: nothing came of {len(missing)} of {partitions} tasks",
                hint="take home='driver', and tell us which version of Spark this is",
            )
        return [came[partition] for partition in range(partitions)]

    def _parts(self, works: Sequence[BinWork], partitions: int) -> tuple[bytes, ...]:
        parts = []
        for partition in range(partitions):
            mine = [work for work in works if partition_of(work.bin, partitions) == partition]
            ahead = {
                bin: kept
                for bin, kept in self._ahead.items()
                if partition_of(bin, partitions) == partition
            }
            parts.append(pickle.dumps(PartitionWork(tuple(mine), ahead), protocol=5))
        return tuple(parts)

    def read_ahead(self, bin: int, kept: BinSnapshot) -> None:
        """Let the next batch's task read a bin that will come, once it has done its own."""
        self._ahead[bin] = kept


def _together(parts: Sequence[BatchResult]) -> BatchResult:
    """Return what came of all partitions as one."""
    done = chain.from_iterable(came.done for came in parts)
    outputs = chain.from_iterable(came.outputs for came in parts)
    return BatchResult(list(done), tuple(outputs), sum(came.put_out for came in parts))


# ------------------------------------------------------------------------------------------- Spark


class SparkTasks:
    """Tasks of Spark, as many as it runs at a time."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self._spread: Frame | None = None

    def partitions(self) -> int:
        """Return how many tasks a batch has."""
        return max(1, min(int(_session().sparkContext.defaultParallelism), self.operator.bins))

    @contextmanager
    def reading(self, rows: Frame, bins: int) -> Iterator[Batch]:
        """Repartition a batch by bin, and keep it until it is done."""
        spread = _by_bin(rows, bins, self.partitions()).persist()
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


def _session() -> Any:  # a SparkSession
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def _by_bin(frame: Frame, bins: int, partitions: int) -> Frame:
    """Return a DataFrame with the rows of each bin in its partition: each number of a partition is
    put for one that Spark's hash sends there.
    """
    from pyspark.sql import functions

    numbers = functions.array(*map(functions.lit, partition_numbers(partitions)))
    place = functions.pmod(_bin(bins), functions.lit(partitions)) + 1
    return frame.repartition(partitions, functions.element_at(numbers, place.cast("int")))


@cache
def partition_numbers(partitions: int) -> tuple[int, ...]:
    """Return for each partition an integer that Spark's repartition sends there."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < partitions:
        place = signed_hash([number], [Atomic("integer")]) % partitions
        found.setdefault(place, number)
        number += 1
    return tuple(found[partition] for partition in range(partitions))


def _bin(bins: int) -> Any:  # a Column
    """Return the column of a row's bin: the leading bits of its hash."""
    from pyspark.sql import functions

    bits = bits_of(bins)
    if bits == 0:
        return functions.lit(0)
    return functions.shiftrightunsigned(functions.col(HASH), HASH_BITS - bits).cast("int")


def _survey(frame: Frame, operator: Operator, bins: int) -> Batch:
    """Return what is to be known of a batch, by one aggregation."""
    from pyspark.sql import functions

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
    batch = _batch(aggregated.filter("size > 0").select(*columns).toArrow(), len(times))
    return batch._replace(key_kinds=_key_kinds(frame, operator)) if batch.size else batch


def _key_kinds(frame: Frame, operator: Operator) -> tuple[str, ...]:
    """Return the kinds of the key's columns, as the other home says them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return key_kinds(to_arrow_schema(frame.select(*operator.key).schema), operator.key)


def _batch(table: Any, times: int) -> Batch:  # Arrow's table, of a row a partition
    """Return what the aggregation says."""
    if table.num_rows == 0:
        return NOTHING
    bins: set[int] = set()
    for one in table.column("bins").to_pylist():
        bins |= set(one)
    rows: Mapping[int, Rows | None] = dict.fromkeys(sorted(bins))
    names = map(str, table.column("partition").to_pylist())  # as the other home says them
    columns = [integers(table, f"last{at}").tolist() for at in range(times)]
    seen: dict[str, Moment] = dict(zip(names, zip(*columns, strict=True), strict=True))
    return Batch(rows, seen, sum(table.column("size").to_pylist()))
