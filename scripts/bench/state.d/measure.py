"""Runs our commands and what Spark has in their place on the same state, one after the other and
again: A B A B. Commands that are compared with the same of Spark share its run of a round: A1 B A2
A3. Before each, all files of the state are read once, so that none has to wait for the disk because
it comes first.

    export         against Spark's state reader, writing Parquet, too
    verify --deep  against Spark's state reader, keeping nothing: it decodes everything, and checks
                   less; with --no-history, too, since Spark does not read what lies before the
                   last snapshot
    compact        against the same: Spark has no such thing, and could not have one that reads less
    repartition    against Spark's offline repartition (RocksDB), or the query again from its input
                   (HDFS-backed)

Ours and Spark (local[1]) have one core, and it is the same one. With --cores 2 Spark has local[2],
and ours what it takes by itself: a process for each core, where the state is large. Measured are
wall time of the whole process; for Spark also the time without its start-up, from when its session
could be used; processor time, which other work on the machine disturbs less; and the most memory
that each had, with all of its processes. Ratios are ours divided by Spark's, per pair, and the
median of them.

Every pair is kept beside the page, in results/state.jsonl, or in $STATESHIFT_BENCH_DIR/state.jsonl
if it was scaled; the table has the last measurement of each case.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from running import Run, run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
RESULTS = ROOT / "scripts" / "bench" / "results" / "state.md"
FIGURES = RESULTS.with_suffix(".jsonl")
MIB = 1 << 20
SHARDS = 5  # from 8
# How many entries, of which provider, in how many shards. What lies in one is as much as a shard of
# the largest has, and shows in minutes what a shard costs that memory does not hold.
CASES = [
    (10**6, "hdfs", 8),
    (10**6, "rocksdb", 8),
    (4 * 10**6, "rocksdb", 1),
    (10**7, "hdfs", 8),
    (10**7, "rocksdb", 8),
    (5 * 10**7, "rocksdb", 8),
]
QUICK = 0.05  # of the entries in one shard
WHAT = ("export", "verify", "verify-no-history", "compact", "repartition")


@dataclass(frozen=True)
class Case:
    entries: int
    provider: str
    cores: int
    tag: str
    shards: int = 8


@dataclass(frozen=True)
class Pair:
    """One of our runs and one of Spark's; `spark_busy` is without the time that Spark needed to
    start.
    """

    entries: int
    provider: str
    what: str
    against: str
    ours: float
    ours_cpu: float
    ours_peak: int
    spark: float
    spark_busy: float
    spark_cpu: float
    spark_peak: int
    load: float
    at: str
    cores: int = 1
    tag: str = ""
    shards: int = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the numbers of entries: 0.01 for a quick look"
    )
    parser.add_argument("--millions", type=int, nargs="*", help="only the cases of so many")
    parser.add_argument("--provider", choices=["hdfs", "rocksdb"])
    parser.add_argument("--what", nargs="*", choices=WHAT, default=WHAT)
    parser.add_argument("--cores", type=int, default=1, help="that each side has")
    parser.add_argument("--pairs", type=int, default=3, help="how often each is measured")
    parser.add_argument("--make", action="store_true", help="only make the checkpoints")
    parser.add_argument(
        "--tag", default=time.strftime("%Y-%m-%d %H:%M"), help="the name of this run"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one pair of a twentieth of what lies in one shard"
    )
    options = parser.parse_args()
    if options.quick:
        options.millions, options.scale, options.pairs = [4], QUICK, 1
    directory = bench_directory()
    figures = FIGURES if options.scale == 1.0 else directory / FIGURES.name
    for entries, provider, shards in CASES:
        fits = (
            not options.millions or entries // 10**6 in options.millions
        ) and options.provider in (None, provider)
        if not fits:
            continue
        place = made(directory, provider, int(entries * options.scale), shards)
        if not options.make:
            case = Case(int(entries * options.scale), provider, options.cores, options.tag, shards)
            measure(figures, directory, place, case, options.what, options.pairs)
    if not options.make:
        table = as_table(kept(figures))
        if options.scale == 1.0:
            RESULTS.write_text(table + _sections_below(RESULTS.read_text()))
        print(table)


def _sections_below(page: str) -> str:
    """What stands on the page below the table: measured otherwise, and kept."""
    _, heading, sections = page.partition("\n## ")
    return heading + sections


def bench_directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(
        os.environ.get("STATESHIFT_BENCH_DIR") or Path(cache) / "stateshift-bench"
    ).absolute()
    print(
        f"checkpoints in {directory} (made now if they are not there: minutes, and 10 GB for all)",
        file=sys.stderr,
    )
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def made(directory: Path, provider: str, entries: int, shards: int) -> Path:
    place = directory / f"state-{provider}-{entries}{'' if shards == 8 else f'-in-{shards}'}"
    if not (place / "made.json").exists():
        subprocess.run(
            [
                sys.executable,
                str(HERE / "making.py"),
                str(place),
                provider,
                str(entries),
                "--shards",
                str(shards),
            ],
            check=True,
        )
    return place


def measure(
    figures: Path, directory: Path, place: Path, case: Case, what: Sequence[str], rounds: int
) -> None:
    scratch = directory / "scratch"
    cores = range(case.cores) if case.cores > 1 else [os.cpu_count() - 1]
    for _ in range(rounds):
        sparks: dict[str, Run] = {}
        for name in what:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            load = os.getloadavg()[0]
            read_once(place)
            against, spark_command = spark_side(name, case, place, scratch)
            ours = run(
                our_side(name, case, place, scratch), cores, {"PYTHONPATH": str(ROOT)}, scratch
            )
            check(name, scratch, case.entries)
            shutil.rmtree(scratch / "ours", ignore_errors=True)
            if against not in sparks:
                command = spark_command()
                read_once(place)
                sparks[against] = run(command, cores, {"PYSPARK_PYTHON": sys.executable}, scratch)
            pair = pair_of(case, name, against, ours, sparks[against], load)
            with figures.open("a") as file:
                file.write(json.dumps(asdict(pair)) + "\n")
            print(line_of([pair]), file=sys.stderr, flush=True)
    shutil.rmtree(scratch, ignore_errors=True)


def read_once(place: Path) -> None:
    """Have the kernel hold the state's files, as far as it has memory for them."""
    for path in (place / "checkpoint").rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(MIB):
                    pass


