"""Drivers of spark-submit in Kubernetes: the pods of a stand-in for the API server, and a scripted
spark-submit that makes them as the real one was seen to (tests/servers/test_driver_pods.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.http import Unanswered
from stateshift.clusters.kind import Contacts, check_submit, open_cluster
from stateshift.clusters.kubernetes import credentials
from stateshift.clusters.kubernetes.calls import POD, POD_NEEDS, KubernetesCalls
from stateshift.clusters.kubernetes.spark_resources import place_of
from stateshift.clusters.noted import digest
from stateshift.clusters.protocol import JobState, JobStatus, Remedy, StopRequest, Submission
from stateshift.clusters.spark_submit import driver_pods
from stateshift.clusters.spark_submit.driver_pods import DriverPods
from stateshift.errors import JOB_DOWN, ClusterError, PlanError, SpecError
from stateshift.formats.marks import STOP, STOPPING
from stateshift.specification import Spec, parse_spec
from stateshift.specification.model import ClusterSpec
from tests.clusters import fake_kubernetes
from tests.clusters.fake_kubernetes import TOKEN, Dying, FakeKubernetes, labels_of
from tests.contracts.faulty import Killed
from tests.support.checkpoints import Checkpoint, commit_next, put
from tests.support.ground import Ground
from tests.support.processes import in_time

SUBMIT = str(Path(__file__).with_name("fake_pod_submit.py"))
OTHER_ACCESS = "spark.kubernetes.authenticate.submission"
SOURCE, TARGET = "s3a://here/orders", "s3a://there/orders"
APPLICATION = {"application": "local:///opt/orders.py"}
ORDERS = Submission("run-1.orders", "orders", TARGET, options=APPLICATION)


@pytest.fixture
def server() -> Iterator[FakeKubernetes]:
    with fake_kubernetes.serving() as served:
        yield served


@pytest.fixture
def cluster(server: FakeKubernetes, tmp_path: Path) -> DriverPods:
    return opened(server, tmp_path)


def spec(server: FakeKubernetes, folder: Path, **options: Any) -> ClusterSpec:
    environment = {"KUBECONFIG": server.kubeconfig(folder), **options.pop("environment", {})}
    known = {
        "master": f"k8s://{server.url}",
        "deploy_mode": "cluster",
        "spark_submit": SUBMIT,
        "settle_seconds": 0.3,
        "outage_seconds": 0.3,
        "graceful_seconds": 0.05,
        "environment": environment,
        "state_dir": str(folder / "state"),
    }
    conf = {"spark.kubernetes.namespace": "shop", **options.pop("conf", {})}
    return ClusterSpec("eks", "spark_submit", {**known, "conf": conf, **options})


def opened(
    server: FakeKubernetes, folder: Path, open_storage: Any = None, **options: Any
) -> DriverPods:
    contacts = Contacts(open_storage=open_storage)
    cluster = open_cluster(spec(server, folder, **options), str(folder), contacts)
    assert isinstance(cluster, DriverPods)
    return cluster


def stopping(tag: str | None = None, location: str = TARGET, **options: Any) -> StopRequest:
    return StopRequest("orders", location, tag, 2.0, options)


def stranger(server: FakeKubernetes, name: str = "theirs", **more: Any) -> dict[str, Any]:
    """A driver that somebody else has submitted."""
    labels = {"spark-role": "driver", "spark-app-name": "orders", **more.pop("labels", {})}
    pod: dict[str, Any] = {
        "metadata": {"name": name, "uid": name, "labels": labels, **more},
        "spec": {"containers": [{"name": "spark-kubernetes-driver"}]},
        "status": {"phase": "Running"},
    }
    server.drivers[name] = pod
    return pod


def only(server: FakeKubernetes) -> dict[str, Any]:
    (pod,) = server.drivers.values()
    return pod


def running(server: FakeKubernetes) -> list[str]:
    pods = server.drivers.items()
    return [name for name, pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


# ---- the start


def test_a_driver_gets_our_labels_its_name_and_its_identity(
    server: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/of/this/machine/python")
    options = {**APPLICATION, "conf": {"spark.x": "{tag}"}, "environment": {"MODE": "new"}}
    tag = "../päck: 100% of/it?\n#1" + "x" * 300
    id = opened(server, tmp_path).submit(
        replace(ORDERS, tag=tag, job="Orders, of " + "all shops " * 9, options=options)
    )
    pod = only(server)
    name, labels = pod["metadata"]["name"], labels_of(pod)
    assert (id, len(name) <= 63, name.endswith("-driver")) == (name, True, True)
    assert labels["stateshift/tag"] == digest(tag) and len(digest(tag)) <= 63
    conf = json.loads(pod["metadata"]["annotations"]["test/conf"])
    assert conf["spark.stateshift.checkpoint"] == TARGET
    assert conf["spark.kubernetes.driverEnv.MODE"] == "new"
    assert conf["spark.kubernetes.submission.waitAppCompletion"] == "false"
    assert (conf["spark.kubernetes.namespace"], conf["spark.kubernetes.context"]) == ("shop", "")
    assert json.loads(pod["metadata"]["annotations"]["test/environment"]) == {}


@pytest.mark.parametrize("waits", [False, True])
def test_a_driver_outlives_its_launcher(
    server: FakeKubernetes, tmp_path: Path, waits: bool
) -> None:
    conf = {"spark.kubernetes.submission.waitAppCompletion": waits}
    cluster = opened(server, tmp_path, conf=conf)
    cluster.submit(ORDERS)
    launcher = int(next((tmp_path / "state").glob("*.pid")).read_text())
    if waits:
        os.killpg(launcher, signal.SIGKILL)
    assert in_time(lambda: not Path(f"/proc/{launcher}").exists())
    assert cluster.find(ORDERS.tag).state is JobState.RUNNING
    only(server)["status"]["phase"] = "Succeeded"
    assert cluster.find(ORDERS.tag).state is JobState.FINISHED


def test_another_machine_finds_a_driver_by_its_labels_and_starts_no_second(
    server: FakeKubernetes, cluster: DriverPods, tmp_path: Path
) -> None:
    id = cluster.submit(ORDERS)
    other = opened(server, tmp_path, state_dir=str(tmp_path / "elsewhere"))
    assert other.submit(ORDERS) == id
    assert other.find_source(stopping(location=f"{TARGET}/")).id == id
    assert server.started == {ORDERS.tag: 1}
    hidden = {key: value for key, value in labels_of(only(server)).items() if "shift" not in key}
    only(server)["metadata"]["labels"] = hidden  # not even by a label: the name is taken
    third = opened(server, tmp_path, state_dir=str(tmp_path / "third"))
    third.submit(ORDERS)
    assert third.find(ORDERS.tag).state is JobState.FAILED
    assert "already exists" in third.log(ORDERS.tag)
    assert server.started == {ORDERS.tag: 1}


def test_a_launcher_killed_before_its_pod_is_waited_for_and_not_started_again(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    environment = {"FAKE_SECONDS": "600"}
    cluster = opened(server, tmp_path, environment=environment, seconds_max=0.5)
    pid = int(cluster.submit(ORDERS))
    assert cluster.find(ORDERS.tag).state is JobState.QUEUED
    os.killpg(pid, signal.SIGKILL)
    made = fake_pod(ORDERS.tag)
    timer = threading.Timer(0.2, lambda: server.drivers.update({"late": made}))
    timer.start()
    assert in_time(lambda: cluster.find(ORDERS.tag).state is not JobState.QUEUED)
    assert cluster.find(ORDERS.tag).state is JobState.RUNNING, "its request was on the way"
    timer.join()
    server.drivers.clear()
    assert cluster.find(ORDERS.tag).state is JobState.FAILED
    cluster.submit(ORDERS)
    assert server.started == {}


def fake_pod(tag: str) -> dict[str, Any]:
    metadata = {"name": "late", "uid": "late", "labels": {"stateshift/tag": digest(tag)}}
    return {"metadata": metadata, "status": {"phase": "Running"}}


def test_a_launcher_is_ended_with_a_stop_that_finds_no_pod_yet(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    environment = {"FAKE_SECONDS": "600"}
    cluster = opened(server, tmp_path, environment=environment, seconds_max=0.5)
    pid = cluster.submit(ORDERS)
    assert cluster.stop(stopping(ORDERS.tag)).state is JobState.FINISHED
    assert in_time(lambda: not Path(f"/proc/{pid}").exists())
    assert server.drivers == {}


# ---- the states, in the words of pod and events


def container(state: str, **facts: Any) -> dict[str, Any]:
    return {"name": "spark-kubernetes-driver", "state": {state: facts}}


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        ({"phase": "Running"}, JobState.RUNNING, None),
        ({"phase": "Succeeded"}, JobState.FINISHED, None),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    container("waiting", reason="ErrImagePull", message='tag "9" not found')
                ],
            },
            JobState.QUEUED,
            'ErrImagePull: tag "9" not found',
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient memory.",
                    }
                ],
            },
            JobState.QUEUED,
            "Unschedulable: 0/3 nodes are available: 3 Insufficient memory.",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."},
            JobState.FAILED,
            "Evicted: The node was low on memory.",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [container("terminated", exitCode=137, reason="OOMKilled")],
            },
            JobState.FAILED,
            "spark-kubernetes-driver ended with exit code 137 (OOMKilled)",
        ),
        (
            {
                "phase": "Running",  # for a sidecar
                "containerStatuses": [
                    container("terminated", exitCode=1, reason="Error"),
                    {"name": "istio-proxy", "state": {"running": {}}},
                ],
            },
            JobState.FAILED,
            "spark-kubernetes-driver ended with exit code 1 (Error)",
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [container("terminated", exitCode=0, reason="Completed")],
            },
            JobState.FINISHED,
            None,
        ),
    ],
)
def test_a_pods_own_words_for_a_state(
    server: FakeKubernetes,
    cluster: DriverPods,
    status: dict[str, Any],
    state: JobState,
    words: str | None,
) -> None:
    id = cluster.submit(ORDERS)
    only(server)["status"] = status
    found = cluster.find(ORDERS.tag)
    assert (found.state, found.detail, found.id) == (state, words, id)
    failure = cluster.failure(ORDERS.tag)
    if state in (JobState.QUEUED, JobState.FAILED):
        assert failure is not None and failure.remedy is Remedy.OTHER_SUBMIT
        assert failure.fact == words


def test_a_pod_that_waits_and_does_not_say_for_what_is_told_by_its_events(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    server.phase = "Pending"
    id = cluster.submit(ORDERS)
    about = {"involvedObject": {"name": id}}
    words = 'MountVolume.SetUp failed: configmap "spark-drv" not found, token=hunter22'
    server.events = [
        {**about, "type": "Normal", "reason": "Scheduled", "message": "assigned"},
        {**about, "type": "Warning", "reason": "FailedMount", "message": words},
    ]
    told = cluster.find(ORDERS.tag).detail
    assert told == f"FailedMount: {words.replace('hunter22', '***')}"
    server.denied = {("list", "events"), ("get", "pods/log")}
    assert cluster.find(ORDERS.tag).detail is None, "fewer words, and no error"
    assert "HTTP 403" in cluster.log(ORDERS.tag)


def test_a_node_that_is_gone_leaves_a_job_of_which_a_person_has_to_decide(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    id = cluster.submit(ORDERS)
    only(server)["status"]["phase"] = "Unknown"
    with pytest.raises(ClusterError, match="its node does not answer") as raised:
        cluster.stop(stopping(ORDERS.tag))
    assert f"kubectl delete pod {id} -n shop --force" in raised.value.fact
    assert server.deleted == []
    follow(raised.value)
    assert cluster.stop(stopping(ORDERS.tag)).state is JobState.FINISHED
    only(server)["status"]["phase"] = "Running"
    assert cluster.find(ORDERS.tag).state is JobState.RUNNING, "what is seen goes first"


def follow(error: ClusterError) -> None:
    """Do what a hint says, once the job has ended."""
    touch = str(error.hint).partition(": ")[2].partition(";")[0]
    subprocess.run(touch, shell=True, check=True)


def test_a_pod_that_somebody_deletes_is_a_job_that_failed(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    cluster.submit(ORDERS)
    only(server)["metadata"]["deletionTimestamp"] = 1_000
    assert "is being deleted" in str(cluster.find(ORDERS.tag).detail)
    server.drivers.clear()
    status = cluster.find(ORDERS.tag)
    assert (status.state, "its pod is gone" in str(status.detail)) == (JobState.FAILED, True)
    failure = cluster.failure(ORDERS.tag)
    assert failure is not None and failure.remedy is Remedy.UNKNOWN, "its submit is right"
    cluster.submit(ORDERS)
    assert server.started == {ORDERS.tag: 1}


@pytest.mark.parametrize(
    ("phase", "state"), [("Succeeded", JobState.FINISHED), ("Failed", JobState.FAILED)]
)
def test_an_end_that_was_seen_holds_when_the_pod_is_removed(
    server: FakeKubernetes, cluster: DriverPods, phase: str, state: JobState
) -> None:
    id = cluster.submit(ORDERS)
    only(server)["status"] = {"phase": phase, "reason": "Evicted" if phase == "Failed" else ""}
    seen = cluster.find(ORDERS.tag)
    server.drivers.clear()
    assert (seen.state, seen.id, cluster.find(ORDERS.tag)) == (state, id, seen)


def test_what_spark_submit_was_refused_is_told_where_it_has_deleted_its_pod(
    server: FakeKubernetes, cluster: DriverPods, tmp_path: Path
) -> None:
    cluster.submit(ORDERS)
    server.drivers.clear()
    (tmp_path / "state" / f"{ORDERS.tag}.exit").write_text("1")
    assert cluster.find(ORDERS.tag).detail == "spark-submit ended with 1"


def test_a_request_without_an_answer_may_still_make_the_pod(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.quota = True
    cluster = opened(server, tmp_path, settle_seconds=20)
    cluster.submit(ORDERS)
    said = "Operation: [create]  for kind: [Pod]  with name: [null]  in namespace: [shop]  failed."
    (tmp_path / "state" / f"{ORDERS.tag}.log").write_text(said)
    timer = threading.Timer(0.3, lambda: server.drivers.update({"late": fake_pod(ORDERS.tag)}))
    timer.start()
    assert cluster.find(ORDERS.tag).state is JobState.RUNNING
    timer.join()


@pytest.mark.parametrize(
    ("main", "mounts"), [("main", ()), ("main", ("settings",)), ("spark-kubernetes-driver", ())]
)
def test_a_template_names_the_container_of_the_driver(
    server: FakeKubernetes, cluster: DriverPods, main: str, mounts: tuple[str, ...]
) -> None:
    driver: dict[str, Any] = {"name": main, "args": ["driver"]}
    containers = [{"name": "istio-proxy"}, driver]
    if mounts:  # a sidecar was injected after it
        driver["volumeMounts"] = [{"name": "spark-conf-volume-driver", "mountPath": "/opt"}]
        containers.append({"name": "vault", "volumeMounts": [{"name": "token"}]})
    pod = stranger(server)
    pod["spec"]["containers"] = containers
    ended = {"name": main, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    others = [{"name": "istio-proxy", "state": {"terminated": {"exitCode": 0}}}]
    pod["status"] = {"phase": "Running", "containerStatuses": others}
    assert cluster.find_source(stopping()).state is JobState.RUNNING
    pod["status"]["containerStatuses"] = [ended, *others]
    assert cluster.find_source(stopping()).state is JobState.FAILED
    pod["status"] = {"phase": "Running"}
    cluster.stop(stopping())
    assert server.queries["pods/log"]["container"] == [main]


# ---- which job


def test_a_job_of_somebody_else_is_found_by_its_name_or_by_its_pod(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    stranger(server, "moved", labels={"stateshift/place": "of another location"})
    stranger(server)
    stranger(server, "over")["status"]["phase"] = "Failed"
    stranger(server, "executor", labels={"spark-role": "executor"})
    assert cluster.find_source(stopping()).id == "theirs"
    assert cluster.find_source(stopping(app_name="totals")).state is JobState.UNKNOWN
    stranger(server, "second")
    with pytest.raises(ClusterError, match="several are alive: theirs, second"):
        cluster.stop(stopping())
    assert cluster.stop(stopping(pod="second")).state is JobState.ABSENT
    assert server.deleted == ["second"]


def test_a_driver_in_client_mode_shows_by_its_executors_and_is_not_taken_for_none(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    stranger(server, "orders-exec-1", labels={"spark-role": "executor"})
    status = cluster.find_source(stopping())
    assert (status.state, "client mode" in str(status.detail)) == (JobState.UNKNOWN, True)


@pytest.mark.parametrize(
    "more",
    [
        {"labels": {"sparkoperator.k8s.io/app-name": "orders"}},
        {"ownerReferences": [{"kind": "Job", "name": "orders", "controller": True}]},
    ],
)
def test_a_driver_that_somebody_would_start_again_is_refused(
    server: FakeKubernetes, cluster: DriverPods, tmp_path: Path, more: dict[str, Any]
) -> None:
    stranger(server, **more)
    for ask in (stopping(), stopping(pod="theirs")):
        with pytest.raises(ClusterError, match="theirs is kept by") as raised:
            cluster.stop(ask)
        assert "spark_operator" in str(raised.value.hint)
    assert server.deleted == [] and not list((tmp_path / "state").glob("*.killed.json"))


@pytest.mark.parametrize("job", ["заказы", "orders_EU", "Orders", "o" * 64])
def test_a_label_that_other_names_have_as_well_is_not_taken_for_the_job(
    server: FakeKubernetes, cluster: DriverPods, job: str
) -> None:
    """Labels as Spark 4.3 makes them (KubernetesConf.getAppNameLabel)."""
    for name, label in (("payments", ""), ("eu", "orders-eu"), ("long", "o" * 63), ("o", "orders")):
        stranger(server, name, labels={"spark-app-name": label})
    ask = StopRequest(job, TARGET, None, 2.0, {})
    with pytest.raises(ClusterError, match=f"cannot tell whether {job} runs") as raised:
        cluster.stop(ask)
    said = f"{raised.value.fact}: {raised.value.hint}"
    assert "payments" not in said and '"stop": {"pod": …}' in said
    assert server.deleted == []
    cluster.stop(replace(ask, options={"pod": "payments"}))
    assert server.deleted == ["payments"]


def test_a_job_that_is_not_seen_may_run_in_another_namespace(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    status = cluster.find_source(stopping())
    assert (status.state, status.detail) == (
        JobState.UNKNOWN,
        f"no driver of it is in namespace shop of {server.url}, and it may run elsewhere",
    )
    stranger(server)
    assert cluster.stop(stopping()) == JobStatus(JobState.FINISHED, "theirs", "stopped")
    assert not cluster.stop(stopping()).state.alive, "by our own note"


def test_the_newest_driver_of_a_location_tells_of_it(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    for name, began, phase in (("a-new", "02", "Failed"), ("b-old", "01", "Succeeded")):
        label = {"stateshift/place": place_of(TARGET)}
        pod = stranger(server, name, labels=label, creationTimestamp=f"2026-{began}-01T00:00:00Z")
        pod["status"]["phase"] = phase
    assert cluster.find_source(stopping()).id == "a-new"


def test_a_pod_that_is_no_driver_is_refused(server: FakeKubernetes, cluster: DriverPods) -> None:
    stranger(server, "web", labels={"spark-role": ""})
    with pytest.raises(ClusterError, match="web is no driver of Spark's"):
        cluster.stop(stopping(pod="web"))
    assert server.deleted == []


@pytest.mark.parametrize("options", [{"pod": "theirs"}, {"app_name": "orders"}])
def test_a_pod_of_a_job_elsewhere_than_in_kubernetes_is_refused(
    tmp_path: Path, options: dict[str, str]
) -> None:
    plain = {"master": "local[2]", "state_dir": str(tmp_path)}
    local = open_cluster(ClusterSpec("here", "spark_submit", plain), str(tmp_path))
    with pytest.raises(ClusterError, match=f'"{next(iter(options))}" of its "stop" is for drivers'):
        local.find_source(stopping(**options))


def test_a_cluster_that_is_another_by_now_does_not_take_a_job_for_ended(
    server: FakeKubernetes, cluster: DriverPods, tmp_path: Path
) -> None:
    id = cluster.submit(ORDERS)
    only_in(server, "shop")
    other = opened(server, tmp_path, conf={"spark.kubernetes.namespace": "other"})
    status = other.find(ORDERS.tag)
    assert (status.state, status.id) == (JobState.UNKNOWN, id)
    assert f"was submitted to namespace shop of {server.url}" in str(status.detail)
    with pytest.raises(ClusterError, match="cannot tell whether orders runs"):
        other.stop(stopping(ORDERS.tag))
    other.submit(ORDERS)
    assert running(server) == [id] and server.started == {ORDERS.tag: 1}


def only_in(server: FakeKubernetes, namespace: str) -> None:
    """All pods are in this namespace; another one is empty, whether there is one or not."""
    answer = server.answer

    def by_namespace(
        method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        if method == "GET" and f"/namespaces/{namespace}/" not in path:
            name = path.partition("/pods/")[2]
            items = {"kind": "PodList", "metadata": {}, "items": []}
            return (404, {"kind": "Status", "reason": "NotFound"}) if name else (200, items)
        return answer(method, path, query, body)

    server.answer = by_namespace  # type: ignore[method-assign]


# ---- runs of older versions, which labelled nothing and noted no pod


def older(folder: Path, held: bool) -> subprocess.Popen[bytes] | None:
    """What such a run has left, and its launcher if that still waits."""
    stem = folder / "state" / ORDERS.tag
    stem.parent.mkdir()
    driver = {"master": "k8s://https://east:6443", "waits": held}
    stem.with_name(f"{stem.name}.deployed").write_text(json.dumps(driver))
    stem.with_name(f"{stem.name}.log").write_text("\t pod name: theirs\n\t namespace: shop\n")
    stem.with_name(f"{stem.name}.lock").touch()
    if not held:
        stem.with_name(f"{stem.name}.pid").write_text("999999")
        stem.with_name(f"{stem.name}.exit").write_text("0")
        return None
    words = f"exec 9<>{stem}.lock; flock -x 9; echo $$ >{stem}.pid; exec sleep 600"
    launcher = subprocess.Popen(["sh", "-c", words], start_new_session=True)
    assert in_time(lambda: stem.with_name(f"{stem.name}.pid").is_file())
    return launcher


@pytest.mark.parametrize("held", [False, True])
def test_a_driver_of_an_older_version_is_found_by_what_spark_submit_has_said(
    server: FakeKubernetes, tmp_path: Path, held: bool
) -> None:
    launcher = older(tmp_path, held)
    stranger(server)
    cluster = opened(server, tmp_path, seconds_max=2)
    try:
        assert cluster.find(ORDERS.tag) == JobStatus(JobState.RUNNING, "theirs")
        assert cluster.submit(ORDERS) == "theirs"
        assert cluster.stop(stopping(ORDERS.tag)).state is JobState.FINISHED
        assert (server.deleted, sum(server.started.values())) == (["theirs"], 0)
        assert cluster.find(ORDERS.tag).state is JobState.FINISHED
    finally:
        if launcher is not None:
            launcher.kill()
            launcher.wait()


@pytest.mark.parametrize("held", [False, True])
def test_a_driver_of_an_older_version_that_is_not_seen_is_unknown_and_not_started_again(
    server: FakeKubernetes, tmp_path: Path, held: bool
) -> None:
    launcher = older(tmp_path, held)
    cluster = opened(server, tmp_path, seconds_max=2)
    try:
        assert cluster.find(ORDERS.tag).state is JobState.UNKNOWN
        cluster.submit(ORDERS)
        assert not server.started
        with pytest.raises(ClusterError, match="cannot tell whether orders runs") as raised:
            cluster.stop(stopping(ORDERS.tag))
        follow(raised.value)
        assert cluster.stop(stopping(ORDERS.tag)).state is JobState.FINISHED
    finally:
        if launcher is not None:
            launcher.kill()
            launcher.wait()


# ---- the stop


@pytest.mark.parametrize("options", [{}, {"pod": "theirs"}])
def test_a_kept_driver_is_not_asked_to_stop_before_it_is_refused(
    server: FakeKubernetes, tmp_path: Path, options: dict[str, str]
) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(), SOURCE)
    stranger(server, ownerReferences=[{"kind": "Job", "name": "orders", "controller": True}])
    asked: list[str] = []

    def open_storage(location: str) -> Any:
        asked.append(location)
        return ground.open(location)

    cluster = opened(server, tmp_path, open_storage, graceful_seconds=5)
    request = stopping(location=SOURCE, **options)
    with pytest.raises(ClusterError, match="theirs is kept by Job orders"):
        cluster.stop(request)
    assert asked == [] and running(server) == ["theirs"]
    assert not cluster.is_stopping(request), "nothing of it is to be taken back"


def test_a_log_without_end_delays_no_stop_and_neither_does_a_full_disk(
    server: FakeKubernetes, cluster: DriverPods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.log = "".join(
        f"{number:7} word=1 token abc/def:8080 {'x' * 8_000}\n" for number in range(9_999)
    )
    stranger(server)
    began = time.monotonic()
    cluster.stop(stopping())
    assert time.monotonic() - began < 20, "the time to redact it all is minutes"
    kept = (tmp_path / "state" / "theirs.pod.log").read_text()
    assert kept.startswith("   9") and len(kept) <= 1 << 18 and "9998 word" in kept

    def full(*words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(driver_pods, "write_whole", full)
    stranger(server, "second")
    cluster.stop(stopping(pod="second"))
    assert server.deleted == ["theirs", "second"]


def test_what_a_driver_has_said_is_kept_before_its_pod_is_deleted(
    server: FakeKubernetes, cluster: DriverPods, tmp_path: Path
) -> None:
    id = cluster.submit(ORDERS)
    assert cluster.stop(stopping(ORDERS.tag)).state is JobState.FINISHED
    assert (server.deleted, server.drivers) == ([id], {})
    assert cluster.log(ORDERS.tag) == "started with password=***"
    kept = tmp_path / "state" / f"{id}.pod.log"
    assert kept.read_text() == "started with password=***\n" and kept.stat().st_mode & 0o77 == 0


def test_a_job_that_answers_the_marker_is_not_deleted(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(), SOURCE)
    storage, pod = ground.disk.open(SOURCE), stranger(server)

    def job() -> None:
        while storage.stat(STOP) is None:
            time.sleep(0.01)
        put(storage, STOPPING, b"yes")
        pod["status"]["phase"] = "Succeeded"

    thread = threading.Thread(target=job)
    thread.start()
    cluster = opened(server, tmp_path, ground.open, graceful_seconds=5)
    assert not cluster.stop(replace(stopping(location=SOURCE), seconds_max=40.0)).state.alive
    thread.join()
    assert server.deleted == [] and storage.stat(STOP) is None and storage.stat(STOPPING) is None


def test_a_pod_of_the_same_name_that_came_since_is_left_alone(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    pod = stranger(server)
    cluster.calls.delete(POD, {"metadata": {"name": "theirs", "uid": "old"}})
    assert server.drivers == {"theirs": pod}
    cluster.calls.delete(POD, {"metadata": {"name": "gone", "uid": "x"}})


def test_a_driver_that_does_not_end_is_not_taken_for_ended(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    id = cluster.submit(ORDERS)
    server.grace = 1_000
    with pytest.raises(ClusterError, match="is running 2 s after it was stopped") as raised:
        cluster.stop(stopping(ORDERS.tag))
    assert f"kubectl describe pod {id} -n shop" in str(raised.value.hint)
    assert cluster.is_stopping(stopping(ORDERS.tag))
    server.turns(1_000)
    assert not cluster.is_stopping(stopping(ORDERS.tag))
    assert cluster.stop(stopping(ORDERS.tag)).state is JobState.FINISHED


# ---- faults


def test_an_account_without_a_right_is_told_which_and_nothing_is_begun(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    stranger(server)
    server.denied = {("list", "pods")}
    with pytest.raises(ClusterError, match="cannot list") as raised:
        cluster.find_source(stopping())
    assert raised.value.exit_code == 7
    assert 'the account needs "list" of pods in the namespace shop' in str(raised.value.hint)
    server.denied = {("delete", "pods")}
    with pytest.raises(ClusterError, match="cannot delete"):
        cluster.stop(stopping())
    assert running(server) == ["theirs"] and not cluster.is_stopping(stopping())
    server.denied = {("create", "pods")}
    assert '"create" of pods' in str(cluster.try_start(ORDERS).hint)


def test_a_start_is_tried_before_the_old_job_is_stopped(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    assert "whether its image can be pulled" in cluster.try_start(ORDERS).untried
    server.quota = True
    trial = cluster.try_start(ORDERS)  # the old job's end may make room
    assert (trial.refused, "exceeded quota" in trial.untried) == ("", True)
    server.namespace_is_gone = True
    assert "there is no namespace shop" in str(cluster.try_start(ORDERS).hint)
    assert server.drivers == {} and not server.started
    server.quota = server.namespace_is_gone = False
    nowhere = replace(ORDERS, options={"application": "local:///nowhere.py"})
    assert "whether local:///nowhere.py is there is not known" in cluster.try_start(nowhere).untried


def test_what_spark_submit_is_refused_is_told_in_its_words(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    server.quota = True
    pid = cluster.submit(ORDERS)
    status = cluster.find(ORDERS.tag)
    assert (status.state, status.id) == (JobState.FAILED, pid)
    assert status.detail == "spark-submit ended with 1"
    failure = cluster.failure(ORDERS.tag)
    assert failure is not None and "exceeded quota: pods" in failure.fact


def test_an_api_server_that_is_away_is_no_end_of_a_job(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path, outage_seconds=20)
    cluster.submit(ORDERS)
    server.grace = 1_000
    thread = threading.Thread(
        target=lambda: cluster.stop(replace(stopping(ORDERS.tag), seconds_max=30.0))
    )
    thread.start()
    assert in_time(lambda: bool(server.deleted))
    with server.lock:  # it is busy with something else
        time.sleep(0.3)
        server.turns(1_000)
    thread.join()
    assert server.drivers == {}
    conf = {"spark.kubernetes.context": "shop"}
    away = opened(server, tmp_path, master="k8s://http://127.0.0.1:1", conf=conf)
    with pytest.raises(Unanswered, match="does not answer") as raised:
        away.find(ORDERS.tag)
    assert raised.value.exit_code == 7 and "resume WORKDIR" in str(raised.value.hint)


def test_a_token_that_expires_is_told_and_in_no_message(
    server: FakeKubernetes, cluster: DriverPods
) -> None:
    cluster.submit(ORDERS)
    server.tokens = {"another"}
    with pytest.raises(ClusterError, match="Unauthorized") as raised:
        cluster.stop(stopping(ORDERS.tag))
    assert TOKEN not in str(raised.value) and "sign in again" in str(raised.value.hint)
    assert len(running(server)) == 1


# ---- the API server that spark-submit asks


def test_the_master_the_context_and_the_namespace_are_those_of_spark_submit(
    server: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = opened(server, tmp_path).calls.access
    assert (access.server, access.namespace) == (server.url, "shop")
    conf = {"spark.kubernetes.context": "shop", "spark.kubernetes.namespace": "default"}
    access = opened(server, tmp_path, conf=conf, master="k8s://east:6443/").calls.access
    assert (access.server, access.namespace) == ("https://east:6443", "default")
    plain = spec(server, tmp_path)
    unnamed = replace(plain, options={**plain.options, "conf": {}})
    with pytest.raises(ClusterError, match=r"has no spark\.kubernetes\.namespace"):
        open_cluster(unnamed, str(tmp_path)).find_source(stopping())
    for refused, words in (
        ({"master": "k8s://http://east:6443"}, "is not https"),
        ({"conf": {"spark.kubernetes.trust.certificates": True}}, "trust.certificates is not done"),
        (
            {"conf": {"spark.kubernetes.authenticate.submission.oauthTokenFile": "/t"}},
            "oauthTokenFile is not done",
        ),
        ({"conf": {"spark.kubernetes.context": "west"}}, "has no context west, but shop"),
    ):
        with pytest.raises(ClusterError, match=words):
            opened(server, tmp_path, **refused).find("t")
    fine = {"spark.kubernetes.trust.certificates": False}
    assert opened(server, tmp_path, conf=fine).find("t").state is JobState.ABSENT


@pytest.mark.parametrize("other", ["http://127.0.0.1:1", "https://east", "https://127.0.0.1:x"])
def test_a_token_goes_to_the_server_that_it_is_of(
    server: FakeKubernetes, tmp_path: Path, other: str
) -> None:
    with pytest.raises(ClusterError, match="its token is not shown to") as raised:
        opened(server, tmp_path, master=f"k8s://{other}").find("t")
    assert "spark.kubernetes.context" in str(raised.value.hint)
    assert (
        opened(server, tmp_path, master=f"k8s://{server.url}/").find("t").state is JobState.ABSENT
    )


def test_a_plug_in_is_told_the_server_that_is_asked(server: FakeKubernetes, tmp_path: Path) -> None:
    info = tmp_path / "info"
    script = f'printf %s "$KUBERNETES_EXEC_INFO" >{info}; exit 1'
    version = "client.authentication.k8s.io/v1"
    plug_in: dict[str, Any] = {"apiVersion": version, "command": "sh", "args": ["-c", script]}
    plug_in |= {"provideClusterInfo": True, "interactiveMode": "Never"}
    config = server.kubeconfig(tmp_path / "exec", exec=plug_in)
    conf = {"spark.kubernetes.context": "shop"}
    environment = {"KUBECONFIG": config}
    asked = {"conf": conf, "environment": environment, "master": "k8s://https://east:6443"}
    with pytest.raises(ClusterError, match="ended with 1"):
        opened(server, tmp_path, **asked).find("t")
    assert json.loads(info.read_text())["spec"]["cluster"]["server"] == "https://east:6443"


@pytest.mark.parametrize(
    ("master", "shown"),
    [
        ("https://10.1.2.3", True),
        ("https://kubernetes.default.svc:443/", True),
        ("https://east:6443", False),
    ],
)
def test_a_pods_account_is_shown_to_its_own_server(
    server: FakeKubernetes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    shown: bool,
) -> None:
    for name in ("token", "namespace", "ca.crt"):
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(credentials, "_ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.1.2.3")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    cluster = opened(server, tmp_path, master=f"k8s://{master}", environment={"KUBECONFIG": ""})
    if shown:
        access = cluster.calls.access
        assert (access.server, access.namespace) == (master.rstrip("/"), "shop")
        return
    with pytest.raises(ClusterError, match="its token is not shown to https://east:6443"):
        _ = cluster.calls.access


@pytest.mark.parametrize(
    ("cluster", "submit", "connection", "words"),
    [
        ({}, {}, None, ""),
        ({}, {"conf": {"spark.kubernetes.namespace": "shop"}}, None, ""),
        ({}, {"conf": {"spark.kubernetes.namespace": "west"}}, None, "namespace is where"),
        ({}, {"conf": {"spark.kubernetes.context": "west"}}, None, "context is where"),
        ({}, {"environment": {"KUBECONFIG": "/x"}}, None, "KUBECONFIG"),
        ({}, {"conf": {"spark.kubernetes.driver.pod.name": "x"}}, None, "made of the tag"),
        ({}, {"conf": {f"{OTHER_ACCESS}.oauthToken": "s3cret"}}, None, "be somebody else"),
        ({}, {"application": __file__}, None, "file.upload.path"),
        ({}, {"py_files": ["a.zip"]}, None, "file.upload.path"),
        (
            {"conf": {"spark.kubernetes.file.upload.path": "s3a://u"}},
            {"application": __file__},
            None,
            "",
        ),
        ({}, {}, "k8s://https://west:443", "where the cluster itself makes them"),
        ({}, {"deploy_mode": "client"}, None, "where the cluster itself makes them"),
        ({"deploy_mode": "client"}, {"deploy_mode": "cluster"}, None, "the cluster itself makes"),
        ({"deploy_mode": "client"}, {}, None, ""),
    ],
)
def test_a_start_that_would_be_looked_for_in_another_place_is_refused(
    server: FakeKubernetes,
    tmp_path: Path,
    cluster: dict[str, Any],
    submit: dict[str, Any],
    connection: str | None,
    words: str,
) -> None:
    given = {**APPLICATION, **submit}
    if not words:
        check_submit(spec(server, tmp_path, **cluster), given, "/jobs/0/submit", connection)
        return
    with pytest.raises(SpecError, match=words) as raised:
        check_submit(spec(server, tmp_path, **cluster), given, "/jobs/0/submit", connection)
    assert "s3cret" not in str(raised.value)


# ---- whole moves


class DyingPods(DriverPods):
    @cached_property
    def calls(self) -> KubernetesCalls:
        plain = super().calls
        return Dying(plain.cluster, plain.options, plain.interrupt)

    def submit(self, submission: Submission) -> str:
        Dying.moment()
        id = super().submit(submission)
        Dying.moment()
        return id


def place(folder: Path, server: FakeKubernetes, commits: bool = True) -> Ground:
    """A driver `theirs` runs from a checkpoint; one that is started from another commits a batch."""
    ground = Ground(folder)
    ground.write(Checkpoint(), SOURCE)

    def begin(pod: dict[str, Any]) -> None:
        location = json.loads(pod["metadata"]["annotations"]["test/conf"])[
            "spark.stateshift.checkpoint"
        ]
        if commits and location == TARGET:
            commit_next(ground.disk.open(location))

    server.on_driver = begin
    stranger(server)
    plain = opened(server, folder, ground.open)
    ground.cluster = DyingPods(  # type: ignore[assignment]
        plain.name, plain.state_dir, plain.options, str(folder), ground.open
    )
    return ground


def spec_of(server: FakeKubernetes, folder: Path, **more: Any) -> Spec:
    job = {
        "name": "orders",
        "checkpoint_location": SOURCE,
        "remote_location": TARGET,
        "source_cluster": "eks",
        "target_cluster": "eks",
        "source_submit": APPLICATION,
        "stop": {"seconds_max": 3},
        "submit": {**APPLICATION, "seconds_max": 3},
        **more,
    }
    options = {"kind": "spark_submit", **spec(server, folder).options}
    plain = {"version": 1, "engine": "spark", "clusters": {"eks": options}, "jobs": [job]}
    return parse_spec(json.dumps({**plain, "on_failure": "stop"}))


def test_a_job_is_moved_to_a_pod_of_ours(server: FakeKubernetes, tmp_path: Path) -> None:
    ground = place(tmp_path, server)
    assert ground.apply(spec_of(server, tmp_path)).state == "finished"
    assert (server.deleted, len(running(server))) == (["theirs"], 1)
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "kubeconfig":
            assert TOKEN.encode() not in path.read_bytes(), path


def test_a_driver_that_does_not_come_up_is_told_and_the_old_job_runs_again(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server, commits=False)
    server.phase = "Pending"
    waiting = container("waiting", reason="ImagePullBackOff", message="no spark:9")
    server.pod_status = {"containerStatuses": [waiting]}
    with pytest.raises(ClusterError, match="ImagePullBackOff: no spark:9") as raised:
        ground.apply(spec_of(server, tmp_path))
    assert raised.value.exit_code == JOB_DOWN
    server.phase, server.pod_status = "Running", {}
    ground.rollback()
    (name,) = running(server)
    conf = json.loads(server.drivers[name]["metadata"]["annotations"]["test/conf"])
    assert conf["spark.stateshift.checkpoint"] == SOURCE


@pytest.mark.parametrize("grace", [0, 10])
def test_a_run_killed_anywhere_ends_with_one_job(tmp_path: Path, grace: int) -> None:
    number, moments = 0, 1
    while number < moments:
        number += 1
        with fake_kubernetes.serving() as server:
            ground = place(tmp_path / str(number), server)
            server.grace = grace
            Dying.writes, Dying.die_at = 0, number
            with suppress(Killed):
                ground.apply(spec_of(server, tmp_path / str(number)))
            Dying.die_at = 0
            assert ground.resume().state == "finished", number
            moments = max(moments, Dying.writes)
            (name,) = running(server)
            assert labels_of(server.drivers[name])["stateshift/tag"], number
            assert sum(server.started.values()) == 1, number
            assert set(server.deleted) == {"theirs"}, number
    assert number >= 4


@pytest.mark.parametrize("grace", [0, 20])
def test_a_run_killed_anywhere_and_taken_back_runs_the_old_job_alone(
    tmp_path: Path, grace: int
) -> None:
    for number in range(1, 5):
        with fake_kubernetes.serving() as server, ExitStack() as stack:
            ground = place(tmp_path / str(number), server)
            if grace:  # a pod takes its time, and does not end by our looking at it
                server.grace, server.is_looked_at = grace, False
                stack.enter_context(server.operating())
            Dying.writes, Dying.die_at = 0, number
            with pytest.raises(Killed):
                ground.apply(spec_of(server, tmp_path / str(number)))
            Dying.die_at = 0
            ground.rollback(discard_progress=True)
            stack.close()
            server.turns(grace + 4)
            (name,) = running(server)
            if name != "theirs":
                conf = json.loads(server.drivers[name]["metadata"]["annotations"]["test/conf"])
                assert conf["spark.stateshift.checkpoint"] == SOURCE, number


def test_a_job_that_is_not_where_the_spec_says_is_not_started_a_second_time(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground, plain = place(tmp_path, server), spec_of(server, tmp_path)
    only_in(server, "theirs")
    with pytest.raises(PlanError, match="no driver of it is in namespace shop of"):
        ground.apply(plain)
    assert running(server) == ["theirs"] and not server.started


def test_no_right_is_used_that_no_page_asks_for(server: FakeKubernetes, tmp_path: Path) -> None:
    ground = place(tmp_path, server)
    assert ground.apply(spec_of(server, tmp_path)).state == "finished"
    ground.cluster.log(next(iter(server.started)))
    needed = {(group, name, verb) for (group, name), verbs in POD_NEEDS.items() for verb in verbs}
    assert server.asked == needed
