"""Two applications that share an operator's bins, the rows that they are offered, and moves between them.

with pair(Setup("objects", "driver", 1_200_000), rate=2000) as both:
    both.move("east", ways["fluid"])
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from applications import wait_until
from counting import BINS
from latency import BEFORE_SECONDS, Latencies, latencies, summary, timeline
from open_loop import Rates
from processes import Peaks

from stateshift import live
from stateshift.live.bins.move_request import Manner

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SEEDS = os.environ.get("STATESHIFT_BENCH_SEEDS")  # a folder that keeps states for another run
SECONDS_MAX = 240.0
AFTER_SECONDS = 1.0
LATE_SECONDS = 5.0  # rows that come later than that say that it is not settled
WARM_UP_ROWS = 20  # batches that each worker has had before anything is measured
OPERATORS = {"objects": "counting:VISITS", "columns": "counting:VISITS_IN_COLUMNS"}


@dataclass(frozen=True)
class Setup:
    """What the applications count, where, and how many keys have a state."""

    form: str
    home: str
    keys: int


@dataclass(frozen=True)
class Way:
    """A strategy as it is asked for, and how."""

    strategy: str
    gap: float = 0.0
    prepared: bool = False
    lead: float = 2.0

    def manner(self) -> Manner:
        return Manner(
            gap_seconds=self.gap,
            lead_seconds=self.lead,
            prepared=self.prepared,
            wait_seconds=SECONDS_MAX,
        )


@dataclass
class Pair:
    """The applications `west` and `east`, running; all bins begin at west."""

    folder: Path
    setup: Setup
    rates: Rates = field(default_factory=Rates)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    came: dict[Path, Any] = field(default_factory=dict)
    moved_at: float = 0.0

    @property
    def group(self) -> str:
        return str(self.folder / "group")

    # ---------------------------------------------------------------- the applications

    def seed(self) -> None:
        """Let every key have a state: one that was made before, where there is a place for it."""
        if SEEDS is None:
            self._import()
            return
        made = Path(SEEDS) / f"{self.setup.form}-{self.setup.keys}"
        if not made.exists():
            self._import()
            shutil.copytree(self.group, made)
        else:
            shutil.copytree(made, self.group)

    def _import(self) -> None:
        """Bring a state in, as whoever adopts an operator does."""
        keys = pa.array(range(self.setup.keys), pa.int64())
        ones = pa.array([1] * self.setup.keys, pa.int64())
        value = ones
        if self.setup.form == "columns":
            value = pa.StructArray.from_arrays([ones] * 6, ["n", "last", *"abcd"])
        key = pa.StructArray.from_arrays([keys], ["key"])
        file = self.folder / "state.parquet"
        pyarrow.parquet.write_table(pa.table({"key": key, "value": value}), file)
        words = [self.group, OPERATORS[self.setup.form], str(file), "--worker", "west"]
        if self.setup.form == "objects":
            words += ["--with", "counting:first_state"]
        command = [sys.executable, "-m", "stateshift", "live", "import", *words]
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])

    def start(self, name: str) -> None:
        setup = self.setup
        words = ["--folder", self.folder, "--name", name, "--form", setup.form]
        words += ["--keys", setup.keys, "--home", setup.home]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, str(HERE / "job.py"), *map(str, words)],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> None:
        (self.folder / "stop").touch()
        for process in self.processes.values():
            ended(process)

    def until(self, done: Callable[[], bool], otherwise: str) -> None:
        wait_until(done, self.processes, self.folder, SECONDS_MAX, otherwise)

    # ---------------------------------------------------------------- rows

    def rate(self, rate: float) -> None:
        self.rates = self.rates.then(self.folder, rate)

    def deliveries(self) -> list[Any]:
        """What has come out of both: of each delivery when that was, and its rows."""
        for path in self.folder.glob("*/came/*.npy"):
            if path not in self.came and not path.name.endswith(".new.npy"):
                self.came[path] = np.load(path)
        return list(self.came.values())

    def latencies(self) -> Latencies:
        return latencies(self.deliveries(), self.rates)

    def until_all_came(self, moment: float) -> None:
        """Wait for every row that was due by a moment."""
        number = self.rates.number_at(moment)
        self.until(lambda: len(self.latencies()) >= number, "rows are missing")

    def is_settled(self) -> bool:
        """Whether nothing has changed for so long as is looked at before a move, and rows come out
        without growing later.
        """
        now = time.time()
        if now - max(self.rates.steps[-1][0], self.moved_at) < BEFORE_SECONDS:
            return False
        begin, end = now - BEFORE_SECONDS, now - BEFORE_SECONDS / 2
        found = self.latencies().between(begin, end)
        due = self.rates.number_at(end) - self.rates.number_at(begin)
        return len(found) >= due - 1 and bool(found.seconds.max() < LATE_SECONDS)

    def settle(self) -> None:
        self.until(self.is_settled, "it does not settle")

    def commits(self, since: float = 0.0) -> list[dict[str, Any]]:
        """What has been noted of commits of both."""
        found = []
        for name in self.processes:
            path = self.folder / name / "commits.jsonl"
            lines = path.read_text().splitlines() if path.exists() else []
            found += [{**json.loads(line), "worker": name} for line in lines]
        return [one for one in found if one["at"] >= since]

    # ---------------------------------------------------------------- moves

    def at(self) -> str:
        """Where the bins are."""
        bins = live.Controller(self.group).status()
        return str(bins.names[bins.assigned[0]])

    def move(self, way: Way) -> dict[str, Any]:
        """Move all bins from where they are to the other, and return what that has cost."""
        giver = self.at()
        taker = "east" if giver == "west" else "west"
        peaks = {name: Peaks(process.pid) for name, process in self.processes.items()}
        asked, load = time.time(), os.getloadavg()[0]
        moved = live.Controller(self.group).move(
            range(BINS), to=taker, strategy=way.strategy, manner=way.manner()
        )
        ended_at = time.time()
        if moved.state != "finished":
            raise SystemExit(f"{way.strategy}: {moved.state}, {moved.reason}")
        until = ended_at + AFTER_SECONDS
        time.sleep(AFTER_SECONDS)
        self.until_all_came(until)
        self.moved_at = time.time()
        found = self.latencies()
        return {
            "steps": moved.steps,
            "moved_in": round(ended_at - asked, 2),
            "before": summary(found.between(asked - BEFORE_SECONDS, asked)),
            "during": summary(found.between(asked, until)),
            "timeline": timeline(found.between(asked - BEFORE_SECONDS, until), asked),
            "work": self._work(asked),
            "memory": {"giver": peaks[giver].found(), "taker": peaks[taker].found()},
            "exactly_once": self._is_exactly_once(until),
            "load": round(load, 1),
        }

    def _work(self, asked: float) -> dict[str, Any]:
        """What the commits that give and take have worked more than usual: whole batches, from the
        time that their rows are at hand. Usual is the median batch that has the bins: of the giver
        those before, of the taker those behind.
        """
        commits = sorted(self.commits(asked - BEFORE_SECONDS), key=lambda one: one["at"])
        work: dict[str, Any] = {}
        for what in ("given", "taken"):
            found = [one for one in commits if one[what]]
            usual = statistics.median(_seconds_with_bins(commits, found, what))
            more = sum(max(0.0, one["seconds"] - usual) for one in found)
            keys = sum(one[what] for one in found)
            longest = max((one["seconds"] for one in found), default=0.0)
            work[what] = {
                "keys": keys,
                "usual": round(usual, 4),
                "more": round(more, 4),
                "longest": round(longest, 4),
            }
        return work

    def _is_exactly_once(self, until: float) -> bool:
        """Whether every row that was due has come, and none twice."""
        numbers = np.sort(np.concatenate([one[1:] for one in self.deliveries()]))
        due = self.rates.number_at(until)
        return bool((numbers[:due] == np.arange(due)).all() and (np.diff(numbers) == 1).all())


def _seconds_with_bins(
    commits: list[dict[str, Any]], moved: list[dict[str, Any]], what: str
) -> list[float]:
    """Return how long the batches took of who has the bins: before it gives, or once it has taken."""
    workers = {one["worker"] for one in moved}
    others = [one for one in commits if not one["given"] and not one["taken"]]
    found = []
    for one in others:
        is_before = what == "given" and one["at"] < moved[0]["at"]
        is_behind = what == "taken" and one["at"] > moved[-1]["at"]
        if one["worker"] in workers and (is_before or is_behind):
            found.append(one["seconds"])
    return found or [one["seconds"] for one in others]


@contextmanager
def pair(setup: Setup, rate: float) -> Iterator[Pair]:
    """Two applications in a folder of their own, which have had their first batches."""
    with tempfile.TemporaryDirectory(prefix="live-bins-") as folder:
        both = Pair(Path(folder), setup)
        both.seed()
        try:
            for name in ("west", "east"):
                both.start(name)
            both.until(lambda: both.folder.joinpath("group", "bins", "runs").exists(), "no worker")
            both.rate(rate / 4)
            both.until(lambda: len(both.commits()) >= WARM_UP_ROWS, "no batch has ended")
            both.until(lambda: _has_read(both), "a worker has read no rows")
            both.rate(rate)
            both.settle()
            yield both
        finally:
            both.end()


def _has_read(both: Pair) -> bool:
    parts = live.Controller(both.group).status().parts
    return len(parts) == 2 and all(part.frontier is not None for part in parts)


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE.parent, HERE))),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def ended(process: subprocess.Popen[bytes], seconds: float = 20.0) -> None:
    """Wait for a process that ends by itself, and kill what is left of it and its children."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
