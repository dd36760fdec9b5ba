"""Two real Spark jobs with a real Kafka between them get a new function each, while both run: no
record meets the old function of one and the new one of the other.

Nobody stops. The first job stamps each record with the version that it met there, the second one
follows the stamp. In each run one of the jobs is killed at a random moment of the change, and
started again. STATESHIFT_LIVE_RUNS says how many runs.

The naive scheduler, which tells each job on its own, breaks it as soon as records wait in Kafka.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stateshift.live.acts import ChangeResult, Edit, Manner, change
from tests.acceptance.support import environment, wait_until
from tests.support.servers import Servers, Unavailable, downloads, group

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

RUNS = int(os.environ.get("STATESHIFT_LIVE_RUNS", "2"))
APPLICATION = Path(__file__).with_name("live_pair_job.py")
JOBS = ("clean", "score")
SECONDS_MAX = 240.0
MOMENT_SECONDS_MAX = 5.0  # after a change is asked for: when one of the jobs is killed
LAG_SECONDS = 8.0
MANNER = Manner(scheduler="epoch", timeout_seconds=120.0, wait_seconds=200.0)


def giving(column: str, number: int) -> Callable[[Any], Any]:
    """Return a function that gives rows a number in a column."""

    def give(rows: Any) -> Any:
        import pyarrow

        if column in rows.schema.names:
            rows = rows.drop_columns([column])
        return rows.append_column(column, pyarrow.array([number] * rows.num_rows, pyarrow.int64()))

    return give


@dataclass
class Pair:
    """Both jobs, in a folder."""

    folder: Path
    kafka: str
    jars: str
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: int = 0

    def start(self, name: str) -> None:
        self.starts += 1
        words = ("--folder", str(self.folder), "--kafka", self.kafka, "--jars", self.jars)
        with (self.folder / f"{name}-{self.starts}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, str(APPLICATION), name, *words],
                env={**environment(), "PYSPARK_DRIVER_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.running[name].pid, signal.SIGKILL)
        self.running.pop(name).wait()

    def end(self) -> None:
        (self.folder / "stop").touch()
        until = time.monotonic() + 40
        for process in self.running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        for name in tuple(self.running):
            self.kill(name)

    def change(self, number: int, scheduler: str = "epoch") -> ChangeResult:
        edits = [
            Edit("clean", "replace", giving("k", number)),
            Edit("score", "replace", giving("m", number)),
        ]
        manner = Manner(scheduler, None, "fail", MANNER.timeout_seconds, MANNER.wait_seconds)  # type: ignore[arg-type]
        return change(str(self.folder / "group"), edits, manner)

    def met(self) -> dict[int, set[tuple[int, int]]]:
        """Of each record by number: the functions of both jobs that copies of it have met."""
        found = defaultdict[int, set[tuple[int, int]]](set)
        for path in (self.folder / "out").glob("[0-9]*.json"):
            for value, k, m in json.loads(path.read_text()):
                found[value].add((k, m))
        return found

    def pairs(self) -> set[tuple[int, int]]:
        return {pair for pairs in self.met().values() for pair in pairs}

    def until(self, done: Callable[[], bool], otherwise: str) -> None:
        def alive_and_done() -> bool:
            for name, process in self.running.items():
                assert process.poll() is None, f"{name} has ended: {self._log(name)}"
            return done()

        wait_until(alive_and_done, otherwise, SECONDS_MAX, self.folder)

    def _log(self, name: str) -> str:
        logs = sorted(self.folder.glob(f"{name}-*.log"), key=lambda path: path.stat().st_mtime)
        return logs[-1].read_text(errors="replace")[-3000:]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("live"), "kafka") as servers:
        yield servers


@pytest.fixture(scope="module")
def pair(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    try:
        jars = sorted(downloads.jars("kafka-spark-4.3").glob("*.jar"))
    except Unavailable as reason:
        pytest.skip(f"Kafka's connector cannot be had: {reason}")
    address = servers.exports()["STATESHIFT_KAFKA"]
    pair = Pair(tmp_path_factory.mktemp("pair"), address, ":".join(map(str, jars)))
    try:
        pair.start("clean")
        pair.until(
            lambda: (pair.folder / "clean" / "commits" / "1").exists(), "nothing is handed on"
        )
        pair.start("score")
        pair.until(lambda: (0, 0) in pair.pairs(), "nothing comes out")
        yield pair
    finally:
        pair.end()


@pytest.mark.row("F-17", on="Spark")
def test_no_record_meets_an_old_and_a_new_function_though_a_job_is_killed(pair: Pair) -> None:
    for number in range(1, RUNS + 1):
        victim, moment = JOBS[number % 2], random.uniform(0.0, MOMENT_SECONDS_MAX)
        killing = threading.Timer(moment, restart, (pair, victim))
        killing.start()
        changed = pair.change(number)
        killing.join()
        assert changed.carried is not None
        decided = changed.carried.decided
        outcome = "nothing" if decided is None else decided.outcome
        print(f"run {number}: {victim} killed after {moment:.2f} s: {outcome}", flush=True)
        if outcome == "applied":
            pair.until(lambda n=number: (n, n) in pair.pairs(), f"function {number} is nowhere")
    met = pair.met()
    assert all(k == m for pairs in met.values() for k, m in pairs), pair.pairs()
    assert all(len(pairs) == 1 for pairs in met.values()), "all copies of a record met the same"
    assert sorted(met) == list(range(len(met))), "no record is missing"
    assert len(pair.pairs()) > 1, "functions have changed"


@pytest.mark.row("F-2", on="Spark")
def test_the_naive_scheduler_breaks_it_where_records_wait_in_kafka(pair: Pair) -> None:
    before = {one for one in pair.pairs() if one[0] != one[1]}
    (pair.folder / "slow").touch()
    time.sleep(LAG_SECONDS)
    number = 1000
    changed = pair.change(number, "naive")
    assert changed.carried is not None and changed.carried.decided is not None
    (pair.folder / "slow").unlink()
    pair.until(lambda: (number, number) in pair.pairs(), "the new functions are nowhere")
    mixed = {one for one in pair.pairs() if one[0] != one[1]} - before
    assert mixed and all(m == number for _, m in mixed), "an old one here, the new one there"


def restart(pair: Pair, name: str) -> None:
    pair.kill(name)
    pair.start(name)
