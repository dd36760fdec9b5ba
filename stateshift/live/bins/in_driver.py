"""Bins in the driver's own process: the fastest home, as far as one core goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow

from stateshift.live.bins.batches import Batch, unread_batch
from stateshift.live.bins.bin_run import BatchResult, BinWork, Memory, Writing, run_works
from stateshift.live.bins.commits import BinSnapshot, RedistributedBin
from stateshift.live.bins.dealing import Redistribution, redistribute
from stateshift.live.bins.files import Files
from stateshift.live.bins.operators import Operator


class InDriver:
    """All bins of a worker in this process."""

    def __init__(self, files: Files, operator: Operator, worker: str) -> None:
        self.files = files
        self.operator = operator
        self.worker = worker
        self.memory = Memory(operator, files.read)

    @contextmanager
    def reading(self, rows: Any, bins: int) -> Iterator[Batch]:  # a DataFrame, or Arrow's table
        """Bring a batch here; its rows are read once it is known of which bins."""
        table = rows if isinstance(rows, pyarrow.Table) else rows.toArrow()
        yield unread_batch(table, self.operator, bins)

    def run(self, number: int, works: Sequence[BinWork]) -> BatchResult:
        """Take bins through their stages, and write what has changed."""
        writing = Writing(self.operator.name, self.worker, number)
        return run_works(works, self.memory, writing, self.files.write_data)

    def deal(self, number: int, deals: Sequence[Redistribution]) -> list[RedistributedBin]:
        """Deal all bins anew, and write them."""
        writing = Writing(self.operator.name, self.worker, number)
        dealt = redistribute(deals, self.memory, writing, self.files.write_data)
        here = {one.bin for one in dealt}
        self.memory.stores = {
            bin: known for bin, known in self.memory.stores.items() if bin in here
        }
        return dealt

    def read_ahead(self, bin: int, kept: BinSnapshot) -> None:
        """Read a bin that will come."""
        self.memory.read_ahead(bin, kept)
