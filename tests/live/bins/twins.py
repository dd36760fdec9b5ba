"""Spark's tasks without Spark: some processes of one, each task in any of them, and now and then
twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark import cloudpickle

from stateshift.live.bins.batches import RowBatch, bins_of, unread_batch
from stateshift.live.bins.bin_run import BatchResult
from stateshift.live.bins.files import Files
from stateshift.live.bins.homes import Assignment, Process, partition_of
from stateshift.live.bins.operators import BinOperator

PARTITIONS, PROCESSES = 3, 2


class TwinTasks:
    """Tasks that run here, one after the other."""

    def __init__(self, files: Files, operator: BinOperator, seed: int) -> None:
        self.files, self.operator = files, operator
        self.random = random.Random(seed)
        self.processes: dict[int, Process] = {}
        self.rows: pa.Table | None = None

    def partitions(self) -> int:
        return PARTITIONS

    @contextmanager
    def reading(self, rows: pa.Table, bins: int) -> Iterator[RowBatch]:
        self.rows, self.bins = rows, bins
        batch = unread_batch(rows, self.operator, bins).read((), None)
        yield batch._replace(rows=dict.fromkeys(batch.rows))
        self.rows = None

    def run(self, assignment: Assignment) -> dict[int, BatchResult]:
        assignment = cloudpickle.loads(cloudpickle.dumps(assignment))
        came = {}
        for partition in range(PARTITIONS):
            for _ in range(self.random.choice((1, 1, 2))):  # the last attempt counts
                process = self._process(assignment)
                came[partition] = assignment.run(partition, self._rows_of(partition), process)
        return came

    def _process(self, assignment: Assignment) -> Process:
        number = self.random.randrange(PROCESSES)
        if number not in self.processes or self.random.random() < 0.05:  # one that died
            self.processes[number] = Process.begun(assignment, self.files)
        return self.processes[number]

    def _rows_of(self, partition: int) -> pa.Table | None:
        if self.rows is None:
            return None
        bins = bins_of(self.rows.combine_chunks(), self.bins)
        rows = self.rows.filter(pa.array(partition_of(bins, PARTITIONS) == partition))
        return rows if rows.num_rows else None
