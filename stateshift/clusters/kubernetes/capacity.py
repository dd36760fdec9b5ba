"""Room for the pods of a job on the nodes of a cluster, and in the quotas of its namespace.

    GET /api/v1/nodes   status.allocatable, status.conditions; spec.unschedulable, spec.taints
    GET /api/v1/pods    spec.nodeName, containers[].resources.requests, initContainers, overhead
    GET /api/v1/namespaces/<namespace>/resourcequotas   status.hard, status.used, spec.scopes

Free on a node is what it has to allocate, minus the requests of its pods that are not over. A pod
requests the sum of its containers and of its sidecars (init containers with restartPolicy Always),
or what one init container needs beside the sidecars that began before it, whichever is more; and
its overhead. Requests of the whole pod (spec.resources) go before. (kubernetes/kubernetes:
component-helpers/resource PodRequests; quantities: apimachinery resource.Quantity.)

The pods of a job are those that its operator makes of a spec (apache/flink-kubernetes-operator:
FlinkConfigBuilder; kubeflow/spark-operator: api/v1beta2), with cores and memory. Not looked at: pod
templates, sidecars of the job, other resources (GPU, storage), node selectors, affinity, spread,
volumes, priorities (a pod may push others out), quotas with a scope and those of limits, and what
an autoscaler of nodes adds. Nodes with a taint are not counted.

Nodes and the pods of all namespaces are the whole cluster's: an account may see both only by a
ClusterRole. Without, nothing is known of them.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Final

from stateshift.clusters.http import OTHER_FIELDS, Json, Refused
from stateshift.clusters.kubernetes.calls import ALL_PODS, NODE, QUOTA, KubernetesCalls
from stateshift.clusters.options import settings
from stateshift.clusters.placement import (
    COUNTED_MAX,
    Amounts,
    Container,
    Node,
    fit_on,
    in_words,
    spark_containers,
)
from stateshift.clusters.protocol import Fit, Room
from stateshift.errors import ClusterError
from stateshift.specification.values import size_of

_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,3})|([KMGTPE]i)|([numkMGTPE]))?\Z"
)
_BINARY: Final = {f"{unit}i": 1 << 10 * power for power, unit in enumerate("KMGTPE", 1)}
_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# Flink's own: MemorySize.parse, whose "g" and "gb" are 2^30 bytes.
_FLINK_MEMORY: Final = re.compile(r"\d+(?:[kmgt]?b?|bytes|[kmgt][ie]bibytes)\Z", re.IGNORECASE)
_LONG_UNIT: Final = re.compile(r"(?:[ie]bi)?bytes\Z", re.IGNORECASE)
_FORBIDS: Final = ("NoSchedule", "NoExecute")
_LIVES: Final = "status.phase!=Succeeded,status.phase!=Failed"
_AMOUNTS: Final = ("cpu", "memory", "pods")
_QUOTA_KEYS: Final = {
    "cpu": "cpu",
    "requests.cpu": "cpu",
    "memory": "memory",
    "requests.memory": "memory",
    "pods": "pods",
    "count/pods": "pods",
}
_ROLES: Final = {"jobManager": "jobmanager", "taskManager": "taskmanager"}
_CLUSTER_ROLE: Final = "the ClusterRole in configs/deploy/kubernetes-rbac.yaml"


@lru_cache(4096)
def quantity(text: object) -> Decimal:
    """Return the number that a quantity is: "100m", "1.5Gi", "1e3", "12E", 2.

    Raises:
        ClusterError: it is none.
    """
    parts = _QUANTITY.match(str(text).strip())
    if parts is None:
        raise ClusterError(f"{str(text)[:40]!r} is no quantity of Kubernetes")
    number, exponent, binary, unit = parts.groups()
    if binary:
        return Decimal(number) * _BINARY[binary]
    return Decimal(number).scaleb(int(exponent or 0) if unit is None else _EXPONENTS[unit])


def _amounts(plain: Json | None) -> dict[str, Decimal]:
    known = plain or {}
    return {name: quantity(known[name]) for name in _AMOUNTS if name in known}


def _add(into: dict[str, Decimal], more: Amounts) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, Decimal()) + amount


def requests_of(spec: Json) -> dict[str, Decimal]:
    """Return the amounts that a scheduler sets aside for a pod with this spec."""

    def requests(container: Json) -> dict[str, Decimal]:
        resources = container.get("resources") or {}
        return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})

    running: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        _add(running, requests(container))
    sidecars: dict[str, Decimal] = {}
    most: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        beside = dict(sidecars)
        _add(beside, requests(container))
        if container.get("restartPolicy") == "Always":
            sidecars = beside
        most = {name: max(most.get(name, Decimal()), beside[name]) for name in beside} | {
            name: most[name] for name in most.keys() - beside.keys()
        }
    _add(running, sidecars)
    total = {n: max(running.get(n, Decimal()), most.get(n, Decimal())) for n in {**running, **most}}
    total |= requests({"resources": spec.get("resources")})
    _add(total, _amounts(spec.get("overhead")))
    return total


def nodes_of(calls: KubernetesCalls, until: float = math.inf) -> list[Node]:
    """Return the nodes that are ready, and neither cordoned nor tainted; ask until then
    (monotonic).

    Raises:
        ClusterError: the account may not see them, an answer is not understood, or it took longer.
    """

    def node(plain: Json) -> tuple[str, Node] | None:
        spec, status = plain.get("spec") or {}, plain.get("status") or {}
        told = [(each["type"], each["status"]) for each in status.get("conditions") or ()]
        forbids = [each for each in spec.get("taints") or () if each["effect"] in _FORBIDS]
        if ("Ready", "True") not in told or spec.get("unschedulable") or forbids:
            return None
        every = _amounts(status["allocatable"])
        return plain["metadata"]["name"], Node(every, dict(every))

    def pod(plain: Json) -> tuple[str | None, Amounts]:
        if time.monotonic() > until:
            fact = f"{calls.cluster} did not tell its nodes and pods in time"
            raise ClusterError(fact, cluster=calls.cluster)
        taken = {**requests_of(plain["spec"]), "pods": Decimal(1)}
        return plain["spec"].get("nodeName"), taken

    try:
        nodes = dict(filter(None, calls.kept(NODE, node)))
        pods = calls.kept(ALL_PODS, pod, fields=_LIVES)
    except Refused as refused:
        if refused.status != 403:
            raise
        fact = (
            f'the nodes of {calls.cluster} are not known: the account needs "list" of nodes, and '
            "of pods in all namespaces"
        )
        hint = f"bind it to {_CLUSTER_ROLE}"
        raise ClusterError(fact, cluster=calls.cluster, hint=hint) from None
    except OTHER_FIELDS as error:
        fact = f"describes a node or a pod in a way that Kubernetes does not ({error!r})"
        raise ClusterError(f"{calls.place} {fact}", cluster=calls.cluster) from error
    for name, taken in pods:
        if name in nodes:
            _add(nodes[name].free, {key: -amount for key, amount in taken.items()})
    return [*nodes.values()]


def room_of(nodes: Sequence[Node]) -> Room:
    """Return the cores and the memory of these nodes together."""

    def total(amounts: Sequence[Amounts], name: str) -> Decimal:
        return sum((max(Decimal(), each.get(name, Decimal())) for each in amounts), Decimal())

    every, free = [node.all for node in nodes], [node.free for node in nodes]
    return Room(
        memory=int(total(every, "memory")) >> 20,
        cores=float(total(every, "cpu")),
        memory_free=int(total(free, "memory")) >> 20,
        cores_free=float(total(free, "cpu")),
    )


def placing(calls: KubernetesCalls, until: float) -> Callable[[Sequence[Container], Json], Fit]:
    """Return a question which places the pods of one job after another, by what nodes and quotas of
    the namespace leave now. Its second argument is the spec that the pods are of.
    """
    nodes: list[Node] | None = None
    quotas: list[tuple[str, dict[str, Decimal]]] = []
    notes: list[str] = []
    try:
        nodes = nodes_of(calls, until)
    except ClusterError as error:
        notes.append(error.fact if error.hint is None else f"{error.fact}; {error.hint}")
    try:
        quotas = calls.kept(QUOTA, _quota)
    except (ClusterError, *OTHER_FIELDS) as error:
        told = error.hint or error.fact if isinstance(error, ClusterError) else repr(error)
        notes.append(f"its quotas are not known: {told}")

    def fit(pods: Sequence[Container], spec: Json) -> Fit:
        counted = [replace(pod, needs={**pod.needs, "pods": Decimal(1)}) for pod in pods]
        on_nodes = Fit() if nodes is None else fit_on(nodes, counted, "pod")
        if on_nodes.lacks:
            told = f"{on_nodes.lacks}. They stay Pending, unless an autoscaler adds nodes"
            if "'tolerations'" in repr(spec) or ".tolerations" in repr(spec):
                told += ", or on nodes whose taints it tolerates, which are not looked at"
                return Fit(notes=(told, *notes))
            return replace(on_nodes, lacks=told, notes=tuple(notes))
        total: dict[str, Decimal] = {}
        for pod in counted:
            _add(total, pod.needs)
        exceeded = ""
        for name, left in quotas:
            for key, amount in left.items():
                needed = total.get(_QUOTA_KEYS[key], Decimal())
                if needed > amount and not exceeded:
                    there, needs = (
                        f"{each} pods"
                        if _QUOTA_KEYS[key] == "pods"
                        else in_words({_QUOTA_KEYS[key]: each})
                        for each in (max(amount, Decimal()), needed)
                    )
                    exceeded = f"the quota {name} leaves {there} ({key}), and it needs {needs}"
                left[key] = amount - needed
        return Fit(exceeded, notes=tuple(notes))

    return fit


def _quota(plain: Json) -> tuple[str, dict[str, Decimal]]:
    """Return the name of a quota, and what it leaves; nothing of one that is of some pods alone."""
    spec, status = plain.get("spec") or {}, plain.get("status") or {}
    left: dict[str, Decimal] = {}
    if not spec.get("scopes") and not spec.get("scopeSelector"):
        hard, used = status.get("hard") or {}, status.get("used") or {}
        for key in _QUOTA_KEYS.keys() & hard.keys():
            left[key] = quantity(hard[key]) - quantity(used.get(key, 0))
    return str(plain["metadata"]["name"]), left


# ---- the pods of a job


def spark_pods(spec: Json) -> list[Container]:
    """Return the pods of a SparkApplication with this spec."""
    conf = settings(spec.get("sparkConf"))
    fields = {"spark.kubernetes.memoryOverheadFactor": spec.get("memoryOverheadFactor")}
    for part in ("driver", "executor"):
        given = spec.get(part) or {}
        for field in ("cores", "memory", "memoryOverhead", "instances"):
            fields[f"spark.{part}.{field}"] = given.get(field)
    dynamic = spec.get("dynamicAllocation") or {}
    for field in ("enabled", "minExecutors"):
        fields[f"spark.dynamicAllocation.{field}"] = dynamic.get(field)
    conf |= {key: str(value) for key, value in fields.items() if value is not None}
    pods = []
    for pod in spark_containers(conf, "kubernetes", spec.get("type") in ("Python", "R")):
        cores = (spec.get(pod.role) or {}).get("coreRequest")
        cores = cores or conf.get(f"spark.kubernetes.{pod.role}.request.cores")
        pods.append(replace(pod, needs={**pod.needs, "cpu": quantity(cores)}) if cores else pod)
    return pods


def flink_pods(spec: Json, configuration: Mapping[str, str]) -> list[Container]:
    """Return the pods of a FlinkDeployment with this spec, and its configuration in full: those
    with which it starts.

    Raises:
        ClusterError: they are not known by it; the operator may have defaults of its own.
    """
    if spec.get("deploymentName"):
        fact = f"it runs in the session {spec['deploymentName']}, whose room is not known"
        raise ClusterError(fact)
    told = configuration.get("taskmanager.numberOfTaskSlots")
    job = spec.get("job") or {}
    parallelism = job.get("parallelism") or configuration.get("parallelism.default")
    if told is None or parallelism is None:
        raise ClusterError("its spec does not say the slots of a TaskManager, or the parallelism")
    slots = _whole(told)
    overrides = configuration.get("pipeline.jobvertex-parallelism-overrides", "")
    widest = [_whole(each.rpartition(":")[2]) for each in overrides.split(",") if each]
    count = math.ceil(max(widest, default=_whole(parallelism)) / max(1, slots))
    replicas = (spec.get("taskManager") or {}).get("replicas")
    counts = {"jobManager": 1, "taskManager": count if replicas is None else _whole(replicas)}
    counts["jobManager"] = _whole((spec.get("jobManager") or {}).get("replicas") or 1)
    if configuration.get("jobmanager.scheduler", "").lower() == "adaptive":
        counts["taskManager"] = min(1, counts["taskManager"])
    pods = []
    for part, role in _ROLES.items():
        resource = (spec.get(part) or {}).get("resource") or {}
        memory = resource.get("memory") or configuration.get(f"{role}.memory.process.size")
        if memory is None:
            raise ClusterError(f"its spec does not say the memory of a {part}")
        cpu = Decimal(1 if part == "jobManager" else slots)
        prefix = f"kubernetes.{role}.cpu"
        for said in (configuration.get(prefix), configuration.get(f"{prefix}.amount")):
            cpu = quantity(said) if said is not None and quantity(said) > 0 else cpu
        cpu = quantity(resource["cpu"]) if resource.get("cpu") else cpu
        pod = Container(role, {"cpu": cpu, "memory": flink_memory(str(memory))})
        pods += [pod] * counts[part]
    return pods


def flink_memory(text: str) -> Decimal:
    """Return the bytes of a Flink resource's memory: Flink's own units, else a quantity."""
    text = "".join(text.split())
    size = size_of(_LONG_UNIT.sub("", text)) if _FLINK_MEMORY.match(text) else None
    if size is not None:
        return Decimal(size)
    upper = text.upper().removesuffix("B")
    return quantity(f"{upper[:-1]}i" if upper.endswith("I") else upper)


def _whole(text: object) -> int:
    number = quantity(text)
    if number != number.to_integral_value() or not 0 <= number <= COUNTED_MAX:
        raise ClusterError(f"{str(text)[:40]!r} is no count of pods that is looked at")
    return int(number)
