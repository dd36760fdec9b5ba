"""Where it happens: a job with its checkpoint on S3, its standby on HDFS, and somebody between the
standby and either of them.

    with region(folder, dice) as region:
        region.start_job()
        region.standby.keep()     as its unit of systemd would: started again where it may be
        region.sample()           what it takes now
        region.judge()            the image, read to its end
"""

from __future__ import annotations

import getpass
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servers import Servers, downloads, spark
from servers.s3 import spark_settings

from stateshift import look
from stateshift.clusters.kind import Contacts, open_cluster
from stateshift.clusters.protocol import Submission
from stateshift.specification import ClusterSpec
from stateshift.step.claims import state_at
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from tests.support.between import Asked, between

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SOURCE, TARGET = "s3a://stateshift/soak/orders", "hdfs://hdfs-a/soak/orders"
ROWS, KEYS, BATCH_SECONDS = 200, 500, 2
MAY_PASS = (6, 7)  # exit codes after which the unit starts it again
RESTART_SECONDS = 30.0
ATTEMPTS = 30  # to look at an image while nobody writes it
START_SECONDS_MAX = 240.0
SETTINGS = {
    "spark.driver.memory": "700m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stateStore.maintenanceInterval": "15s",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


@dataclass(frozen=True)
class Judged:
    """An image at the target: its epoch, and what is wrong with it, empty if nothing is."""

    epoch: int
    fault: str


@dataclass
class Standby:
    """The process that feeds the standby, whichever start of it. `starts` has the time of each."""

    folder: Path
    environment: dict[str, str]
    spec: dict[str, Any]
    starts: list[float] = field(default_factory=list)
    ends: list[tuple[float, int]] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def workdir(self) -> Path:
        return self.folder / "run"

    @property
    def log(self) -> Path:
        return self.folder / "standby.log"

    def keep(self) -> None:
        """Start it unless it runs, or has ended less than 30 s ago."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return
            self.ends.append((time.time(), code))
            self.process = None
            if code not in MAY_PASS:
                raise SystemExit(f"the standby has ended with {code}: {self.log}")
        if self.ends and time.time() < self.ends[-1][0] + RESTART_SECONDS:
            return
        words = ["resume", str(self.workdir)]
        if not self.starts:
            spec = self.folder / "spec.json"
            spec.write_text(json.dumps(self.spec, indent=1))
            words = ["apply", str(spec), "--continuous", "--yes", "--workdir", str(self.workdir)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stateshift", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
            )
        self.starts.append(time.time())

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def rounds(self) -> int:
        """How many rounds it has copied."""
        return len(re.findall(r"round \d+ has copied", self._told()))

    @property
    def images(self) -> int:
        """How many images it has published."""
        return self._told().count(": can be started from ")

    def _told(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def rss(self) -> int | None:
        """Return the bytes that it has in memory."""
        if self.process is None:
            return None
        with suppress(OSError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            found = re.search(r"VmRSS:\s+(\d+) kB", status)
            return int(found[1]) * 1024 if found else None
        return None


@dataclass
class Region:
    """What is there. `spoil` looks at each request of the standby to S3."""

    folder: Path
    servers: Servers
    dice: random.Random
    exports: dict[str, str]
    standby: Standby
    spoil: Callable[[Asked], str | None] = lambda asked: None
    is_target_hidden: bool = False
    best: int = -1

    @property
    def source(self) -> Storage:
        return open_patiently(SOURCE)

    @property
    def target(self) -> Storage:
        return open_patiently(TARGET)

    def start_job(self) -> None:
        spec = ClusterSpec("primary", "spark_submit", cluster_of(self.folder, "a", self.exports))
        cluster = open_cluster(spec, str(self.folder / "clusters"), Contacts(open_patiently))
        cluster.submit(Submission("soak-1", "orders", SOURCE, None, SUBMIT))
        until = time.time() + START_SECONDS_MAX
        while self.source_epoch() < 2:
            if time.time() > until:
                raise SystemExit(f"the job has not committed: {self.folder / 'a'}")
            time.sleep(1)

    def kill_jobs(self) -> None:
        for path in self.folder.rglob("*.pid"):
            with suppress(ProcessLookupError, ValueError, IndexError):
                os.killpg(int(path.read_text().split()[0]), signal.SIGKILL)

    def source_epoch(self) -> int:
        """Return the newest batch that the job has committed."""
        names = [file.path.rpartition("/")[2] for file in self.source.list("commits")]
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def kept_epoch(self) -> int:
        """Return the epoch that the state file names."""
        state = state_at(self.target)
        return -1 if state is None or state.epoch is None else state.epoch

    def sample(self) -> dict[str, Any]:
        """Return what the standby takes now; nothing of a target that does not answer."""
        workdir = self.standby.workdir
        journal = [file.stat().st_size for file in workdir.glob("journal*")]
        plans = workdir / "plans"
        found: dict[str, Any] = {
            "at": time.time(),
            "rss": self.standby.rss,
            "journal": sum(journal),
            "plans": len(list(plans.iterdir())) if plans.is_dir() else 0,
        }
        if not self.is_target_hidden:
            files = list(self.target.list())
            found |= {"files": len(files), "bytes": sum(file.size for file in files)}
            found["kept"] = self.kept_epoch()
        return found

    def judge(self) -> Judged:
        """Read the image at the target to its end, while nobody writes there."""
        judged = Judged(-1, "somebody wrote to it all the time")
        for _ in range(ATTEMPTS):
            before = self._stamps()
            judged = self._judge_now()
            if self._stamps() == before:
                break
            time.sleep(0.2)
        self.best = max(self.best, judged.epoch)
        return judged

    def _stamps(self) -> dict[str, Any]:
        return {file.path: (file.size, file.stamp) for file in self.target.list()}

    def _judge_now(self) -> Judged:
        verdict = look.restartable(TARGET, open_patiently, thorough=True)
        epoch = -1 if verdict.epoch is None else verdict.epoch
        if not verdict.restartable:
            refused = [each.message for each in verdict.findings if each.level == "refuse"]
            return Judged(epoch, f"it cannot be started from: {'; '.join(refused)}")
        if epoch < self.best:
            return Judged(epoch, f"it is at batch {epoch}, and was at {self.best}")
        if self.kept_epoch() not in verdict.epochs:
            return Judged(epoch, f"its state file names batch {self.kept_epoch()}")
        rows = sum(entry.value["count"] for entry in look.entries(TARGET, limit=10 * KEYS))  # type: ignore[index]
        if rows != ROWS * (epoch + 1):
            return Judged(epoch, f"its state counts {rows} rows after batch {epoch}")
        return Judged(epoch, "")

    def fail_over(self) -> dict[str, Any] | str:
        """Start the job from its standby. Return what the report says of it, or why it refuses."""
        words = ("failover", TARGET, "--primary-is-down", "--yes", "--json")
        done = subprocess.run(
            [sys.executable, "-m", "stateshift", *words, "--workdir", str(self.folder / "over")],
            env=self.standby.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return f"failover has ended with {done.returncode}: {done.stderr[-1000:]}"
        report: dict[str, Any] = json.loads(done.stdout)["report"]["jobs"][0]["failover"]
        return report


SUBMIT = {
    "application": str(HERE / "job.py"),
    "arguments": [str(ROWS), str(KEYS), str(BATCH_SECONDS)],
}


def cluster_of(folder: Path, name: str, exports: dict[str, str]) -> dict[str, Any]:
    """Return the options of a cluster that runs a driver on this machine."""
    path = spark.class_path(spark.installed_home(), downloads.jars("s3a-spark-4.3"))
    conf = {
        **SETTINGS,
        "spark.driver.extraClassPath": path,
        "spark.local.dir": str(folder / "spark"),
        **spark_settings(exports),
    }
    return {"master": "local[1]", "conf": conf, "state_dir": str(folder / name)}


def spec_of(folder: Path, exports: dict[str, str]) -> dict[str, Any]:
    job = {
        "name": "orders",
        "checkpoint_location": SOURCE,
        "remote_location": TARGET,
        "mode": "warm",
        "cutover": "never",
        "target_cluster": "b",
        "submit": {**SUBMIT, "seconds_max": START_SECONDS_MAX},
    }
    clusters = {"b": {"kind": "spark_submit", **cluster_of(folder, "b", exports)}}
    return {"version": 1, "engine": "spark", "clusters": clusters, "jobs": [job]}


@contextmanager
def region(folder: Path, dice: random.Random) -> Iterator[Region]:
    """Everything up, and down afterwards; the folder stays."""
    servers = Servers(folder / "servers")
    made: list[Region] = []
    names = ("s3-real", "hdfs-a")
    try:
        for name in names:
            servers.up(name)
        exports = {
            **servers.exports(),
            "HDFSCLI_CONFIG": os.devnull,
            "HADOOP_USER_NAME": getpass.getuser(),
            "PYTHONPATH": str(ROOT),
        }
        os.environ |= exports  # for what this process opens itself
        endpoint = exports["AWS_ENDPOINT_URL_S3"]
        with between(endpoint, lambda asked: made[0].spoil(asked)) as (address, _):
            environment = {**os.environ, "AWS_ENDPOINT_URL_S3": address}
            standby = Standby(folder, environment, spec_of(folder, exports))
            made.append(Region(folder, servers, dice, exports, standby))
            try:
                yield made[0]
            finally:
                standby.end()
                made[0].kill_jobs()
    finally:
        for name in reversed(names):
            thaw(servers, name)
            servers.down(name)


def freeze(servers: Servers, name: str) -> None:
    """Let no process of a server go on, as when its machine hangs."""
    _signal(servers, name, signal.SIGSTOP)


def thaw(servers: Servers, name: str) -> None:
    _signal(servers, name, signal.SIGCONT)


def _signal(servers: Servers, name: str, number: signal.Signals) -> None:
    for process in servers.place(name).started().values():
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
