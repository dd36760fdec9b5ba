"""How fast files are copied: ours beside cp, rclone, distcp, `hadoop fs -cp`, `aws s3 sync` and
s5cmd.

    python copying.py [--rounds 5] [--routes NAME,...] [--sets NAME,...] [--ways NAME;...] [--tag
    NAME]

Rounds of all ways one after the other, each to a target that is not there, and each round in an
order of its own: what a way leaves behind (memory that is given back, a disk that tidies up) falls
on whoever comes next. Every way's start is measured once on a folder with one small file and taken
off; ours is measured from its first request on. Slow ones (SLOW) are measured once. Ours stands in
the table six times: every file as the others copy them, the same and each file's digest read back
from the target, what a restart needs, and that compacted; the last two with nothing compared, as
the others compare nothing, and once more with the comparison that is the default.

Every measurement is a line in copy.jsonl, kept with the checkpoint; what a tag has is not measured
again.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import platform
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "state.d"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "servers.d"))

import make_checkpoint
from measure import bench_directory
from pages import figures_in
from servers import Servers, default_root
from telling import as_table, drawn
from tools import OURS, ROUTES, SLOW, Ground, Way, left_out, run, ways_of

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "scripts" / "bench" / "results" / "copy.md"
SETS = ("many", "large")
LARGE_FILES, LARGE_BYTES = 8, 256 * 1024 * 1024


@dataclass(frozen=True)
class Measured:
    """One way in one round; `whole` is the command with its start, `seconds` without."""

    tag: str
    route: str
    set: str
    round: int
    way: str
    seconds: float
    whole: float
    files: int
    load: float
    at: str


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--routes", type=some_of(ROUTES), default=ROUTES)
    parser.add_argument("--sets", type=some_of(SETS), default=SETS)
    parser.add_argument("--ways", default="", help="only these, with ; between")
    parser.add_argument("--tag", default=time.strftime("%Y-%m-%d"), help="the name of this run")
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # through every `finally`: servers are stopped
    directory, only = bench_directory(), [word for word in options.ways.split(";") if word]
    with ground(directory, options.routes) as here:
        for route in options.routes:
            for name in options.sets:
                measure(here, directory, route, name, options.rounds, options.tag, only)
    wanted = [one for one in kept(directory) if one.tag == options.tag]
    missing = left_out(options.routes)
    table = as_table(wanted, missing, RESULTS, platform.python_version())
    RESULTS.write_text(table)
    drawn(wanted, RESULTS.with_suffix(".png"))
    print(table)


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what reads names with commas between; others than the known ones are refused."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return read


def measure(
    here: Ground, directory: Path, route: str, name: str, rounds: int, tag: str, only: Sequence[str]
) -> None:
    done = {
        (o.round, o.way) for o in kept(directory) if (o.tag, o.route, o.set) == (tag, route, name)
    }
    ways = {way: how for way, how in ways_of(route, name).items() if not only or way in only}
    missing = [
        (n, w)
        for n in range(rounds)
        for w in shuffled(ways, n)
        if (n, w) not in done and not (n and w in SLOW)
    ]
    if not missing:
        return
    source = put(here, route, directory, name)
    files = here.files_at(source)
    starts: dict[str, float] = {}
    for number, way in missing:
        if way not in starts:
            starts[way] = (
                started(here, route, directory, ways[way]) if not way.startswith(OURS) else 0.0
            )
        one = measured(here, tag, route, name, number, way, ways[way], source, starts[way], files)
        with (directory / "copy.jsonl").open("a") as file:
            file.write(json.dumps(asdict(one)) + "\n")
        print(
            f"  {route} {name} {number + 1}: {way} {one.seconds:.2f} s", file=sys.stderr, flush=True
        )


def shuffled(ways: Iterable[str], number: int) -> list[str]:
    found = list(ways)
    random.Random(number).shuffle(found)
    return found


def measured(
    here: Ground,
    tag: str,
    route: str,
    name: str,
    number: int,
    way: str,
    how: Way,
    source: str,
    start: float,
    expected: int,
) -> Measured:
    target = here.target(route, f"{name}-{number}-{time.monotonic_ns()}")
    os.sync()
    load, at = os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M")
    whole = how(here, source, target)
    files = here.files_at(target)
    if not way.startswith(OURS) and files != expected:
        raise SystemExit(f"{way} brought {files} files of {expected}")
    here.remove(target)
    return Measured(
        tag,
        route,
        name,
        number,
        way,
        round(max(0.0, whole - start), 3),
        round(whole, 3),
        files,
        load,
        at,
    )


def started(here: Ground, route: str, directory: Path, how: Way) -> float:
    """What a way takes for nearly nothing: its start, and its end."""
    one = directory / "copy-one"
    one.mkdir(exist_ok=True)
    (one / "a").write_text("a")
    source, target = (
        put(here, route, directory, "one"),
        here.target(route, f"one-{time.monotonic_ns()}"),
    )
    os.sync()  # what others have written is not part of it
    seconds = how(here, source, target)
    here.remove(target)
    return seconds


def put(here: Ground, route: str, directory: Path, name: str) -> str:
    """The location of a set of files where the route begins."""
    local = {
        "many": lambda: make_checkpoint.checkpoint(directory),
        "large": lambda: large(directory),
    }
    folder = local[name]() if name in local else directory / f"copy-{name}"
    if route.startswith("local"):
        return str(folder)
    source = f"hdfs://hdfs-a/bench-{name}"
    if not here.files_at(source):
        # Without the sidecars that Hadoop keeps on local disks alone.
        words = [
            str(here.hadoop / "hdfs"),
            "dfs",
            "-put",
            "-t",
            "32",
            "-q",
            "2000",
            str(folder),
            source,
        ]
        run(words, here.environment)
    return source


def large(directory: Path) -> Path:
    place = directory / "copy-large"
    if not place.exists():
        making = place.with_name(place.name + ".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        for number in range(LARGE_FILES):
            with (making / f"part-{number}.sst").open("wb") as file:
                for _ in range(LARGE_BYTES // (1 << 24)):
                    file.write(os.urandom(1 << 24))
        making.rename(place)
    return place


@contextmanager
def ground(directory: Path, routes: Sequence[str]) -> Iterator[Ground]:
    """The servers that the routes need; those of $STATESHIFT_SERVERS are left up."""
    scratch = directory / "copy-scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    names = [
        n
        for n, word in (("hdfs-a", "hdfs"), ("hdfs-b", "-hdfs"), ("s3-real", "s3"))
        if word in " ".join(routes)
    ]
    given = "STATESHIFT_SERVERS" in os.environ
    servers = Servers(default_root() if given else scratch / "servers")
    try:
        for name in names:
            servers.up(name)
        exports = servers.exports() if names else {}
        exports |= {
            "HDFSCLI_CONFIG": os.devnull,
            "HADOOP_USER_NAME": getpass.getuser(),
            "PYTHONPATH": str(ROOT),
        }
        exports.pop("AWS_CA_BUNDLE", None)
        yield Ground(scratch, exports, Path(exports.get("STATESHIFT_HDFS_COMMANDS", "/")))
    finally:
        for name in reversed([] if given else names):
            servers.down(name)
        shutil.rmtree(scratch, ignore_errors=True)


def kept(directory: Path) -> list[Measured]:
    return [Measured(**each) for each in figures_in(directory / "copy.jsonl")]


if __name__ == "__main__":
    main()
