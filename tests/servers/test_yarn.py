"""A real YARN, two ResourceManagers and a NodeManager, runs the demo's job: it moves in cluster mode
and in client mode, through kills and a fail-over, and what comes out is what an unmoved job would
have written. Refused and failed starts leave the old job as it was.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import Fit, JobState, StopRequest
from stateshift.clusters.yarn.cluster import Yarn as YarnCluster
from stateshift.specification.model import ClusterSpec
from tests.acceptance.shop import APPLICATION, OPERATORS, Shop
from tests.acceptance.support import ROOT, stateshift
from tests.servers.streams import Stream
from tests.support.moving import killed_at
from tests.support.servers import CATALOG, Servers, Yarn, group, spark

pytestmark = [pytest.mark.servers, pytest.mark.spark]
SHOWN_ON = "Spark, YARN"
SECONDS_MAX = 150.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("yarn"), "yarn-ha") as servers:
        yield servers


def cluster_options(
    servers: Servers, folder: Path, which: str = "STATESHIFT_YARN_HA"
) -> dict[str, Any]:
    """A small driver and one executor, and nothing of Spark's that has to be uploaded."""
    python = spark.python_of(spark.installed_home())
    everywhere = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python, "PYTHONPATH": str(ROOT)}
    conf = {
        "spark.yarn.jars": f"local:{spark.installed_home()}/jars/*",
        "spark.yarn.stagingDir": f"file://{folder}/staging",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": 1,
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": False,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    for name, value in everywhere.items():
        conf |= {f"spark.yarn.appMasterEnv.{name}": value, f"spark.executorEnv.{name}": value}
    exports = servers.exports()
    return {
        "url": exports[which],
        "environment": {"HADOOP_CONF_DIR": exports[f"{which}_CONF"], **everywhere},
        "conf": conf,
        "settle_seconds": 10,
        "state_dir": str(folder / "jobs"),
    }


@dataclass(frozen=True)
class Ground:
    servers: Servers
    folder: Path

    @property
    def options(self) -> dict[str, Any]:
        return cluster_options(self.servers, self.folder)

    @property
    def shop(self) -> Shop:
        return Shop(self.folder, "moved")

    def spec(self, name: str, source: str | None, target: str, **job: Any) -> str:
        """The path of a spec of one job, that goes from folder to folder of this YARN."""
        submit = {
            "application": str(APPLICATION),
            "arguments": self.shop.arguments,
            "seconds_max": SECONDS_MAX,
        }
        plain: dict[str, Any] = {
            "name": "demo",
            "checkpoint_location": str(self.folder / (source or target)),
            "operators": list(OPERATORS),
            "target_cluster": "yarn",
            "submit": submit | job.pop("submit", {}),
            "waive": ["target-reach", "paths-stay"],
        }
        if source is not None:
            plain |= {"remote_location": str(self.folder / target), "source_cluster": "yarn"}
            plain |= {"stop": {"seconds_max": 60}, "source_submit": submit, "verify": "entries"}
        options = {"kind": "yarn", **self.options}
        whole = {"version": 1, "engine": "spark", "clusters": {"yarn": options}}
        more = {"restart": False} if source is None else {}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({**whole, **more, "jobs": [{**plain, **job}]}))
        return str(path)

    def said(self, *words: str | Path, code: int = 0) -> Any:
        return stateshift(*words, "--json", cwd=ROOT, code=code).json

    def started(self) -> None:
        """The job runs in the middle of a minute, with orders that are still to be paid."""
        self.shop.feed(0, 20)
        spec = self.spec("first", None, "a")
        self.said("apply", spec, "--yes", "--workdir", self.folder / "runs" / "first")
        self.until(lambda: self.committed("a"), "the job has not started")
        self.shop.feed(20, 30)

    def committed(self, name: str) -> bool:
        return len({path.parts[-3] for path in self.folder.glob(f"{name}/*/commits/[0-9]*")}) == 2

    def finished(self) -> None:
        """The rest of the input comes, and all of the output."""
        self.shop.feed(30, 40)
        self.shop.finish(40)
        self.until(lambda: self.shop.complete(40), "the results are not complete")
        assert self.shop.recognise() == self.shop.expected(40)

    def until(self, done: Any, otherwise: str) -> None:
        last = time.monotonic() + SECONDS_MAX
        while not done():
            assert time.monotonic() < last, otherwise
            time.sleep(0.5)

    def alive(self) -> list[dict[str, Any]]:
        return applications(self.servers, "states=NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING")


