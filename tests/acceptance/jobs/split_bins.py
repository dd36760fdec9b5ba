"""Two workers of one group that read the same log: one has its bins in Spark's tasks, one in the
driver. All bins are split, halves move, and all are merged again, while both read on.

    split_bins.py GROUP KEYS

Prints a JSON object: the rows that were put out, and what was seen of the numbers of bins.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from stateshift import live
from stateshift.live.bins.worker import Delivery
from tests.acceptance.jobs.two_homes import rows
from tests.live.bins.workers import BINS, count_and_ask

SIZE = 90  # rows a batch
MANNER = live.MoveManner(lead_seconds=1.0, timeout_seconds=120.0, wait_seconds=200.0)


class Reading:
    """Both workers read on in a thread of their own, until the end of the log."""

    def __init__(self, spark: SparkSession, workers: tuple[live.Worker, ...], keys: int) -> None:
        self.spark, self.workers, self.keys = spark, workers, keys
        self.batch = 0
        self.failed: Exception | None = None

    def read(self) -> None:
        """Read a batch at each worker."""
        since = self.batch * SIZE
        for worker in self.workers:
            worker(rows(self.spark, since, since + SIZE, self.keys), self.batch)
        self.batch += 1

    @contextmanager
    def on(self) -> Iterator[None]:
        """Read on meanwhile."""
        ends = threading.Event()

        def read_on() -> None:
            try:
                while not ends.is_set():
                    self.read()
            except Exception as error:
                self.failed = error

        thread = threading.Thread(target=read_on)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
        if self.failed is not None:
            raise self.failed


def main() -> None:
    location, keys = sys.argv[1], int(sys.argv[2])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "1g")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    delivered: dict[tuple[str, int], list[list[int]]] = {}

    def keep(delivery: Delivery) -> None:
        columns = delivery.table.to_pydict().values()
        delivered[delivery.worker, delivery.number] = [
            list(row) for row in zip(*columns, strict=True)
        ]

    names = ("west", "east")
    west = live.Worker(location, "west", count_and_ask, keep, names, home="executors")
    east = live.Worker(location, "east", count_and_ask, keep, names)
    reading = Reading(spark, (west, east), keys)
    reading.read()
    controller = live.Controller(location)
    states = []
    with reading.on():
        states.append(controller.resize(4 * BINS, manner=MANNER).state)
        halves = [2, 3, 9]
        states.append(controller.move(halves, to="east", manner=MANNER).state)
        one_by_one = range(4 * BINS)
        states.append(controller.move(one_by_one, to="west", manner=MANNER).state)
        states.append(controller.resize(BINS // 2, manner=MANNER).state)
        states.append(controller.move([1], to="east", manner=MANNER).state)
    for _ in range(2):
        for worker in (west, east):
            worker(rows(spark, reading.batch * SIZE, reading.batch * SIZE, keys), reading.batch)
        reading.batch += 1
    for worker in (west, east):
        worker.stop()
    print(
        json.dumps(
            {
                "end": (reading.batch - 2) * SIZE,
                "rows": sorted(row for kept in delivered.values() for row in kept),
                "states": states,
                "bins": {worker.name: bins_of(worker) for worker in (west, east)},
                "here": sorted([*west.running.ledger.here, *east.running.ledger.here]),
            }
        )
    )
    spark.stop()


def bins_of(worker: live.Worker) -> list[int]:
    """The numbers of bins that a worker's commits have had, each as it changed."""
    found = [BINS]
    for number in range(worker.running.ledger.number + 1):
        commit = worker.files.committed(count_and_ask.name, worker.name, number)
        bins = BINS if commit is None or commit.bins is None else commit.bins
        if commit is not None and bins != found[-1]:
            found.append(bins)
    return found


if __name__ == "__main__":
    main()
