"""Two workers of one group that read the same log: one has its bins in Spark's tasks, one in the
driver. Half of the bins of each go to the other one, and back.

    two_homes.py GROUP END KEYS

Prints a JSON object: the rows that were put out, and how many bins each worker has given and taken.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from stateshift import live
from stateshift.live.bins.files import Proposal
from stateshift.live.bins.worker import Delivery
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Update
from tests.live.bins.workers import BINS, count_and_ask

BATCHES = 6
SECONDS_MAX = 120.0


def main() -> None:
    location, end, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
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
    size = end // BATCHES
    for batch in range(BATCHES):
        until = end if batch == BATCHES - 1 else (batch + 1) * size
        for worker in (west, east):
            worker(rows(spark, batch * size, until, keys), batch)
        if batch == 0:
            move(west, away=2 * size // 3, back=4 * size // 3)
    for worker in (west, east):
        wait(lambda worker=worker: not worker.running.ledger.held)
        worker(rows(spark, end, end, keys), BATCHES)
        worker.stop()
    commits = {name: moved(worker, name) for name, worker in (("west", west), ("east", east))}
    found = sorted(row for kept in delivered.values() for row in kept)
    print(json.dumps({"rows": found, "moved": commits}))
    spark.stop()


def rows(spark: SparkSession, since: int, until: int, keys: int) -> DataFrame:
    return spark.range(since, until).selectExpr(
        "id as number", "id div 3 as at", f"(id * 7919 + 13) % {keys} as key"
    )


def move(worker: live.Worker, away: int, back: int) -> None:
    """Move two bins of each worker to the other one, and back."""
    updates = []
    for bin in range(BINS // 2):
        updates.append(Update(away, bin, 1 - bin % 2))
        updates.append(Update(back, bin, bin % 2))
    worker.files.propose(Proposal(0, tuple(sorted(updates)), time.time(), SECONDS_MAX))
    wait(lambda: len(worker.files.answers(0)) == 2)
    decided = worker.files.decide(0, Decision("applied", time.time(), "test"))
    assert decided.outcome == "applied", decided


def moved(worker: live.Worker, name: str) -> list[int]:
    """How many bins a worker has given, and taken."""
    given = taken = 0
    for number in range(worker.running.ledger.number + 1):
        commit = worker.files.committed(count_and_ask.name, name, number)
        assert commit is not None
        given += len(commit.given)
        taken += len(commit.taken)
    return [given, taken]


def wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not done():
        assert time.monotonic() < until, "it has not come"
        time.sleep(0.1)


if __name__ == "__main__":
    main()
