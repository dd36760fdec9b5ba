"""Room for a job's pods: quantities, requests, nodes and quotas, as Kubernetes counts them. The
values are worked out by hand from its documentation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.kubernetes.capacity import flink_memory, flink_pods, quantity, requests_of
from stateshift.clusters.kubernetes.capacity import spark_pods as pods_of
from stateshift.clusters.kubernetes.flink_operator import FlinkOperator
from stateshift.clusters.kubernetes.spark_operator import SparkOperator
from stateshift.clusters.protocol import Fit, Room, Submission
from stateshift.errors import ClusterError
from tests.clusters import fake_kubernetes
from tests.clusters.fake_kubernetes import NAMESPACE, FakeKubernetes, node

GIB = 1 << 30
MIB = 1 << 20


@pytest.fixture
def server() -> Iterator[FakeKubernetes]:
    with fake_kubernetes.serving() as served:
        yield served


def opened(server: FakeKubernetes, folder: Path) -> SparkOperator:
    options = {"kubeconfig": server.kubeconfig(folder), "outage_seconds": 0.2}
    return SparkOperator("west", folder / "state", options, str(folder))


def pod(name: str, on: str | None, cpu: str, memory: str, **labels: str) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": memory}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    if on is not None:
        spec["nodeName"] = on
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("100m", "0.1"),
        ("1.5Gi", 1536 * MIB),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E", 12 * 10**18),
        ("12Ei", 12 * 2**60),
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("5.", 5),
        (2, 2),
        (0.5, "0.5"),
        ("128974848", 128974848),
        ("129M", 129_000_000),
        ("123Mi", 128974848),
        ("50n", "0.00000005"),
        ("7u", "0.000007"),
        ("-3k", -3000),
    ],
)
def test_a_quantity_is_the_number_that_kubernetes_takes_it_for(text: Any, number: Any) -> None:
    assert quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    "text", ["", "1K", "1 Gi", "Gi", "1gi", "1e", "1e3Ki", "x", None, "1e99999"]
)
def test_another_text_is_no_quantity(text: Any) -> None:
    with pytest.raises(ClusterError, match="is no quantity of Kubernetes"):
        quantity(text)


@pytest.mark.parametrize(
    ("text", "bytes"),
    [
        ("2048m", 2048 * MIB),
        ("2g", 2 * GIB),
        ("2GB", 2 * GIB),
        ("2 Gi", 2 * GIB),
        ("1.5g", 1_500_000_000),
        ("2G", 2 * GIB),
        ("3mebibytes", 3 * MIB),
        ("1024bytes", 1024),
    ],
)
def test_the_memory_of_flink_goes_by_its_own_units_first(text: str, bytes: int) -> None:
    assert flink_memory(text) == bytes


def container(cpu: str, memory: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def test_a_pod_requests_what_runs_or_its_largest_init_container_beside_its_sidecars() -> None:
    spec = {
        "initContainers": [
            container("4", "1Gi"),  # before the sidecar: 4 cores, 1 GiB
            container("500m", "256Mi", restartPolicy="Always"),
            container("1", "6Gi"),  # beside it: 1.5 cores, 6.25 GiB
        ],
        "containers": [container("2", "2Gi"), container("100m", "1Gi")],  # 2.6, 3.25 with it
        "overhead": {"cpu": "250m", "memory": "120Mi"},
    }
    assert requests_of(spec) == {"cpu": Decimal("4.25"), "memory": (6400 + 120) * MIB}
    del spec["initContainers"]
    assert requests_of(spec) == {"cpu": Decimal("2.35"), "memory": (3072 + 120) * MIB}
    spec |= {"resources": {"requests": {"cpu": "3"}}}  # those of the whole pod go before
    assert requests_of(spec)["cpu"] == Decimal("3.25")
    assert requests_of({"containers": [{"name": "free of any"}]}) == {}
    limited = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}
    assert requests_of({"containers": [limited]}) == {"cpu": Decimal("0.5"), "memory": GIB}


# ---- the pods of a job


def sizes(pods: list[Any]) -> list[tuple[str, float, float]]:
    told = []
    for each in pods:
        needs = each.needs
        told.append((each.role, float(needs["cpu"]), float(needs["memory"]) / MIB))
    return told


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # Spark's own defaults: 1 GiB and at least 384 MiB beside; at least one executor.
        ({}, [("driver", 1, 1408), ("executor", 1, 1408)]),
        (
            {
                "driver": {"coreRequest": "500m", "memory": "8g"},  # a tenth of 8 GiB: 819 MiB
                "executor": {"cores": 4, "memory": "4096m", "instances": 1, "memoryOverhead": "1g"},
            },
            [("driver", 0.5, 8192 + 819), ("executor", 4, 5120)],
        ),
        (
            {
                "type": "Python",  # four tenths
                "driver": {"memory": "2g"},
                "executor": {"instances": 1, "memory": "2g"},
                "sparkConf": {"spark.executor.pyspark.memory": "512"},  # MiB
            },
            [("driver", 1, 2048 + 819), ("executor", 1, 2048 + 819 + 512)],
        ),
        (
            {
                "dynamicAllocation": {"enabled": True, "minExecutors": 2, "maxExecutors": 3},
                "sparkConf": {
                    "spark.executor.memory": "3g",
                    "spark.memory.offHeap.enabled": "true",
                    "spark.memory.offHeap.size": "1g",
                },
            },
            [
                ("driver", 1, 1408),
                *[("executor", 1, 3072 + 384 + 1024)] * 2,
            ],
        ),
    ],
)
def test_the_pods_of_spark_have_its_overhead(spec: Any, expected: Any) -> None:
    assert sizes(pods_of(spec)) == expected


def test_more_pods_than_are_meant_are_not_counted() -> None:
    began = time.monotonic()
    with pytest.raises(ClusterError, match="more than 1000 executors are not counted"):
        pods_of({"executor": {"instances": 999_999}})
    with pytest.raises(ClusterError, match="'99999' is no count of pods that is looked at"):
        flink(SLOTS, job={"parallelism": 99_999})
    assert time.monotonic() - began < 1


SLOTS = {"taskmanager.numberOfTaskSlots": "1"}


def flink(configuration: dict[str, str] | None = None, **spec: Any) -> list[Any]:
    whole = {
        "job": {"parallelism": 7},
        "jobManager": {"resource": {"cpu": 0.5, "memory": "1600m"}},
        "taskManager": {"resource": {"cpu": 2, "memory": "4Gi"}},
        **spec,
    }
    return sizes(flink_pods(whole, configuration or {}))


def test_the_pods_of_flink_are_those_of_its_slots() -> None:
    master, worker = ("jobmanager", 0.5, 1600), ("taskmanager", 2, 4096)
    assert flink(SLOTS) == [master, *[worker] * 7]
    slots = {"taskmanager.numberOfTaskSlots": "3"}
    assert flink(slots) == [master, *[worker] * 3], "7 subtasks, 3 in each"
    alone = {"replicas": 1, "resource": {"memory": "4g"}}
    for more in ({}, {"kubernetes.taskmanager.cpu.amount": "-1"}):
        assert flink({**slots, **more}, taskManager=alone) == [
            master,
            ("taskmanager", 3, 4096),  # a core for each slot
        ]
    overrides = {**slots, "pipeline.jobvertex-parallelism-overrides": "a:2,b:4"}
    assert flink(overrides) == [master, worker, worker]
    adaptive = {**slots, "jobmanager.scheduler": "Adaptive"}
    assert flink(adaptive) == [master, worker], "it starts with one, and grows"
    with pytest.raises(ClusterError, match="whose room is not known"):
        flink(deploymentName="session")
    with pytest.raises(ClusterError, match="does not say the slots"):
        flink()  # the operator's own default may be 2
    with pytest.raises(ClusterError, match="does not say the memory of a taskManager"):
        flink(SLOTS, taskManager={})
    with pytest.raises(ClusterError, match="is no count of pods"):
        flink({"taskmanager.numberOfTaskSlots": "1.5"})


# ---- nodes and quotas


def asking(server: FakeKubernetes, instances: int = 2, **executor: Any) -> Submission:
    """A job with a driver of 1 core and 1408 MiB, and such executors of 2 cores and 4.5 GiB."""
    size = {"cores": 2, "memory": "4g", "memoryOverhead": "512m", "instances": instances}
    server.objects.clear()
    server.drivers.clear()
    server.apply("orders", type="Scala", driver={"cores": 1}, executor={**size, **executor})
    options = {"like": {"resource": "orders"}, "resource": "orders-new"}
    return Submission("t", "orders", "file:///there", options=options)


def fit(server: FakeKubernetes, folder: Path, **more: Any) -> Fit:
    return opened(server, folder).fitting(math.inf)(asking(server, **more))


def test_what_is_free_is_what_ready_nodes_have_without_the_requests_of_pods(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    cordoned = node("c", "64", "256Gi", unschedulable=True)
    away = node("d", "64", "256Gi")
    away["status"]["conditions"][1]["status"] = "Unknown"
    server.nodes = [node("a", "4", "16Gi"), node("b", "3920m", "15Gi"), cordoned, away]
    over = pod("over", "a", "3", "8Gi")
    over["status"]["phase"] = "Succeeded"
    server.pods = [pod("p", "a", "500m", "1Gi"), pod("q", "c", "1", "1Gi"), over]
    server.pods += [pod("waits", None, "1", "1Gi")]
    cluster = opened(server, tmp_path)
    assert cluster.room() == Room(31 << 10, 7.92, 30 << 10, 7.42)
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    server.nodes.append(node("control", "64", "256Gi", taints=[taint]))
    assert cluster.room().cores == 7.92


def test_a_job_that_fits_says_nothing_and_one_that_does_not_says_what_lacks(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.nodes = [node("a", "3", "6Gi"), node("b", "2", "6Gi")]
    assert fit(server, tmp_path) == Fit(), "a driver and one executor on a, the other on b"
    server.pods = [pod("p", "b", "100m", "1Mi")]
    assert fit(server, tmp_path) == Fit(
        "it has room for 2 of the 3 pods, by first fit on its 2 nodes: no place for "
        "1 executor (2 cores, 4.5 GiB); the most that is free on one node is 3 cores, 6.0 GiB. "
        "They stay Pending, unless an autoscaler adds nodes"
    )
    server.nodes.pop()
    assert fit(server, tmp_path).is_ever, "with no other job there, too"


def test_it_is_the_room_on_one_node_that_counts_and_not_the_sum(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.nodes = [node(f"n{n}", "1900m", "64Gi") for n in range(10)]
    assert "for 1 of the 3 pods" in fit(server, tmp_path).lacks
    # The executor first: where the driver would take a part of a, it has no place.
    server.nodes = [node("a", "4", "5Gi"), node("b", "4", "2Gi")]
    assert fit(server, tmp_path, instances=1) == Fit()
    full = node("full", "64", "256Gi")
    full["status"]["allocatable"]["pods"] = "2"
    server.nodes = [full]
    assert "for 2 of the 3 pods" in fit(server, tmp_path).lacks


def test_a_node_with_a_taint_is_not_counted_and_a_pod_that_tolerates_one_may_have_room(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    taint = {"key": "team", "value": "b", "effect": "NoSchedule"}
    server.nodes = [node("a", "3", "8Gi"), node("b", "64", "64Gi", taints=[taint])]
    assert "on its 1 nodes" in fit(server, tmp_path).lacks
    tolerated = fit(server, tmp_path, tolerations=[{"operator": "Exists"}])
    assert not tolerated.lacks
    assert "or on nodes whose taints it tolerates, which are not looked at" in tolerated.notes[0]
    server.nodes[1]["spec"]["taints"] = [{**taint, "effect": "PreferNoSchedule"}]
    assert fit(server, tmp_path) == Fit()


def test_jobs_of_one_plan_are_placed_beside_each_other_by_one_listing(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.nodes = [node("a", "6", "32Gi")]
    server.quotas = [quota(pods=("10", "6"))]
    fitting = opened(server, tmp_path).fitting(math.inf)
    assert fitting(asking(server, instances=1)) == Fit()
    assert fitting(asking(server, instances=1)) == Fit()
    assert "for 0 of the 2 pods" in fitting(asking(server, instances=1)).lacks
    server.nodes = [node("a", "64", "256Gi")]
    fitting = opened(server, tmp_path).fitting(math.inf)
    assert [fitting(asking(server, instances=1)).lacks for _ in range(3)] == [
        "",
        "",
        "the quota team leaves 0 pods (pods), and it needs 2 pods",
    ]
    assert dict(server.pages) == {"nodes": 2, "pods": 2}


def quota(**hard: tuple[str, str]) -> dict[str, Any]:
    most = {key.replace("_", "."): limit for key, (limit, _) in hard.items()}
    used = {key.replace("_", "."): taken for key, (_, taken) in hard.items()}
    return {"metadata": {"name": "team"}, "spec": {}, "status": {"hard": most, "used": used}}


def test_a_quota_of_the_namespace_bounds_it(server: FakeKubernetes, tmp_path: Path) -> None:
    # It needs 5 cores, 10.375 GiB, 3 pods.
    server.quotas = [quota(requests_cpu=("8", "3"), memory=("12Gi", "1Gi"), pods=("10", "7"))]
    assert fit(server, tmp_path) == Fit()
    server.quotas = [quota(requests_cpu=("8", "3001m"))]
    told = "the quota team leaves 4.999 cores (requests.cpu), and it needs 5 cores"
    assert fit(server, tmp_path) == Fit(told)
    server.quotas = [quota(pods=("10", "8"))]
    assert fit(server, tmp_path).lacks == "the quota team leaves 2 pods (pods), and it needs 3 pods"
    server.quotas[0]["spec"] = {"scopes": ["BestEffort"]}
    assert fit(server, tmp_path) == Fit()
    server.quotas = [quota(pods=("10", "12"))]
    assert fit(server, tmp_path).lacks == "the quota team leaves 0 pods (pods), and it needs 3 pods"


def test_an_account_that_may_not_list_nodes_knows_neither_enough_nor_full(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.nodes = []
    cluster = opened(server, tmp_path)
    for plural in ("nodes", "pods"):
        server.denied = {("list everywhere", plural)}
        (note,) = fit(server, tmp_path).notes
        assert note == (
            'the nodes of west are not known: the account needs "list" of nodes, and of pods in all '
            "namespaces; bind it to the ClusterRole in configs/deploy/kubernetes-rbac.yaml"
        )
        with pytest.raises(ClusterError, match="are not known"):
            cluster.room()
    server.quotas = [quota(requests_cpu=("8", "7"))]  # which is known all the same
    assert "the quota team leaves 1 cores" in fit(server, tmp_path).lacks
    server.nodes = [node("a", "64", "256Gi")]
    server.denied = {("list", "resourcequotas")}
    (note,) = fit(server, tmp_path).notes
    assert note.startswith('its quotas are not known: the account needs "list" of resourcequotas')


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"status": {"allocatable": {"cpu": "many"}}}, "'many' is no quantity of Kubernetes"),
        ({"status": {"allocatable": None}}, None),
        ({"metadata": {}}, "describes a node or a pod in a way that Kubernetes does not"),
        ({"status": {"conditions": 7}}, "describes a node or a pod"),
        ({"spec": {"taints": [7]}}, "describes a node or a pod"),
    ],
)
def test_an_answer_that_is_not_understood_is_not_known(
    server: FakeKubernetes, tmp_path: Path, damage: dict[str, Any], told: str | None
) -> None:
    whole = node("a", "64", "256Gi")
    server.nodes = [{**whole, **{k: {**whole[k], **v} if v else v for k, v in damage.items()}}]
    result = fit(server, tmp_path)
    if told is None:
        assert "for 0 of the 3 pods" in result.lacks  # a node that has nothing to give
        return
    assert not result.lacks
    assert told in result.notes[0]


@pytest.mark.parametrize(
    "damage",
    [
        {"status": {"hard": ["cpu"]}},
        {"status": {"hard": {"cpu": "many"}}},
        {"metadata": None},
        {"spec": "x"},
        None,
    ],
)
def test_a_quota_that_is_not_understood_is_not_known(
    server: FakeKubernetes, tmp_path: Path, damage: Any
) -> None:
    server.quotas = [damage and {**quota(pods=("1", "0")), **damage}]
    (note,) = fit(server, tmp_path).notes
    assert note.startswith("its quotas are not known: ")


def test_the_nodes_are_not_asked_for_longer_than_somebody_waits(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.pods = [pod(f"p{n}", "n0", "1", "1Gi") for n in range(2000)]
    (note,) = opened(server, tmp_path).fitting(time.monotonic())(asking(server)).notes
    assert note == "west did not tell its nodes and pods in time"
    assert dict(server.pages) == {"nodes": 1, "pods": 1}


def test_thousands_of_pods_are_read_page_by_page_in_one_pass(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.nodes = [node(f"n{n}", "10", "100Gi") for n in range(1100)]
    server.pods = [pod(f"p{n}", f"n{n % 1100}", "2", "1Gi") for n in range(5000)]
    cluster = opened(server, tmp_path)
    room = cluster.room()
    assert (room.cores, room.cores_free) == (11_000, 1000)
    assert dict(server.pages) == {"nodes": 3, "pods": 10}
    assert fit(server, tmp_path, instances=400) == Fit()  # 500 nodes have 2 cores free, 600 none
    assert "for 500 of the 602 pods" in fit(server, tmp_path, instances=601).lacks


def test_a_flink_deployment_is_looked_at_with_its_own_configuration(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    made = server.deploy("orders", parallelism=6)
    made["spec"]["flinkConfiguration"] |= SLOTS
    server.nodes = [node("a", "2", "8Gi")]  # a JobManager and six TaskManagers of half a core
    options = {"kubeconfig": server.kubeconfig(tmp_path), "outage_seconds": 0.2}
    cluster = FlinkOperator("west", tmp_path / "state", options)
    given: dict[str, Any] = {"like": {"resource": "orders"}, "resource": "new"}
    submission = Submission("t", "orders", "file:///there", options=given)
    assert cluster.fitting(math.inf)(submission).lacks.startswith(
        "it has room for 4 of the 7 pods, by first fit on its 1 nodes: no place for "
        "3 taskmanager (0.5 cores, 1.5 GiB)"
    )
    adaptive = {"flink_configuration": {"jobmanager.scheduler": "adaptive"}}
    less = Submission("t", "orders", "file:///there", options={**given, **adaptive})
    assert cluster.fitting(math.inf)(less) == Fit()
