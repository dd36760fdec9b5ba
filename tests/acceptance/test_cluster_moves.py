"""The demo's job moves while it runs from one real cluster to another, its checkpoint from one real HDFS to another, by
the real command line and one spec. What comes out is what an unmoved job would have written, record for record.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.journal import StepStarted
from stateshift.journal.lines import decode_records
from stateshift.storage.hdfs.opening import open_hdfs
from stateshift.storage.protocol import Storage
from tests.acceptance.shop import APPLICATION, OPERATORS, Shop
from tests.acceptance.support import ROOT, environment, stateshift
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.spark]
SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Four JVMs of HDFS, four of Spark."""
    names = ("hdfs-a", "hdfs-b", "spark-a", "spark-b")
    with group(tmp_path_factory.mktemp("clusters"), *names) as servers:
        yield servers


@dataclass(frozen=True)
class Ground:
    servers: Servers
    folder: Path
    name: str

    @property
    def shop(self) -> Shop:
        return Shop(self.folder)

    @property
    def environment(self) -> dict[str, str]:
        return {"HADOOP_CONF_DIR": self.servers.exports()["HADOOP_CONF_DIR"], "HDFSCLI_CONFIG": os.devnull}

    @property
    def here(self) -> str:
        return f"hdfs://hdfs-a/ck/{self.name}"

    @property
    def there(self) -> str:
        return f"hdfs://hdfs-b/ck/{self.name}"

    def cluster(self, letter: str) -> dict[str, Any]:
        told = self.servers.exports()
        name = f"STATESHIFT_SPARK_{letter.upper()}"
        return {
            "kind": "spark_standalone",
            "url": told[f"{name}_REST"],
            "ui_url": told[f"{name}_UI"],
            "settle_seconds": 20,
            "state_dir": str(self.folder / "jobs" / letter),
            "environment": {"PYTHONPATH": str(ROOT)},
            "conf": {"spark.executor.memory": "512m", "spark.cores.max": 1, "spark.ui.enabled": False},
        }

    def spec(self, file: str, restart: bool = True) -> Path:
        submit = {"application": str(APPLICATION), "arguments": self.shop.arguments, "driver_memory": "512m",
                  "seconds_max": SECONDS_MAX}  # fmt: skip
        job = {
            "name": "shop",
            "checkpoint_location": self.here,
            "operators": list(OPERATORS),
            "source_cluster": "old" if restart else "new",
            "target_cluster": "new",
            "submit": submit,
            "waive": ["paths-stay"],
            **({"remote_location": self.there, "source_submit": submit} if restart else {}),
        }
        # The job starts where it will be moved away from.
        clusters = {"old": self.cluster("a"), "new": self.cluster("b" if restart else "a")}
        plain = {"version": 1, "restart": restart, "clusters": clusters, "jobs": [job]}
        (self.folder / file).write_text(json.dumps(plain, indent=1))
        return self.folder / file

    def started(self) -> None:
        """The job runs on the old cluster, in the middle of a minute, with orders that are still to be paid."""
        self.shop.feed(0, 20)
        workdir = self.folder / "runs" / "first"
        self.said("apply", self.spec("first.json", restart=False), "--yes", "--workdir", workdir)
        self.until(lambda: committed(open_hdfs(self.here, self.environment)), "the job has not started")
        self.shop.feed(20, 30)

    def said(self, *words: str | Path) -> Any:
        return stateshift(*words, "--json", cwd=self.folder, env=self.environment).json

    def finished(self) -> None:
        """The rest of the input comes, and all of the output."""
        self.shop.feed(30, 40)
        self.shop.finish(40)
        self.until(lambda: self.shop.complete(40), "the results are not complete")
        assert self.shop.recognise() == self.shop.expected(40)

    def killed(self, words: tuple[str, ...], workdir: Path, step: str) -> None:
        """Run the command line, and kill it as soon as its journal says that a step of this name has begun."""
        run = subprocess.Popen(
            [sys.executable, "-m", "stateshift", *words], cwd=self.folder, env={**environment(), **self.environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while run.poll() is None and not has_begun(workdir, step):
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
        _, told = run.communicate()
        assert run.returncode == -signal.SIGKILL, f"ended with {run.returncode} before {step}\n{told[-3000:]}"

    def until(self, done: Any, otherwise: str) -> None:
        last = time.monotonic() + SECONDS_MAX
        while not done():
            assert time.monotonic() < last, f"{otherwise}\n{self.logs()}"
            time.sleep(0.5)

    def logs(self) -> str:
        """The end of what each driver said."""
        work = sorted(self.servers.root.glob("spark-?/work/*/driver-*/std*"))
        return "\n".join(f"{path}\n{path.read_text(errors='replace')[-3000:]}" for path in work)

    def stopped(self) -> None:
        """Whatever of it still runs, asked as a person would."""
        for location in (self.here, self.there):
            open_hdfs(location, self.environment).write("_stateshift/stop", lambda: iter((b"",)))


def has_begun(workdir: Path, step: str) -> bool:
    """A line that is being written does not count yet."""
    journal = workdir / "journal"
    if not journal.exists():
        return False
    records, _ = decode_records(journal.read_bytes())
    return any(isinstance(one, StepStarted) and one.step.startswith(step) for one in records)


def committed(storage: Storage) -> bool:
    """Whether both operators have committed a batch."""
    paths = [info.path.split("/") for info in storage.list()]
    return len({path[0] for path in paths if path[1:2] == ["commits"]}) == len(OPERATORS)


@pytest.fixture
def ground(servers: Servers, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ground]:
    made = Ground(servers, tmp_path, request.node.name.partition("[")[0][-30:])
    yield made
    made.stopped()


@pytest.mark.row("IS-3", "IS-6", "IS-15", "IS-16", "IS-19")
def test_a_running_job_goes_to_another_cluster_and_another_hdfs(ground: Ground) -> None:
    ground.started()
    move = ground.spec("move.json")
    ground.said("plan", move)
    report = ground.said("apply", move, "--yes", "--workdir", ground.folder / "runs" / "move")
    assert report["state"] == "finished"
    assert report["report"]["downtime_seconds"] > 0
    assert committed(open_hdfs(ground.there, ground.environment))
    ground.finished()


@pytest.mark.row("IS-15", "IS-16", "IS-18")
def test_killed_while_it_moves_and_resumed_it_goes_on_where_it_was(ground: Ground) -> None:
    ground.started()
    workdir = ground.folder / "runs" / "move"
    ground.killed(("apply", str(ground.spec("move.json")), "--yes", "--workdir", str(workdir)), workdir, "halt/stop")
    for step in ("copy/", "submit/"):
        ground.killed(("resume", str(workdir)), workdir, step)
    assert ground.said("resume", workdir)["state"] == "finished"
    ground.finished()


@pytest.mark.row("IS-18")
def test_taken_back_the_old_job_goes_on_where_it_was(ground: Ground) -> None:
    ground.started()
    workdir = ground.folder / "runs" / "move"
    ground.killed(("apply", str(ground.spec("move.json")), "--yes", "--workdir", str(workdir)), workdir, "submit/")
    assert ground.said("rollback", workdir, "--yes")["state"] == "rolled-back"
    assert list(open_hdfs(ground.there, ground.environment).list()) == []
    ground.finished()
