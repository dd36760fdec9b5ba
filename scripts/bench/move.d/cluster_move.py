"""How long a job is down while its checkpoint goes from one real HDFS to another, beside the tools
there are for that.

    python cluster_move.py [--pairs 5] [--shape 200x80] [--ways NAME,...] [--tag NAME] [--no-start]

Rounds of all ways one after the other, A B C A B C, on two HDFS that scripts/servers starts.
Measured is from the end of the job until its checkpoint is whole on the other side: of ours from
the begin of the phase `halt` to the end of `publish`, as the run's own report has it, and of the
others their commands. After each the other side has to hold every file, and is emptied; none of
that is measured. In the first round a real Spark then goes on from what each has brought, with one
file to read, until its first commit: what a start adds.

Every measurement is a line in cluster-move.jsonl, kept with the checkpoint; what a tag has is not
measured again.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "state.d"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "servers.d"))

import make_checkpoint
from measure import bench_directory
from pages import figures_in
from restart import add_input, counts
from servers import Servers, hadoop
from ways import OURS, ROOT, WAYS, Ground, Taken, run, taken_back, unavailable

RESULTS = ROOT / "scripts" / "bench" / "results" / "cluster-move.md"
UNUSUAL = "fs -cp"
START_SECONDS_MAX = 600.0


@dataclass(frozen=True)
class Measured:
    """One way in one round; `start` is what Spark took from there to its first commit, where it
    was asked.
    """

    tag: str
    shape: str
    round: int
    way: str
    seconds: float
    process_seconds: float
    phases: dict[str, float]
    files: int
    start: float | None
    load: float
    at: str


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=5, help="how often each way is measured")
    parser.add_argument(
        "--shape", default="200x80", help="partitions x batches; 20x20 for a quick look"
    )
    parser.add_argument("--ways", default=",".join(WAYS), help="some of: " + ", ".join(WAYS))
    parser.add_argument("--tag", default=time.strftime("%Y-%m-%d"), help="the name of this run")
    parser.add_argument("--no-start", action="store_true", help="start no job from the copies")
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # through every `finally`: servers are stopped
    directory = bench_directory()
    left_out = unavailable(directory)
    asked = [way for way in options.ways.split(",") if way not in left_out]
    measure(directory, options.shape, asked, options.pairs, options.tag, not options.no_start)
    wanted = [
        one for one in kept(directory) if (one.tag, one.shape) == (options.tag, options.shape)
    ]
    table = as_table(wanted, left_out)
    if options.shape == "200x80" and set(asked) | set(left_out) == set(WAYS):
        RESULTS.write_text(table)
    print(table)


def measure(
    directory: Path, shape: str, ways: Sequence[str], rounds: int, tag: str, starting: bool
) -> None:
    done = {(one.round, one.way) for one in kept(directory) if (one.tag, one.shape) == (tag, shape)}
    missing = [
        (number, way) for number in range(rounds) for way in ways if (number, way) not in done
    ]
    if not missing:
        return
    partitions, batches = map(int, shape.split("x"))
    checkpoint = make_checkpoint.checkpoint(directory, partitions, batches)
    with ground(directory, checkpoint) as both:
        if not done:
            warmed(both, partitions, batches if starting else None)
        for number, way in missing:
            starts = batches if starting and number == 0 else None
            one = measured(both, tag, shape, number, way, starts)
            with (directory / "cluster-move.jsonl").open("a") as file:
                file.write(json.dumps(asdict(one)) + "\n")
            print(f"  round {number + 1}: {way} {one.seconds:.1f} s", file=sys.stderr, flush=True)


def warmed(both: Ground, partitions: int, batch: int | None) -> None:
    """The servers' JVMs, and Spark's: whoever comes first would pay for all."""
    WAYS[OURS](both, "warm")
    if batch is not None:
        first_commit(both, "hdfs://hdfs-b/warm", partitions, batch)
        removed(both, "warm")  # a job has committed there, which is not taken back otherwise
    taken_back(both, "warm")
    removed(both, "warm")


def measured(
    both: Ground, tag: str, shape: str, number: int, way: str, batch: int | None
) -> Measured:
    """One way, once; then the job started from there, where `batch` is its next one; then all of
    it taken away.
    """
    name, load, at = (
        f"{way.replace(' ', '')}-{number}-{time.monotonic_ns()}",
        os.getloadavg()[0],
        time.localtime(),
    )
    taken: Taken = WAYS[way](both, name)
    files = files_at(both, f"hdfs://hdfs-b/{name}")
    if way != OURS and files != files_at(both, both.source):
        raise SystemExit(f"{way} copied {files} files, and there are {files_at(both, both.source)}")
    start = (
        None
        if batch is None
        else first_commit(both, f"hdfs://hdfs-b/{name}", int(shape.split("x")[0]), batch)
    )
    if way == OURS:
        if batch is not None:  # which the run refuses to throw away, as it should
            removed(both, name)
        taken_back(both, name)
    removed(both, name)
    stamp = time.strftime("%Y-%m-%d %H:%M", at)
    phases = {phase: round(seconds, 3) for phase, seconds in taken.phases.items()}
    return Measured(
        tag,
        shape,
        number,
        way,
        round(taken.seconds, 3),
        round(taken.process_seconds, 3),
        phases,
        files,
        start,
        load,
        stamp,
    )


@contextmanager
def ground(directory: Path, checkpoint: Path) -> Iterator[Ground]:
    """Both HDFS, the checkpoint in the first, without the sidecars that Hadoop keeps on local
    disks alone.
    """
    with tempfile.TemporaryDirectory(prefix="stateshift-bench-") as folder:
        servers = Servers(Path(folder) / "servers")
        try:
            for name in ("hdfs-a", "hdfs-b"):
                servers.up(name)
            exports = servers.exports()
            aliases = Path(exports.pop("HDFSCLI_CONFIG"))
            more = {
                "HDFSCLI_CONFIG": os.devnull,
                "HADOOP_USER_NAME": getpass.getuser(),
                "PYTHONPATH": str(ROOT),
            }
            commands = Path(exports["STATESHIFT_HDFS_COMMANDS"])
            both = Ground(
                Path(folder),
                {**exports, **more},
                commands,
                aliases,
                "hdfs://hdfs-a/source",
                directory,
            )
            print("putting the checkpoint on the first HDFS", file=sys.stderr, flush=True)
            run(
                [
                    str(commands / "hdfs"),
                    "dfs",
                    "-put",
                    "-t",
                    "16",
                    "-q",
                    "2000",
                    str(checkpoint),
                    both.source,
                ],
                both.environment,
            )
            os.environ |= {**exports, **more}  # for the Spark in this process
            yield both
        finally:
            for name in ("hdfs-b", "hdfs-a"):
                servers.down(name)


def files_at(both: Ground, location: str) -> int:
    """Without what a run of ours keeps for itself."""
    told = hadoop.run(Path(both.environment["HADOOP_CONF_DIR"]), "dfs", "-count", location)
    return int(told.split()[1])


def removed(both: Ground, name: str) -> None:
    hadoop.run(
        Path(both.environment["HADOOP_CONF_DIR"]),
        "dfs",
        "-rm",
        "-r",
        "-f",
        "-skipTrash",
        f"hdfs://hdfs-b/{name}",
    )


def first_commit(both: Ground, location: str, shards: int, batch: int) -> float:
    """Seconds from a query's start to its first commit, in a Spark that has run one query
    already.
    """
    from making import PROVIDERS, session, started

    from stateshift.storage.opening import open_storage

    spark, storage = session(2, PROVIDERS["hdfs"], shards, "2g"), open_storage(location)
    place = Path(tempfile.mkdtemp(dir=both.scratch))
    add_input(place, batch)
    spark.range(1).count()
    began = time.perf_counter()
    running = started(counts(spark, place), location)
    while storage.stat(f"commits/{batch}") is None and running.isActive:
        if time.perf_counter() - began > START_SECONDS_MAX:
            break
        time.sleep(0.02)
    seconds = time.perf_counter() - began
    failure = running.exception()
    if failure is not None or storage.stat(f"commits/{batch}") is None:
        raise SystemExit(f"the job does not go on from {location}: {failure}")
    running.stop()
    spark.stop()
    shutil.rmtree(place)
    return round(seconds, 2)


def kept(directory: Path) -> list[Measured]:
    return [Measured(**each) for each in figures_in(directory / "cluster-move.jsonl")]


def as_table(every: Sequence[Measured], left_out: dict[str, str]) -> str:
    ways = [way for way in WAYS if any(one.way == way for one in every)]
    by_way = {
        way: sorted((one for one in every if one.way == way), key=lambda one: one.round)
        for way in ways
    }
    partitions, batches = every[0].shape.split("x")
    lines = [
        "# A checkpoint from one HDFS to another",
        "",
        *header(every, partitions, batches),
        "",
        (
            "| way | stop to copied, s | whole command, s | times ours | start, s | files | "
            "rounds | load | at |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
        *(line_of(by_way[way], by_way.get(OURS, [])) for way in ways),
        "",
        *verdicts(by_way),
        *phases_table(by_way.get(OURS, [])),
        *(f"Left out: {way}, {reason}." for way, reason in left_out.items()),
    ]
    return "\n".join(lines).rstrip() + "\n"


def header(every: Sequence[Measured], partitions: str, batches: str) -> list[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    told = (
        f"`./scripts/bench/cluster-move` on {os.cpu_count()} cores and {memory:.0f} GB, Linux, "
        f"Python {platform.python_version()}: a query of {partitions} shards and {batches} "
        "batches, HDFS-backed, from "
        "an HDFS with one NameNode to one with two (Hadoop 3.4), all on this machine. "
        "Medians of the rounds, and "
        "(least / most). Ours is from the begin of the halt to the end of publish, with "
        "the comparison of both "
        "sides; the others copy every file, as nothing tells them which are needed, and "
        "compare nothing. How long the "
        "job takes to stop is counted for none. *start* is a real Spark from there to its "
        "first commit, once, in a "
        "process that is already up."
    )
    return textwrap.wrap(told, 120, break_on_hyphens=False)


def line_of(measured: Sequence[Measured], ours: Sequence[Measured]) -> str:
    whole = statistics.median(one.process_seconds for one in measured)
    starts = [one.start for one in measured if one.start is not None]
    times = ratios(measured, ours)
    cells = (
        measured[0].way,
        spread([one.seconds for one in measured]),
        f"{whole:.1f}",
        spread(times) if times else "",
        f"{statistics.median(starts):.1f}" if starts else "",
        f"{measured[-1].files:,}",
        len(measured),
        f"{max(one.load for one in measured):.1f}",
        measured[-1].at,
    )
    return f"| {' | '.join(map(str, cells))} |"


def ratios(measured: Sequence[Measured], ours: Sequence[Measured]) -> list[float]:
    """Of each round that has both."""
    seconds = {one.round: one.seconds for one in ours}
    return [one.seconds / seconds[one.round] for one in measured if one.round in seconds]


def verdicts(by_way: dict[str, list[Measured]]) -> Iterator[str]:
    """How ours stands to the fastest of the tools that are used for this, and to the fastest of
    all.
    """
    others = {
        way: ratios(found, by_way.get(OURS, [])) for way, found in by_way.items() if way != OURS
    }
    others = {way: found for way, found in others.items() if found}
    usual = {way: found for way, found in others.items() if way != UNUSUAL}
    for words, asked in (("usual tools", usual), ("others", others)):
        if asked:
            best = min(asked, key=lambda way: statistics.median(asked[way]))
            goal = " (goal: 10)" if asked is usual else ""
            yield f"Of the {words}, {best} is the fastest: {spread(asked[best])} times ours{goal}."
            yield ""


def phases_table(ours: Sequence[Measured]) -> Iterator[str]:
    if ours:
        names = list(ours[-1].phases)
        middles = [statistics.median(one.phases[name] for one in ours) for name in names]
        middles.append(statistics.median(one.seconds for one in ours))
        yield "Ours, by phase; the halt holds the fence and the look at what the job has left:"
        yield ""
        yield f"| {' | '.join(names)} | all |"
        yield f"|{'---|' * len(middles)}"
        yield f"| {' | '.join(f'{middle:.1f}' for middle in middles)} |"
        yield ""


def spread(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    return (
        f"{middle:.1f}"
        if len(values) == 1
        else f"{middle:.1f} ({min(values):.1f} / {max(values):.1f})"
    )


if __name__ == "__main__":
    main()
