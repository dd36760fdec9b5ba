"""A stand-in for an API server with the custom resources of flink-kubernetes-operator and of
spark-operator, as the real one was seen to answer (tests/servers/test_flink_operator.py asks it),
with the scripted controllers of tests/support, and with Flinks and drivers that are stand-ins as
well. It can be told to misbehave.
"""

from __future__ import annotations

import copy
import json
import ssl
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from stateshift.clusters.kubernetes.calls import KubernetesCalls
from tests.clusters import faulty_server
from tests.clusters.fake_flink import FakeFlink
from tests.clusters.faulty_server import StandIn
from tests.contracts.faulty import Killed
from tests.support import scripted_spark_operator
from tests.support.scripted_operator import Failed, Refuses, reconciled

GROUP, VERSION, NAMESPACE = "flink.apache.org", "v1beta1", "shop"
SPARK, SPARK_VERSION = "sparkoperator.k8s.io", "v1beta2"
SPARK_KINDS = {
    "sparkapplications": "SparkApplication",
    "scheduledsparkapplications": "ScheduledSparkApplication",
}
KINDS = {
    "flinkdeployments": "FlinkDeployment",
    "flinksessionjobs": "FlinkSessionJob",
    "flinkstatesnapshots": "FlinkStateSnapshot",
}
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
TOKEN = "token-of-the-account"


