"""A job of the bench in a folder of its own, its rates, its functions, and what came out of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import made
from open_loop import Rates
from pyspark import cloudpickle

from stateshift.live.acts import ChangeResult, Edit, Manner, change
from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SECONDS_MAX = 300.0
POLL_SECONDS = 0.02

# What is shipped is pickled with this module: workers have none of that name.
cloudpickle.register_pickle_by_value(made)


@dataclass(frozen=True)
class Event:
    """What came out of a batch, and when: for each kind of rows their number, the first, the
    last.
    """

    batch: int
    ended: float
    rows: Sequence[Sequence[int]]

    @property
    def count(self) -> int:
        return sum(row[-3] for row in self.rows)

    @property
    def first(self) -> int:
        return min((row[-2] for row in self.rows), default=-1)

    @property
    def last(self) -> int:
        return max((row[-1] for row in self.rows), default=-1)

    @property
    def ks(self) -> set[int]:
        return {row[0] for row in self.rows}


@dataclass
class Job:
    """A job, running."""

    folder: Path
    words: tuple[str, ...]
    rates: Rates = field(default_factory=Rates)
    process: subprocess.Popen[bytes] | None = None
    last_k: int = 0

    def start(self, *words: str) -> None:
        (self.folder / "stop").unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [sys.executable, str(HERE / "job.py"), "--folder", str(self.folder)]
        with (self.folder / "job.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.words, *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> None:
        if self.process is None:
            return
        (self.folder / "stop").touch()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    # ---- what comes in, what is asked, what comes out

    def rate(self, rate: float) -> None:
        self.rates = self.rates.then(self.folder, rate)

    def next_k(self) -> int:
        self.last_k += 1
        return self.last_k

    def change(self, edits: Sequence[Edit], scheduler: str = "epoch") -> ChangeResult:
        flow = dataflow([edit.chain for edit in edits]) if scheduler == "fries" else None
        manner = Manner(
            scheduler=scheduler,  # type: ignore[arg-type]
            dataflow=flow,
            timeout_seconds=120.0,
            wait_seconds=SECONDS_MAX,
        )
        return change(str(self.folder / "group"), edits, manner)

    def events(self) -> list[Event]:
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Event(**json.loads(line)) for line in lines]

    def until(self, done: Callable[[list[Event]], bool], otherwise: str) -> list[Event]:
        ends = time.monotonic() + SECONDS_MAX
        while True:
            events = self.events()
            if done(events):
                return events
            log = (self.folder / "job.log").read_text(errors="replace")[-3000:]
            alive = self.process is not None and self.process.poll() is None
            if not alive or time.monotonic() > ends:
                raise SystemExit(f"{otherwise}\n{log}")
            time.sleep(POLL_SECONDS)

    def until_batches(self, count: int) -> list[Event]:
        already = len(self.events())
        return self.until(lambda events: len(events) >= already + count, "no batch has ended")

    def worst(self, event: Event) -> float:
        """The latency of the record of a batch that waited longest."""
        return event.ended - self.rates.due(event.first)


def dataflow(chains: Sequence[str]) -> Dataflow:
    """What lies between the chains: each has its share of what is read."""
    middle = tuple(DataflowOperator(name) for name in chains)
    edges = [Edge("read", name) for name in chains] + [Edge(name, "write") for name in chains]
    return Dataflow((DataflowOperator("read"), *middle, DataflowOperator("write")), tuple(edges))


@contextmanager
def running(rate: float, *words: str) -> Iterator[Job]:
    """A job in a folder of its own, which has had its first batches."""
    with tempfile.TemporaryDirectory(prefix="functions-") as folder:
        job = Job(Path(folder), words)
        job.start()
        try:
            job.rate(rate)
            job.until(lambda events: len(events) >= 4, "the job does not run")
            yield job
        finally:
            job.end()
