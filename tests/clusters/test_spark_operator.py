"""Spark jobs under spark-operator, on a stand-in for the API server with a scripted operator: moves
that are killed at every request, taken back, and refused. The real API server is in
tests/servers/test_spark_operator.py.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.kind import Submit
from stateshift.clusters.kubernetes.calls import SPARK_NEEDS, KubernetesCalls
from stateshift.clusters.kubernetes.spark_operator import SparkOperator, check_submit
from stateshift.clusters.protocol import JobState, Remedy, StopRequest, Submission
from stateshift.errors import ClusterError, PlanError, SpecError
from stateshift.formats.marks import STOP, STOPPING
from stateshift.specification import Spec, parse_spec
from stateshift.specification.model import ClusterSpec
from tests.clusters import fake_kubernetes
from tests.clusters.fake_kubernetes import TOKEN, Dying, FakeKubernetes
from tests.contracts.faulty import Killed
from tests.support import scripted_spark_operator
from tests.support.checkpoints import Checkpoint, commit_next, put
from tests.support.ground import Ground

SOURCE, TARGET = "s3a://here/orders", "s3a://there/orders"
LIKE = {"like": {"resource": "orders"}, "resource": "orders-new"}


@pytest.fixture
def server() -> Iterator[FakeKubernetes]:
    with fake_kubernetes.serving() as served:
        yield served


@pytest.fixture
def cluster(server: FakeKubernetes, tmp_path: Path) -> SparkOperator:
    return opened(server, tmp_path)


def opened(
    server: FakeKubernetes,
    folder: Path,
    kind: type[SparkOperator] = SparkOperator,
    open_storage: Any = None,
    **options: Any,
) -> SparkOperator:
    given = {
        "kubeconfig": server.kubeconfig(folder),
        "reconcile_seconds": 0.3,
        "settle_seconds": 0,
        "outage_seconds": 0.2,
        "graceful_seconds": 0.05,
        **options,
    }
    return kind("old", folder / "state", given, str(folder), open_storage)


def stopping(tag: str | None = None, **more: Any) -> StopRequest:
    return StopRequest("orders", SOURCE, tag, **{"seconds_max": 1.0, **more})


def start_of(tag: str = "t", location: str = TARGET, **options: Any) -> Submission:
    return Submission(tag, "orders", location, options={**LIKE, **options})


def spec_in(server: FakeKubernetes, name: str = "orders") -> dict[str, Any]:
    return dict(server.objects["sparkapplications", name]["spec"])


# ---- whole moves


class DyingOperator(SparkOperator):
    @cached_property
    def calls(self) -> KubernetesCalls:
        return Dying(self.name, self.options, self.interrupt)


def place(
    folder: Path,
    server: FakeKubernetes,
    kind: type[SparkOperator] = SparkOperator,
    commits: bool = True,
    **spec: Any,
) -> Ground:
    """A job `orders` runs from a checkpoint; what is started from another commits a batch."""
    ground = Ground(folder)
    ground.write(Checkpoint(), SOURCE)

    def begin(plain: dict[str, Any]) -> None:
        location = plain["spec"]["sparkConf"].get("spark.stateshift.checkpoint")
        if location is None or not commits:
            return
        commit_next(ground.disk.open(location))

    server.on_driver = begin
    server.apply("orders", **spec)
    ground.cluster = opened(server, folder, kind, ground.open)  # type: ignore[assignment]
    return ground


def spec_of(**more: Any) -> Spec:
    job = {
        "name": "orders",
        "checkpoint_location": SOURCE,
        "remote_location": TARGET,
        "source_cluster": "old",
        "target_cluster": "old",
        "stop": {"seconds_max": 3},
        "submit": {**LIKE, "image": "spark:4.1.0", "seconds_max": 3},
        **more,
    }
    clusters = {"old": {"kind": "spark_operator", "kubeconfig": "x"}}
    plain = {"version": 1, "engine": "spark", "clusters": clusters, "jobs": [job]}
    return parse_spec(json.dumps({**plain, "on_failure": "stop"}))


def test_a_job_is_suspended_and_another_application_goes_on(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    assert ground.apply(spec_of()).state == "finished"
    assert (spec_in(server)["suspend"], server.applications) == (True, ["orders-new"])
    new = spec_in(server, "orders-new")
    assert "suspend" not in new
    assert (new["image"], new["restartPolicy"]) == ("spark:4.1.0", {"type": "Always"})
    assert new["sparkConf"]["spark.stateshift.checkpoint"] == TARGET
    assert new["sparkConf"]["spark.ui.enabled"] == "false"
    assert new["driver"] == {"cores": 1, "env": []}, "which had the old checkpoint"


def test_a_job_goes_on_from_its_moved_checkpoint_in_its_own_application(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    submit = {"resource": "orders", "arguments": ["--from", "{checkpoint}"], "seconds_max": 3}
    assert ground.apply(spec_of(submit=submit)).state == "finished"
    assert (server.applications, server.runs["orders"]) == (["orders"], 2)
    assert spec_in(server)["arguments"] == ["--from", TARGET]


@pytest.mark.parametrize("rounds", [0, 4])  # of the operator, before we are there again
def test_a_run_killed_at_any_write_ends_with_one_job(tmp_path: Path, rounds: int) -> None:
    number, writes = 0, 1
    while number < writes:
        number += 1
        with fake_kubernetes.serving() as server:
            ground = place(tmp_path / str(number), server, DyingOperator)
            Dying.writes, Dying.die_at = 0, number
            with suppress(Killed):
                ground.apply(spec_of())
            writes = max(writes, Dying.writes)
            Dying.die_at = 0
            server.turns(rounds)
            assert ground.resume().state == "finished", number
            assert server.applications == ["orders-new"], number
            assert (server.runs["orders"], server.runs["orders-new"]) == (1, 1), number
            writes = max(writes, Dying.writes)
    assert number >= 4


@pytest.mark.parametrize(("rounds", "grace"), [(0, 0), (4, 0), (0, 20)])
@pytest.mark.parametrize("resource", ["orders-new", "orders"])
def test_a_run_killed_at_any_write_and_taken_back_runs_the_old_job_alone(
    tmp_path: Path, rounds: int, grace: int, resource: str
) -> None:
    for number in range(1, 5):
        with fake_kubernetes.serving() as server, ExitStack() as stack:
            if grace:  # a driver takes its time, and nothing happens by our looking at it
                server.grace, server.is_looked_at = grace, False
                stack.enter_context(server.operating())
            ground = place(tmp_path / str(number), server, DyingOperator)
            before = spec_in(server)
            Dying.writes, Dying.die_at = 0, number
            submit = {**LIKE, "resource": resource, "image": "spark:4.1.0", "seconds_max": 3}
            with pytest.raises(Killed):
                ground.apply(spec_of(submit=submit))
            Dying.die_at = 0
            server.turns(rounds)
            ground.rollback(discard_progress=True)
            stack.close()
            server.turns(grace + 4)
            assert server.applications == ["orders"], number
            after = spec_in(server)
            assert (after["image"], after["restartPolicy"]) == ("spark:4.0.0", {"type": "Always"})
            assert after.keys() == before.keys(), "no suspension is left"


@pytest.mark.parametrize("rounds", [0, 4])
def test_a_rollback_that_is_killed_is_taken_up_again(tmp_path: Path, rounds: int) -> None:
    number, is_killed = 0, True
    while is_killed:
        number += 1
        with fake_kubernetes.serving() as server:
            ground = place(tmp_path / str(number), server, DyingOperator, commits=False)
            Dying.die_at = 0
            with pytest.raises(ClusterError, match="has committed nothing"):
                ground.apply(spec_of())
            Dying.writes, Dying.die_at = 0, number
            with suppress(Killed):
                ground.rollback()
            is_killed = Dying.writes >= number
            Dying.die_at = 0
            server.turns(rounds)
            ground.rollback()
            server.turns(4)
            assert server.applications == ["orders"], number
            assert server.runs["orders"] == 2, number
    assert number > 4, "two writes: the new job's end, and the old one's start"


# ---- the stop


def test_a_job_that_answers_the_marker_ends_by_itself_and_is_not_started_again(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    storage = ground.disk.open(SOURCE)

    def job() -> None:
        """Answers, and ends well; its operator would run it again."""
        while storage.stat(STOP) is None:
            time.sleep(0.01)
        put(storage, STOPPING, b"yes")
        server.drivers["orders-driver"]["status"]["phase"] = "Succeeded"

    thread = threading.Thread(target=job)
    thread.start()
    cluster = opened(server, tmp_path, open_storage=ground.open, graceful_seconds=5)
    with server.operating():
        began = time.monotonic()
        assert cluster.stop(stopping(seconds_max=40.0)).state is JobState.FINISHED
        assert time.monotonic() - began < 10, "the end of the first driver is enough"
        thread.join()
        time.sleep(0.2)
    assert server.applications == [] and spec_in(server)["suspend"] is True
    assert storage.stat(STOP) is None and storage.stat(STOPPING) is None


def test_a_suspended_job_runs_until_the_pod_of_its_driver_has_ended(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    server.grace = 1_000
    with pytest.raises(ClusterError, match="the pod of its driver, orders-driver, is ending"):
        cluster.stop(stopping())
    server.turns(1_000)
    assert cluster.stop(stopping()).state is JobState.FINISHED


def test_without_an_operator_the_stop_is_taken_back_and_said(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    before = server.apply("orders")["spec"]
    server.up = False
    with pytest.raises(ClusterError, match="no operator reconciles sparkapplication/orders"):
        cluster.stop(stopping())
    assert spec_in(server) == before
    server.up = True
    server.turns(3)
    assert (server.applications, server.runs["orders"]) == (["orders"], 1)
    assert cluster.stop(stopping()).state is JobState.FINISHED


class Keeper(KubernetesCalls):
    """Somebody writes each resource back as it was, at once."""

    def update(self, what: Any, body: Any, trial: bool = False) -> Any:
        before = self.get(what, body["metadata"]["name"]) or {}
        answer = super().update(what, body, trial)
        return super().update(what, {**answer, "spec": before["spec"]}, trial)


class KeptOperator(SparkOperator):
    @cached_property
    def calls(self) -> KubernetesCalls:
        return Keeper(self.name, self.options, self.interrupt)


def test_who_writes_over_our_stop_is_told_and_not_fought(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    marks = {"argocd.argoproj.io/tracking-id": "orders"}
    server.apply("orders")["metadata"]["annotations"] = marks
    server.unwatched = {"orders"}  # which is too slow to see it
    with pytest.raises(ClusterError, match="written over our stop") as raised:
        opened(server, tmp_path, KeptOperator).stop(stopping())
    assert "Argo CD" in str(raised.value.hint)
    assert server.objects["sparkapplications", "orders"]["metadata"]["generation"] == 3


@pytest.mark.parametrize("resource", ["orders-new", "orders"])
def test_an_application_that_we_stop_is_not_deleted_by_its_operator_in_time(
    server: FakeKubernetes, tmp_path: Path, resource: str
) -> None:
    ground = place(tmp_path, server, timeToLiveSeconds=1, suspend=False)
    submit = {"resource": resource, "seconds_max": 3}
    if resource != "orders":
        submit["like"] = {"resource": "orders"}
    assert ground.apply(spec_of(submit=submit)).state == "finished"
    if resource != "orders":
        assert "timeToLiveSeconds" not in spec_in(server)
    assert spec_in(server, resource)["timeToLiveSeconds"] == 1
    ground.rollback(discard_progress=True)
    assert spec_in(server)["timeToLiveSeconds"] == 1
    assert server.objects["sparkapplications", "orders"]["metadata"]["annotations"].keys() == {
        "stateshift/tag",
        "stateshift/location",
        "stateshift/replaced",
    }


def test_an_operator_without_suspend_is_refused_and_the_job_goes_on(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    server.can_suspend = False
    with pytest.raises(ClusterError, match=r"has no spec\.suspend") as raised:
        cluster.stop(stopping())
    assert "spark-operator 2.4" in str(raised.value.hint)
    assert server.applications == ["orders"]


def test_a_conflict_is_read_again(server: FakeKubernetes, cluster: SparkOperator) -> None:
    server.apply("orders")
    server.conflicts = 3
    assert cluster.stop(stopping()).state is JobState.FINISHED
    server.apply("busy")
    server.conflicts = 1_000
    with pytest.raises(ClusterError, match="Operation cannot be fulfilled"):
        cluster.stop(replace(stopping(), job="busy"))


@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_schedule_is_refused_until_it_is_suspended(
    server: FakeKubernetes, cluster: SparkOperator, is_suspended: bool
) -> None:
    run = server.apply("orders-17")
    run["metadata"]["labels"] = {"sparkoperator.k8s.io/scheduled-app-name": "orders"}
    schedule = {"metadata": {"name": "orders", "uid": "1"}, "spec": {"suspend": is_suspended}}
    server.objects["scheduledsparkapplications", "orders"] = schedule
    of_run = replace(stopping(), options={"app_name": "orders-17"})
    if is_suspended:
        assert cluster.find_source(stopping()).state is JobState.ABSENT
        assert cluster.stop(of_run).state is JobState.FINISHED
        return
    for ask in (lambda: cluster.find_source(stopping()), lambda: cluster.stop(of_run)):
        with pytest.raises(ClusterError, match="is a ScheduledSparkApplication") as raised:
            ask()
        assert "kubectl patch scheduledsparkapplication orders" in str(raised.value.hint)
    assert server.applications == ["orders-17"]


# ---- which job, and what it is


@pytest.mark.parametrize(
    ("status", "state", "detail"),
    [
        ({}, JobState.QUEUED, "the operator has yet to start it"),
        ({"state": "SUBMITTED"}, JobState.QUEUED, "submitted"),
        ({"state": "RUNNING"}, JobState.RUNNING, None),
        ({"state": "PENDING_RERUN"}, JobState.QUEUED, "pending rerun"),
        ({"state": "FAILING", "errorMessage": "gone"}, JobState.RUNNING, "failing: gone"),
        ({"state": "SUCCEEDING"}, JobState.RUNNING, "succeeding"),
        ({"state": "COMPLETED"}, JobState.FINISHED, "completed"),
        ({"state": "FAILED", "errorMessage": "exit 1"}, JobState.FAILED, "failed: exit 1"),
        (
            {"state": "SUBMISSION_FAILED", "errorMessage": "token=hunter22"},
            JobState.QUEUED,
            "submission failed: token=***",
        ),
        ({"state": "SUSPENDING"}, JobState.RUNNING, "suspending"),
        ({"state": "RESUMING"}, JobState.QUEUED, "resuming"),
        ({"state": "UNKNOWN"}, JobState.UNKNOWN, "unknown"),
    ],
)
def test_the_operators_words_for_a_state(
    server: FakeKubernetes,
    cluster: SparkOperator,
    status: dict[str, str],
    state: JobState,
    detail: str | None,
) -> None:
    server.apply("orders")["status"] = {"applicationState": status} if status else {}
    server.up = False
    server.drivers.clear()
    found = cluster.find_source(stopping())
    assert (found.state, found.detail, found.id) == (state, detail, "sparkapplication/orders")


def test_a_job_that_we_started_is_known_by_its_location_in_another_run(
    server: FakeKubernetes, cluster: SparkOperator, tmp_path: Path
) -> None:
    server.apply("orders")
    cluster.submit(start_of())
    other = opened(server, tmp_path / "other")
    assert other.find_source(StopRequest("x", f"{TARGET}/")).id == "sparkapplication/orders-new"
    named = StopRequest("x", SOURCE, options={"app_name": "orders-new"})
    assert other.find_source(named).state is JobState.ABSENT, "it is another location's"
    assert other.find_source(stopping()).id == "sparkapplication/orders"


def test_an_application_of_before_is_not_taken_for_the_one_that_was_started_in_it(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    cluster.stop(stopping())
    server.up = False
    cluster.submit(start_of(resource="orders"))
    assert cluster.find("t").state is JobState.QUEUED
    server.up = True
    server.turns(3)
    assert cluster.find("t").state is JobState.RUNNING


def test_stopped_before_the_operator_comes_it_starts_nothing_later(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    server.up = False
    cluster.submit(start_of())
    assert not cluster.stop(stopping("t")).state.alive
    server.up = True
    server.turns(4)
    assert server.applications == ["orders"]
    assert not cluster.find("t").state.alive


def test_a_driver_that_is_being_submitted_when_its_job_is_stopped_is_waited_for(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path, reconcile_seconds=5)
    server.apply("orders")
    server.unwatched = {"orders-new"}
    cluster.submit(start_of())
    before = dict(server.objects["sparkapplications", "orders-new"])

    def submitted() -> None:
        """The operator has read the application before it was suspended, and comes to an end."""
        with server.lock:
            status = scripted_spark_operator.reconciled(before, None, server)
            server.objects["sparkapplications", "orders-new"]["status"] = status
            server.unwatched = set()

    timer = threading.Timer(0.5, submitted)
    timer.start()
    with server.operating():
        assert not cluster.stop(stopping("t", seconds_max=20.0)).state.alive
    timer.join()
    assert server.runs["orders-new"] == 1, "it was not over before the driver came"
    assert server.applications == ["orders"]


# ---- the start


def test_an_application_whose_job_runs_is_not_made_anothers(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    server.apply("totals")
    with pytest.raises(ClusterError, match=r"totals is there, and running.*namespace shop"):
        cluster.submit(start_of(resource="totals"))
    assert "totals is there, and running" in cluster.try_start(start_of(resource="totals")).refused
    server.objects["sparkapplications", "totals"]["status"]["applicationState"] = {
        "state": "COMPLETED"
    }
    server.unwatched = {"totals"}
    server.drivers["totals-driver"]["status"]["phase"] = "Succeeded"
    with pytest.raises(ClusterError, match="totals is there, and finished"):
        cluster.submit(start_of(resource="totals"))  # it is somebody's, who has not suspended it
    assert cluster.find("t").state is JobState.ABSENT
    assert server.runs == {"orders": 1, "totals": 1}


def test_a_failed_start_is_made_again_in_its_own_application(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders", restartPolicy={"type": "Never"})
    server.phase = "Failed"
    cluster.submit(start_of())
    server.turns(4)
    assert cluster.find("t").state is JobState.FAILED
    server.phase = "Running"
    cluster.submit(start_of("t.2"))
    server.turns(4)
    assert server.applications == ["orders", "orders-new"]
    assert cluster.find("t").state is JobState.FINISHED, "its application has another tag now"


def test_options_and_placeholders_go_over_the_spec(server: FakeKubernetes, tmp_path: Path) -> None:
    server.apply(
        "orders", sparkConf={"spark.a": "1", "spark.here": "{job}", "spark.stateshift.wait": "1"}
    )
    cluster = opened(server, tmp_path, conf={"spark.a": 2, "spark.b": True})
    given = {
        "application": "local:///opt/new.py",
        "class": "shop.Orders",
        "arguments": ["{checkpoint}", 7],
        "conf": {"spark.b": False},
        "py_files": ["a.zip"],
        "driver_memory": "2g",
        "num_executors": 3,
        "environment": {"MODE": "new"},
    }
    cluster.submit(start_of(**given))
    spec = spec_in(server, "orders-new")
    assert (spec["mainApplicationFile"], spec["mainClass"]) == (
        "local:///opt/new.py",
        "shop.Orders",
    )
    assert (spec["arguments"], spec["deps"]) == ([TARGET, "7"], {"pyFiles": ["a.zip"]})
    assert (spec["driver"]["memory"], spec["executor"]) == ("2g", {"instances": 3})
    conf = spec["sparkConf"]
    assert (conf["spark.a"], conf["spark.b"], conf["spark.here"]) == ("2", "false", "orders")
    assert conf["spark.kubernetes.driverEnv.MODE"] == "new"
    assert "spark.stateshift.wait" not in conf


def test_a_manifest_with_an_option_that_nobody_knows_is_refused(
    server: FakeKubernetes, cluster: SparkOperator, tmp_path: Path
) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(json.dumps({**server.apply("orders"), "kind": "FlinkDeployment"}))
    with pytest.raises(ClusterError, match="is no manifest of a job") as raised:
        cluster.submit(Submission("t", "orders", TARGET, options={"manifest": str(path)}))
    assert "one SparkApplication of v1beta2" in str(raised.value.hint)
    with pytest.raises(SpecError, match="remote_connection"):
        check_submit(ClusterSpec("a", "spark_operator"), Submit({}, "/jobs/0/submit", "h:1"))


# ---- an operator that is slow, wrong, or away at the wrong moment


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_stop_that_ends_before_its_pod_does_is_taken_back_by_a_start(
    server: FakeKubernetes, tmp_path: Path, is_killed: bool
) -> None:
    ground = place(tmp_path, server, DyingOperator)
    server.grace = 100_000
    Dying.writes, Dying.die_at = 0, 2 if is_killed else 0
    with pytest.raises((Killed, ClusterError)):
        ground.apply(spec_of(stop={"seconds_max": 1}))
    Dying.die_at = 0
    assert server.applications == ["orders"], "it ends, and has not yet"
    with pytest.raises(ClusterError, match="orders-driver, is ending"):
        ground.rollback()
    server.drivers.clear()
    server.grace = 0
    ground.rollback()
    server.turns(4)
    assert (server.applications, server.runs["orders"]) == (["orders"], 2)
    assert "suspend" not in spec_in(server)


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_start_in_its_own_application_that_is_not_seen_can_be_stopped(
    server: FakeKubernetes, cluster: SparkOperator, tmp_path: Path, is_seen: bool
) -> None:
    server.apply("orders")
    cluster.stop(stopping())
    server.up = False
    cluster.submit(start_of(resource="orders"))
    if is_seen:  # and is suspended again before it is submitted
        server.objects["sparkapplications", "orders"]["spec"]["suspend"] = True
        server.up = True
        server.turns(6)
    other = opened(server, tmp_path / "other")
    target = StopRequest("x", TARGET)
    assert cluster.find("t").state.alive and other.find_source(target).state.alive
    assert not cluster.stop(stopping("t")).state.alive
    server.up = True
    server.turns(6)
    assert server.applications == []
    assert not cluster.find("t").state.alive and not other.find_source(target).state.alive


def test_a_fence_is_that_of_one_spec(server: FakeKubernetes, cluster: SparkOperator) -> None:
    server.apply("orders")
    server.up = False
    cluster.submit(start_of())
    cluster.stop(stopping("t"))
    stored = server.objects["sparkapplications", "orders-new"]
    stored["spec"]["image"] = "spark:next"
    stored["metadata"]["generation"] += 1
    assert cluster.find("t").detail == "the operator has yet to suspend it"


def test_a_job_runs_as_long_as_its_driver_whatever_the_operator_says(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server, commits=False, restartPolicy={"type": "Never"})
    server.dies_after_submit = {"orders-new"}
    with pytest.raises(ClusterError, match="has committed nothing"):
        ground.apply(spec_of())
    stored = server.objects["sparkapplications", "orders-new"]
    assert "driver pod already exist" in stored["status"]["applicationState"]["errorMessage"]
    for _ in range(2):
        with pytest.raises(ClusterError, match="says failed, but its driver") as raised:
            ground.rollback()
        assert "kubectl delete pod orders-new-driver -n shop" in str(raised.value.hint)
        assert server.applications == ["orders-new"], "two jobs would be one"
    del server.drivers["orders-new-driver"]
    ground.rollback()
    server.turns(4)
    assert server.applications == ["orders"]


def test_a_source_that_the_operator_calls_failed_is_asked_by_the_marker(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server, restartPolicy={"type": "Never"})
    server.objects["sparkapplications", "orders"]["status"]["applicationState"] = {
        "state": "FAILED"
    }
    storage = ground.disk.open(SOURCE)

    def job() -> None:
        while storage.stat(STOP) is None:
            time.sleep(0.01)
        put(storage, STOPPING, b"yes")
        server.drivers["orders-driver"]["status"]["phase"] = "Succeeded"

    thread = threading.Thread(target=job)
    thread.start()
    cluster = opened(server, tmp_path, open_storage=ground.open, graceful_seconds=5)
    assert not cluster.stop(stopping(seconds_max=10.0)).state.alive
    thread.join()
    assert spec_in(server)["suspend"] is True


def test_a_job_that_answered_a_stop_which_was_killed_then_is_started_again(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server, DyingOperator, restartPolicy={"type": "Never"})
    Dying.writes, Dying.die_at = 0, 1
    with pytest.raises(Killed):
        ground.apply(spec_of())
    Dying.die_at = 0
    server.drivers["orders-driver"]["status"]["phase"] = "Succeeded"
    server.turns(4)
    assert "suspend" not in spec_in(server), "it ended by itself"
    ground.rollback()
    server.turns(4)
    assert (server.applications, server.runs["orders"]) == (["orders"], 2)


def test_a_job_that_has_ended_goes_on_in_its_own_application(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server, restartPolicy={"type": "Never"})
    server.drivers["orders-driver"]["status"]["phase"] = "Succeeded"
    server.turns(4)
    submit = {"resource": "orders", "seconds_max": 3}
    assert ground.apply(spec_of(submit=submit)).state == "finished"
    assert (server.applications, server.runs["orders"]) == (["orders"], 2)


def test_an_application_that_was_over_and_is_not_seen_is_told_with_a_way_out(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders", restartPolicy={"type": "Never"})
    server.drivers["orders-driver"]["status"]["phase"] = "Succeeded"
    server.turns(4)
    server.up = False
    cluster.submit(start_of(resource="orders"))
    server.restart_operator()
    server.up = True
    server.turns(6)
    status = cluster.find("t")
    assert status.state is JobState.QUEUED
    assert "kubectl patch sparkapplication orders" in str(status.detail)
    server.objects["sparkapplications", "orders"]["spec"]["sparkConf"]["x"] = "2"  # as it says
    server.turns(6)
    assert cluster.find("t").state is JobState.RUNNING


@pytest.mark.parametrize("in_conf", [False, True])
def test_the_name_of_a_pod_is_not_taken_over(
    server: FakeKubernetes, tmp_path: Path, in_conf: bool
) -> None:
    named: dict[str, Any] = {"driver": {"cores": 1, "podName": "shop-driver"}}
    if in_conf:
        named = {"sparkConf": {"spark.kubernetes.driver.pod.name": "shop-driver"}}
    ground = place(tmp_path, server, **named)
    assert ground.apply(spec_of()).state == "finished"
    assert server.drivers.keys() == {"orders-new-driver"}
    server.objects["sparkapplications", "orders"]["spec"]["image"] = "spark:next"
    server.turns(6)
    assert server.applications == ["orders-new"]


@pytest.mark.parametrize(
    ("labels", "phase", "state"),
    [
        ({"sparkoperator.k8s.io/app-name": "orders"}, "Running", JobState.RUNNING),
        ({"sparkoperator.k8s.io/app-name": "orders"}, "Succeeded", JobState.FINISHED),
        ({"sparkoperator.k8s.io/app-name": "orders"}, "Failed", JobState.FINISHED),
        ({"sparkoperator.k8s.io/app-name": "totals"}, "Running", JobState.FINISHED),
    ],
)
def test_a_suspended_job_is_its_own_pod(
    server: FakeKubernetes,
    cluster: SparkOperator,
    labels: dict[str, str],
    phase: str,
    state: JobState,
) -> None:
    server.apply("orders")
    cluster.stop(stopping())
    metadata = {"name": "orders-driver", "labels": labels}
    server.drivers["orders-driver"] = {"metadata": metadata, "status": {"phase": phase}}
    assert cluster.find_source(stopping()).state is state


def test_an_operator_that_is_at_it_is_not_taken_for_none(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    status = server.apply("orders")["status"]
    server.up = False
    status["applicationState"] = {"state": "SUSPENDING"}
    with pytest.raises(ClusterError, match="has not ended"):
        cluster.stop(stopping())
    assert spec_in(server)["suspend"] is True
    server.apply("busy")
    status = server.objects["sparkapplications", "busy"]["status"] = {
        "applicationState": {"state": "RUNNING"},
        "submissionID": "1",
    }

    def work() -> None:
        for number in range(10):
            time.sleep(0.1)
            with server.lock:
                status["applicationState"]["errorMessage"] = str(number)
        server.up = True

    thread = threading.Thread(target=work)
    thread.start()
    stopped = cluster.stop(replace(stopping(seconds_max=20.0), job="busy"))
    thread.join()
    assert stopped.state is JobState.FINISHED, "each of its statuses counts"


def test_an_operator_that_is_away_is_named_within_the_time_of_the_stop(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path, reconcile_seconds=60)
    server.apply("orders")
    server.up = False
    with pytest.raises(ClusterError, match="no operator reconciles"):
        cluster.stop(stopping())


class Replacing(KubernetesCalls):
    """Somebody deletes the application, and makes another one of its name."""

    def update(self, what: Any, body: Any, trial: bool = False) -> Any:
        answer = super().update(what, body, trial)
        Replacing.server.objects["sparkapplications", "orders"]["metadata"]["uid"] = "another"
        return answer

    server: FakeKubernetes


class ReplacedOperator(SparkOperator):
    @cached_property
    def calls(self) -> KubernetesCalls:
        return Replacing(self.name, self.options, self.interrupt)


def test_another_application_of_the_name_is_not_ours(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.apply("orders")
    Replacing.server = server
    with pytest.raises(ClusterError, match="is another one of that name by now"):
        opened(server, tmp_path, ReplacedOperator).stop(stopping())


def test_an_answer_that_comes_too_late_does_not_stop_the_next_job(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    storage = ground.disk.open(SOURCE)
    cluster = opened(server, tmp_path, open_storage=ground.open)

    def answer() -> None:
        while "suspend" not in spec_in(server):
            time.sleep(0.01)
        put(storage, STOPPING, b"yes")
        server.grace = 0

    server.grace = 1_000
    server.is_looked_at = False
    thread = threading.Thread(target=answer)
    thread.start()
    with server.operating():
        assert cluster.stop(stopping(seconds_max=60.0)).state is JobState.FINISHED
    thread.join()
    assert storage.stat(STOPPING) is None


def test_one_location_has_one_job(
    server: FakeKubernetes, cluster: SparkOperator, tmp_path: Path
) -> None:
    server.apply("orders")
    for tag in ("t", "u"):
        opened(server, tmp_path / tag).submit(start_of(tag, resource=f"orders-{tag}"))
    server.turns(3)
    status = opened(server, tmp_path / "x").find_source(StopRequest("x", TARGET))
    assert status.state is JobState.UNKNOWN and "several are alive" in str(status.detail)
    assert cluster.stop(stopping("never")).state is JobState.ABSENT, "it is of no run of ours"
    assert "orders" in server.applications


def test_an_application_that_is_being_deleted_is_waited_for(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    cluster.stop(stopping())
    server.objects["sparkapplications", "orders"]["metadata"]["deletionTimestamp"] = "now"
    assert cluster.find_source(stopping()).state is JobState.RUNNING


def test_a_mark_that_its_spec_does_not_bear_any_more_is_none(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    cluster.submit(start_of())
    conf = server.objects["sparkapplications", "orders-new"]["spec"]["sparkConf"]
    conf["spark.stateshift.checkpoint"] = "s3a://by-hand/orders"
    server.turns(6)
    named = StopRequest("x", SOURCE, options={"app_name": "orders-new"})
    assert cluster.find_source(named).state is JobState.RUNNING
    assert cluster.find_source(StopRequest("x", TARGET)).state is JobState.ABSENT


def test_whether_there_is_a_schedule_has_to_be_known(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders-17")
    server.denied = {("get", "scheduledsparkapplications")}
    with pytest.raises(ClusterError, match="cannot get") as raised:
        cluster.find_source(stopping())
    assert 'needs "get" of scheduledsparkapplications' in str(raised.value.hint)
    server.denied, server.kinds = set(), {"sparkapplications": "SparkApplication"}
    assert cluster.find_source(stopping()).state is JobState.ABSENT, "there are no schedules"


def test_a_server_that_drops_the_suspension_is_refused_at_once(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    server.prunes = True
    with pytest.raises(ClusterError, match=r"has no spec\.suspend"):
        cluster.stop(stopping())
    assert server.applications == ["orders"]


def test_an_application_that_somebody_else_has_suspended_keeps_its_program(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    server.apply("totals", image="totals:1", suspend=True)
    server.turns(3)
    with pytest.raises(ClusterError, match="totals is there, and finished") as raised:
        cluster.submit(start_of(resource="totals"))
    assert "somebody else's" in str(raised.value.hint)
    assert spec_in(server, "totals")["image"] == "totals:1"
    cluster.submit(Submission("t", "totals", TARGET, options={"resource": "totals"}))
    server.turns(3)
    assert spec_in(server, "totals")["image"] == "totals:1"
    assert cluster.find("t").state is JobState.RUNNING


def test_a_rollback_keeps_what_the_owner_has_changed_meanwhile(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server, commits=False)
    with pytest.raises(ClusterError, match="has committed nothing"):
        ground.apply(spec_of())
    server.objects["sparkapplications", "orders"]["spec"]["image"] = "spark:fixed"
    ground.rollback()
    server.turns(4)
    assert (server.applications, spec_in(server)["image"]) == (["orders"], "spark:fixed")


def test_an_identity_of_before_is_in_no_setting_and_no_variable(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    names = ("STATESHIFT_CHECKPOINT", "STATESHIFT_JOB", "STATESHIFT_TAG", "STATESHIFT_WAIT")
    old = {f"spark.kubernetes.driverEnv.{name}": "old" for name in names}
    server.apply(
        "orders",
        sparkConf={**old, "spark.stateshift.wait": "1", "spark.a": "1"},
        driver={
            "env": [{"name": name, "value": "old"} for name in names],
            "envVars": {**dict.fromkeys(names, "old"), "MODE": "kept"},
        },
    )
    opened(server, tmp_path, conf=old).submit(start_of(conf=old, environment={names[0]: "old"}))
    spec = spec_in(server, "orders-new")
    assert spec["driver"] == {"env": [], "envVars": {"MODE": "kept"}}
    assert spec["sparkConf"] == {
        "spark.a": "1",
        "spark.stateshift.checkpoint": TARGET,
        "spark.stateshift.job": "orders",
        "spark.stateshift.tag": "t",
    }


# ---- refusals and their ways out


def test_missing_rights_are_told_with_the_verb_and_the_resource(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders")
    for verb, plural, words in (
        ("update", "sparkapplications", "sparkapplications (sparkoperator.k8s.io)"),
        ("get", "pods", "pods"),
    ):
        server.denied = {(verb, plural)}
        with pytest.raises(ClusterError, match=f"cannot {verb}") as raised:
            cluster.stop(stopping())
        assert f'needs "{verb}" of {words} in the namespace' in str(raised.value.hint)
        assert server.applications == ["orders"] and "suspend" not in spec_in(server)


@pytest.mark.parametrize(
    ("attribute", "value", "fact", "hint"),
    [
        ("kinds", {}, "has no sparkapplications in sparkoperator.k8s.io/v1beta2", "install the"),
        ("spark_version", "v1", "v1beta2, but the group in v1", "install the operator"),
        ("webhook", "driver.cores must be set", "driver.cores must be set", 'in "submit" or in'),
        ("quota", True, "exceeded quota", "raise the quota"),
        ("namespace_is_gone", True, 'namespaces "shop" not found', "there is no namespace shop"),
    ],
)
def test_a_start_is_refused_before_the_old_job_is_stopped_with_the_servers_words(
    server: FakeKubernetes, tmp_path: Path, attribute: str, value: Any, fact: str, hint: str
) -> None:
    ground = place(tmp_path, server)
    manifest = tmp_path / "orders.yaml"
    manifest.write_text(json.dumps(server.objects["sparkapplications", "orders"]))
    proposal = ground.propose(spec_of(submit={"manifest": str(manifest), "resource": "new"}))
    setattr(server, attribute, value)
    trial = ground.cluster.try_start(  # type: ignore[attr-defined]
        Submission("t", "orders", TARGET, options={"manifest": str(manifest), "resource": "new"})
    )
    assert fact in trial.refused and hint in str(trial.hint)
    if attribute in ("webhook", "quota"):
        with pytest.raises(PlanError) as raised:
            ground.apply(proposal)
        assert fact in raised.value.fact and "nothing was stopped" in str(raised.value.hint)
    assert server.applications == ["orders"] and "suspend" not in spec_in(server)


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no spark:9"}}}
                ],
            },
            "orders-new-driver: ImagePullBackOff: no spark:9",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available",
                    }
                ],
            },
            "orders-new-driver: Unschedulable: 0/3 nodes are available",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            "orders-new-driver: Evicted: low on memory",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [
                    {
                        "name": "driver",
                        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ],
            },
            "orders-new-driver: driver ended with exit code 137 (OOMKilled)",
        ),
    ],
)
def test_a_driver_that_does_not_come_up_is_told_and_the_old_job_goes_on(
    server: FakeKubernetes, tmp_path: Path, pod: dict[str, Any], words: str
) -> None:
    ground = place(tmp_path, server, commits=False, restartPolicy={"type": "Never"})
    server.phase, server.pod_status = str(pod["phase"]), pod
    server.events = [
        {
            "involvedObject": {"name": "orders-new-driver"},
            "type": "Warning",
            "reason": "FailedMount",
            "message": "secret token=hunter22 is missing",
        }
    ]
    with pytest.raises(ClusterError) as raised:
        ground.apply(spec_of(submit={**LIKE, "seconds_max": 1}))
    assert words in raised.value.fact
    assert "FailedMount" in raised.value.fact and "hunter22" not in raised.value.fact
    failure = ground.cluster.failure(  # type: ignore[attr-defined]
        next(tag for tag in server.started if tag)
    )
    assert failure is not None and failure.remedy is Remedy.OTHER_SUBMIT
    server.phase, server.pod_status = "Running", {}
    ground.rollback()
    server.turns(4)
    assert server.applications == ["orders"]


def test_a_driver_that_cannot_be_submitted_is_told(
    server: FakeKubernetes, cluster: SparkOperator
) -> None:
    server.apply("orders", restartPolicy={"type": "Never"})
    server.no_pods = "pods is forbidden: exceeded quota: jobs"
    cluster.submit(start_of())
    server.turns(3)
    status = cluster.find("t")
    assert status.state is JobState.FAILED and "exceeded quota: jobs" in str(status.detail)


def test_an_api_server_that_is_away_or_busy_is_waited_for_and_then_named(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path)
    server.apply("orders")
    server.faults.extend(["503", "cut off after all"])
    server.busy = 2
    assert cluster.stop(stopping()).state is JobState.FINISHED
    gone = opened(server, tmp_path / "gone")
    path = Path(gone.options["kubeconfig"])
    path.write_text(path.read_text().replace(server.url, "http://127.0.0.1:9"))
    with pytest.raises(ClusterError, match="does not answer"):
        gone.find("t")


def test_no_secret_is_in_notes_journal_or_messages(server: FakeKubernetes, tmp_path: Path) -> None:
    driver = {"cores": 1, "env": [{"name": "PASSWORD", "value": "hunter22"}]}
    ground = place(tmp_path, server, driver=driver)
    assert ground.apply(spec_of()).state == "finished"
    origins = tmp_path / "run" / "origins.json"
    assert origins.stat().st_mode & 0o077 == 0
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in ("origins.json", "kubeconfig"):
            text = path.read_bytes()
            assert TOKEN.encode() not in text and b"hunter22" not in text, path
    server.tokens = {"another"}
    with pytest.raises(ClusterError, match="Unauthorized") as raised:
        ground.cluster.find("t")
    assert TOKEN not in str(raised.value) and "sign in again" in str(raised.value.hint)


def test_a_plan_warns_of_a_job_that_finds_no_room_and_refuses_none(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    """It needs a driver and an executor of 1 core each; another has 1 of 2."""
    ground = place(tmp_path, server)
    server.nodes = [fake_kubernetes.node("a", "2", "16Gi")]
    spec = {"containers": [{"name": "d", "resources": {"requests": {"cpu": "1"}}}]}
    server.pods = [{"spec": {"nodeName": "a", **spec}, "status": {"phase": "Running"}}]

    def found() -> list[tuple[str, str]]:
        findings = [each for plan in ground.propose(spec_of()).plans for each in plan.findings]
        return [(each.level, each.message) for each in findings if "room" in each.message]

    ((level, message),) = found()
    assert level == "note", "the old job runs there"
    assert "it has room for 1 of the 2 pods" in message
    assert message.endswith("What the old job gives back at its end is not counted")
    server.nodes = [fake_kubernetes.node("a", "100m", "16Gi")]
    ((level, message),) = found()
    assert level == "warn", "which it has never"
    assert message.startswith("the room for orders on old: not enough: it has room for 0 of the 2")
    server.denied = {("list everywhere", "nodes")}
    ((level, message),) = found()
    assert level == "note"
    assert message.startswith("the room for orders on old: the nodes of old are not known")
    server.denied = set()
    server.nodes = []
    assert ground.apply(spec_of()).state == "finished", "an autoscaler may add nodes"


def test_no_right_is_used_that_no_page_asks_for(server: FakeKubernetes, tmp_path: Path) -> None:
    ground = place(tmp_path, server)
    assert ground.apply(spec_of()).state == "finished"
    ground.cluster.find_source(StopRequest("nobody", "s3a://x"))
    ground.cluster.log(next(tag for tag in server.started if tag))
    needed = {(group, name, verb) for (group, name), verbs in SPARK_NEEDS.items() for verb in verbs}
    assert server.asked == needed
    assert server.asked_everywhere == {("", "nodes", "list"), ("", "pods", "list")}