def applications(servers: Servers, query: str) -> list[dict[str, Any]]:
    """What the active ResourceManager has; the standby leads there."""
    url = servers.exports()["STATESHIFT_YARN_HA"].partition(",")[0]
    with urllib.request.urlopen(f"{url}/ws/v1/cluster/apps?{query}", timeout=60) as response:
        return list((json.loads(response.read())["apps"] or {}).get("app", []))


@pytest.fixture
def ground(servers: Servers, tmp_path: Path) -> Iterator[Ground]:
    made = Ground(servers, tmp_path)
    yield made
    calls = open_cluster(
        ClusterSpec("yarn", "yarn", cluster_options(servers, tmp_path)), str(tmp_path)
    ).calls  # type: ignore[attr-defined]
    for app in made.alive():
        calls.kill(app["id"])


def yarn(servers: Servers) -> Yarn:
    server = CATALOG["yarn-ha"]
    assert isinstance(server, Yarn)
    return server


@pytest.mark.slow
@pytest.mark.row("W-19", "IS-18")
def test_copied_while_it_runs_killed_and_failed_over_it_goes_on_where_it_was(
    ground: Ground,
) -> None:
    ground.started()
    there, workdir = ground.spec("there", "a", "b", mode="warm"), ground.folder / "runs" / "there"
    killed_at("halt/stop", ("apply", there, "--yes", "--workdir", str(workdir)), workdir, {})
    yarn(ground.servers).fail_over(ground.servers.place("yarn-ha"))  # in the middle of the stop
    killed_at("submit/", ("resume", str(workdir)), workdir, {})
    assert ground.said("resume", workdir)["state"] == "finished"
    assert [app["state"] for app in ground.alive()] == ["RUNNING"]
    ground.finished()


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_a_job_moves_to_a_driver_here_and_back_into_the_cluster(ground: Ground) -> None:
    ground.started()
    here = ground.spec("here", "a", "b", submit={"deploy_mode": "client"})
    report = ground.said("apply", here, "--yes", "--workdir", ground.folder / "runs" / "here")
    assert report["state"] == "finished" and report["report"]["downtime_seconds"] > 0
    ground.shop.feed(30, 35)
    back = ground.spec("back", "b", "c")
    report = ground.said("apply", back, "--yes", "--workdir", ground.folder / "runs" / "back")
    assert report["state"] == "finished"
    assert len(ground.alive()) == 1
    ground.finished()
    options = cluster_options(ground.servers, ground.folder)
    cluster = open_cluster(ClusterSpec("yarn", "yarn", options), str(ground.folder))
    request = StopRequest("demo", str(ground.folder / "c"))
    assert cluster.stop(request).state is JobState.FINISHED


@pytest.mark.slow
@pytest.mark.row("W-19", "IS-18")
def test_refused_and_failed_starts_leave_the_old_job(ground: Ground) -> None:
    ground.started()
    unknown = ground.spec("unknown", "a", "b", submit={"queue": "nope"})
    told = ground.said("apply", unknown, "--yes", "--workdir", ground.folder / "u", code=4)
    assert "YARN has no queue nope, but root.closed, root.default, root.small" in told["message"]
    closed = ground.spec("closed", "a", "b", submit={"queue": "closed"})
    told = ground.said("apply", closed, "--yes", "--workdir", ground.folder / "c", code=4)
    assert "the queue closed is stopped" in told["message"]
    assert [app["state"] for app in ground.alive()] == ["RUNNING"]
    bad = ground.folder / "bad.py"
    bad.write_text("raise SystemExit('not today')\n")
    submit = {"application": str(bad), "conf": {"spark.yarn.maxAppAttempts": 1}}
    workdir = ground.folder / "runs" / "bad"
    failing = ground.spec("bad", "a", "b", submit=submit)
    told = ground.said("apply", failing, "--yes", "--workdir", workdir, code=7)
    assert "demo failed" in told["message"] and "not today" in told["message"], told["message"]
    assert [job["state"] for job in told["report"]["jobs"]] == ["rolled-back"]
    assert len(ground.alive()) == 1  # it runs again where it was
    ground.finished()


