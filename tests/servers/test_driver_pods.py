"""A real spark-submit makes the pods of drivers at an API server that is played (`fake_kubernetes`):
the API server of these tests has none. Each pod is run as a real Spark of this machine, by what
spark-submit wrote into pod and config map. Jobs move, and what comes out is what an unmoved job
would have written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.noted import digest
from stateshift.clusters.protocol import JobState, Submission
from stateshift.specification.model import ClusterSpec
from tests.acceptance.shop import APPLICATION, OPERATORS, Shop
from tests.acceptance.support import ROOT, stateshift
from tests.clusters import faulty_server
from tests.clusters.fake_kubernetes import TOKEN, FakeKubernetes
from tests.support.moving import killed_at
from tests.support.servers import spark

pytestmark = [pytest.mark.servers, pytest.mark.spark]
SHOWN_ON = "Spark's spark-submit, played API server"
SECONDS_MAX = 150.0


@dataclass
class Pods(FakeKubernetes):
    """The drivers are processes of this machine, each begun once its config map is there."""

    folder: Path = Path(os.devnull)
    arguments: list[str] = field(default_factory=list)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)  # what else spark-submit has made, by its kind
    runs_pods: bool = True

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        if method != "PATCH":
            return super().answer(method, path, query, body)
        with self.lock:
            self.made.append(body["kind"])
            if body["kind"] == "ConfigMap" and self.runs_pods:
                pod = body["metadata"]["ownerReferences"][0]["name"]
                self._begin(pod, body["data"]["spark.properties"])
        return 200, body

    def _begin(self, pod: str, properties: str) -> None:
        words = self.drivers[pod]["spec"]["containers"][0]["args"]
        home = spark.installed_home()
        command = [f"{home}/bin/spark-submit", "--master", "local[2]", "--driver-memory", "512m"]
        for line in properties.splitlines():
            key, _, value = line.partition("=")
            if key.startswith("spark.stateshift."):
                command += ["--conf", f"{key}={value.replace(chr(92), '')}"]
        at = next(at for at, word in enumerate(words) if word.startswith("local:"))
        variables = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
        variables["PYSPARK_PYTHON"] = spark.python_of(home)
        with (self.folder / f"{pod}.log").open("ab") as log:
            self.processes[pod] = subprocess.Popen(
                [*command, words[at].removeprefix("local://"), *words[at + 1 :]],
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def turn(self) -> None:
        """The kubelet: phases of pods are those of their processes."""
        for pod, process in self.processes.items():
            code, plain = process.poll(), self.drivers.get(pod)
            if plain is not None and code is None:
                plain["status"]["phase"] = "Running"
            elif plain is not None:
                plain["status"]["phase"] = "Failed" if code else "Succeeded"
                if "deletionTimestamp" in plain["metadata"]:
                    del self.drivers[pod]

    def delete(self, pod: str) -> None:
        self.drivers[pod]["metadata"]["deletionTimestamp"] = "now"
        if self.processes[pod].poll() is None:
            os.killpg(self.processes[pod].pid, signal.SIGTERM)

    @property
    def running(self) -> list[str]:
        return [pod for pod, process in self.processes.items() if process.poll() is None]


@dataclass
class Ground:
    pods: Pods
    folder: Path

    @property
    def shop(self) -> Shop:
        return Shop(self.folder, "moved")

    @property
    def options(self) -> dict[str, Any]:
        return {
            "master": f"k8s://{self.pods.url}",
            "deploy_mode": "cluster",
            "spark_submit": f"{spark.installed_home()}/bin/spark-submit",
            "conf": {
                "spark.kubernetes.namespace": "shop",
                "spark.kubernetes.container.image": "spark:4",
            },
            "environment": {"KUBECONFIG": self.pods.kubeconfig(self.folder / "access")},
            "settle_seconds": 5,
            "state_dir": str(self.folder / "jobs"),
        }

    def spec(self, name: str, source: str | None, target: str, **job: Any) -> str:
        plain: dict[str, Any] = {
            "name": "demo",
            "checkpoint_location": str(self.folder / (source or target)),
            "operators": list(OPERATORS),
            "target_cluster": "eks",
            "submit": {
                "application": f"local://{APPLICATION}",
                "arguments": self.shop.arguments,
                "seconds_max": SECONDS_MAX,
            },
            "waive": ["target-reach", "paths-stay"],
        }
        if source is not None:
            plain |= {
                "remote_location": str(self.folder / target),
                "source_cluster": "eks",
                "stop": {"seconds_max": 60},
                "verify": "entries",
            }
        clusters = {"eks": {"kind": "spark_submit", **self.options}}
        whole = {"version": 1, "engine": "spark", "clusters": clusters, "jobs": [{**plain, **job}]}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({**whole, **({"restart": False} if source is None else {})}))
        return str(path)

    def said(self, *words: str | Path) -> Any:
        return stateshift(*words, "--json", cwd=ROOT, code=0).json

    def started(self) -> None:
        """The job runs in the middle of a minute, with orders that are still to be paid."""
        self.shop.feed(0, 20)
        spec = self.spec("first", None, "a")
        self.said("apply", spec, "--yes", "--workdir", self.folder / "runs" / "first")
        self.until(lambda: len(list(self.folder.glob("a/*/commits/[0-9]*"))) >= 2, "no start")
        self.shop.feed(20, 30)

    def finished(self) -> None:
        """The rest of the input comes, and all of the output."""
        self.shop.feed(30, 40)
        self.shop.finish(40)
        self.until(lambda: self.shop.complete(40), "the results are not complete")
        assert self.shop.recognise() == self.shop.expected(40)

    def until(self, done: Callable[[], object], otherwise: str) -> None:
        last = time.monotonic() + SECONDS_MAX
        while not done():
            assert time.monotonic() < last, otherwise
            time.sleep(0.5)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    pods = Pods(folder=tmp_path, phase="Pending")
    with faulty_server.serving(pods):
        yield Ground(pods, tmp_path)
    for process in pods.processes.values():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.row("W-19")
def test_the_pod_that_spark_submit_makes_is_ours_and_is_made_once(ground: Ground) -> None:
    """`fake_pod_submit.py` of tests/clusters makes such pods."""
    pods, tag = ground.pods, "run-1: any / text"
    pods.runs_pods = False
    cluster = open_cluster(ClusterSpec("eks", "spark_submit", ground.options), str(ground.folder))
    submission = Submission(
        tag,
        "Orders 42_x",
        "s3a://state/orders",
        options={"application": "local:///opt/orders.py", "arguments": ["{checkpoint}"]},
        environment={"MODE": "new"},
    )
    id = cluster.submit(submission)
    (pod,) = pods.drivers.values()
    labels, (container,) = pod["metadata"]["labels"], pod["spec"]["containers"]
    assert pod["metadata"]["name"] == id == f"orders-42-x-{digest(tag)[:24]}-driver"
    assert labels["stateshift/tag"] == digest(tag)
    assert (labels["spark-role"], labels["spark-app-name"]) == ("driver", "orders-42-x")
    assert (container["name"], pod["spec"]["restartPolicy"]) == ("spark-kubernetes-driver", "Never")
    assert container["args"][-2:] == ["local:///opt/orders.py", "s3a://state/orders"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["MODE"] == "new" and "PYSPARK_PYTHON" not in variables
    assert set(pods.asked) == {("", "pods", "create"), ("", "pods", "list")}
    assert cluster.find(tag).state is JobState.QUEUED
    ground.until(lambda: "Deployed Spark application" in launcher_of(ground), "no end")
    assert set(pods.made) == {"Service", "NetworkPolicy", "ConfigMap"}, "after the pod"
    assert TOKEN not in launcher_of(ground)

    elsewhere = {**ground.options, "state_dir": str(ground.folder / "elsewhere")}
    other = open_cluster(ClusterSpec("eks", "spark_submit", elsewhere), str(ground.folder))
    assert other.submit(submission) == id
    labels.pop("stateshift/tag")  # not found, it is refused by its name
    third = {**ground.options, "state_dir": str(ground.folder / "third")}
    other = open_cluster(ClusterSpec("eks", "spark_submit", third), str(ground.folder))
    other.submit(submission)
    assert other.find(tag).state is JobState.FAILED
    assert f'pods "{id}" already exists' in other.log(tag, 400)

    pods.quota = True
    other.submit(Submission("run-2", "demo", "s3a://x", options=submission.options))
    failure = other.failure("run-2")
    assert failure is not None and failure.fact.endswith("requested: pods=1, used: 3")
    assert len(pods.drivers) == 1


def launcher_of(ground: Ground) -> str:
    (log,) = (ground.folder / "jobs").glob("*.log")
    return log.read_text()


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_killed_at_every_step_one_job_goes_on(ground: Ground) -> None:
    ground.started()
    (old,) = ground.pods.running
    workdir = ground.folder / "runs" / "there"
    words = ("apply", ground.spec("there", "a", "b"), "--yes", "--workdir", str(workdir))
    killed_at("halt/stop", words, workdir, {})
    for step in ("copy/", "submit/", "confirm/"):
        killed_at(step, ("resume", str(workdir)), workdir, {})
    assert ground.said("resume", workdir)["state"] == "finished"
    (new,) = ground.pods.running
    assert new != old and len(ground.pods.processes) == 2
    ground.finished()


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_taken_back_the_old_job_runs_again(ground: Ground) -> None:
    ground.started()
    workdir = ground.folder / "runs" / "there"
    words = ("apply", ground.spec("there", "a", "b"), "--yes", "--workdir", str(workdir))
    killed_at("confirm/", words, workdir, {})
    taken_back = ground.said("rollback", workdir, "--yes", "--discard-progress")
    assert taken_back["state"] == "rolled-back"
    (again,) = ground.pods.running
    said = str(ground.pods.processes[again].args)
    assert f"{ground.folder / 'a'}'" in said and f"{ground.folder / 'b'}'" not in said
    ground.finished()
