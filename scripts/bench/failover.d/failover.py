"""What a standby costs a running job, what a failover loses, and how long it takes.

    python failover.py [--rounds 3] [--query map] [--provider hdfs,rocksdb] [--mb 200,2000]
                       [--places hdfs-a,s3-real]

The job, its state and its records are those of `downtime`. A round is:

    alone     the job runs; the time between two outputs, and what its HDFS reads and writes
    followed  the same, with `apply --continuous` beside it
    lost      SIGKILL of the driver and of every process of its HDFS, at a random moment
    failover  on the other HDFS, until the command ends, and until the job's first output
    back      the first HDFS is started again: what was committed there is what really was lost
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for folder in ("bench/downtime.d", "bench/state.d", "servers.d", "bench"):
    sys.path.insert(0, str(ROOT / "scripts" / folder))

from ground import PLACES, SECONDS_MAX, Case, Ground, ground, removed, servers  # noqa: E402
from measure import bench_directory  # noqa: E402
from pages import figures_in, put_down, told, wrapped  # noqa: E402
from stages import stages_of  # noqa: E402

PAGE = ROOT / "scripts" / "bench" / "results" / "failover.md"
WATCHED_SECONDS = 40.0


@dataclass(frozen=True)
class Traffic:
    """What an HDFS's DataNode has read and written, and the times between outputs meanwhile."""

    read: int
    written: int
    seconds: float
    pauses: tuple[float, ...]


@dataclass(frozen=True)
class Round:
    """`pause` is the median time between two outputs; `read_ratio` what the standby reads of the
    source by what the job writes there. `told_*` and `real_*` are of the moment of the loss.
    """

    tag: str
    provider: str
    mb: int
    round: int
    first_image: float
    pause_alone: float
    pause_followed: float
    read_ratio: float | None
    epoch: int
    newest: int
    told_seconds: float
    real_seconds: float
    rto_told: float
    stages: dict[str, float]
    until_output: float
    load: float
    at: str
    places: str = ",".join(PLACES)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--query", default="map", choices=("map", "q8"))
    parser.add_argument("--provider", default="hdfs,rocksdb")
    parser.add_argument("--mb", default="200,2000", help="how much state, in MB")
    parser.add_argument("--places", default=",".join(PLACES), help="hdfs-a,s3-real: HDFS and S3")
    parser.add_argument("--tag", default=time.strftime("%Y-%m-%d"), help="the name of this run")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of loss")
    parser.add_argument("--keep", action="store_true", help="leave the folders for a look")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kept = bench_directory() / "failover.jsonl"
    done = [Round(**one) for one in figures_in(kept) if one["tag"] == options.tag]
    dice = random.Random(options.seed)
    here, there = options.places.split(",")
    with servers(None, (here, there)) as environment:
        for mb in options.mb.split(","):
            for provider in options.provider.split(","):
                own = (provider, int(mb), options.places)
                had = {one.round for one in done if (one.provider, one.mb, one.places) == own}
                missing = [number for number in range(options.rounds) if number not in had]
                if not missing:
                    continue
                case = Case(options.query, provider, int(mb))
                with ground(case, environment, options.keep, (here, there)) as at_work:
                    for number in missing:
                        one = play(at_work, number, options.tag, dice)
                        done.append(one)
                        with kept.open("a") as file:
                            file.write(json.dumps(asdict(one)) + "\n")
                        print(f"  {case.told}, round {number + 1}: {one}", file=sys.stderr)
    write_page(done)