@pytest.mark.slow
@pytest.mark.row("W-19", "IS-6", "IS-19")
def test_a_job_is_submitted_once_and_ended_with_the_attempts_that_yarn_would_make(
    servers: Servers, tmp_path: Path
) -> None:
    options = cluster_options(servers, tmp_path)
    stream = Stream("yarn", options, tmp_path, "counts", "deaf")
    id = stream.is_submitted_once()
    (note,) = (tmp_path / "state").glob("*.json")
    note.rename(note.with_suffix(".lost"))  # as if somebody else asked
    assert stream.cluster.find(stream.tag).id == id
    assert stream.cluster.submit(stream.submission) == id
    note.with_suffix(".lost").rename(note)
    elsewhere = ClusterSpec("b", "yarn", {**options, "state_dir": str(tmp_path / "elsewhere")})
    stranger = open_cluster(elsewhere, "")  # knows it by the place of its checkpoint
    assert stranger.find_source(StopRequest("other name", stream.location)).id == id
    for process in Path("/proc").glob("[0-9]*"):  # its driver fails, and YARN starts it again
        words = (process / "cmdline").read_bytes() if process.exists() else b""
        if b"deploy.yarn.ApplicationMaster" in words and str(tmp_path).encode() in words:
            os.kill(int(process.name), signal.SIGKILL)
    last = time.monotonic() + SECONDS_MAX
    while "attempt 2" not in (stream.cluster.find(stream.tag).detail or ""):
        assert time.monotonic() < last, applications(servers, "")
        time.sleep(0.5)
    stream.is_ended_without_an_answer()
    (app,) = [app for app in applications(servers, "") if app["id"] == id]
    assert app["state"] == "KILLED" and "_02_000001/" in app["amContainerLogs"]


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_a_job_that_has_no_room_says_since_when_and_what_is_free(
    servers: Servers, tmp_path: Path
) -> None:
    options = cluster_options(servers, tmp_path)
    stream = Stream("yarn", options, tmp_path, "large")
    conf = {**dict(stream.submission.options["conf"]), "spark.driver.memory": "1500m"}  # type: ignore[call-overload]
    given = {**stream.submission.options, "queue": "small", "conf": conf}
    stream.submission = replace(stream.submission, options=given)
    cluster = stream.cluster
    assert isinstance(cluster, YarnCluster)
    assert (
        "in root.small may have 307 MB more" in cluster.fitting(math.inf)(stream.submission).lacks
    )
    stream.cluster.submit(stream.submission)
    time.sleep(11)
    status = stream.cluster.find(stream.tag)
    assert status.state is JobState.QUEUED
    assert status.detail is not None
    assert status.detail.startswith("accepted since ")
    assert "the queue root.small uses 0 of the 307 MB that it may have" in status.detail
    assert "of 3072 MB" in status.detail
    assert stream.cluster.stop(stream.request(graceful_seconds=1)).state is JobState.FINISHED


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_the_room_that_is_told_is_what_yarn_gives(servers: Servers, tmp_path: Path) -> None:
    """Of 3072 MB, a driver and an executor take 896 each: 512, and 384 that Spark adds."""
    options = cluster_options(servers, tmp_path)
    stream = Stream("yarn", options, tmp_path, "first")
    cluster = stream.cluster
    assert isinstance(cluster, YarnCluster)
    assert cluster.fitting(math.inf)(stream.submission) == Fit()
    stream.begun()
    until = time.monotonic() + SECONDS_MAX
    while cluster.room().memory_free != 3072 - 2 * 896:
        assert time.monotonic() < until, cluster.room()
        time.sleep(0.5)
    conf = {**dict(stream.submission.options["conf"]), "spark.executor.instances": 2}  # type: ignore[call-overload]
    more = replace(stream.submission, options={**stream.submission.options, "conf": conf})
    lacks = cluster.fitting(math.inf)(more).lacks
    assert "it has room for 1 of the 3 containers" in lacks
    assert "the most that is free on one node is 1.2 GiB" in lacks
    (tmp_path / "b").mkdir()
    second = Stream("yarn", options, tmp_path / "b", "second")
    assert cluster.fitting(math.inf)(second.submission).lacks  # a driver has room, and no executor
    second.cluster.submit(second.submission)
    time.sleep(30)
    assert not second.committed
    assert cluster.room().memory_free == 3072 - 3 * 896, "which is what YARN did"
    assert stream.cluster.stop(stream.request(graceful_seconds=1)).state is JobState.FINISHED
    until = time.monotonic() + SECONDS_MAX
    while not second.committed:
        assert time.monotonic() < until, second.cluster.log(second.tag)
        time.sleep(0.5)
    assert second.cluster.stop(second.request(graceful_seconds=1)).state is JobState.FINISHED
    until = time.monotonic() + SECONDS_MAX
    while cluster.room().memory_free != 3072:
        assert time.monotonic() < until, cluster.room()
        time.sleep(0.5)
    large = {**conf, "spark.executor.memory": "4g"}  # 4096 and a tenth, rounded up to 128
    whole = replace(more, options={**more.options, "conf": large})
    lacks = cluster.fitting(math.inf)(whole).lacks
    assert lacks == "a container of 4608 MB is larger than root.default gives to one, 3072 MB"
    small = replace(more, options={**more.options, "queue": "small"})
    assert (
        "root.small may have 307 MB more, and it needs 2688"
        in cluster.fitting(math.inf)(small).lacks
    )
