"""Jobs of several shapes on one real Flink, all under the same loads (Load.java)."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advise import Counted, Episode, Look
from loads import LOADS, Load

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "servers.d")]

from tests.support.flink import Cluster, cluster_of, until  # noqa: E402
from tests.support.servers import downloads, group  # noqa: E402

SLOW_US = 20_000
CALIBRATE_SECONDS = 20.0
PER_SECOND_FIRST = 0.5 / (SLOW_US / 1e6)


@dataclass(frozen=True)
class Shape:
    """A job: its topology, and whether its source tells what waits."""

    name: str
    topology: str
    parallelism: int
    tells: bool = True


SHAPES = (
    Shape("chain", "chain", 2),
    Shape("stages, source silent", "stages", 2, tells=False),
    Shape("fan", "fan", 1),
    Shape("union", "union", 1),
    Shape("broadcast", "broadcast", 2),
)


@dataclass
class Running:
    """A job that runs, and the folder that it counts in."""

    shape: Shape
    folder: Path
    jar: str
    cluster: Cluster
    job: str = ""
    cost: float = SLOW_US / 1e6

    def start(self) -> None:
        """Start it, or start it anew: its counters begin at nothing."""
        if self.job:
            self.cluster.cancelled(self.job)
        self.folder.mkdir(exist_ok=True)
        for file in self.folder.iterdir():
            file.unlink()
        self.tell(PER_SECOND_FIRST * self.shape.parallelism, 0.0)
        words = [str(self.folder), self.shape.topology, str(SLOW_US)]
        words += [str(self.shape.tells).lower(), self.shape.name]
        body = {
            "entryClass": "bench.Load",
            "programArgsList": words,
            "parallelism": self.shape.parallelism,
        }
        self.job = str(self.cluster.ask(f"/jars/{self.jar}/run", body)["jobid"])
        until(lambda: len(list(self.folder.glob("done-*"))) == self.shape.parallelism, 300)

    def tell(self, rate: float, hot: float) -> None:
        new = self.folder / "control.new"
        new.write_text(f"{rate} {hot}\n")
        os.replace(new, self.folder / "control")

    def load(self, load: Load, seconds: float) -> None:
        can = self.shape.parallelism / self.cost
        self.tell(load.at(seconds) * can, load.hot if self.shape.parallelism > 1 else 0.0)

    def counted(self) -> Counted:
        arrived = sum(first for first, _ in self._pairs("arrived-[01]"))
        done = list(self._pairs("done-*"))
        busy = sum(second for _, second in done) / 1e9
        return Counted(time.time(), arrived, sum(first for first, _ in done), busy)

    def _pairs(self, names: str) -> Iterator[tuple[float, float]]:
        for file in self.folder.glob(names):
            first, second = file.read_text().split()
            yield float(first), float(second)


def measured(step: float, look: float) -> list[Episode]:
    folder = Path(tempfile.mkdtemp(prefix="stateshift-advise-"))
    conf = folder / "more.conf"
    # Buffers that are full within a load: then the source is held back.
    conf.write_text("taskmanager.memory.segment-size: 8kb\n")
    with group(folder / "servers", "flink-a", STATESHIFT_FLINK_CONF=str(conf)) as servers:
        cluster = cluster_of(servers, "flink-a")
        jar = cluster.upload(compiled(cluster.lib, folder))
        jobs = [
            Running(shape, folder / str(number), jar, cluster)
            for number, shape in enumerate(SHAPES)
        ]
        for job in jobs:
            job.start()
        time.sleep(CALIBRATE_SECONDS)
        for job in jobs:
            counted = job.counted()
            job.cost = counted.busy_seconds / counted.done
        return list(_all_loads(jobs, folder / "history", step, look))


def _all_loads(
    jobs: Sequence[Running], history: Path, step: float, look: float
) -> Iterator[Episode]:
    for load in LOADS:
        for job in jobs:
            # Nobody can see what waits before a silent source, so it begins each load without.
            if load.fresh or not job.shape.tells:
                job.start()
        episodes = [Episode(_name(job), load, job.shape.parallelism, job.counted()) for job in jobs]
        _one_load(jobs, episodes, history, step, look)
        for one, job in zip(episodes, jobs, strict=True):
            one.ended = job.counted()
        yield from episodes


def _name(job: Running) -> str:
    return f"{job.shape.name}, {job.shape.parallelism}"


def _one_load(
    jobs: Sequence[Running],
    episodes: Sequence[Episode],
    history: Path,
    step: float,
    look: float,
) -> None:
    began, number = time.time(), 0
    with ThreadPoolExecutor(1) as looking:
        looks: Future[list[dict[str, Any]]] | None = None
        while (seconds := time.time() - began) < step or looks is not None:
            for job, one in zip(jobs, episodes, strict=True):
                job.load(one.load, seconds)
            if looks is not None and looks.done():
                for told in looks.result():
                    _add(told, jobs, episodes, number)
                looks = None
            if looks is None and (number + 1) * look <= seconds < step:
                number += 1
                looks = looking.submit(advised, jobs[0].cluster.url, history)
            time.sleep(0.5)


def _add(
    told: dict[str, Any], jobs: Sequence[Running], episodes: Sequence[Episode], number: int
) -> None:
    for job, one in zip(jobs, episodes, strict=True):
        if told["job"] != job.shape.name:
            continue
        reason = "; ".join(told["reasons"])
        look = Look(
            one.job, one.load.name, number, told["verdict"], told["wanted"], job.counted(), reason
        )
        one.looks.append(look)
        print(f"{one.job}: {one.load.name}: {number}: {look.verdict}: {reason}", flush=True)


def advised(url: str, history: Path) -> list[dict[str, Any]]:
    """Return the verdicts of a look, as a cron job gets them."""
    words = ["advise", url, "--history", str(history), "--json"]
    words += ["--set", "stabilization.interval=0", "--sample", "10s"]
    ran = subprocess.run(
        [sys.executable, "-m", "stateshift", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(ran.stderr[-4000:])
    told: list[dict[str, Any]] = json.loads(ran.stdout)
    return told


def compiled(lib: Path, folder: Path) -> Path:
    javac = Path(downloads.java()).resolve().with_name("javac")
    classes, jar = folder / "classes", folder / "load.jar"
    words = [str(javac), "--release", "11", "-nowarn", "-proc:none", "-cp", f"{lib}/*"]
    source = Path(__file__).with_name("Load.java")
    subprocess.run([*words, "-d", str(classes), str(source)], check=True)
    with zipfile.ZipFile(jar, "w") as packed:
        for file in sorted(classes.rglob("*.class")):
            packed.write(file, str(file.relative_to(classes)))
    return jar


def head(step: float, look: float) -> list[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return [
        f"`./scripts/bench/advise --step {step:g} --look {look:g}` on {os.cpu_count()} cores and "
        f"{memory:.0f} GB, Python {platform.python_version()}; "
        f"{time.strftime('%Y-%m-%d %H:%M')}, the load {os.getloadavg()[0]:.1f}. A real Flink 2.3; "
        "behind a job's name is its parallelism. One vertex of each blocks for "
        f"{SLOW_US / 1000:g} ms over each record. Settings are the defaults, but for "
        "stabilization.interval=0.",
    ]
