"""How many files a compaction leaves, and how long a query takes from its start to its first commit before and after.

    python restart.py [--pairs 7] [--provider hdfs|rocksdb]

A checkpoint of 200 shards and 80 batches, the last nine of them after the last snapshot, is compacted by the command
line. Then the same query, in one warm Spark, is started on a fresh copy of the one and of the other, in turn, with one
new file to read; measured is from `start` until the commit log has the new batch. The table goes to
scripts/bench/results/restart.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from making import FILES, PROVIDERS, add_input, query, session, started
from measure import ROOT, bench_directory

HERE = Path(__file__).resolve().parent
RESULTS = ROOT / "scripts" / "bench" / "results" / "restart.md"
SHARDS, BATCHES, TAIL, ENTRIES = 200, 71, 9, 20_000


@dataclass(frozen=True)
class Compared:
    provider: str
    files: int
    left: int
    pairs: list[tuple[float, ...]]
    load: float

    @property
    def line(self) -> str:
        before, after = (statistics.median(column) for column in zip(*self.pairs, strict=True))
        ratios = sorted(b / a for a, b in self.pairs)
        return (
            f"| {self.provider} | {self.files:,} | {self.left:,} | {100 * self.left / self.files:.1f} % | {before:.2f} "
            f"| {after:.2f} | {ratios[0]:.2f} / {statistics.median(ratios):.2f} / {ratios[-1]:.2f} | {len(ratios)} "
            f"| {self.load:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--provider", choices=sorted(PROVIDERS))
    options = parser.parse_args()
    directory = bench_directory()
    wanted = [options.provider] if options.provider else sorted(PROVIDERS)
    compared = [compare(directory, provider, options.pairs) for provider in wanted]
    table = as_table(compared)
    if len(wanted) == len(PROVIDERS):
        RESULTS.write_text(table)
    print(table)


def compare(directory: Path, provider: str, pairs: int) -> Compared:
    place, scratch = directory / f"restart-{provider}", directory / "restart-scratch"
    shape = ["--shards", str(SHARDS), "--batches", str(BATCHES), "--tail", str(TAIL)]
    if not (place / "made.json").exists():
        maker = [sys.executable, str(HERE / "making.py"), str(place), provider, str(ENTRIES), *shape]
        subprocess.run(maker, check=True)
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "input").mkdir(parents=True)
    add_input(scratch, BATCHES + TAIL, 0, ENTRIES, 50)
    compact(place / "checkpoint", scratch)
    load = os.getloadavg()[0]
    spark = session(2, PROVIDERS[provider], SHARDS, "2g")
    both = (place / "checkpoint", scratch / "compacted")
    seconds = [tuple(first_commit(spark, one, scratch) for one in both) for _ in range(pairs + 1)]
    spark.stop()
    left = count(scratch / "compacted")
    shutil.rmtree(scratch)
    return Compared(provider, count(place / "checkpoint"), left, seconds[1:], load)  # the first pair warms Spark up


def compact(checkpoint: Path, scratch: Path) -> None:
    """The copy is a fork, so that nothing of the source is touched."""
    copy = ["--to", str(scratch / "compacted"), "--fork", "--waive", "paths-stay", "--yes"]
    command = [sys.executable, "-m", "stateshift", "compact", str(checkpoint), *copy, "--workdir", str(scratch / "run")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})


def first_commit(spark: Any, checkpoint: Path, scratch: Path) -> float:
    """Seconds from the query's start to its first commit, on a copy of the checkpoint that is then thrown away."""
    copy = scratch / "copy"
    shutil.copytree(checkpoint, copy)
    commit = copy / "commits" / str(BATCHES + TAIL)
    began = time.perf_counter()
    running = started(query(spark, scratch / "input", FILES), copy)
    while not commit.exists() and running.isActive:
        time.sleep(0.005)
    seconds = time.perf_counter() - began
    if not commit.exists():
        raise SystemExit(f"the query did not go on: {running.exception()}")
    running.stop()
    shutil.rmtree(copy)
    return seconds


def count(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def as_table(compared: list[Compared]) -> str:
    import pyspark

    lines = [
        "# Restarting before and after a compaction",
        "",
        f"`./scripts/bench/restart` on {os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}, Spark "
        f"{pyspark.__version__} with `local[2]`: a query of {SHARDS} shards after {BATCHES + TAIL}",
        f"batches, {TAIL} of them after the last snapshot. Seconds from the query's start to its first commit in one "
        "warm Spark, medians;",
        "the ratio of each pair, after / before, as min / median / max. Hadoop's `.crc` files are counted, too.",
        "",
        "| provider | files | compacted | left | before | after | ratio | pairs | load |",
        "|---|---|---|---|---|---|---|---|---|",
        *(one.line for one in compared),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
