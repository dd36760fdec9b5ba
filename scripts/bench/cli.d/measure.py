"""Runs pairs of commands, ours and the least that could do in its place, one after the other and
again: A B A B.

    --help              against --help of an empty Typer program with two commands  goal at most 1.3 times
    inspect CHECKPOINT  against importing typer and asking the size of every file   goal at most 3 times
    plan SPEC           against the same                                            no goal, same table

CPU seconds (user and system) of the whole process, since those of the clock tell of the machine's
other work as well. The ratio is taken of each pair, since a machine's mood lasts longer than a pair:
its smallest, median and largest are told. The large checkpoint has 200 partitions and 80 batches;
the small one is a golden file, and shows what a command costs before it reads anything (`--small`
measures it alone).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
RESULTS = ROOT / "scripts" / "bench" / "results" / "cli.md"
GOLDEN = ROOT / "tests" / "golden" / "spark-4.3.0" / "window-hdfs" / "checkpoint"
TITLE = "# The command line's speed\n"
LARGE_HEAD, SMALL_HEAD = "## A large checkpoint", "## A small checkpoint"


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
class Result:
    """All pairs on one checkpoint."""

    files: int
    load: float
    pairs: list[Measured]


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
    parser.add_argument("--small", action="store_true", help="the small checkpoint alone")
    options = parser.parse_args()
    checkpoints = {SMALL_HEAD: GOLDEN}
    if not options.small:
        checkpoints = {LARGE_HEAD: _checkpoint(), **checkpoints}
    results = {
        head: measured_at(checkpoint, options.rounds) for head, checkpoint in checkpoints.items()
    }
    text = RESULTS.read_text() if RESULTS.exists() else TITLE
    for head, result in results.items():
        text = with_section(text, head, as_table(result, " --small" if head == SMALL_HEAD else ""))
    RESULTS.write_text(text)
    print(
        json.dumps([asdict(result) for result in results.values()], indent=1)
        if options.json
        else text
    )
    missed = [m for result in results.values() for m in result.pairs if m.verdict == "missed"]
    return 1 if missed else 0


def measured_at(checkpoint: Path, rounds: int) -> Result:
    load = os.getloadavg()[0]
    files = sum(len(names) for _, _, names in os.walk(checkpoint))
    with tempfile.TemporaryDirectory() as place:
        measured = [measure(pair) for pair in pairs(checkpoint, Path(place), rounds)]
    return Result(files, load, measured)


def with_section(text: str, head: str, section: str) -> str:
    """The page with this section in place of the one below the same head, or behind all others."""
    before, found, after = text.partition(f"\n{head}\n")
    rest = after[after.index("\n## ") :] if found and "\n## " in after else ""
    return f"{before.rstrip()}\n\n{head}\n\n{section}{rest}"


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
    goal = None if checkpoint == GOLDEN else 3.0
    empty = [sys.executable, str(HERE / "two_commands.py"), "--help"]
    return [
        Pair("--help", "an empty Typer program's", [*ours, "--help"], empty, rounds, 1.3),
        Pair(
            "inspect",
            "typer and a stat of each file",
            [*ours, "inspect", str(checkpoint)],
            stat_all,
            slow,
            goal,
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
    began = os.times()
    run = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    ended = os.times()
    if run.returncode:
        raise SystemExit(f"{' '.join(command[2:4])} ended with {run.returncode}:\n{run.stderr}")
    user = ended.children_user - began.children_user
    return user + ended.children_system - began.children_system


def as_table(result: Result, option: str) -> str:
    lines = [
        f"`./scripts/bench/cli{option}` on {os.cpu_count()} cores, Python "
        f"{sys.version_info[0]}.{sys.version_info[1]}; {result.files:,} files.",
        (
            f"Load average before the first run: {result.load:.1f} (above 1, somebody else was at "
            "work, and seconds are higher than alone)."
        ),
        "Medians of whole processes in CPU seconds; the ratio of each pair of runs, min / median / max.",
        "",
        "| command | CPU seconds | against | CPU seconds | pairs | ratio | goal | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for m in result.pairs:
        ratio = f"{m.ratio_min:.2f} / {m.ratio_median:.2f} / {m.ratio_max:.2f}"
        goal = f"≤ {m.goal}" if m.goal else ""
        lines.append(
            f"| `{m.name}` | {m.ours_seconds:.3f} | {m.against} | {m.least_seconds:.3f} | "
            f"{m.rounds} | {ratio} | {goal} | {m.verdict} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
