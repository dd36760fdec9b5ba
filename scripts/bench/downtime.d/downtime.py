"""How long nothing comes out of a job while it moves, and how late what waited meanwhile.

    python downtime.py [--rounds 5] [--query map,q8] [--provider hdfs,rocksdb] [--mb 10,200,2000]
    [--ways NAME,...]

For each case one job, which is then moved to the other HDFS and back, each way in turn, round by
round: what differs between the two HDFS falls on every way alike. From each way a line in
downtime.jsonl is kept; what a tag has is not measured again. Parts of a gap, which are all of it:

    stop     the last output, until the job is known to have ended: the batch that it was in, and
             Spark's own end
    copy     until the first file of the publish is about to be written: the look at what is left,
             the plan, the
             fence, what is copied and compared
    publish  until the last one is written
    start    until the new job's query is started: Spark itself, where it was not up before
    load     until the first output: the state, and a batch of all that has waited
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "state.d"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "servers.d"))

from ground import STEADY_SECONDS, Case, Ground, ground, servers
from measure import bench_directory
from page import written
from seen import buckets
from ways import WAYS

BUSY_MAX, QUIET_SECONDS_MAX = (
    0.8,
    15.0,
)  # of all cores, of a second; the job itself keeps this machine busy


@dataclass(frozen=True)
class Measured:
    """One way in one round. `parts` add up to `gap`; `halt_to_publish` is of the run's journal;
    `latencies` counts records by quarters of a second, of all that came from ten seconds before the
    way was begun until it was over. `took` is from the command to the first output, `brought` what
    was written for it.
    """

    tag: str
    query: str
    provider: str
    mb: int
    round: int
    way: str
    gap: float
    worst: float
    halt_to_publish: float
    parts: dict[str, float]
    phases: dict[str, float]
    steps: list[list[object]]
    latencies: dict[str, int]
    pause: float
    state_bytes: int
    towards: str
    load: float
    at: str
    took: float = 0.0
    brought: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured")
    parser.add_argument("--query", default="map,q8")
    parser.add_argument("--provider", default="hdfs,rocksdb")
    parser.add_argument("--mb", default="10,200,2000", help="how much state, in MB")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of: " + ", ".join(WAYS))
    parser.add_argument("--tag", default=time.strftime("%Y-%m-%d"), help="the name of this run")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, write the page of what is there"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the folders of jobs and runs for a look"
    )
    parser.add_argument(
        "--servers", type=Path, help="the folder of servers to use (scripts/servers --root)"
    )
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # through every `finally`: jobs and servers are stopped
    directory = bench_directory()
    cases = [
        Case(query, provider, int(mb))
        for query in options.query.split(",")
        for mb in options.mb.split(",")
        for provider in options.provider.split(",")
    ]
    if not options.page:
        measure(directory, cases, options)
    written([asdict(one) for one in kept(directory) if one.tag == options.tag])


def measure(directory: Path, cases: Sequence[Case], options: argparse.Namespace) -> None:
    done = {
        (one.query, one.provider, one.mb, one.round, one.way)
        for one in kept(directory)
        if one.tag == options.tag
    }
    missing = {
        case: [
            (number, way)
            for number in range(options.rounds)
            for way in options.ways.split(",")
            if (case.query, case.provider, case.mb, number, way) not in done
        ]
        for case in cases
    }
    if not any(missing.values()):
        return
    with servers(options.servers) as environment:
        for case, todo in missing.items():
            if not todo:
                continue
            with ground(case, environment, options.keep) as at_work:
                for number, way in todo:
                    one = measured(at_work, options.tag, number, way)
                    with (directory / "downtime.jsonl").open("a") as file:
                        file.write(json.dumps(asdict(one)) + "\n")
                    parts = ", ".join(
                        f"{name} {seconds:.1f}" for name, seconds in one.parts.items()
                    )
                    told = f"{way} {one.gap:.1f} s ({parts}), worst {one.worst:.1f} s"
                    print(f"  {case.told}, round {number + 1}: {told}", file=sys.stderr, flush=True)


def measured(at_work: Ground, tag: str, number: int, way: str) -> Measured:
    quiet()
    at_work.feed.forget(300.0)
    at, load = time.strftime("%Y-%m-%d %H:%M"), os.getloadavg()[0]
    size = state_bytes(at_work.location)
    pause = at_work.seen.pause()
    moved = WAYS[way](at_work)
    at_work.settle()
    seen = at_work.seen
    gap, over = seen.gap(moved.stopped), time.time() - STEADY_SECONDS / 2
    started = min(seen.noted("started", moved.begun) or gap.end, gap.end)
    ends = (
        gap.begin,
        moved.stopped,
        moved.copied,
        moved.published,
        max(started, moved.published),
        gap.end,
    )
    lasting = [after - before for before, after in pairwise(ends)]
    parts = dict(
        zip(
            ("stop", "copy", "publish", "start", "load"),
            (round(one, 3) for one in lasting),
            strict=True,
        )
    )
    latencies = seen.latencies(moved.begun - STEADY_SECONDS, over)
    return Measured(
        tag,
        at_work.case.query,
        at_work.case.provider,
        at_work.case.mb,
        number,
        way,
        round(gap.seconds, 3),
        round(max(latencies), 3),
        round(moved.published - moved.stopped, 3),
        parts,
        dict(moved.phases),
        [list(step) for step in moved.steps],
        {str(key): value for key, value in buckets(latencies).items()},
        round(pause, 3),
        size,
        at_work.place,
        round(load, 2),
        at,
        round(gap.end - moved.begun, 3),
        moved.brought,
    )


def quiet() -> None:
    """Others should not be at work: wait a little for them."""
    until = time.monotonic() + QUIET_SECONDS_MAX
    while busy(1.0) > BUSY_MAX and time.monotonic() < until:
        pass


def busy(seconds: float) -> float:
    """The part of that time in which the cores are at work."""
    before, began = cores_seconds(), time.monotonic()
    time.sleep(seconds)
    return (cores_seconds() - before) / (time.monotonic() - began) / (os.cpu_count() or 1)


def cores_seconds() -> float:
    """All cores', since the machine was started, without those that they were idle or waited for
    a disk.
    """
    told = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(told) - told[3] - told[4]) / os.sysconf("SC_CLK_TCK")


def state_bytes(location: str) -> int:
    """What a restart reads of it."""
    from stateshift.engines.registry import engine
    from stateshift.storage.opening import open_patiently

    _, survey = engine("spark").survey(location, open_patiently)
    sizes = {file.path: file.size for file in survey.files}
    return sum(
        sizes.get(path, 0)
        for image in survey.images
        for shard in image.shards
        for path in shard.files
    )


def kept(directory: Path) -> list[Measured]:
    file = directory / "downtime.jsonl"
    return (
        [Measured(**json.loads(line)) for line in file.read_text().splitlines()]
        if file.exists()
        else []
    )


if __name__ == "__main__":
    main()
