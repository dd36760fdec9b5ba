"""The demo of functions that change while their job runs, and of state that moves (`bins`).

    1  a job scores orders, 500 a second
    2  `stateshift live introduce`  a filter, into the running job
    3  `stateshift live replace`    the model
    4  a model with a fault takes itself back
    5  `stateshift live history`, a picture of throughput and latency, and the page of it
    6  two other jobs share a state, half of which moves there and back

Every row carries the version that scored it; at the end each batch is held against the history.
Ends with 0 if all rows were scored by what the history says, and if what came out where bins moved
is what comes out where none does; with 1 if not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import bins
from jobs import Job, ended_afterwards, stateshift, submitted, wait_until
from run import say, title

SECONDS_BETWEEN = 4.0
BAR = 40
TAKEN_BACK = 7

# What a version's scores are, as a multiple of the amount. The faulty model is version 3, and
# scores nothing.
FACTORS = {"0": 2.0, "1": 2.0, "2": 3.0}

Batch = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--live", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stateshift-demo-"))
    began = time.monotonic()
    try:
        right, equal = both_demos(folder)
        if options.keep:
            say(f"everything is still in {folder}: open live.html, and bins/bins.html")
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    scores = "Every row was scored by the version of its time" if right else "WRONG SCORES"
    counts = "and counted as if nothing had moved" if equal else "and COUNTED OTHERWISE"
    print(f"\n{scores}, {counts}, after {time.monotonic() - began:.0f} seconds.")
    return 0 if right and equal else 1


def both_demos(folder: Path) -> tuple[bool, bool]:
    """Return whether all scores are right, and whether all counts are."""
    job = submitted(folder / "job.log", "live_job.py", group(folder), folder)
    # The other jobs start while this one is shown.
    with bins.running(folder / "bins") as jobs:
        with ended_afterwards(folder / "stop", job):
            right = demo(folder, job)
        return right, bins.demo(folder / "bins", jobs)


def group(folder: Path) -> str:
    return str(folder / "group")


def demo(folder: Path, job: Job) -> bool:
    print("Functions of a running Spark job are introduced and replaced; it is never stopped.")
    place = group(folder)

    title("1", "A job scores orders: a chain of one function, twice the amount.")
    wait_until("the first batches of the job", lambda: len(batches(folder)), 3, job)
    time.sleep(SECONDS_BETWEEN)
    stateshift("live", "status", place)

    title("2", "Introduce a filter before it: only orders that are paid.")
    stateshift("live", "introduce", place, "score", "rules:only_paid", "--before", "0")
    time.sleep(SECONDS_BETWEEN)

    title("3", "Replace the model: three times the amount.")
    stateshift("live", "replace", place, "score", "model_v2:score", "--at", "1")
    time.sleep(SECONDS_BETWEEN)

    title("4", "A model with a fault. It passes the checks on no rows, fails, and is taken back.")
    faulty = ("live", "replace", place, "score", "model_v3:score", "--at", "1")
    stateshift(*faulty, "--on-error", "revert", exit_code=TAKEN_BACK)
    time.sleep(SECONDS_BETWEEN)
    job.check()

    title("5", "What happened.")
    stateshift("live", "history", place)
    stateshift("live", "status", place, "--html", str(folder / "live.html"))
    picture(folder)
    return all(map(is_right, batches(folder)))


def batches(folder: Path) -> list[Batch]:
    """What the job has written of its batches."""
    read = []
    for path in sorted((folder / "out").glob("*.json")):
        text = path.read_text()
        if text:
            read.append(json.loads(text))
    return read


def is_right(batch: Batch) -> bool:
    """Whether every row's score is that of the version it carries."""
    factors = batch["factors"]
    return all(factors[version] == [FACTORS.get(version)] for version in factors)


def picture(folder: Path) -> None:
    """Print a batch a line: rows a second as a bar, and the version that ran."""
    measured = batches(folder)
    rates = []
    for before, batch in pairwise(measured):
        seconds = batch["at"] - before["at"]
        rates.append((batch, sum(batch["rows"].values()) / seconds, seconds))
    most = max(rate for _, rate, _ in rates)
    print(f"\n    {'batch':>7} {'version':>8} {'rows/s':>7} {'seconds':>8}")
    for batch, rate, seconds in rates[1:]:
        versions = "+".join(sorted(batch["rows"]))
        bar = "#" * round(BAR * rate / most)
        print(f"    {batch['batch']:>7} {versions:>8} {rate:>7.0f} {seconds:>8.1f}  {bar}")


if __name__ == "__main__":
    sys.exit(main())
