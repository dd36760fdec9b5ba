"""What a fleet gains where the network is what everything waits for.

    python fleet.py [--rounds 5] [--sets NAME,...] [--ways NAME;...] [--tag NAME]

Rounds of all ways one after the other, A B C A B C, each to a target that is not there, from S3 to
S3. Every machine has a link of its own to the storage (links.py): the one process, each executor,
each distcp. Ours copies every file, as distcp does, and is measured from its first request on, when
its executors have come; what distcp takes for two small files is taken off. Two distcps have half
of the files each: what two machines of a YARN could do, without its waits.

Every measurement is a line in fleet.jsonl; what a tag has is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what benches share
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "state.d"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "servers.d"))

from links import links
from measure import bench_directory
from page import as_table, drawn
from pages import figures_in
from servers import Servers, downloads
from servers.spark import installed_home
from workers import spark

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "scripts" / "bench" / "copy.d" / "engine.py"
RESULTS = ROOT / "scripts" / "bench" / "results" / "fleet.md"
BUCKET = "stateshift"
HALVES = ("a", "b")
SETS = {
    "many": (1024, 4 * 1024),
    "large": (16, 24 * 1024 * 1024),
}  # how many files, and of how many bytes each
MAPS = 8


@dataclass(frozen=True)
class Measured:
    tag: str
    set: str
    round: int
    way: str
    seconds: float
    whole: float
    files: int
    load: float
    at: str


@dataclass(frozen=True)
class Ground:
    scratch: Path
    environment: Mapping[str, str]  # straight to the storage
    links: tuple[str, ...]  # of each machine: the endpoint by which it gets there
    java: str

    def by(self, link: int) -> dict[str, str]:
        return {**os.environ, **self.environment, "AWS_ENDPOINT_URL_S3": self.links[link]}


Way = Callable[[Ground, str, str], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--ways", default="", help="only these, with ; between")
    parser.add_argument("--tag", default=time.strftime("%Y-%m-%d"), help="the name of this run")
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # through every `finally`: servers are stopped
    directory, only = bench_directory(), [word for word in options.ways.split(";") if word]
    with ground(directory) as here:
        for name in options.sets.split(","):
            measure(here, directory, name, options.rounds, options.tag, only)
    wanted = [one for one in kept(directory) if one.tag == options.tag]
    RESULTS.write_text(as_table(wanted, RESULTS, platform.python_version()))
    drawn(wanted, RESULTS.with_suffix(".png"))
    print(RESULTS.read_text())


def measure(
    here: Ground, directory: Path, name: str, rounds: int, tag: str, only: Sequence[str]
) -> None:
    done = {(one.round, one.way) for one in kept(directory) if (one.tag, one.set) == (tag, name)}
    missing = [
        (n, w)
        for n in range(rounds)
        for w in WAYS
        if (n, w) not in done and (not only or w in only)
    ]
    if not missing:
        return
    source, one, starts = put(here, name, *SETS[name]), put(here, "one", 2, 1), dict[str, float]()
    for number, way in missing:
        if way not in starts:
            starts[way] = 0.0 if way in OURS else WAYS[way](here, one, target(f"one-{way}"))
        load, at = os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M")
        place = target(name)
        whole = WAYS[way](here, source, place)
        files = counted(here, place)
        if files != SETS[name][0]:
            raise SystemExit(f"{way} brought {files} files of {SETS[name][0]}")
        seconds = max(0.0, whole - starts[way])
        told = Measured(tag, name, number, way, round(seconds, 3), round(whole, 3), files, load, at)
        with (directory / "fleet.jsonl").open("a") as file:
            file.write(json.dumps(asdict(told)) + "\n")
        print(f"  {name} {number + 1}: {way} {seconds:.2f} s", file=sys.stderr, flush=True)


def put(here: Ground, name: str, count: int, size: int) -> str:
    """The location of a set of files in two folders; straight to the storage."""
    folder, location = here.scratch / name, f"s3://{BUCKET}/bench-{name}-{time.monotonic_ns()}"
    for half in HALVES:
        (folder / half).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / HALVES[number % 2] / f"part-{number}.sst").write_bytes(os.urandom(size))
    run([sys.executable, str(ENGINE), str(folder), location], {**os.environ, **here.environment})
    shutil.rmtree(folder)
    return location


def target(name: str) -> str:
    return f"s3://{BUCKET}/there-{name.replace(' ', '-')}-{time.monotonic_ns()}"


def counted(here: Ground, location: str) -> int:
    code = (
        "import sys; from stateshift.storage.opening import *; "
        "print(len(list(open_storage(sys.argv[1]).list())))"
    )
    return int(run([sys.executable, "-c", code, location], {**os.environ, **here.environment}))


def _process(here: Ground, source: str, place: str) -> float:
    return _told(run([sys.executable, str(ENGINE), source, place], here.by(0)))


def _executors(count: int, here: Ground, source: str, place: str) -> float:
    folder = here.scratch / f"spark-{time.monotonic_ns()}"
    machines = [
        {**here.environment, "AWS_ENDPOINT_URL_S3": here.links[1 + number], "PYTHONPATH": ""}
        for number in range(count)
    ]
    with spark(folder, machines, here.java) as master:
        environment = {
            **here.by(0),
            "JAVA_HOME": here.java,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        return _told(
            run([sys.executable, str(ENGINE), source, place, "--fleet", master], environment)
        )


def _distcp(here: Ground, source: str, place: str, link: int = 0) -> float:
    began = time.perf_counter()
    jars = [installed_home() / "jars", downloads.jars("s3a-spark-4.3"), downloads.jars("hdfs")]
    distcp = [str(jar) for jar in jars[2].glob("hadoop-distcp-*.jar")]
    properties = {
        "fs.s3a.endpoint": here.links[link],
        "fs.s3a.path.style.access": "true",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.access.key": here.environment["AWS_ACCESS_KEY_ID"],
        "fs.s3a.secret.key": here.environment["AWS_SECRET_ACCESS_KEY"],
        "fs.s3a.connection.ssl.enabled": "false",
        "mapreduce.framework.name": "local",
        "mapreduce.local.map.tasks.maximum": str(MAPS),
        "hadoop.tmp.dir": str(here.scratch / f"mapreduce-{time.monotonic_ns()}"),
    }
    words = [
        f"{here.java}/bin/java",
        "-cp",
        ":".join([*(f"{place}/*" for place in jars[:2]), *distcp]),
        "org.apache.hadoop.tools.DistCp",
        *(f"-D{key}={value}" for key, value in properties.items()),
        "-m",
        str(MAPS),
        "-direct",
        source.replace("s3:", "s3a:"),
        place.replace("s3:", "s3a:"),
    ]
    run(words, {**os.environ, "AWS_CA_BUNDLE": ""})
    return time.perf_counter() - began


def _two_distcps(here: Ground, source: str, place: str) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(2) as both:
        list(
            both.map(
                lambda n: _distcp(here, f"{source}/{HALVES[n]}", f"{place}/{HALVES[n]}", 1 + n),
                range(2),
            )
        )
    return time.perf_counter() - began


WAYS: dict[str, Way] = {
    "one process": _process,
    "one executor": partial(_executors, 1),
    "two executors": partial(_executors, 2),
    "distcp": _distcp,
    "two distcps": _two_distcps,
}
OURS = ("one process", "one executor", "two executors")


def run(words: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(environment))
    if done.returncode:
        raise SystemExit(
            f"{' '.join(words[:3])} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done.stdout


def _told(output: str) -> float:
    return float(json.loads(output.splitlines()[-1])["seconds"])


@contextmanager
def ground(directory: Path) -> Iterator[Ground]:
    scratch = directory / "fleet-scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    servers = Servers(scratch / "servers")
    try:
        servers.up("s3-real")
        exports = {**servers.exports(), "PYTHONPATH": str(ROOT)}
        exports.pop("AWS_CA_BUNDLE", None)
        server = exports["AWS_ENDPOINT_URL_S3"].rpartition("/")[2]
        with links(3, server) as ports:
            java = str(Path(downloads.java()).resolve().parents[1])
            yield Ground(
                scratch, exports, tuple(f"http://127.0.0.1:{port}" for port in ports), java
            )
    finally:
        servers.down("s3-real")
        shutil.rmtree(scratch, ignore_errors=True)


def kept(directory: Path) -> list[Measured]:
    return [Measured(**each) for each in figures_in(directory / "fleet.jsonl")]


if __name__ == "__main__":
    main()