def play(at_work: Ground, number: int, tag: str, dice: random.Random) -> Round:
    at, load = time.strftime("%Y-%m-%d %H:%M"), os.getloadavg()[0]
    at_work.feed.forget(300.0)
    at_work.settle()
    alone = watch(at_work)
    here, there = at_work.place, at_work.other
    begun = time.time()
    with following(at_work, number) as feeder:
        await_line(feeder, r"can be started from")
        first_image = time.time() - begun
        at_work.settle()
        followed = watch(at_work)
        time.sleep(dice.uniform(0.0, 5.0))
        lost = lose(at_work)
        report, stages = fail_over(at_work, number)
        feeder.process.wait(SECONDS_MAX)
        if feeder.process.returncode != 4:
            raise SystemExit(f"what fed the standby ended with {feeder.process.returncode}")
    at_work.place = there
    at_work.await_output(lambda: at_work.seen.outputs[-1] > lost + 1, "the first output")
    output = min(one for one in at_work.seen.outputs if one > lost + 1)
    commits = bring_back(here, at_work.location_at(here))
    removed(at_work, here)
    failover = report["jobs"][0]["failover"]
    claimed = stages.pop("claimed_at")
    ours = max(0.0, followed.read / followed.seconds - alone.read / alone.seconds)
    ratio = round(ours * followed.seconds / followed.written, 3) if followed.written else None
    return Round(
        tag=tag,
        provider=at_work.case.provider,
        mb=at_work.case.mb,
        round=number,
        first_image=round(first_image, 2),
        pause_alone=round(median(alone.pauses), 3),
        pause_followed=round(median(followed.pauses), 3),
        read_ratio=ratio,
        epoch=failover["epoch"],
        newest=max(commits),
        told_seconds=round(failover["rpo"]["seconds"] - (claimed - lost), 2),
        real_seconds=round(lost - commits[failover["epoch"]], 2),
        rto_told=failover["rto_seconds"],
        stages=stages,
        until_output=round(output - (claimed - stages["claim"]), 2),
        load=round(load, 2),
        at=at,
        places=",".join(at_work.places),
    )


def watch(at_work: Ground) -> Traffic:
    """Look at the running job for a while."""
    before, began = data_node(at_work.place), time.time()
    time.sleep(WATCHED_SECONDS)
    after, ended = data_node(at_work.place), time.time()
    at_work.seen.read()
    outputs = [one for one in at_work.seen.outputs if began <= one <= ended]
    pauses = tuple(b - a for a, b in pairwise(outputs))
    return Traffic(after[0] - before[0], after[1] - before[1], ended - began, pauses)


def data_node(name: str) -> tuple[int, int]:
    """The bytes that an HDFS's DataNode has read and written since it was started; none of an S3,
    which does not count them.
    """
    if not name.startswith("hdfs-"):
        return 0, 0
    from servers import Servers, default_root

    port = Servers(default_root()).state(name).ports["data-http"]
    query = "Hadoop:service=DataNode,name=DataNodeActivity-*"
    with urlopen(f"http://127.0.0.1:{port}/jmx?qry={query}", timeout=30) as answer:
        (bean,) = json.load(answer)["beans"]
    return bean["BytesRead"], bean["BytesWritten"]


@dataclass(frozen=True)
class Feeder:
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def following(at_work: Ground, number: int) -> Iterator[Feeder]:
    """Keep a standby on the other HDFS meanwhile."""
    there = at_work.other
    job = {
        "name": "failover",
        "checkpoint_location": at_work.location,
        "remote_location": at_work.location_at(there),
        "mode": "warm",
        "cutover": "never",
        "target_cluster": there,
        "submit": at_work.submission,
        "waive": ["paths-stay"],
    }
    clusters = {there: at_work.cluster_spec(there)}
    spec = {"version": 1, "engine": "spark", "clusters": clusters, "jobs": [job]}
    folder = at_work.folder / f"standby-{number}"
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(spec, indent=1))
    words = ("apply", str(folder / "spec.json"), "--continuous", "--yes")
    log = folder / "log.txt"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "stateshift", *words, "--workdir", str(folder / "run")],
            stdout=out,
            stderr=out,
            env={**os.environ, **at_work.environment},
        )
    try:
        yield Feeder(process, log)
    finally:
        process.kill()
        process.wait()


