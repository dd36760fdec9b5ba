"""NEXMark's Q4 and Q8 moved while they run, between two real Spark applications.

As in the paper: half of the bins are at each worker. A first move takes half of the bins of `west`
to `east`, a quarter of all; the second one, which is measured, takes them back. Each strategy is
measured so, one after the other, in the same applications.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bin_latency
import event_files
import live_queries
import numpy
import rows_of_some
from applications import wait_until
from events import BASE, SECOND, Market

from stateshift import live
from stateshift.live.bins.commits import Commit, Ledger
from stateshift.live.bins.files import Files
from stateshift.live.bins.move_request import Manner
from stateshift.storage.opening import open_patiently

HERE = Path(__file__).resolve().parent
WORKERS = ("west", "east")
SECONDS_MAX = 900.0
EVENTS_A_FILE = 100_000
RECENT = 5  # commits
SECONDS_BEFORE = 10.0
SECONDS_BETWEEN = 6.0
SETTLED_SECONDS = 2.0  # and two batches: so close to the clock are workers that keep up with it
ALL_AT_ONCE = "all-at-once"


@dataclass(frozen=True)
class Load:
    """What a query is given. `preload` events are there at once: the state that is moved."""

    query: str
    market: Market
    preload: int
    batched: str = "batched(8)"


WHOLE = (
    Load("q4", Market(rate=2_000, in_flight=800_000), 8_000_000),
    Load("q8", Market(rate=5_000, dilation=20), 8_000_000),
)
QUICK = (
    Load("q4", Market(rate=500, in_flight=20_000), 150_000),
    Load("q8", Market(rate=1_000, dilation=79), 300_000),
)


def measured(load: Load) -> Iterator[dict[str, Any]]:
    """Yield the figures of each strategy."""
    with tempfile.TemporaryDirectory(prefix="nexmark-") as folder, running(folder, load) as pair:
        pair.until(pair.is_settled, "the workers do not come up to the clock")
        for strategy in (ALL_AT_ONCE, load.batched):
            pair.move("east", ALL_AT_ONCE)
            time.sleep(SECONDS_BETWEEN)
            pair.until(pair.is_settled, "the workers do not come up to the clock")
            time.sleep(SECONDS_BEFORE)
            yield pair.measured(strategy)
        pair.check_rows()


@dataclass
class Pair:
    """Two applications in a folder, running."""

    folder: Path
    load: Load
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    began: float = 0.0

    def start(self) -> None:
        """Start both. The preload is there, and what comes after it is due from now on."""
        market, preload = self.load.market, self.load.preload
        for first in range(0, preload, EVENTS_A_FILE):
            end = min(first + EVENTS_A_FILE, preload)
            event_files.write(self.folder / "events", market, first, end)
        for name in WORKERS:
            self._start(name)
        self.files = Files(open_patiently(self.group))
        self.commits = Commits(self.files, live_queries.QUERIES[self.load.query][1].name)

    @property
    def group(self) -> str:
        """The location of the group."""
        return str(self.folder / "group")

    def _start(self, name: str) -> None:
        (self.folder / name).mkdir()
        command = [sys.executable, str(HERE / "moving_job.py"), str(self.folder), name]
        ours = {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*command, self.load.query],
                env={**os.environ, **ours},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> None:
        """End both, and all that they have started."""
        (self.folder / "stop").touch()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def until(self, done: Callable[[], bool], otherwise: str) -> None:
        """Wait for something while both run."""
        wait_until(done, self.processes, self.folder, SECONDS_MAX, otherwise)

    def has_begun(self) -> bool:
        """Whether both workers have read most of the preload."""
        end = BASE + self.load.preload * self.load.market.dilation * SECOND // self.load.market.rate
        enough = BASE + (end - BASE) * 9 // 10
        last = [self.commits.last(name) for name in WORKERS]
        return all(
            each is not None and each.frontier and each.frontier[0] > enough for each in last
        )

    def is_settled(self) -> bool:
        """Whether both workers keep up with the clock."""
        return all(self._keeps_up(name) for name in WORKERS)

    def _keeps_up(self, name: str) -> bool:
        recent = self.commits.recent(name)
        if len(recent) < RECENT:
            return False
        batch = (recent[-1].at - recent[0].at) / (len(recent) - 1)
        return time.time() - self._reached(name) < SETTLED_SECONDS + 2 * batch

    def _reached(self, name: str) -> float:
        """Return until when a worker has all that was due, in seconds since 1970."""
        frontier = self.commits.recent(name)[-1].frontier
        assert frontier is not None, "it has begun"
        return self.began + (frontier[0] - BASE) / SECOND / self.load.market.dilation

    def has_done(self, until: float) -> bool:
        """Whether both workers have all that was due until a time."""
        return all(self._reached(name) > until for name in WORKERS)

    # ---------------------------------------------------------------- moves

    def bins(self) -> list[int]:
        """The bins that move: every second one of those that began at west."""
        return list(range(0, live_queries.QUERIES[self.load.query][1].bins, 4))

    def move(self, to: str, strategy: str) -> Any:
        """Move the bins."""
        controller = live.Controller(self.group)
        manner = Manner(lead_seconds=1.0, wait_seconds=SECONDS_MAX)
        moved = controller.move(self.bins(), to=to, strategy=strategy, manner=manner)
        if moved.state != "finished":
            raise SystemExit(f"{strategy}: {moved.state}, {moved.reason}")
        return moved

    def measured(self, strategy: str) -> dict[str, Any]:
        """Move the bins back to west, and return what that has cost."""
        parts = live.Controller(self.group).status().parts
        kept = [part.ledger.here.get(bin) for part in parts for bin in self.bins()]
        there = [each for each in kept if each is not None]
        loaded, asked = os.getloadavg()[0], time.time()
        moved = self.move("west", strategy)
        ended = time.time()
        until = ended + SECONDS_BETWEEN
        self.until(lambda: self.has_done(until), "the workers do not come up to the clock")
        found = self._slots(asked - SECONDS_BEFORE, until)
        return {
            "query": self.load.query,
            "rate": self.load.market.rate,
            "dilation": self.load.market.dilation,
            "strategy": strategy,
            "bins": len(self.bins()),
            "keys": sum(each.keys for each in there),
            "bytes": sum(each.size for each in there),
            "steps": moved.steps,
            "seconds": round(ended - asked, 2),
            "before": summary(found, asked - SECONDS_BEFORE, asked),
            "during": summary(found, asked, ended + 1.0),
            "timeline": [
                [round(end - asked, 2), *_percentiles(latencies)]
                for end, latencies in found.items()
                if latencies
            ],
            "ended": round(ended - asked, 2),
            "load": round(loaded, 1),
        }

    def _slots(self, since: float, until: float) -> dict[float, list[float]]:
        self.commits.follow()
        steps = bin_latency.steps({name: Ledger() for name in WORKERS}, self.commits.all())
        return bin_latency.slots(steps, self.load.market, self.began, since, until)

    # ---------------------------------------------------------------- rows

    def check_rows(self) -> None:
        """Hold the rows of some keys against what the query says: at least those of the events
        that both workers have read, at most those of the events that one of them has.
        """
        self.end()
        self.commits.stop()
        last = [self.commits.last(name) for name in WORKERS]
        reached = [each.frontier[0] for each in last if each is not None and each.frontier]
        query, market = self.load.query, self.load.market
        least, most = (
            rows_of_some.said(query, market, time)
            for time in (min(reached), max(reached) + market.dilation * SECOND)
        )
        found = rows_of_some.put_out(query, self.folder / "output")
        if not Counter(least) <= Counter(found) <= Counter(most):
            raise SystemExit(f"{query}: other rows than the query says")
        print(f"{query}: {len(found):,} rows of some keys are what the query says", file=sys.stderr)


class Commits:
    """What both workers have committed, followed by a thread: it is cleaned away after a while."""

    def __init__(self, files: Files, operator: str) -> None:
        self._files, self._operator = files, operator
        self._found: dict[str, list[Commit]] = {name: [] for name in WORKERS}
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow_on, daemon=True)
        self._thread.start()

    def follow(self) -> None:
        """Read what is new."""
        with self._lock:
            for name, found in self._found.items():
                while True:
                    commit = self._files.committed(self._operator, name, len(found))
                    if commit is None:
                        break
                    found.append(commit)

    def last(self, name: str) -> Commit | None:
        """Return a worker's last commit."""
        found = self._found[name]
        return found[-1] if found else None

    def recent(self, name: str) -> list[Commit]:
        """Return a worker's last few commits."""
        return self._found[name][-RECENT:]

    def all(self) -> list[tuple[str, Commit]]:
        """Return all commits, each with its worker."""
        return [(name, commit) for name, found in self._found.items() for commit in tuple(found)]

    def stop(self) -> None:
        """Follow no more, once all is read."""
        self._ends.set()
        self._thread.join()
        self.follow()

    def _follow_on(self) -> None:
        while not self._ends.wait(0.5):
            self.follow()


@contextmanager
def running(folder: str, load: Load) -> Iterator[Pair]:
    """The applications, as long as the block lasts."""
    pair = Pair(Path(folder), load)
    try:
        pair.start()
        pair.until(pair.has_begun, "the workers do not begin")
        pair.began = time.time() - load.preload / load.market.rate
        events = pair.folder / "events"
        with event_files.fed(events, load.market, pair.began, load.preload):
            yield pair
    finally:
        pair.end()


def summary(found: dict[float, list[float]], since: float, until: float) -> dict[str, float]:
    """Return the median, p99 and maximum of all bins in the slots of a time."""
    chosen: list[float] = []
    for end, latencies in found.items():
        if since < end <= until:
            chosen.extend(latencies)
    p50, p99, most = _percentiles(chosen)
    return {"p50": p50, "p99": p99, "max": most}


def _percentiles(latencies: Sequence[float]) -> tuple[float, float, float]:
    p50, p99, most = (float(numpy.quantile(latencies, share)) for share in (0.5, 0.99, 1.0))
    return round(p50, 3), round(p99, 3), round(most, 3)
