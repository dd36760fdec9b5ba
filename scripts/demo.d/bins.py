"""The demo of state that moves while its jobs run.

    6  two jobs count visits of users, 400 a second: all bins are at `west`, `east` has none
    7  `stateshift live move`  half of the bins to `east`, all at once
    8  the same half back to `west`, in two steps
    9  a picture of the latency; and what a third job made of the same visits: nothing moved there

Each row that comes out says how often its user was there, so a row that is lost or folded twice is
seen in it and in all later ones. The latency of a row is counted from the time at which the visit
was due until the file that has its row was written.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow
import pyarrow.compute
import pyarrow.parquet
from bins_job import BINS
from jobs import Job, ended_afterwards, stateshift, submitted, wait_until
from run import say, title

from stateshift.live.survey import moves_of_bins

USERS = 60_000  # all of them come at once in the beginning
VISITS_PER_SECOND = 400
SECONDS_BETWEEN_FILES = 0.25
SECONDS_BETWEEN_MOVES = 3.0
BAR = 40
PAIR = ("west", "east")
HALF = f"0-{BINS // 2 - 1}"
BATCHED = "batched(16)"


class Visits:
    """The input, written as time goes by: a file every quarter of a second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0
        self._files = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write_on, daemon=True)

    def write_first(self) -> None:
        """Write a visit of each user."""
        self.folder.mkdir(parents=True)
        self._write(USERS, time.time())

    def begin(self) -> None:
        """Write on from now on."""
        self._thread.start()

    def end(self) -> None:
        """Write no more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _write_on(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_FILES):
            self._write(round(VISITS_PER_SECOND * SECONDS_BETWEEN_FILES), time.time())

    def _write(self, count: int, now: float) -> None:
        numbers = range(self.number, self.number + count)
        visits = pyarrow.table(
            {
                "number": list(numbers),
                "at": [int(now * 1_000_000)] * count,
                "user": [number * 7919 % USERS for number in numbers],
            }
        )
        path = self.folder / f"{self._files:06}.parquet"
        hidden = path.with_name(f".{path.name}")
        pyarrow.parquet.write_table(visits, hidden)
        os.replace(hidden, path)
        self.number += count
        self._files += 1


@dataclass(frozen=True)
class Running:
    """The input, the two jobs that share a state, and one for itself, of which nothing moves."""

    visits: Visits
    two: tuple[Job, ...]
    alone: Job


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """The input and the jobs that read it, as long as the block lasts."""
    folder.mkdir()
    visits = Visits(folder / "visits")
    visits.write_first()
    two = tuple(_submitted(folder, group(folder), name) for name in PAIR)
    alone = _submitted(folder, str(folder / "group-alone"), "alone", "--alone")
    with ended_afterwards(folder / "stop", *two, alone):
        try:
            yield Running(visits, two, alone)
        finally:
            visits.end()


def _submitted(folder: Path, place: str, name: str, *more: str) -> Job:
    log = folder / f"{name}.log"
    return submitted(log, "bins_job.py", place, folder, name, *more, master="local[1]")


def group(folder: Path) -> str:
    return str(folder / "group")


def demo(folder: Path, jobs: Running) -> bool:
    place, visits = group(folder), jobs.visits
    title("6", f"Two jobs count the visits of {USERS:,} users. Both run; `west` has all bins.")
    begun = "the first commits of the two jobs"
    wait_until(begun, lambda: sum(has_begun(folder, name) for name in PAIR), len(PAIR), *jobs.two)
    wait_until("rows of the job beside them", lambda: count(folder / "alone"), USERS, jobs.alone)
    visits.begin()
    move_there_and_back(place)
    visits.end()
    stateshift("live", "history", place)
    stateshift("live", "status", place, "--html", str(folder / "bins.html"))
    for name, those in (("moved", jobs.two), ("alone", (jobs.alone,))):
        wait_until(f"all rows ({name})", partial(count, folder / name), visits.number, *those)

    title("9", "The latency; and what a third job made of the same visits: nothing moved there.")
    picture(folder / "moved", place)
    return side_by_side(rows(folder / "moved"), rows(folder / "alone"), visits.number)


def move_there_and_back(place: str) -> None:
    """Move half of the bins to `east`, and back."""
    time.sleep(SECONDS_BETWEEN_MOVES)
    title("7", "Half of the bins goes to `east`, all at once.")
    move(place, "east", "all-at-once")
    time.sleep(SECONDS_BETWEEN_MOVES)

    title("8", f"The same half comes back to `west`, {BATCHED}.")
    move(place, "west", BATCHED)
    time.sleep(SECONDS_BETWEEN_MOVES)


def has_begun(folder: Path, name: str) -> bool:
    """Whether a worker has committed the first visits."""
    commits = folder / "group" / "bins" / "states" / "visits" / name / "commits"
    return commits.is_dir() and any(commits.iterdir())


def move(place: str, worker: str, strategy: str) -> None:
    """Move the half."""
    command = ("live", "move", place, "--to", worker, "--bins", HALF, "--strategy", strategy)
    stateshift(*command, "--lead", "1")


# ---------------------------------------------------------------- what came out


def count(folder: Path) -> int:
    """How many rows have come out."""
    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def rows(folder: Path) -> pyarrow.Table:
    """All rows that came out, by the visit's number."""
    tables = [pyarrow.parquet.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    if not tables:
        return pyarrow.table({"number": []})
    return pyarrow.concat_tables(tables).sort_by("number")


def picture(folder: Path, place: str) -> None:
    """Print the highest latency of each second, and what began to move in it."""
    highest = latencies(folder)
    moves = steps(place)
    first, most = min(highest), max(highest.values())
    print(f"\n    {'second':>6} {'latency, s':>11}")
    for second in range(first, max(highest) + 1):
        latency = highest.get(second, 0.0)
        bar = "#" * round(BAR * latency / most)
        moved = ", ".join(moves.get(second, ()))
        print(f"    {second - first:>6} {latency:>11.2f}  {bar:<{BAR}}  {moved}".rstrip())


def steps(place: str) -> dict[int, list[str]]:
    """What was decided to move, by the second of the decision."""
    found: dict[int, list[str]] = defaultdict(list)
    for step in moves_of_bins(place):
        assert step.decided is not None, "the command has waited for it"
        if step.decided.outcome == "applied":
            words = [f"{len(went.bins)} bins to {went.target}" for went in step.went]
            found[int(step.decided.at)].extend(words)
    return found


def latencies(folder: Path) -> dict[int, float]:
    """The highest latency in seconds, by the second in which the visits were due."""
    highest: dict[int, float] = defaultdict(float)
    for path in folder.glob("*.parquet"):
        written = path.stat().st_mtime
        table = pyarrow.parquet.read_table(path, columns=["number", "at"])
        later = table.filter(pyarrow.compute.greater_equal(table["number"], USERS))
        for at in set(later["at"].to_pylist()):
            due = at / 1_000_000
            highest[int(due)] = max(highest[int(due)], written - due)
    return highest


def side_by_side(moved: pyarrow.Table, alone: pyarrow.Table, count: int) -> bool:
    """Whether both have the same rows, one for each visit."""
    say(f"{count:,} visits; {len(moved):,} rows where bins moved, {len(alone):,} where none did")
    is_equal = len(alone) == count and moved.equals(alone)
    say(f"row by row: {'equal' if is_equal else 'DIFFERENT'}")
    return is_equal