def node(name: str, cpu: Any, memory: Any, **spec: Any) -> dict[str, Any]:
    """A node that is ready, and has so much for pods."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "97e9"}
    ready = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]
    labels = {"kubernetes.io/hostname": name, **spec.pop("labels", {})}
    status = {"allocatable": allocatable, "conditions": ready}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


@dataclass
class FakeKubernetes(StandIn):
    """`up`: whether the operator is; `webhook`: why it refuses writes; `denied`: verbs of
    resources; `slow`: how many rounds a savepoint takes; `stuck`: why no savepoint is taken.
    `on_start`: called with a resource whose job is started.
    """

    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    started: Counter[str] = field(default_factory=Counter)  # by our tag
    runs: Counter[str] = field(default_factory=Counter)  # by the name of the resource
    restored: list[str | None] = field(default_factory=list)
    savepoints: list[str] = field(default_factory=list)
    asked: set[tuple[str, str, str]] = field(default_factory=set)  # (group, resource, verb)
    bodies: list[str] = field(default_factory=list)
    flink: FakeFlink = field(default_factory=FakeFlink)
    kinds: dict[str, str] = field(default_factory=lambda: {**KINDS, **SPARK_KINDS})
    version: str = VERSION
    spark_version: str = SPARK_VERSION
    can_suspend: bool = True  # the CRD of SparkApplication has spec.suspend
    drivers: dict[str, dict[str, Any]] = field(default_factory=dict)  # pods, by name
    seen: dict[str, Any] = field(default_factory=dict)  # specs that the operator has seen, by uid
    grace: int = 0  # how many rounds a driver takes to end
    is_looked_at: bool = True  # the operator goes a round with every look of ours, too
    dies_after_submit: set[str] = field(default_factory=set)  # before it writes the status
    prunes: bool = False  # a field that the CRD lacks is dropped, and not refused
    phase: str = "Running"  # of a driver that was started
    pod_status: dict[str, Any] = field(default_factory=dict)
    on_driver: Any = None  # called with an application whose driver was started
    events: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)  # pods
    launcher: str = ""  # "dies": spark-submit, once its pod is made
    log: str = "started with password=hunter22\n"  # of any pod
    queries: dict[str, dict[str, list[str]]] = field(default_factory=dict)  # the last of each kind
    nodes: list[dict[str, Any]] = field(default_factory=lambda: [node("n0", "64", "256Gi")])
    pods: list[dict[str, Any]] = field(default_factory=list)  # of all namespaces
    quotas: list[dict[str, Any]] = field(default_factory=list)
    asked_everywhere: set[tuple[str, str, str]] = field(default_factory=set)
    pages: Counter[str] = field(default_factory=Counter)  # by the resource
    folder: str = "file:///taken"
    epoch: int | None = 1_000
    up: bool = True
    unwatched: set[str] = field(default_factory=set)  # resources that no operator takes
    slow: int = 0
    stuck: str = ""
    by_last_state: bool = False
    no_pods: str = ""  # why first deployments come to nothing
    late: set[str] = field(default_factory=set)  # resources of which a start is not gone on with
    webhook: str = ""
    webhooks: int = 0  # how many writes it refuses
    quota: bool = False
    namespace_is_gone: bool = False
    denied: set[tuple[str, str]] = field(default_factory=set)
    conflicts: int = 0
    busy: int = 0  # how many requests it has no time for
    on_savepoint: Any = None
    count: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def submits(self, method: str, path: str) -> bool:
        return method in ("POST", "PUT")

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        with self.lock:
            token = self.headers[-1].get("Authorization", "").removeprefix("Bearer ")
            if token not in self.tokens:
                return _status(401, "Unauthorized", "Unauthorized")
            if self.busy:
                self.busy -= 1
                return _status(429, "TooManyRequests", "storage is (re)initializing")
            self.bodies.append(json.dumps(body))
            match path.strip("/").split("/"):
                case ["apis", group] if group == GROUP and self.kinds:
                    return 200, {"kind": "APIGroup", "versions": [{"version": self.version}]}
                case ["api", "v1", "namespaces", _, "services", _, "proxy", *rest]:
                    self.asked.add(("", "services/proxy", "get"))
                    if ("get", "services/proxy") in self.denied:
                        return self._forbidden("get", "services/proxy", "")
                    return self.flink.answer(method, "/" + "/".join(rest), query, body)
                case ["apis", group] if group == SPARK and self.kinds:
                    return 200, {"kind": "APIGroup", "versions": [{"version": self.spark_version}]}
                case ["api", "v1", "nodes" | "pods" as plural]:
                    self.asked_everywhere.add(("", plural, "list"))
                    if ("list everywhere", plural) in self.denied:
                        return self._forbidden("list", plural, "")
                    return self._page(plural, query)
                case ["api", "v1", "namespaces", _, plural, *name]:
                    return self._core(method, plural, name, query, body)
                case ["apis", group, version, "namespaces", namespace, plural, *name]:
                    served = self.spark_version if group == SPARK else self.version
                    if plural not in self.kinds or version != served:
                        return 404, "404 page not found\n"
                    assert namespace == NAMESPACE
                    return self._resource(method, plural, unquote("".join(name)), query, body)
        return 404, "404 page not found\n"

    def _core(
        self, method: str, plural: str, name: list[str], query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        """Pods, their logs, and events."""
        resource = "/".join([plural, *name[1:]])
        verb = VERBS.get(method) or ("get" if name else "list")
        self.asked.add(("", resource, verb))
        if (verb, resource) in self.denied:
            user = "system:serviceaccount:shop:stateshift"
            said = f'{resource} is forbidden: User "{user}" cannot {verb} resource "{resource}"'
            return _status(403, "Forbidden", said)
        self.queries[resource] = query
        if plural == "events":
            about = query["fieldSelector"][0].partition("=")[2]
            items = [each for each in self.events if each["involvedObject"]["name"] == about]
            return 200, {"kind": "EventList", "metadata": {}, "items": items}
        if plural == "resourcequotas":
            items = self.quotas
            return 200, {"kind": "ResourceQuotaList", "metadata": {}, "items": items}
        self._look()
        if method == "POST":
            return self._pod(body, "dryRun" in query)
        if not name:
            label, _, value = query["labelSelector"][0].partition("=")
            items = [pod for pod in self.drivers.values() if labels_of(pod).get(label) == value]
            return 200, {"kind": "PodList", "metadata": {}, "items": items}
        pod = self.drivers.get(name[0])
        if pod is None:
            return _not_found(plural, name[0])
        if method == "DELETE":
            if body["preconditions"]["uid"] != pod["metadata"]["uid"]:
                return _status(409, "Conflict", "the UID in the precondition does not match")
            self.deleted.append(name[0])
            self.delete(name[0])
            return 200, pod
        return 200, self.log if name[1:] else pod

    def _pod(self, body: Any, trial: bool) -> tuple[int, Any]:
        """What is made of a pod that spark-submit, or a trial of ours, wants."""
        name = body["metadata"]["name"]
        if self.namespace_is_gone:
            said = f'namespaces "{NAMESPACE}" not found'
            return _status(404, "NotFound", said, kind="namespaces", name=NAMESPACE)
        if self.quota:
            said = f'pods "{name}" is forbidden: exceeded quota: pods, requested: pods=1, used: 3'
            return _status(403, "Forbidden", said)
        if name in self.drivers:
            return _status(409, "AlreadyExists", f'pods "{name}" already exists')
        if trial:
            return 201, body
        self.count += 1
        metadata = {**body["metadata"], "uid": uuid.uuid4().hex}
        metadata["creationTimestamp"] = f"2026-11-30T10:00:00.{self.count:06}Z"
        status = {"phase": self.phase, **self.pod_status}
        self.drivers[name] = {**body, "metadata": metadata, "status": status}
        self.started[(metadata.get("annotations") or {}).get("test/tag", "")] += 1
        if self.on_driver is not None:
            self.on_driver(self.drivers[name])
        launcher, self.launcher = self.launcher, ""
        told = {"launcher": launcher} if launcher else {}
        return 201, {**self.drivers[name], **told}

    def _page(self, plural: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """As many as are asked for, and where the rest begins."""
        self.pages[plural] += 1
        items = self.nodes if plural == "nodes" else self.pods
        for word in filter(None, query.get("fieldSelector", [""])[0].split(",")):
            path, _, phase = word.partition("!=")
            assert path == "status.phase"
            items = [each for each in items if each["status"].get("phase") != phase]
        begin, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        more = {"continue": str(begin + limit)} if len(items) > begin + limit else {}
        return 200, {"kind": "List", "metadata": more, "items": items[begin : begin + limit]}

    def _resource(
        self, method: str, plural: str, name: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        verb = VERBS.get(method) or ("get" if name else "list")
        self.asked.add((SPARK if plural in SPARK_KINDS else GROUP, plural, verb))
        if (verb, plural) in self.denied:
            return self._forbidden(verb, plural, name)
        if method == "GET":
            self._look()
            if name:
                stored = self.objects.get((plural, name))
                return (200, stored) if stored else _not_found(plural, name)
            label, _, value = query.get("labelSelector", [""])[0].partition("=")
            items = []
            for (kind, _), each in self.objects.items():
                labels = each["metadata"].get("labels") or {}
                if kind == plural and (not label or labels.get(label) == value):
                    items.append(each)
            return 200, {"kind": "List", "metadata": {}, "items": items}
        if self.namespace_is_gone:
            said = f'namespaces "{NAMESPACE}" not found'
            return _status(404, "NotFound", said, kind="namespaces", name=NAMESPACE)
        if self.quota:
            said = f'{plural} "{name}" is forbidden: exceeded quota: jobs, requested: 1, used: 3'
            return _status(403, "Forbidden", said)
        if self.webhook or self.webhooks:
            self.webhooks = max(0, self.webhooks - 1)
            said = f'admission webhook "flinkoperator.flink.apache.org" denied: {self.webhook}'
            return _status(400, "BadRequest", said)
        return self._written(method, plural, body, "dryRun" in query)

    def _written(self, method: str, plural: str, body: Any, trial: bool) -> tuple[int, Any]:
        key = (plural, body["metadata"]["name"])
        stored = self.objects.get(key)
        if self.prunes and "suspend" in body["spec"]:
            spec = {key: value for key, value in body["spec"].items() if key != "suspend"}
            body = {**body, "spec": spec}
        if not self.can_suspend and "suspend" in body["spec"]:
            said = 'SparkApplication in version "v1beta2" cannot be handled as a SparkApplication: '
            said += 'strict decoding error: unknown field "spec.suspend"'
            return _status(400, "BadRequest", said)
        if method == "POST" and stored is not None:
            return _status(409, "AlreadyExists", f'{plural} "{key[1]}" already exists')
        if method == "PUT" and stored is None:
            return _not_found(*key)
        self.count += 1
        new = copy.deepcopy(body)
        new["metadata"]["resourceVersion"] = str(self.count)
        if stored is None:
            new["metadata"] |= {"uid": uuid.uuid4().hex, "generation": 1}
            new.pop("status", None)
        else:
            is_stale = body["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]
            if is_stale or self.conflicts:
                self.conflicts -= not is_stale
                said = f'Operation cannot be fulfilled on {plural} "{key[1]}": it has been modified'
                return _status(409, "Conflict", said)
            new["metadata"]["generation"] = stored["metadata"]["generation"]
            new["metadata"]["generation"] += new["spec"] != stored["spec"]
            new["status"] = stored.get("status", {})
        if not trial:
            self.objects[key] = new
        return (201 if method == "POST" else 200), new

    def _forbidden(self, verb: str, plural: str, name: str) -> tuple[int, Any]:
        user = "system:serviceaccount:shop:stateshift"
        said = f'{plural}.{GROUP} "{name}" is forbidden: User "{user}" cannot {verb} resource'
        return _status(403, "Forbidden", said)

    # ---- the operator and its Flinks

    @contextmanager
    def operating(self) -> Iterator[None]:
        """The operator goes on by itself, also while nobody asks the API server."""
        gone = threading.Event()

        def operator() -> None:
            while not gone.wait(0.02):
                with self.lock:
                    self.turn()

        thread = threading.Thread(target=operator)
        thread.start()
        try:
            yield
        finally:
            gone.set()
            thread.join()

    def turns(self, rounds: int) -> None:
        for _ in range(rounds):
            self.turn()

    def _look(self) -> None:
        if self.is_looked_at:
            self.turn()

    def turn(self) -> None:
        """One round of the operator."""
        if not self.up:
            return
        self._end_drivers()
        for (plural, name), plain in list(self.objects.items()):
            if plural in SPARK_KINDS:
                self._spark(plural, name, plain)
                continue
            if plural == "flinkstatesnapshots":
                self._snapshot(plain)
                continue
            if "job" not in plain["spec"] or name in self.unwatched:
                continue
            status = plain.get("status") or {}
            if name not in self.late or status.get("lifecycleState") != "UPGRADING":
                status = reconciled(plain, self)
            if status != plain.get("status"):
                self.count += 1
                plain = {**plain, "status": status}
                plain["metadata"] = {**plain["metadata"], "resourceVersion": str(self.count)}
                self.objects[plural, name] = plain

    def _snapshot(self, plain: dict[str, Any]) -> None:
        if plain.get("status"):
            return
        if self.stuck:
            plain["status"] = {"state": "FAILED", "error": self.stuck}
            return
        location = self._taken(plain["spec"]["savepoint"]["path"])
        plain["status"] = {"state": "COMPLETED", "path": location}

    # ---- the operator of Spark, and its drivers

    def _spark(self, plural: str, name: str, plain: dict[str, Any]) -> None:
        if plural != "sparkapplications" or name in self.unwatched:
            return
        uid = plain["metadata"]["uid"]
        before = self.runs[name]
        status = scripted_spark_operator.reconciled(plain, self.seen.get(uid), self)
        self.seen[uid] = copy.deepcopy(plain["spec"])
        if self.runs[name] != before and name in self.dies_after_submit:
            self.dies_after_submit.remove(name)
            return
        if status != plain.get("status"):
            self.count += 1
            metadata = {**plain["metadata"], "resourceVersion": str(self.count)}
            self.objects[plural, name] = {**plain, "status": status, "metadata": metadata}

    def dies(self) -> None:
        self.launcher = "dies"

    def restart_operator(self) -> None:
        """One that starts takes each spec as it is for the one that it knows."""
        for plain in self.objects.values():
            self.seen[plain["metadata"]["uid"]] = copy.deepcopy(plain["spec"])

    def submit(self, pod: str, plain: dict[str, Any]) -> None:
        name, annotations = plain["metadata"]["name"], plain["metadata"].get("annotations") or {}
        if pod in self.drivers:
            raise scripted_spark_operator.Failed("driver pod already exist")
        if self.no_pods:
            raise scripted_spark_operator.Failed(self.no_pods)
        self.started[annotations.get("stateshift/tag", "")] += 1
        self.runs[name] += 1
        status = {"phase": self.phase, **self.pod_status}
        metadata = {"name": pod, "labels": {"sparkoperator.k8s.io/app-name": name}}
        self.drivers[pod] = {"metadata": metadata, "status": status}
        if self.on_driver is not None:
            self.on_driver(plain)

    def phase_of(self, pod: str) -> str | None:
        status = self.drivers.get(pod, {}).get("status")
        return None if status is None else str(status["phase"])

    def delete(self, pod: str) -> None:
        if pod in self.drivers:
            self.drivers[pod]["metadata"].setdefault("deletionTimestamp", self.grace)

    def _end_drivers(self) -> None:
        for pod, plain in list(self.drivers.items()):
            left = plain["metadata"].get("deletionTimestamp")
            if left == 0:
                del self.drivers[pod]
            elif left is not None:
                plain["metadata"]["deletionTimestamp"] = left - 1

    @property
    def applications(self) -> list[str]:
        """The applications whose drivers run."""
        alive = {"Pending", "Running"}
        running = (pod for name, pod in self.drivers.items() if self.phase_of(name) in alive)
        return sorted(pod["metadata"]["labels"]["sparkoperator.k8s.io/app-name"] for pod in running)

    def apply(self, name: str, **spec: Any) -> dict[str, Any]:
        """A SparkApplication of somebody else, whose driver runs by now."""
        whole = {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": "4.0.0",
            "image": "spark:4.0.0",
            "mainApplicationFile": "local:///opt/orders.py",
            "arguments": ["--shop", "east"],
            "sparkConf": {"spark.ui.enabled": "false"},
            "restartPolicy": {"type": "Always"},
            "driver": {"cores": 1, "env": [{"name": "STATESHIFT_CHECKPOINT", "value": "/old"}]},
            "executor": {"instances": 1},
            **spec,
        }
        body = {
            "apiVersion": f"{SPARK}/{SPARK_VERSION}",
            "kind": "SparkApplication",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": whole,
        }
        self._written("POST", "sparkapplications", body, False)
        self.turns(3)
        return self.objects["sparkapplications", name]

    # ---- the Flinks

    def start(self, plain: dict[str, Any], savepoint: str | None) -> str:
        name, tag = plain["metadata"]["name"], plain["metadata"].get("annotations", {})
        if plain["kind"] == "FlinkSessionJob":
            name += " in its session"
        assert not self.running(name), "an operator has one job of a resource"
        if self.no_pods and not self.runs[name]:
            raise Refuses(self.no_pods)
        id = uuid.uuid4().hex
        self.started[tag.get("stateshift/tag", "")] += 1
        self.runs[name] += 1
        self.restored.append(savepoint)
        job = self.flink.begin(id, name)
        job.exceptions = ["java.lang.IllegalStateException: no connection with password=hunter22"]
        if savepoint:
            job.restored = {"id": 7, "external_path": savepoint, "is_savepoint": True}
        if self.epoch is not None:
            job.checkpointed(self.epoch, f"file:/checkpoints/{id}/chk-{self.epoch}")
        return id

    def stop_with_savepoint(self, id: str, plain: dict[str, Any]) -> str | None:
        if self.stuck:
            raise Failed(self.stuck)
        made = self.flink.jobs[id].made
        if self.slow:
            self.slow -= 1
            if not made or made[-1]["status"] != "IN_PROGRESS":
                made.append({"id": 99, "status": "IN_PROGRESS", "is_savepoint": True})
            return None
        made[:] = [each for each in made if each["status"] == "COMPLETED"]
        self.flink.jobs[id].state = self.flink.jobs[id].task_state = "FINISHED"
        if self.by_last_state:
            return "KUBERNETES_OPERATOR_LAST_STATE"
        return self._taken(self.folder)

    def cancel(self, id: str) -> None:
        self.flink.jobs[id].state = self.flink.jobs[id].task_state = "CANCELED"

    def state(self, id: str) -> str:
        return self.flink.jobs[id].state

    def _taken(self, folder: str) -> str:
        location = f"{folder}/savepoint-{len(self.savepoints) + 1}"
        self.savepoints.append(location)
        if self.on_savepoint is not None:
            self.on_savepoint(location)
        return location

    # ---- for tests

    def running(self, name: str = "") -> list[str]:
        """The names of jobs that run, of a resource."""
        alive = [job.name for job in self.flink.jobs.values() if job.state == "RUNNING"]
        return [each for each in alive if not name or each == name]

    def deploy(
        self, name: str, plural: str = "flinkdeployments", state: str = "running", **job: Any
    ) -> dict[str, Any]:
        """A resource of somebody else, whose job runs by now."""
        spec: dict[str, Any] = {
            "flinkConfiguration": {
                "state.savepoints.dir": self.folder,
                "state.checkpoints.dir": "file:///checkpoints",
                "job.autoscaler.enabled": "true",
            },
            "job": {
                "jarURI": "local:///opt/orders.jar",
                "parallelism": 2,
                "state": state,
                "upgradeMode": "savepoint",
                **job,
            },
        }
        if plural == "flinkdeployments":
            spec |= {"image": "flink:2.3", "flinkVersion": "v2_3"}
            for part in ("jobManager", "taskManager"):
                spec[part] = {"resource": {"cpu": 0.5, "memory": "1536m"}}
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KINDS[plural],
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        self._written("POST", plural, body, False)
        self.turns(3)
        return self.objects[plural, name]

    def forget(self) -> None:
        with self.lock:
            self.turns(2)
            self.objects.clear()

    def kubeconfig(self, folder: Path, **user: Any) -> str:
        """The path of one that leads here."""
        plain = {
            "current-context": "shop",
            "clusters": [{"name": "east", "cluster": {"server": self.url}}],
            "users": [{"name": "us", "user": user or {"token": TOKEN}}],
            "contexts": [
                {
                    "name": "shop",
                    "context": {"cluster": "east", "user": "us", "namespace": NAMESPACE},
                }
            ],
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kubeconfig").write_text(json.dumps(plain))
        return str(folder / "kubeconfig")


def labels_of(pod: dict[str, Any]) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _status(code: int, reason: str, message: str, **details: str) -> tuple[int, Any]:
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def _not_found(plural: str, name: str) -> tuple[int, Any]:
    said = f'{plural}.{GROUP} "{name}" not found'
    return _status(404, "NotFound", said, group=GROUP, kind=plural, name=name)


@contextmanager
def serving(seconds: float = 0.0, tls: ssl.SSLContext | None = None) -> Iterator[FakeKubernetes]:
    kubernetes = FakeKubernetes(seconds)
    with faulty_server.serving(kubernetes, tls):
        yield kubernetes


class Dying(KubernetesCalls):
    """Dies before or after its nth write; `writes` are those that came, counted in two."""

    die_at = 0
    writes = 0

    @staticmethod
    def moment() -> None:
        Dying.writes += 1
        if Dying.writes == Dying.die_at:
            raise Killed

    def create(self, *words: Any, **more: Any) -> Any:
        return self._around(super().create, *words, **more)

    def update(self, *words: Any, **more: Any) -> Any:
        return self._around(super().update, *words, **more)

    def delete(self, *words: Any, **more: Any) -> Any:
        return self._around(super().delete, *words, **more)

    @staticmethod
    def _around(write: Callable[..., Any], *words: Any, **more: Any) -> Any:
        if more.get("trial"):
            return write(*words, **more)
        Dying.moment()
        answer = write(*words, **more)
        Dying.moment()
        return answer
