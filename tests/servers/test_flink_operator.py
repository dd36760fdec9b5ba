"""Kubernetes' own API server admits, refuses and keeps the resources; a scripted operator (it is not
Flink's) runs their jobs on real Flinks, one for each namespace. Jobs move between the namespaces,
and between two API servers, and what comes out is what an unmoved job would have written.
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.error import HTTPError

import pytest

from stateshift.clusters.kubernetes.calls import NEEDS
from stateshift.clusters.kubernetes.flink_operator import FlinkOperator
from stateshift.clusters.protocol import JobState, StopRequest, Submission
from stateshift.errors import ClusterError
from tests.conftest import SEED
from tests.servers.flink_ground import Ground
from tests.support.flink import Cluster, cluster_of, jar, until
from tests.support.moving import killed_at
from tests.support.scripted_operator import reconciled
from tests.support.servers import Place, Servers, group, kubernetes

pytestmark = pytest.mark.servers
SHOWN_ON = "Flink, Kubernetes' API server, scripted operator"
NAMESPACES = {"east": "flink-a", "west": "flink-b"}
API = "/apis/flink.apache.org/v1beta1/namespaces"
RIGHTS = [
    {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    for (group, resource), verbs in NEEDS.items()
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("k8s"), "kubernetes", "flink-a", "flink-b") as servers:
        yield servers


@dataclass
class RealFlink:
    """The jobs of one namespace, on a real session cluster; `taken` is where savepoints go."""

    cluster: Cluster
    taken: Path

    def start(self, plain: dict[str, Any], savepoint: str | None) -> str:
        job = plain["spec"]["job"]
        body = {
            "entryClass": job["entryClass"],
            "programArgsList": job["args"],
            "parallelism": job["parallelism"],
            "savepointPath": savepoint,
        }
        id = self.cluster.upload(Path(job["jarURI"].removeprefix("local://")))
        return str(self.cluster.ask(f"/jars/{id}/run", body)["jobid"])

    def stop_with_savepoint(self, id: str, plain: dict[str, Any]) -> str | None:
        """Waits for it, as the operator does."""
        trigger = uuid.uuid4().hex
        body = {"targetDirectory": str(self.taken), "triggerId": trigger}
        self.cluster.ask(f"/jobs/{id}/stop", body)

        def told() -> Any:
            answer = self.cluster.ask(f"/jobs/{id}/savepoints/{trigger}")
            return answer if answer["status"]["id"] == "COMPLETED" else None

        location = until(told)["operation"]["location"]
        self.cluster.ended(id, "FINISHED")
        return str(location)

    def cancel(self, id: str) -> None:
        self.cluster.cancelled(id)

    def state(self, id: str) -> str:
        return self.cluster.state(id)


@dataclass(frozen=True)
class OperatedGround(Ground):
    """`stop` ends the operator, which goes round every so often. Each namespace has an API server;
    both have the same unless `second` is named.
    """

    second: Servers | None = None

    @property
    def place(self) -> Place:
        return self.place_of("east")

    def place_of(self, namespace: str) -> Place:
        servers = self.second if namespace == "west" and self.second else self.servers
        return servers.place("kubernetes")

    def started(self, counters: str, *words: str, parallelism: int = 2) -> str:
        spec = {
            "image": "flink:2.3",
            "flinkVersion": "v2_3",
            "flinkConfiguration": {
                "execution.checkpointing.savepoint-dir": f"file://{self.folder / 'taken'}"
            },
            "job": {
                "jarURI": f"local://{jar(self.here.lib)}",
                "entryClass": "jobs.Count",
                "args": [*self.arguments(counters), *words],
                "parallelism": parallelism,
                "state": "running",
                "upgradeMode": "savepoint",
            },
        }
        body = {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "spec": spec}
        body["metadata"] = {"name": counters}
        self.asks("east", "", "POST", body)
        until(lambda: len(self.written(counters)) > 100)
        return counters

    def asks(self, namespace: str, name: str, method: str = "GET", body: Any = None) -> Any:
        path = f"{API}/{namespace}/flinkdeployments{name and '/' + name}"
        return kubernetes.ask(self.place_of(namespace), path, method, body)

    def options(self, namespace: str, config: str = "us") -> dict[str, Any]:
        return {
            "kubeconfig": str(self.place.folder / "conf" / f"{config}.kubeconfig"),
            "namespace": namespace,
            "rest_url": cluster_of(self.servers, NAMESPACES[namespace]).url,
            "settle_seconds": 5,
        }

    def opened(self, namespace: str, **more: Any) -> FlinkOperator:
        return FlinkOperator("k8s", self.folder / "state", {**self.options(namespace), **more})

    def spec(self, *jobs: dict[str, Any], **beside: Any) -> Path:
        clusters = {name: {"kind": "flink_operator", **self.options(name)} for name in NAMESPACES}
        plain = {"version": 1, "engine": "flink", "clusters": clusters, "jobs": list(jobs)}
        path = self.folder / f"spec-{len(list(self.folder.glob('spec-*')))}.json"
        path.write_text(json.dumps({**plain, **beside}))
        return path

    def move(self, source: str, target: str, number: int = 1, **submit: Any) -> Path:
        like = {"namespace": source, "resource": "orders"}
        return self.spec(
            {
                "name": "orders",
                "job_ids": ["orders"],
                "source_cluster": source,
                "target_cluster": target,
                "target_directory": str(self.folder / "taken"),
                "new_savepoint_path": str(self.folder / f"new-{number}"),
                "submit": {"like": like, "seconds_max": 90, **submit},
            }
        )


@contextmanager
def operating(ground: OperatedGround) -> Iterator[None]:
    over = threading.Event()
    flinks = {
        namespace: RealFlink(cluster_of(ground.servers, name), ground.folder / "taken")
        for namespace, name in NAMESPACES.items()
    }

    def turn() -> None:
        for namespace, flink in flinks.items():
            for plain in ground.asks(namespace, "")["items"]:
                status, known = reconciled(plain, flink), plain.get("status") or {}
                if status != known:
                    gone = dict.fromkeys(known.keys() - status.keys())
                    name = f"{plain['metadata']['name']}/status"
                    ground.asks(namespace, name, "PATCH", {"status": {**gone, **status}})

    def turns() -> None:
        while not over.wait(0.2):
            try:
                turn()
            except HTTPError as error:
                if error.code != 429:  # just after a definition has come
                    raise

    thread = threading.Thread(target=turns)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.fixture
def ground(servers: Servers, tmp_path: Path) -> Iterator[OperatedGround]:
    made = OperatedGround(servers, tmp_path)
    with operated(made):
        yield made


@contextmanager
def operated(made: OperatedGround) -> Iterator[None]:
    for namespace in NAMESPACES:
        kubernetes.allow(made.place_of(namespace), RIGHTS)
    with operating(made):
        yield
    made.cleared()
    for namespace in NAMESPACES:
        for plain in made.asks(namespace, "")["items"]:
            made.asks(namespace, plain["metadata"]["name"], "DELETE")


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_a_job_moves_to_another_namespace_and_back_and_nothing_is_lost(
    ground: OperatedGround,
) -> None:
    ground.started("orders")
    report = ground.applied(ground.move("east", "west"))
    assert report["state"] == "finished"
    (running,) = ground.there.running()
    assert (running["name"], ground.here.running()) == ("orders", [])
    assert ground.asks("east", "orders")["status"]["lifecycleState"] == "SUSPENDED"
    back = ground.move("west", "east", 2)
    words = ("apply", back, "--yes", "--workdir", ground.folder / "runs" / "back")
    assert ground.said(*words)["state"] == "finished"
    assert ground.there.running() == []
    assert ground.asks("east", "orders")["spec"]["job"]["savepointRedeployNonce"] == 1
    ground.goes_on("orders")


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_killed_at_every_step_one_job_goes_on(ground: OperatedGround) -> None:
    ground.started("orders")
    spec, workdir = ground.move("east", "west"), ground.workdir
    killed_at("halt/", ("apply", str(spec), "--yes", "--workdir", str(workdir)), workdir, {})
    for step in ("copy/", "publish/", "submit/", "confirm/"):
        killed_at(step, ("resume", str(workdir)), workdir, {})
    assert ground.said("resume", workdir)["state"] == "finished"
    assert (len(ground.here.running()), len(ground.there.running())) == (0, 1)
    ground.goes_on("orders")


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_taken_back_the_old_job_goes_on_from_its_savepoint(ground: OperatedGround) -> None:
    ground.started("orders")
    spec, workdir = ground.move("east", "west"), ground.workdir
    killed_at("confirm/", ("apply", str(spec), "--yes", "--workdir", str(workdir)), workdir, {})
    words = ("rollback", workdir, "--yes", "--discard-progress")
    assert ground.said(*words)["state"] == "rolled-back"
    assert (len(ground.here.running()), len(ground.there.running())) == (1, 0)
    ground.goes_on("orders", twice=True)  # what the new job did is done again


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_the_api_servers_own_refusals_leave_the_old_job_running(ground: OperatedGround) -> None:
    ground.started("orders")
    new = ground.opened("west")
    like = {"namespace": "east", "resource": "orders"}

    def refusal(**options: Any) -> str:
        given = {"like": like, **options}
        trial = new.try_start(Submission("t", "orders", "file:///x", options=given))
        return f"{trial.refused} {trial.hint}"

    assert refusal() == " None"
    source = ground.asks("east", "orders")
    other = ground.folder / "other.yaml"
    del source["metadata"]["namespace"]
    source["spec"]["job"]["upgradeMode"] = "hot"
    other.write_text(json.dumps(source))
    assert 'spec.job.upgradeMode: Unsupported value: "hot"' in refusal(manifest=str(other))
    source["spec"]["job"]["upgradeMode"], source["spec"]["jobb"] = "savepoint", {}
    other.write_text(json.dumps(source))
    assert 'unknown field "spec.jobb"' in refusal(manifest=str(other))
    kubernetes.allow(ground.place, [rule for rule in RIGHTS if "services" not in str(rule)][1:])
    assert 'needs "get" of flinkdeployments (flink.apache.org) in the namespace' in refusal()
    kubernetes.allow(ground.place, [])
    with pytest.raises(ClusterError, match='User "us" cannot get resource "flinkdeployments"'):
        ground.opened("east").find_source(StopRequest("orders", ""))
    assert len(ground.here.running()) == 1


@pytest.mark.slow
def test_a_client_certificate_says_who_we_are_and_a_wrong_token_is_told(
    ground: OperatedGround,
) -> None:
    ground.started("orders")
    conf, request = ground.place.folder / "conf", StopRequest("orders", "")
    plain = kubernetes.kubeconfig(ground.place, "us")

    def seen(**user: str) -> JobState:
        plain["users"][0]["user"] = user
        (ground.folder / "config").write_text(json.dumps(plain))
        cluster = ground.opened("east", kubeconfig=str(ground.folder / "config"))
        return cluster.find_source(request).state

    files = {"client-certificate": str(conf / "us.crt"), "client-key": str(conf / "us.key")}
    assert seen(**files) is JobState.RUNNING
    with pytest.raises(ClusterError, match="Unauthorized"):
        seen(token="of nobody")
    del plain["clusters"][0]["cluster"]["certificate-authority-data"]
    with pytest.raises(ClusterError, match="certificate that is not trusted"):
        seen(**files)


@dataclass(frozen=True)
class BetweenServers(OperatedGround):
    """Two API servers, each with its own certificate and token, in the contexts of one kubeconfig;
    namespace and resource have the same names on both.
    """

    def asks(self, namespace: str, name: str, method: str = "GET", body: Any = None) -> Any:
        path = f"{API}/shop/flinkdeployments{name and '/' + name}"
        return kubernetes.ask(self.place_of(namespace), path, method, body)

    def options(self, namespace: str, config: str = "us") -> dict[str, Any]:
        whole: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "none"}
        for name in NAMESPACES:
            plain = kubernetes.kubeconfig(self.place_of(name), config)
            plain["contexts"][0]["context"] |= {"cluster": name, "user": name}
            for part in ("clusters", "users", "contexts"):
                whole.setdefault(part, []).append({**plain[part][0], "name": name})
        path = self.folder / "kubeconfig"
        if not path.exists():
            path.write_text(json.dumps(whole))
        url = cluster_of(self.servers, NAMESPACES[namespace]).url
        given = {"kubeconfig": str(path), "context": namespace, "rest_url": url}
        return {**given, "settle_seconds": 5}

    def move(self, source: str, target: str, number: int = 1, **submit: Any) -> Path:
        path = super().move(source, target, number, **submit)
        plain = json.loads(path.read_text())
        plain["jobs"][0]["submit"]["like"] = {"context": source, "resource": "orders"}
        path.write_text(json.dumps(plain))
        return path

    @property
    def requests(self) -> int:
        places = [self.place_of(name) for name in NAMESPACES]
        return sum(kubernetes.requests(place, "flink.apache.org") for place in places)


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_twenty_moves_each_way_between_two_api_servers_lose_nothing_and_grow_nowhere(
    servers: Servers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    moves, chance = 40, random.Random(SEED)
    steps = ("halt/", "copy/", "publish/", "submit/", "confirm/")
    requests, seconds, sizes = [], [], []
    with group(tmp_path_factory.mktemp("second"), "kubernetes") as second:
        ground = BetweenServers(servers, tmp_path, second=second)
        with operated(ground):
            ground.started("orders")
            for number in range(moves):
                ends = ("east", "west") if number % 2 == 0 else ("west", "east")
                workdir = tmp_path / "runs" / f"{number}"
                words = ("apply", str(ground.move(*ends, number)), "--yes", "--workdir")
                before, began = ground.requests, time.monotonic()
                is_killed = number % 3 == 2
                if is_killed:
                    killed_at(chance.choice(steps), (*words, str(workdir)), workdir, {})
                    assert ground.said("resume", workdir)["state"] == "finished"
                else:
                    assert ground.said(*words, workdir)["state"] == "finished"
                    requests.append(ground.requests - before)
                    seconds.append(round(time.monotonic() - began, 1))
                running = [len(cluster_of(servers, NAMESPACES[end]).running()) for end in ends]
                assert running == [0, 1], f"after move {number}"
                old, new = (ground.asks(end, "orders") for end in ends)
                assert old["status"]["lifecycleState"] == "SUSPENDED"
                assert len(ground.asks(ends[0], "")["items"]) == 1, "nothing else is left"
                sizes.append(len(json.dumps(new)))
            ground.goes_on("orders")
    print(f"requests {requests}, seconds {seconds}, bytes {sizes}")
    assert median(requests[-5:]) <= 1.5 * median(requests[:5])
    assert max(sizes[4:]) <= max(sizes[2:4]) + 200, "a history of 20 moves would be longer"