def pair_of(case: Case, name: str, against: str, ours: Run, spark: Run, load: float) -> Pair:
    told = json.loads(spark.output.splitlines()[-1])
    return Pair(
        case.entries,
        case.provider,
        name,
        against,
        ours.seconds,
        ours.cpu_seconds,
        ours.peak_bytes,
        spark.seconds,
        told["done"] - told["ready"],
        spark.cpu_seconds,
        spark.peak_bytes,
        load,
        time.strftime("%Y-%m-%d %H:%M"),
        case.cores,
        case.tag,
        case.shards,
    )


def our_side(name: str, case: Case, place: Path, scratch: Path) -> list[str]:
    stateshift, checkpoint = [sys.executable, "-m", "stateshift"], str(place / "checkpoint")
    if name == "export":
        rows = str(scratch / "ours.parquet")
        return [*stateshift, "export", checkpoint, "--to", rows, "--overwrite"]
    if name == "verify":
        return [*stateshift, "verify", checkpoint, "--deep"]
    if name == "verify-no-history":
        return [*stateshift, "verify", checkpoint, "--deep", "--no-history"]
    # The copy is a fork of a job that reads where it did: nothing of the source is touched.
    copy = [checkpoint, "--to", str(scratch / "ours"), "--fork", "--waive", "paths-stay", "--yes"]
    shards = ["--partitions", str(SHARDS)] if name == "repartition" else []
    return [*stateshift, name, *copy, "--workdir", str(scratch / "run"), *shards]


