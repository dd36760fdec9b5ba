"""Runs pairs of commands, ours and the least that could do in its place, one after the other and
again: A B A B.

    --help              against --help of an empty Typer program with two commands  goal at most 1.3 times
    inspect CHECKPOINT  against importing typer and asking the size of every file   goal at most 3 times
    plan SPEC           against the same                                            no goal, same table

Wall time of the whole process, seen from outside. The ratio is taken of each pair, since a
machine's mood lasts longer than a pair: its smallest, median and largest are told. The checkpoint
has 200 partitions and 80 batches.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
RESULTS = ROOT / "scripts" / "bench" / "results" / "cli.md"


@dataclass(frozen=True)
class Pair:
    """Two commands to be held against each other."""

    name: str
    against: str
    ours: Sequence[str]
    least: Sequence[str]
    rounds: int
    goal: float | None


@dataclass(frozen=True)
class Measured:
    name: str
    against: str
    rounds: int
    ours_seconds: float
    least_seconds: float
    ratio_min: float
    ratio_median: float
    ratio_max: float
    goal: float | None

    @property
    def verdict(self) -> str:
        return "" if self.goal is None else "kept" if self.ratio_median <= self.goal else "missed"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--rounds", type=int, default=11, help="pairs of --help; the slow ones get half as many"
    )
    options = parser.parse_args()
    checkpoint = _checkpoint()
    load = os.getloadavg()[0]
    files = sum(len(names) for _, _, names in os.walk(checkpoint))
    with tempfile.TemporaryDirectory() as place:
        measured = [measure(pair) for pair in pairs(checkpoint, Path(place), options.rounds)]
    table = as_table(measured, files, load)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(table)
    print(
        json.dumps({"files": files, "pairs": [asdict(m) for m in measured]}, indent=1)
        if options.json
        else table
    )
    return 0 if all(m.verdict != "missed" for m in measured) else 1


def _checkpoint() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = os.environ.get("STATESHIFT_BENCH_DIR") or Path(cache) / "stateshift-bench"
    print(f"checkpoint in {directory} (made now if it is not there: minutes)", file=sys.stderr)
    maker = [sys.executable, str(ROOT / "scripts" / "bench" / "make_checkpoint.py"), str(directory)]
    return Path(
        subprocess.run(maker, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    )


def pairs(checkpoint: Path, place: Path, rounds: int) -> list[Pair]:
    ours = [sys.executable, "-m", "stateshift"]
    stat_all = [sys.executable, str(HERE / "stat_all.py"), str(checkpoint)]
    spec = place / "spec.json"
    spec.write_text(json.dumps(_spec(checkpoint, place)))
    slow = max(3, rounds // 2)
    empty = [sys.executable, str(HERE / "two_commands.py"), "--help"]
    return [
        Pair("--help", "an empty Typer program's", [*ours, "--help"], empty, rounds, 1.3),
        Pair(
            "inspect",
            "typer and a stat of each file",
            [*ours, "inspect", str(checkpoint)],
            stat_all,
            slow,
            3.0,
        ),
        Pair(
            "plan",
            "typer and a stat of each file",
            [*ours, "plan", str(spec)],
            stat_all,
            slow,
            None,
        ),
    ]


def _spec(checkpoint: Path, place: Path) -> object:
    """The checkpoint moves to an empty directory; where its input lies does not change."""
    return {
        "version": 1,
        "engine": "spark",
        "jobs": [
            {
                "job_name": "counts",
                "checkpoint_location": str(checkpoint),
                "remote_location": str(place / "target"),
                "waive": ["paths-stay"],
            }
        ],
    }


def measure(pair: Pair) -> Measured:
    (
        _seconds(pair.least),
        _seconds(pair.ours),
    )  # the first run pays for cold caches and is thrown away
    both = [(_seconds(pair.ours), _seconds(pair.least)) for _ in range(pair.rounds)]
    ratios = [ours / least for ours, least in both]
    return Measured(
        pair.name,
        pair.against,
        pair.rounds,
        round(statistics.median(ours for ours, _ in both), 3),
        round(statistics.median(least for _, least in both), 3),
        round(min(ratios), 2),
        round(statistics.median(ratios), 2),
        round(max(ratios), 2),
        pair.goal,
    )


def _seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    run = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if run.returncode:
        raise SystemExit(f"{' '.join(command[2:4])} ended with {run.returncode}:\n{run.stderr}")
    return seconds


def as_table(measured: Sequence[Measured], files: int, load: float) -> str:
    lines = [
        "# The command line's speed",
        "",
        f"`./scripts/bench/cli` on {os.cpu_count()} cores, Python "
        f"{sys.version_info[0]}.{sys.version_info[1]}; "
        f"a checkpoint of 200 partitions and 80 batches, {files:,} files.",
        (
            f"Load average before the first run: {load:.1f} (above 1, somebody else was at "
            "work, and ratios are noisy)."
        ),
        (
            "Medians of whole processes in seconds; the ratio of each pair of runs, min / "
            "median / max."
        ),
        "",
        "| command | seconds | against | seconds | pairs | ratio | goal | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for m in measured:
        ratio = f"{m.ratio_min:.2f} / {m.ratio_median:.2f} / {m.ratio_max:.2f}"
        goal = f"≤ {m.goal}" if m.goal else ""
        lines.append(
            f"| `{m.name}` | {m.ours_seconds:.3f} | {m.against} | {m.least_seconds:.3f} | "
            f"{m.rounds} | {ratio} "
            f"| {goal} | {m.verdict} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
