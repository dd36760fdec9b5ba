"""Kubernetes' own API server admits, refuses and keeps SparkApplications, by the operator's own
definition; a scripted operator (it is not kubeflow's) runs each as a real Spark of this machine.
Pods, their logs and events are played by what stands in front of the API server, which has none.
Jobs move between the namespaces, and between two API servers, and what comes out is what an unmoved
job would have written.
"""

from __future__ import annotations

import json
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from stateshift.clusters.kubernetes.calls import NEEDS
from stateshift.clusters.kubernetes.spark_operator import SparkOperator
from stateshift.clusters.protocol import StopRequest, Submission
from stateshift.errors import ClusterError
from tests.acceptance.shop import APPLICATION, OPERATORS, Shop
from tests.acceptance.support import ROOT, stateshift
from tests.conftest import SEED
from tests.support.listening import listening
from tests.support.moving import killed_at
from tests.support.scripted_spark_operator import Failed, reconciled
from tests.support.servers import Place, Servers, group, kubernetes, spark

pytestmark = [pytest.mark.servers, pytest.mark.spark]
SHOWN_ON = "Spark, Kubernetes' API server, scripted operator"
NAMESPACES = ("east", "west")
API = "/apis/sparkoperator.k8s.io/v1beta2/namespaces"
SECONDS_MAX = 150.0
MOVES = 6  # three each way
RIGHTS = [
    {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    for (group, resource), verbs in NEEDS.items()
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("k8s"), "kubernetes") as servers:
        yield servers


@dataclass
class Drivers:
    """The drivers of one namespace: processes of this machine, each with its log."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ending: set[str] = field(default_factory=set)

    def submit(self, pod: str, plain: dict[str, Any]) -> None:
        spec, home = plain["spec"], spark.installed_home()
        application = spec["mainApplicationFile"].removeprefix("local://")
        if not Path(application).is_file():
            raise Failed(f"there is no {application}")
        conf = {"spark.ui.enabled": "false", **spec.get("sparkConf", {})}
        words = [f"{home}/bin/spark-submit", "--master", "local[2]", "--driver-memory", "512m"]
        for key, value in conf.items():
            words += ["--conf", f"{key}={value}"]
        variables = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
        variables["PYSPARK_PYTHON"] = spark.python_of(home)
        with (self.folder / f"{pod}.log").open("ab") as log:
            self.processes[pod] = subprocess.Popen(
                [*words, application, *spec.get("arguments", ())],
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def phase_of(self, pod: str) -> str | None:
        if pod not in self.processes:
            return None
        code = self.processes[pod].poll()
        if code is None:
            return "Running"
        if pod in self.ending:
            self.ending.remove(pod)
            del self.processes[pod]
            return None
        return "Failed" if code else "Succeeded"

    def delete(self, pod: str) -> None:
        if pod in self.processes:
            self.ending.add(pod)
            with_children(self.processes[pod], signal.SIGTERM)

    @property
    def running(self) -> list[str]:
        return [pod for pod in self.processes if self.phase_of(pod) == "Running"]

    def seen(self, path: list[str]) -> tuple[int, Any]:
        """A pod, or its log; there are no events, and no quotas."""
        if len(path) == 1:
            return 200, {"kind": "List", "metadata": {}, "items": []}
        phase = self.phase_of(path[1])
        if phase is None:
            return 404, {"kind": "Status", "reason": "NotFound", "code": 404, "message": "no pod"}
        if path[2:]:
            return 200, (self.folder / f"{path[1]}.log").read_text("utf-8", "replace")
        return 200, {"metadata": {"name": path[1]}, "status": {"phase": phase}}


def with_children(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


@dataclass
class Ground:
    """Each namespace has an API server; both have the same unless `second` is named."""

    servers: Servers
    folder: Path
    second: Servers | None = None
    urls: dict[str, str] = field(default_factory=dict)
    drivers: dict[str, Drivers] = field(default_factory=dict)

    def place(self, namespace: str = "east") -> Place:
        servers = self.second if namespace == "west" and self.second else self.servers
        return servers.place("kubernetes")

    @property
    def requests(self) -> int:
        places = map(self.place, NAMESPACES)
        return sum(kubernetes.requests(place, "sparkoperator.k8s.io") for place in places)

    @property
    def shop(self) -> Shop:
        return Shop(self.folder, "moved")

    def asks(self, namespace: str, name: str, method: str = "GET", body: Any = None) -> Any:
        path = f"{API}/{namespace}/sparkapplications{name and '/' + name}"
        return kubernetes.ask(self.place(namespace), path, method, body)

    def options(self, namespace: str) -> dict[str, Any]:
        plain = kubernetes.kubeconfig(self.place(namespace), "us")
        plain["clusters"][0]["cluster"] = {"server": self.urls[namespace]}
        path = self.folder / f"kubeconfig-{namespace}"
        path.write_text(json.dumps(plain))
        return {
            "kubeconfig": str(path),
            "namespace": namespace,
            "settle_seconds": 5,
            "state_dir": str(self.folder / "jobs" / namespace),
        }

    def manifest(self, **spec: Any) -> str:
        whole = {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": "4.0.0",
            "mainApplicationFile": f"local://{APPLICATION}",
            "arguments": self.shop.arguments,
            "restartPolicy": {"type": "Always", "onFailureRetryInterval": 1},
            "driver": {"cores": 1},
            "executor": {"instances": 1},
            **spec,
        }
        plain = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}
        path = self.folder / "demo.yaml"
        path.write_text(json.dumps({**plain, "metadata": {"name": "demo"}, "spec": whole}))
        return str(path)

    def spec(self, name: str, source: str | None, target: str, **job: Any) -> str:
        """The path of a spec of one job: `east:a` is the folder a, read by a job in east."""
        cluster, _, folder = target.partition(":")
        plain: dict[str, Any] = {
            "name": "demo",
            "checkpoint_location": str(self.folder / folder),
            "operators": list(OPERATORS),
            "target_cluster": cluster,
            "submit": {"manifest": self.manifest(), "seconds_max": SECONDS_MAX},
            "waive": ["target-reach", "paths-stay"],
        }
        if source is not None:
            old, _, before = source.partition(":")
            plain |= {
                "checkpoint_location": str(self.folder / before),
                "remote_location": str(self.folder / folder),
                "source_cluster": old,
                "stop": {"seconds_max": 60},
                "verify": "entries",
            }
            like = {"namespace": old, "resource": "demo"}
            if self.second is not None:
                like["kubeconfig"] = self.options(old)["kubeconfig"]
            plain["submit"] = {"like": like, "seconds_max": SECONDS_MAX}
        clusters = {name: {"kind": "spark_operator", **self.options(name)} for name in NAMESPACES}
        whole = {"version": 1, "engine": "spark", "clusters": clusters, "jobs": [{**plain, **job}]}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({**whole, **({"restart": False} if source is None else {})}))
        return str(path)

    def said(self, *words: str | Path, code: int = 0) -> Any:
        return stateshift(*words, "--json", cwd=ROOT, code=code).json

    def applied(self, name: str, source: str | None, target: str) -> Any:
        spec = self.spec(name, source, target)
        return self.said("apply", spec, "--yes", "--workdir", self.folder / "runs" / name)

    def started(self) -> None:
        """The job runs in the middle of a minute, with orders that are still to be paid."""
        self.shop.feed(0, 20)
        self.applied("first", None, "east:a")
        self.until(lambda: self.committed("a"), "the job has not started")
        self.shop.feed(20, 30)

    def committed(self, name: str) -> bool:
        return len({path.parts[-3] for path in self.folder.glob(f"{name}/*/commits/[0-9]*")}) == 2

    def finished(self, fed: int = 30) -> None:
        """The rest of the input comes, and all of the output."""
        self.shop.feed(fed, fed + 10)
        self.shop.finish(fed + 10)
        self.until(lambda: self.shop.complete(fed + 10), "the results are not complete")
        assert self.shop.recognise() == self.shop.expected(fed + 10)

    def until(self, done: Callable[[], object], otherwise: str) -> None:
        last = time.monotonic() + SECONDS_MAX
        while not done():
            assert time.monotonic() < last, otherwise
            time.sleep(0.5)

    @property
    def running(self) -> dict[str, int]:
        return {name: len(drivers.running) for name, drivers in self.drivers.items()}


@contextmanager
def fronting(ground: Ground, namespace: str) -> Iterator[None]:
    """Requests go to the API server as they come, but for those of pods and events."""
    place = ground.place(namespace)
    authority = str(place.folder / "conf" / "apiserver.crt")
    context = ssl.create_default_context(cafile=authority)
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    behind = urllib.request.build_opener(*handlers)
    server = f"https://{kubernetes.HOST}:{place.ports['api']}"

    class Front(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0].strip("/").split("/")
            if path[:3] == ["api", "v1", "namespaces"]:
                status, answer = ground.drivers[path[3]].seen(path[4:])
                said = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            else:
                kept = {
                    key: self.headers[key]
                    for key in ("Authorization", "Content-Type")
                    if self.headers[key]
                }
                request = urllib.request.Request(
                    server + self.path, content or None, kept, method=self.command
                )
                try:
                    with behind.open(request, timeout=30) as response:
                        status, said = response.status, response.read()
                except HTTPError as error:
                    status, said = error.code, error.read()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = handle_any

        def log_message(self, *_: object) -> None:
            """Quietly."""

    with listening(Front) as address:
        ground.urls[namespace] = f"http://{address}"
        yield


@contextmanager
def operating(ground: Ground) -> Iterator[None]:
    over = threading.Event()
    known: dict[str, Any] = {}

    def turn() -> None:
        for namespace, drivers in ground.drivers.items():
            for plain in ground.asks(namespace, "")["items"]:
                uid, spec = plain["metadata"]["uid"], plain["spec"]
                status = reconciled(plain, known.get(uid), drivers)
                known[uid] = spec
                if status != plain.get("status"):
                    name = f"{plain['metadata']['name']}/status"
                    ground.asks(namespace, name, "PATCH", {"status": status})

    def turns() -> None:
        while not over.wait(0.2):
            try:
                turn()
            except HTTPError as error:
                if error.code != 429:  # just after a definition has come
                    print(error.read().decode(), file=sys.stderr)
                    raise

    thread = threading.Thread(target=turns)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.fixture
def ground(servers: Servers, tmp_path: Path) -> Iterator[Ground]:
    with grounded(Ground(servers, tmp_path)) as made:
        yield made


@contextmanager
def grounded(made: Ground) -> Iterator[Ground]:
    for namespace in NAMESPACES:
        logs = made.folder / "logs" / namespace
        logs.mkdir(parents=True)
        made.drivers[namespace] = Drivers(logs)
        kubernetes.allow(made.place(namespace), RIGHTS)
    with fronting(made, "east"), fronting(made, "west"), operating(made):
        yield made
    for namespace, drivers in made.drivers.items():
        for process in drivers.processes.values():
            with_children(process, signal.SIGKILL)
            process.wait()
        for plain in made.asks(namespace, "")["items"]:
            made.asks(namespace, plain["metadata"]["name"], "DELETE")


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_a_job_moves_to_another_namespace_and_back_and_its_output_is_the_same(
    ground: Ground,
) -> None:
    ground.started()
    assert ground.applied("there", "east:a", "west:b")["state"] == "finished"
    assert ground.running == {"east": 0, "west": 1}
    old = ground.asks("east", "demo")
    assert (old["spec"]["suspend"], old["status"]["applicationState"]["state"]) == (
        True,
        "SUSPENDED",
    )
    ground.shop.feed(30, 35)
    assert ground.applied("back", "west:b", "east:c")["state"] == "finished"
    assert ground.running == {"east": 1, "west": 0}
    assert ground.asks("east", "demo")["spec"]["restartPolicy"]["type"] == "Always"
    ground.finished()


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_killed_at_every_step_one_job_goes_on(ground: Ground) -> None:
    ground.started()
    workdir = ground.folder / "runs" / "there"
    words = ("apply", ground.spec("there", "east:a", "west:b"), "--yes", "--workdir", str(workdir))
    killed_at("halt/stop", words, workdir, {})
    for step in ("copy/", "submit/", "confirm/"):
        killed_at(step, ("resume", str(workdir)), workdir, {})
    assert ground.said("resume", workdir)["state"] == "finished"
    assert ground.running == {"east": 0, "west": 1}
    ground.finished()


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_taken_back_the_old_job_runs_again_as_it_was(ground: Ground) -> None:
    ground.started()
    before = ground.asks("east", "demo")["spec"]
    workdir = ground.folder / "runs" / "there"
    words = ("apply", ground.spec("there", "east:a", "west:b"), "--yes", "--workdir", str(workdir))
    killed_at("confirm/", words, workdir, {})
    taken_back = ground.said("rollback", workdir, "--yes", "--discard-progress")
    assert taken_back["state"] == "rolled-back"
    assert ground.running == {"east": 1, "west": 0}
    after = ground.asks("east", "demo")["spec"]
    assert {**after, "sparkConf": 0} == {**before, "sparkConf": 0}
    ground.finished()


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_the_api_servers_own_refusals_are_told(ground: Ground) -> None:
    west = SparkOperator("west", ground.folder / "state", ground.options("west"))

    def refusal(**spec: Any) -> str:
        options = {"manifest": ground.manifest(**spec)}
        trial = west.try_start(Submission("t", "demo", "file:///x", options=options))
        return f"{trial.refused} {trial.hint}"

    assert refusal() == " None"
    assert 'spec.restartPolicy.type: Unsupported value: "Often"' in refusal(
        restartPolicy={"type": "Often"}
    )
    assert 'unknown field "spec.imagee"' in refusal(imagee="spark:4")
    kubernetes.allow(ground.place(), RIGHTS[:3])
    assert 'needs "get" of sparkapplications (sparkoperator.k8s.io) in the namespace' in refusal()
    with pytest.raises(ClusterError, match='User "us" cannot list resource "sparkapplications"'):
        west.find_source(StopRequest("demo", "file:///x"))


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_moves_between_two_api_servers_lose_nothing_and_grow_nowhere(
    servers: Servers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance, requests, seconds, sizes = random.Random(SEED), [], [], []
    steps = ("halt/stop", "copy/", "submit/", "confirm/")
    with (
        group(tmp_path_factory.mktemp("second"), "kubernetes") as second,
        grounded(Ground(servers, tmp_path, second)) as ground,
    ):
        ground.started()
        for number in range(MOVES):
            old, new = NAMESPACES if number % 2 == 0 else NAMESPACES[::-1]
            before = f"m{number - 1}" if number else "a"
            spec = ground.spec(f"move-{number}", f"{old}:{before}", f"{new}:m{number}")
            workdir = str(tmp_path / "runs" / f"{number}")
            words = ("apply", spec, "--yes", "--workdir", workdir)
            asked, began = ground.requests, time.monotonic()
            if number % 3 == 2:
                killed_at(chance.choice(steps), words, Path(workdir), {})
                assert ground.said("resume", workdir)["state"] == "finished"
            else:
                assert ground.said(*words)["state"] == "finished"
                requests.append(ground.requests - asked)
                seconds.append(round(time.monotonic() - began, 1))
            assert ground.running == {old: 0, new: 1}, f"after move {number}"
            assert len(ground.asks(old, "")["items"]) == 1, "nothing else is left"
            sizes.append(len(json.dumps(ground.asks(new, "demo"))))
            ground.shop.feed(30 + number, 31 + number)
        ground.finished(30 + MOVES)
    print(f"requests {requests}, seconds {seconds}, bytes {sizes}")
    assert requests[-1] <= 2 * requests[0]
    assert max(sizes[4:]) <= max(sizes[2:4]) + 200, "a history of moves would be longer"
