"""The demo of a failover, told while it happens: a standby follows a job, the job's region is lost,
and the job goes on at the standby.

    1  the job is started in region A, and gets some seconds of data
    2  `stateshift apply --continuous`  keeps a standby of it in region B
    3  region A is lost: its processes are killed, its files are gone
    4  `stateshift failover`            starts the job at B, from the standby's place alone
    5  region A comes back: the same command fences it
    6  `stateshift failback`            takes the job home, while it runs
    7  what came out, beside what a job has counted that nothing ever happened to

Ends with 0 if both results are equal, and with 1 if they are not.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import data
from places import Folders
from run import (
    ROOT,
    SECONDS_OF_DATA,
    Orders,
    play,
    results,
    run_unmoved,
    say,
    side_by_side,
    stateshift,
    title,
    waiting,
)

QUERIES = {"counts": "Windowed counts (demo)", "joined": "Orders joined with payments"}
SPEC = "configs/examples/standby.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--failover", action="store_true", help="this demo")
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")
    options = parser.parse_args()
    return play(options.keep, demo)


def demo(folder: Path, places: Folders) -> bool:
    print("A region is lost, and its Spark job goes on in another one.")
    wait_until, there = waiting(folder, places), str(folder / "there")
    with Orders(folder / "input") as orders:
        title("1", "A job with two stateful operators starts in region A, and gets data.")
        stateshift("apply", places.first, "--yes", "--workdir", str(folder / "runs" / "first"))
        wait_until(lambda: places.committed() >= 2, "the job has not committed a batch")
        time.sleep(SECONDS_OF_DATA)
        say(f"{orders.written * data.ORDERS_PER_FILE} orders so far")

        title("2", "A standby follows it in region B, while it runs.")
        with following(folder) as log:
            wait_until(lambda: "can be started from" in log.read_text(), "there is no standby")
            time.sleep(SECONDS_OF_DATA)
            stateshift("status", there)

            title("3", "Region A is lost: its processes are killed, its files are gone.")
            lose(folder)
            wait_until(lambda: "its source cannot" in log.read_text(), "nobody has noticed")
            say(last_line(log, "its source cannot"))
            lost = forget_lost_output(folder)
            say(f"{lost} batches came out that the standby has not: they are done again")

            title("4", "At region B, from the standby's place alone:")
            runs = str(folder / "runs" / "failover")
            stateshift("failover", there, "--primary-is-down", "--yes", "--workdir", runs)
            wait_until(lambda: "taken over" in log.read_text(), "who fed it has not ended")
            say(f"who fed it: {last_line(log, 'taken over')}")
        time.sleep(SECONDS_OF_DATA)

        title("5", "Region A comes back. The old job must not go on: the same command fences it.")
        (folder / "gone").rename(folder / "here")
        stateshift("failover", there)
        stateshift("status", there)

        title("6", "The job goes home while it runs. What is there is set aside, or stays.")
        home = str(folder / "runs" / "failback")
        stateshift("failback", there, "--yes", "--workdir", home)
        stateshift("status", there)
        time.sleep(SECONDS_OF_DATA)
    orders.finish()

    title(
        "7", "The rest of the data; and all of it once more, through a job that nothing happens to."
    )
    run_unmoved(folder)
    unmoved = results(folder / "unmoved")
    wait_until(lambda: len(results(folder / "moved")["joined"]) >= len(unmoved["joined"]), None)
    wait_until(lambda: len(results(folder / "moved")["counts"]) >= len(unmoved["counts"]), None)
    places.end_jobs()
    return side_by_side(unmoved, results(folder / "moved"))


@contextmanager
def following(folder: Path) -> Iterator[Path]:
    """Keep the standby meanwhile, by a process of its own. Give its log."""
    words = ("apply", SPEC, "--continuous", "--yes", "--workdir", str(folder / "runs" / "standby"))
    print(f"\n    $ stateshift {' '.join(words)} &", flush=True)
    log = folder / "standby.txt"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "stateshift", *words], cwd=ROOT, stdout=out, stderr=out
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


def lose(folder: Path) -> None:
    for path in (folder / "jobs").rglob("*.pid"):
        with suppress(ProcessLookupError):
            os.killpg(int(path.read_text().split()[0]), signal.SIGKILL)
    (folder / "here").rename(folder / "gone")


def forget_lost_output(folder: Path) -> int:
    """Remove what came out of batches that the standby has not; return how many there were. The
    demo's sink keeps a file a batch, and the job at B numbers its own batches on from the standby's.
    """
    from stateshift.formats.marks import INDEX, decode_index

    index, lost = decode_index((folder / "gone" / INDEX).read_bytes()), 0
    for name, query in QUERIES.items():
        commits = folder / "there" / index[query] / "commits"
        kept = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        for path in (folder / "moved" / name).glob("*.json"):
            if int(path.stem) > kept:
                path.unlink()
                lost += 1
    return lost


def last_line(log: Path, words: str) -> str:
    return [line for line in log.read_text().splitlines() if words in line][-1]


if __name__ == "__main__":
    sys.exit(main())