def await_line(feeder: Feeder, pattern: str) -> None:
    until = time.time() + SECONDS_MAX
    while not re.search(pattern, feeder.log.read_text()):
        if time.time() > until or feeder.process.poll() is not None:
            raise SystemExit(f"no {pattern!r} from the standby:\n{feeder.log.read_text()[-3000:]}")
        time.sleep(0.2)


def lose(at_work: Ground) -> float:
    """Kill the driver and the HDFS below it. Return when."""
    from servers import Servers, default_root

    here = at_work.place
    for path in (at_work.folder / here).rglob("*.pid"):
        with suppress(ProcessLookupError):
            os.killpg(int(path.read_text().split()[0]), signal.SIGKILL)
    at = time.time()
    up = Servers(default_root())
    for role in up.state(here).pids:
        up.kill(here, role)
    return at


def fail_over(at_work: Ground, number: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Start the job at its standby. Return the report, and the seconds of each stage."""
    there, workdir = at_work.other, at_work.folder / f"failover-{number}"
    words = ("failover", at_work.location_at(there), "--primary-is-down", "--yes", "--json")
    begun = time.time()
    done = subprocess.run(
        [sys.executable, "-m", "stateshift", *words, "--workdir", str(workdir)],
        env={**os.environ, **at_work.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"failover ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)["report"], stages_of(workdir, begun)


def bring_back(name: str, location: str) -> dict[int, float]:
    """Start the lost HDFS again. Return when each batch was committed there."""
    from servers import Servers, default_root

    from stateshift.storage.opening import open_patiently

    Servers(default_root()).up(name)
    files = open_patiently(location).list("commits")
    return {
        int(file.path.rsplit("/", 1)[-1]): file.modified
        for file in files
        if file.path.rsplit("/", 1)[-1].isdecimal()
    }


def write_page(rounds: Sequence[Round]) -> None:
    lines = ["# What a standby costs, and what a failover loses", ""]
    lines += wrapped(
        "`./scripts/bench/failover` on 2 cores and 24 GB, Linux: a real Spark (local[2]) with 16 "
        "partitions of state on one of two storages, all on this machine, reads 100 records a "
        "second. `apply --continuous` keeps a standby on the other storage. Driver and storage are "
        "killed with SIGKILL at a random moment, and `failover` is called at once. Median (least / "
        "most) of the rounds. Where one storage is an S3, each second round begins there."
    )
    lines += [
        "",
        "| state | first image, s | time between outputs, with ÷ without | read of the source ÷ "
        "written there | lost, told, s | lost, really, s | batches lost | failover, s | until "
        "output, s | rounds | load | at |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    cases: dict[str, list[Round]] = {}
    for one in sorted(rounds, key=lambda one: (one.places, one.provider, one.mb)):
        cases.setdefault(f"{one.places}: {one.provider}, {one.mb} MB", []).append(one)
    for name, of in cases.items():
        ratios = [one.read_ratio for one in of if one.read_ratio is not None]
        cells = [
            name,
            told([one.first_image for one in of]),
            told([one.pause_followed / one.pause_alone for one in of]),
            told(ratios) if ratios else "",
            told([one.told_seconds for one in of]),
            told([one.real_seconds for one in of]),
            told([float(one.newest - one.epoch) for one in of]),
            told([one.rto_told for one in of]),
            told([one.until_output for one in of]),
            str(len(of)),
            f"{max(one.load for one in of):.1f}",
            of[-1].at,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "| state | claim | read and check | start | first commit |",
        "|---|---|---|---|---|",
    ]
    for name, of in cases.items():
        stages = [told([one.stages[stage] for one in of]) for stage in of[0].stages]
        lines.append(f"| {name} | {' | '.join(stages)} |")
    worst = max(abs(one.told_seconds - one.real_seconds) for one in rounds)
    lines += ["", f"The loss that is told differs from the real one by {worst:.2f} s at most."]
    put_down(PAGE, lines)


if __name__ == "__main__":
    main()
