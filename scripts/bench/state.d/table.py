"""Runs the commands that take state as rows, and what Spark has in their place, one after the other on
the same state: whole processes, kept to one core.

    query    a sum over all entries               the state reader, with the same sum
    profile                                       the state reader, keeping nothing
    prune    every second key stays behind        the state reader, writing the others as Parquet:
                                                  it cannot write state
    import   all entries, from a Parquet file     the query again from its input: Spark has no other
                                                  way to make state
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measure import HERE, MIB, ROOT, bench_directory, made, read_once
from running import Run, run

RESULTS = ROOT / "scripts" / "bench" / "results" / "table.md"
SHARDS = 8
WHAT = {
    "query": "state reader, the same sum",
    "profile": "state reader to nowhere",
    "prune": "state reader to Parquet",
    "import": "the query from its input",
}
STATESHIFT = [sys.executable, "-m", "stateshift"]
SUM, EVEN = "select count(*), sum(value.count) from state_0", "key.item % 2 = 0"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--millions", type=float, default=2, help="of entries")
    parser.add_argument("--provider", choices=["hdfs", "rocksdb"], default="rocksdb")
    parser.add_argument("--what", nargs="*", choices=WHAT, default=list(WHAT))
    parser.add_argument("--pairs", type=int, default=1, help="how often each is measured")
    options = parser.parse_args()
    directory, entries = bench_directory(), int(options.millions * 10**6)
    place = made(directory, options.provider, entries, SHARDS)
    scratch, lines = directory / "scratch", list[str]()
    for what in options.what:
        pairs = [measured(what, place, scratch, options.provider) for _ in range(options.pairs)]
        lines.append(line_of(what, options, pairs))
        print(lines[-1], flush=True)
    shutil.rmtree(scratch, ignore_errors=True)
    page = page_of(lines)
    if options.what == list(WHAT):
        RESULTS.write_text(page)


def measured(what: str, place: Path, scratch: Path, provider: str) -> tuple[Run, Run, float]:
    """Return our run, Spark's, and the seconds of its start."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    checkpoint, cores = str(place / "checkpoint"), [(os.cpu_count() or 1) - 1]
    if what == "import":
        export = [*STATESHIFT, "export", checkpoint, "--to", str(scratch / "rows.parquet")]
        subprocess.run(export, check=True, cwd=scratch, env={**os.environ, "PYTHONPATH": str(ROOT)})
    read_once(place)
    ours = run(our_side(what, checkpoint, scratch), cores, {"PYTHONPATH": str(ROOT)}, scratch)
    shutil.rmtree(scratch / "new", ignore_errors=True)
    read_once(place)
    spark = [sys.executable, str(HERE / "spark_side.py")]
    asked = {
        "query": ["ask", checkpoint, "-", "1"],
        "profile": ["read", checkpoint, "-", "1"],
        "prune": ["odd", checkpoint, str(scratch / "theirs.parquet"), "1"],
        "import": ["rerun", str(place), str(SHARDS), "1", str(scratch / "theirs")],
    }
    theirs = run([*spark, *asked[what]], cores, {"PYSPARK_PYTHON": sys.executable}, scratch)
    told = json.loads(theirs.output.splitlines()[-1])
    return ours, theirs, theirs.seconds - (told["done"] - told["ready"])


def our_side(what: str, checkpoint: str, scratch: Path) -> list[str]:
    copy = ["--to", str(scratch / "new"), "--waive", "paths-stay", "--yes"]
    copy += ["--workdir", str(scratch / "run")]
    match what:
        case "query":
            return [*STATESHIFT, "query", checkpoint, SUM]
        case "profile":
            return [*STATESHIFT, "profile", checkpoint]
        case "prune":
            return [*STATESHIFT, "prune", checkpoint, "--where", EVEN, "--fork", *copy]
    rows = str(scratch / "rows.parquet")
    return [*STATESHIFT, "import", rows, "--template", checkpoint, *copy]


def line_of(what: str, options: argparse.Namespace, pairs: list[tuple[Run, Run, float]]) -> str:
    def middle(numbers: Iterator[float]) -> float:
        return statistics.median(numbers)

    ours, theirs = middle(p[0].seconds for p in pairs), middle(p[1].seconds for p in pairs)
    busy = middle(p[1].seconds - p[2] for p in pairs)
    memory = (
        middle(p[0].peak_bytes / MIB for p in pairs),
        middle(p[1].peak_bytes / MIB for p in pairs),
    )
    return (
        f"| {options.millions:g} M | {options.provider} | `{what}` | {ours:.1f} | {memory[0]:.0f} "
        f"| {WHAT[what]} | {theirs:.1f} | {busy:.1f} | {memory[1]:.0f} | {theirs / ours:.1f} "
        f"| {busy / ours:.1f} | {len(pairs)} | {os.getloadavg()[0]:.1f} |"
    )


def page_of(lines: list[str]) -> str:
    import pyarrow
    import pyspark

    head = [
        "# State as rows, beside Spark",
        "",
        f"`./scripts/bench/table`, {time.strftime('%Y-%m-%d %H:%M')}; Python {sys.version.split()[0]}, "
        f"pyarrow {pyarrow.__version__}, Spark {pyspark.__version__}. Both were kept to one core.",
        "An aggregation by a string and a long in 8 shards, each a snapshot and 5 changes. Seconds are",
        "of whole processes; `busy` is Spark without its start-up. Factors are Spark's seconds by ours:",
        "whole, and without its start-up. A load above 1 means that somebody else was at work: seconds",
        "are then noisy, factors less so.",
        "",
        "| entries | provider | command | s | MiB | against, in Spark | s | busy s | MiB | whole | busy "
        "| pairs | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *lines]) + "\n"


if __name__ == "__main__":
    main()