def spark_side(
    name: str, case: Case, place: Path, scratch: Path
) -> tuple[str, Callable[[], list[str]]]:
    """What it is called, and the command; what it needs is made just before it runs."""
    spark, checkpoint = [sys.executable, str(HERE / "spark_side.py")], str(place / "checkpoint")
    cores = str(case.cores)
    if name == "export":
        return "state reader to Parquet", lambda: [
            *spark,
            "export",
            checkpoint,
            str(scratch / "theirs.parquet"),
            cores,
        ]
    if name in ("verify", "verify-no-history", "compact"):
        return "state reader to nowhere", lambda: [*spark, "read", checkpoint, "-", cores]
    if case.provider == "hdfs":
        again = [*spark, "rerun", str(place), str(SHARDS), cores, str(scratch / "theirs")]
        return "the query from its input", lambda: again

    def copied() -> list[str]:
        subprocess.run(["cp", "-al", checkpoint, str(scratch / "theirs")], check=True)
        return [*spark, "repartition", str(scratch / "theirs"), str(SHARDS), cores]

    return "offline repartition", copied


def check(name: str, scratch: Path, entries: int) -> None:
    """What we wrote holds as many entries as the state has."""
    if name == "export":
        import pyarrow.parquet as pq

        found = pq.ParquetFile(scratch / "ours.parquet").metadata.num_rows
        if found != entries:
            raise SystemExit(f"{found} entries were exported, and there are {entries}")


def kept(figures: Path) -> Iterator[list[Pair]]:
    """The pairs of the last run of each case: those with the tag that the last one has."""
    by_case: dict[tuple[object, ...], list[Pair]] = {}
    for line in figures.read_text().splitlines():
        pair = Pair(**json.loads(line))
        by_case.setdefault(
            (pair.entries, pair.provider, pair.shards, WHAT.index(pair.what), pair.cores), []
        ).append(pair)
    for _, pairs in sorted(by_case.items()):
        yield [pair for pair in pairs if pair.tag == pairs[-1].tag]


def line_of(pairs: Sequence[Pair]) -> str:
    def middle(of: Callable[[Pair], float]) -> float:
        return statistics.median(map(of, pairs))

    last = pairs[-1]
    return (
        f"| {last.entries / 10**6:g} M{'' if last.shards == 8 else f' in {last.shards}'} | {last.provider} | {last.what} | {last.cores} | "
        f"{middle(lambda p: p.ours):.1f} "
        f"| {middle(lambda p: p.ours_peak) / MIB:.0f} | {last.against} | "
        f"{middle(lambda p: p.spark):.1f} "
        f"| {middle(lambda p: p.spark_busy):.1f} | {middle(lambda p: p.spark_peak) / MIB:.0f} "
        f"| {middle(lambda p: p.ours / p.spark):.2f} | "
        f"{middle(lambda p: p.ours / p.spark_busy):.2f} "
        f"| {middle(lambda p: p.ours_cpu / p.spark_cpu):.2f} | {len(pairs)} | "
        f"{max(p.load for p in pairs):.1f} "
        f"| {last.at} |"
    )


def as_table(cases: Iterator[list[Pair]]) -> str:
    import pyarrow
    import pyspark

    lines = [
        "# State read and rewritten, beside Spark",
        "",
        f"`./scripts/bench/state`; Python {sys.version.split()[0]}, pyarrow {pyarrow.__version__}, "
        f"Spark {pyspark.__version__}. Of {os.cpu_count()} cores ours and",
        "Spark's `local[1]` were kept to one; with two, Spark has `local[2]`, and ours a process "
        "for each, as it does by itself.",
        "An aggregation by a string and a long in 8 shards (or as many as are named), each a "
        "snapshot and 5 deltas; repartitioned",
        "to 5. Seconds are medians of whole processes; `busy` is Spark without its start-up. "
        "Ratios are ours by Spark's, medians over",
        "pairs: of whole processes, without Spark's start-up, of processor time. A load above 1 "
        "before a pair means that somebody",
        "else was at work: wall times are then noisy, ratios less so.",
        "",
        "| entries | provider | command | cores | s | MiB | against, in Spark | s | busy s "
        "| MiB | whole | busy | cpu "
        "| pairs | load | at |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        *map(line_of, cases),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
