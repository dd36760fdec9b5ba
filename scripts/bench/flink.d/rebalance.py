"""What scripts/bench/rebalance measures. Four jobs, each with a quarter of the state, two on each
of two clusters. One is moved, so that there are three and one, and then back: that is what is
measured, each way in turn.

    none           nobody moves: how long nothing comes out of any of them by itself
    stop-restart   all four are stopped with savepoints, by Flink's own REST API; the one's is
                   copied with cp -r, and
                   all are started again: what an application has to do that is one job
    partial pause  only the job that moves is stopped: stateshift, "mode": "move"
    replication    its state is brought over beforehand, while it runs: stateshift, "mode": "warm"

A gap is the longest time in which nothing came out of a job. *took* is from the first command until
the job that moved is through with its gap; *written* what the way put on disk beside the jobs' own
checkpoints.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ground import CHECKPOINT_MS, PAYLOAD, ROOT, STEADY_SECONDS, Ground, keys_of
from pages import reached, told

from tests.support.flink import cluster_of
from tests.support.servers import group

RESULTS = ROOT / "scripts" / "bench" / "results" / "rebalance.md"
JOBS, PER_SECOND = 4, 500
WAYS = ("none", "stop-restart", "partial pause", "replication")
# What the papers find of the older ways, as goals: who does not move is not touched, and who moves
# waits less.
OTHERS_MAX, SHORTER_MIN = 1.5, 1.0


@dataclass(frozen=True)
class Measured:
    way: str
    gap: float
    others: float
    took: float
    written: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=400, help="of all four together")
    options = parser.parse_args()
    folder, found = Path(tempfile.mkdtemp(prefix="stateshift-rebalance-")), list[Measured]()
    try:
        with group(folder / "servers", "flink-a", "flink-b") as servers:
            clusters = (cluster_of(servers, "flink-a"), cluster_of(servers, "flink-b"))
            grounds = []
            for number in range(JOBS):
                (folder / f"{number}").mkdir()
                keys = keys_of(options.megabytes // JOBS)
                grounds.append(
                    Ground(
                        folder / f"{number}",
                        clusters,
                        keys,
                        number % 2,
                        f"orders-{number}",
                        PER_SECOND,
                    )
                )
                grounds[-1].fill()
            for number in range(options.rounds):
                for way in WAYS:
                    one = rebalanced(grounds, way)
                    found.append(one)
                    print(
                        f"round {number + 1}: {way}: {one.gap:.2f} s, the others "
                        f"{one.others:.2f} s, "
                        f"took {one.took:.1f} s",
                        file=sys.stderr,
                        flush=True,
                    )
            held = sum(ground.state_bytes for ground in grounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page = head(held) + table(found)
    RESULTS.write_text(page, encoding="utf-8")
    print(page)


def rebalanced(grounds: Sequence[Ground], way: str) -> Measured:
    """Out of balance first, by the fastest way; then measured, on the way back."""
    mover = grounds[0]
    mover.apply("warm")
    for ground in grounds:
        ground.settle()
    before = written(grounds)
    with ExitStack() as watching:
        for ground in grounds:
            watching.enter_context(ground.watched())
        time.sleep(STEADY_SECONDS)
        began = time.time()
        _MOVES[way](grounds)
        ended = time.time()
        time.sleep(STEADY_SECONDS)
    gaps = [end - begin for begin, end in (ground.gap() for ground in grounds)]
    put = written(grounds) - before
    if way == "none":
        mover.apply("warm")
    return Measured(way, gaps[0], max(gaps[1:]), max(ended, mover.gap()[1]) - began, put)


def stop_restart(grounds: Sequence[Ground]) -> None:
    mover = grounds[0]
    with ThreadPoolExecutor(len(grounds)) as threads:
        savepoints = list(threads.map(lambda ground: ground.stopped(), grounds))
        copy = mover.folder / f"new-{mover.moves}"
        subprocess.run(["cp", "-r", str(savepoints[0]), str(copy)], check=True)
        mover.place = 1 - mover.place
        list(
            threads.map(
                lambda pair: pair[0].go_on(pair[1]),
                zip(grounds, [copy, *savepoints[1:]], strict=True),
            )
        )


_MOVES: dict[str, Callable[[Sequence[Ground]], object]] = {
    "none": lambda grounds: time.sleep(STEADY_SECONDS),
    "stop-restart": stop_restart,
    "partial pause": lambda grounds: grounds[0].apply("move"),
    "replication": lambda grounds: grounds[0].apply("warm"),
}


def written(grounds: Sequence[Ground]) -> int:
    """By moves: savepoints, and images."""
    folders = [
        folder
        for ground in grounds
        for kind in ("taken-*", "new-*")
        for folder in ground.folder.glob(kind)
    ]
    return sum(
        file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file()
    )


def head(held: int) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"""# A quarter of the state moves, to balance two clusters

`./scripts/bench/rebalance` on {os.cpu_count()} cores and {memory:.0f} GB, Linux, Python
{platform.python_version()}: {JOBS} jobs of Flink 2.3, each of which keeps {PAYLOAD} bytes and a count for each key in
RocksDB ({held / 1e6:,.0f} MB in all) at {PER_SECOND} records a second, with incremental checkpoints every
{CHECKPOINT_MS / 1000:g} s; three on one cluster and one on the other. One moves. *stop-restart* stops all of them with
savepoints, copies the one's with `cp -r`, and starts all; *partial pause* stops the one alone (`"mode": "move"`);
*replication* brings its state over beforehand, while it runs (`"mode": "warm"`); *none* is what comes out while nobody
moves. Medians, and (least / most); {time.strftime("%Y-%m-%d %H:%M")}, the load {os.getloadavg()[0]:.1f}.

"""


def table(found: Sequence[Measured]) -> str:
    lines = [
        (
            "| way | gap of the job that moves, s | longest gap of the others, s | took, s | "
            "written, MB | rounds |"
        ),
        "|---|---|---|---|---|---|",
    ]
    for way in WAYS:
        own = of(found, way)
        cells = [
            told([one.gap for one in own]),
            told([one.others for one in own]),
            told([one.took for one in own]),
        ]
        lines.append(
            f"| {way} | {' | '.join(cells)} | "
            f"{median(one.written for one in own) / 1e6:,.0f} | {len(own)} |"
        )
    others = ratio(found, "replication", "none", lambda one: one.others)
    partly = ratio(found, "stop-restart", "partial pause", lambda one: one.gap)
    shorter = ratio(found, "partial pause", "replication", lambda one: one.gap)
    lines += [
        "",
        f"* who does not move, while the state is brought over beforehand: {others:.2f} "
        "times the gap of when nobody "
        f"moves (goal: at most {OTHERS_MAX:g}, {reached(others <= OTHERS_MAX)})",
        f"* gap of the job that moves: with all stopped {partly:.2f} times that of it "
        "alone stopped; that "
        f"{shorter:.2f} times that of its state brought over beforehand (goal: more than "
        f"{SHORTER_MIN:g}, "
        f"{reached(shorter > SHORTER_MIN)})",
        "",
    ]
    return "\n".join(lines)


def of(found: Sequence[Measured], way: str) -> list[Measured]:
    return [one for one in found if one.way == way]


def ratio(
    found: Sequence[Measured], above: str, below: str, figure: Callable[[Measured], float]
) -> float:
    """Round by round, their median."""
    return median(
        figure(a) / figure(b) for a, b in zip(of(found, above), of(found, below), strict=True)
    )


if __name__ == "__main__":
    main()
