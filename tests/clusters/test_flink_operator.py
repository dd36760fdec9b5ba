"""Flink jobs under an operator, on a stand-in for the API server with a scripted operator: moves
that are killed at every request, taken back, and refused. The real API server is in
tests/servers/test_flink_operator.py.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.http import Refused
from stateshift.clusters.kind import Submit
from stateshift.clusters.kubernetes.calls import (
    CLUSTER_NEEDS,
    DEPLOYMENT,
    FLINK_NEEDS,
    KubernetesCalls,
)
from stateshift.clusters.kubernetes.flink_operator import FlinkOperator, check_submit
from stateshift.clusters.kubernetes.flink_resources import FlinkResource
from stateshift.clusters.protocol import JobState, SavepointRequest, StopRequest, Submission
from stateshift.errors import ClusterError, PlanError, SpecError
from stateshift.specification import Spec, parse_spec
from stateshift.specification.model import ClusterSpec
from tests.clusters import fake_kubernetes
from tests.clusters.fake_kubernetes import TOKEN, Dying, FakeKubernetes
from tests.contracts.faulty import Killed
from tests.engines.flink import golden
from tests.support.checkpoints import put
from tests.support.ground import Ground
from tests.support.rbac import manifests

TWO, TAKEN, TARGET = "flink-2.3.0/count-two", "file:///taken", "file:///there/orders"


@pytest.fixture
def server() -> Iterator[FakeKubernetes]:
    with fake_kubernetes.serving() as served:
        yield served


@pytest.fixture
def cluster(server: FakeKubernetes, tmp_path: Path) -> FlinkOperator:
    return opened(server, tmp_path)


def opened(server: FakeKubernetes, folder: Path, **options: Any) -> FlinkOperator:
    given = {"kubeconfig": server.kubeconfig(folder), "reconcile_seconds": 0.3, "settle_seconds": 0}
    return FlinkOperator("east", folder / "state", {**given, "outage_seconds": 0.2, **options})


def asked(**more: Any) -> SavepointRequest:
    return SavepointRequest("run-1.orders", "orders", TAKEN, seconds_max=0.6, **more)


def job_of(server: FakeKubernetes, name: str = "orders") -> dict[str, Any]:
    return dict(server.objects["flinkdeployments", name]["spec"]["job"])


# ---- whole moves


class DyingOperator(FlinkOperator):
    @cached_property
    def calls(self) -> KubernetesCalls:
        return Dying(self.name, self.options, self.interrupt)


def place(
    folder: Path, server: FakeKubernetes, kind: type[FlinkOperator] = FlinkOperator
) -> Ground:
    """A job `orders` runs; its savepoint is the golden one."""
    ground = Ground(folder)

    def take(location: str) -> None:
        top = golden.FOLDER / TWO / golden.told(TWO)["image"]
        for file in sorted(top.iterdir()):
            put(ground.disk.open(location), file.name, file.read_bytes())

    server.on_savepoint = take
    server.deploy("orders")
    cluster = opened(server, folder)
    ground.cluster = kind("old", cluster.state_dir, cluster.options)  # type: ignore[assignment]
    return ground


def spec_of(**more: Any) -> Spec:
    submit = {"like": {"resource": "orders"}, "resource": "orders-new", "image": "flink:2.4"}
    job = {
        "name": "orders",
        "job_ids": ["orders"],
        "source_cluster": "old",
        "target_cluster": "old",
        "target_directory": TAKEN,
        "new_savepoint_path": TARGET,
        "submit": {**submit, "seconds_max": 3},
        **more,
    }
    clusters = {"old": {"kind": "flink_operator", "kubeconfig": "x"}}
    job = {key: value for key, value in job.items() if value is not None}
    plain = {"version": 1, "engine": "flink", "clusters": clusters, "jobs": [job]}
    return parse_spec(json.dumps({**plain, "on_failure": "stop"}))


def test_a_job_is_suspended_with_a_savepoint_and_another_resource_goes_on(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    assert ground.apply(spec_of()).state == "finished"
    assert (job_of(server)["state"], server.running()) == ("suspended", ["orders-new"])
    new = server.objects["flinkdeployments", "orders-new"]
    assert server.restored == [None, TARGET]
    assert new["spec"]["image"] == "flink:2.4"
    assert new["spec"]["flinkConfiguration"]["job.autoscaler.enabled"] == "true"
    assert new["spec"]["job"]["initialSavepointPath"] == TARGET


def test_a_job_goes_on_from_its_moved_savepoint_in_its_own_resource(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    spec = spec_of(submit={"resource": "flinkdeployment/orders", "parallelism": 4})
    assert ground.apply(spec).state == "finished"
    assert server.restored == [None, TARGET]
    assert (job_of(server)["parallelism"], job_of(server)["savepointRedeployNonce"]) == (4, 1)


@pytest.mark.parametrize("denied", ["", "services/proxy"])
def test_files_alone_are_not_moved_beside_their_job_that_runs(
    server: FakeKubernetes, tmp_path: Path, denied: str
) -> None:
    """By the JobManager's pages; where nobody may read those, by the resource."""
    ground = place(tmp_path, server)
    assert server.on_savepoint is not None
    files = {"job_ids": None, "target_directory": None, "name": "moved"}
    known = f"{TAKEN}/savepoint-1" if denied else "file:///checkpoints/by-hand"
    server.on_savepoint(known)
    if denied:
        status = server.objects["flinkdeployments", "orders"]["status"]["jobStatus"]
        status["savepointInfo"] = {"lastSavepoint": {"location": known}}
        server.denied.add(("get", denied))
    else:
        (job,) = server.flink.jobs.values()
        job.checkpointed(7, "file:/checkpoints/by-hand")
    spec = spec_of(**files, existing_savepoint_paths=[known])
    (refusal,) = ground.propose(spec).refusals
    assert "orders (flinkdeployment/orders) runs on old, and this image is one of its own" in (
        refusal.message
    )
    assert '"job_ids": ["flinkdeployment/orders"]' in (refusal.hint or "")
    server.objects["flinkdeployments", "orders"]["spec"]["job"]["state"] = "suspended"
    server.objects["flinkdeployments", "orders"]["metadata"]["generation"] += 1
    server.turns(6)
    assert not ground.propose(spec).refusals


def test_a_session_cluster_may_have_the_job_of_files_alone(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    """Jobs that were submitted to its JobManager have no resource."""
    ground = place(tmp_path, server)
    assert server.on_savepoint is not None
    server.on_savepoint(f"{TAKEN}/by-hand")
    session = server.objects["flinkdeployments", "orders"]
    session["spec"].pop("job")
    session["status"].pop("jobStatus", None)
    files = {"job_ids": None, "target_directory": None, "name": "moved"}
    proposal = ground.propose(spec_of(**files, existing_savepoint_paths=[f"{TAKEN}/by-hand"]))
    warned = [finding.message for plan in proposal.plans for finding in plan.findings]
    known = "old does not tell of session cluster orders (flinkdeployment/orders)"
    assert [message for message in warned if message.startswith(known)]


@pytest.mark.parametrize("rounds", [0, 4])  # of the operator, before we are there again
def test_a_run_killed_at_any_write_ends_with_one_savepoint_and_one_job(
    tmp_path: Path, rounds: int
) -> None:
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
            assert server.running() == ["orders-new"], number
            assert (len(server.savepoints), server.runs["orders-new"]) == (1, 1), number
            writes = max(writes, Dying.writes)
    assert number >= 4


@pytest.mark.parametrize("rounds", [0, 4])
def test_a_run_killed_at_any_write_and_taken_back_runs_the_old_job_alone(
    tmp_path: Path, rounds: int
) -> None:
    for number in range(1, 5):
        with fake_kubernetes.serving() as server:
            ground = place(tmp_path / str(number), server, DyingOperator)
            Dying.writes, Dying.die_at = 0, number
            with pytest.raises(Killed):
                ground.apply(spec_of())
            Dying.die_at = 0
            server.turns(rounds)
            ground.rollback(discard_progress=True)
            server.turns(4)
            assert server.running() == ["orders"], number
            restored = set(server.restored) - {None, TARGET}
            assert restored <= {f"{TAKEN}/savepoint-1"}, number


@pytest.mark.parametrize("rounds", [0, 4])
def test_a_rollback_that_is_killed_is_taken_up_again(tmp_path: Path, rounds: int) -> None:
    number, is_killed = 0, True
    while is_killed:
        number += 1
        with fake_kubernetes.serving() as server:
            ground = place(tmp_path / str(number), server, DyingOperator)
            server.epoch, Dying.die_at = None, 0
            with pytest.raises(ClusterError, match="has completed no checkpoint"):
                ground.apply(spec_of())
            server.epoch = 1_000
            Dying.writes, Dying.die_at = 0, number
            with suppress(Killed):
                ground.rollback()
            is_killed = Dying.writes >= number
            Dying.die_at = 0
            server.turns(rounds)
            ground.rollback()
            assert server.running() == ["orders"], number
            assert server.restored[-1] == f"{TAKEN}/savepoint-1", number
    assert number > 4, "two writes: the new job's end, and the old one's start"


def test_a_move_in_one_resource_that_is_taken_back_has_the_spec_of_before(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    server.epoch = None
    submit = {"resource": "flinkdeployment/orders", "parallelism": 4, "seconds_max": 1}
    with pytest.raises(ClusterError, match="has completed no checkpoint"):
        ground.apply(spec_of(submit=submit))
    server.epoch = 1_000
    ground.rollback()
    assert server.restored[-1] == f"{TAKEN}/savepoint-1"
    assert (job_of(server)["parallelism"], server.running()) == (2, ["orders"])
    journal = (tmp_path / "run" / "journal").read_bytes()
    assert b'"spec":"..."' in journal.replace(b"\\", b"") and b"orders.jar" not in journal


def test_where_no_operator_takes_the_new_resource_the_old_job_goes_on(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    server.unwatched = {"orders-new"}
    submit = {"like": {"resource": "orders"}, "resource": "orders-new", "seconds_max": 1}
    with pytest.raises(ClusterError, match="no operator has reconciled generation 1"):
        ground.apply(spec_of(submit=submit))
    ground.rollback()
    server.unwatched = set()
    server.turn()
    assert server.running() == ["orders"], "an operator that comes late starts nothing"


def test_a_context_that_was_switched_since_is_not_gone_on_with(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.deploy("orders")
    opened(server, tmp_path).savepoint(asked())
    with pytest.raises(ClusterError, match="this was begun in namespace shop of") as raised:
        opened(server, tmp_path, namespace="other").find("t")
    assert str(tmp_path / "state" / "place.east.json") in str(raised.value.hint)


# ---- the source is never lost


def test_without_an_operator_the_stop_is_taken_back_and_said(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    before = server.deploy("orders")["spec"]
    server.up = False
    with pytest.raises(ClusterError, match="no operator reconciles flinkdeployment/orders"):
        cluster.savepoint(asked())
    assert server.objects["flinkdeployments", "orders"]["spec"] == before
    server.up = True
    server.turn()
    assert server.running() == ["orders"]
    assert cluster.savepoint(asked()) == f"{TAKEN}/savepoint-{len(server.savepoints)}"


def test_a_savepoint_that_cannot_be_taken_leaves_the_job_running_and_says_why(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.stuck = "Could not stop job: the bucket is full, password=hunter22"
    with pytest.raises(ClusterError, match="the bucket is full") as raised:
        cluster.savepoint(asked())
    assert "hunter22" not in str(raised.value)
    assert job_of(server)["state"] == "running" and server.running() == ["orders"]
    server.stuck = ""
    assert cluster.savepoint(asked()) == f"{TAKEN}/savepoint-1"
    assert cluster.savepoint(asked()) == f"{TAKEN}/savepoint-1"


def test_a_job_suspended_by_last_state_is_resumed_for_no_path_is_known(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.by_last_state = True
    with pytest.raises(ClusterError, match="by Flink's own metadata, without a savepoint"):
        cluster.savepoint(asked())
    server.turn()
    assert server.restored[-1] == "KUBERNETES_OPERATOR_LAST_STATE"
    assert server.running() == ["orders"]


def test_a_stateless_job_is_never_started_empty_by_us(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders", upgradeMode="stateless")
    location = cluster.savepoint(asked())
    cluster.submit(Submission("back", "orders", location, options={"resource": "orders"}))
    server.turn()
    assert server.restored == [None, location]


def test_a_job_that_was_suspended_stateless_is_not_resumed_as_if_it_had_its_state(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    location = cluster.savepoint(asked())
    cluster.submit(Submission("back", "orders", location, options={"resource": "orders"}))
    cluster.find("back")
    server.stuck = "no savepoint"
    cluster.stop(StopRequest("orders", location, "back", seconds_max=1.0))
    stored = server.objects["flinkdeployments", "orders"]
    stored["status"]["jobStatus"]["savepointInfo"] = {"lastSavepoint": {"location": location}}
    cluster.submit(Submission("again", "orders", location, options={"resource": "orders"}))
    server.turn()
    assert server.restored == [None, location, location]


def test_a_stop_that_takes_long_is_taken_back(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.slow = 1_000
    with pytest.raises(ClusterError, match="is not suspended after"):
        cluster.savepoint(asked())
    assert not cluster.is_ending(asked())
    assert job_of(server)["state"] == "running"


@pytest.mark.parametrize("up", [True, False])
def test_a_rollback_calls_off_a_stop_that_is_under_way(
    server: FakeKubernetes, tmp_path: Path, up: bool
) -> None:
    ground = place(tmp_path, server, DyingOperator)
    server.slow, server.up = 1_000, up
    Dying.writes, Dying.die_at = 0, 2
    with pytest.raises(Killed):
        ground.apply(spec_of())
    Dying.die_at = 0
    assert job_of(server)["state"] == "suspended"
    ground.rollback()
    server.up = True
    server.turn()
    assert (server.running(), server.savepoints, server.restored) == (["orders"], [], [None])


def test_who_writes_over_our_stop_is_told_and_nothing_is_started(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.slow = 3

    def written_over(location: str) -> None:
        server.objects["flinkdeployments", "orders"]["spec"]["job"]["state"] = "running"

    server.on_savepoint = written_over
    with pytest.raises(ClusterError, match="somebody has written over our stop"):
        cluster.savepoint(asked())


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"native": True}, "would not be native"),
        ({"drain": True}, "does not drain"),
        ({"directory": "file:///other"}, "writes the savepoint of .* to file:///taken"),
    ],
)
def test_what_the_operator_would_not_do_so_is_refused_before_it_is_asked(
    server: FakeKubernetes, cluster: FlinkOperator, more: dict[str, Any], match: str
) -> None:
    server.deploy("orders")
    with pytest.raises(ClusterError, match=match):
        cluster.savepoint(replace(asked(), **more))
    assert job_of(server)["state"] == "running"


def test_a_savepoint_of_a_job_that_goes_on_is_a_snapshot_that_is_not_disposed_of(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    assert cluster.savepoint(asked(stop=False)) == f"{TAKEN}/savepoint-1"
    assert cluster.savepoint(asked(stop=False)) == f"{TAKEN}/savepoint-1"
    (snapshot,) = [each for (kind, _), each in server.objects.items() if "snapshot" in kind]
    assert snapshot["spec"]["savepoint"]["disposeOnDelete"] is False
    assert server.running() == ["orders"]


# ---- as the operator's source has it


def written(server: FakeKubernetes, name: str, **job: Any) -> None:
    """What somebody else writes to a resource."""
    body = copy.deepcopy(server.objects["flinkdeployments", name])
    body["spec"]["job"] |= job
    server._written("PUT", "flinkdeployments", body, False)
    server.turns(3)


@pytest.mark.parametrize("moment", ["suspended", "later", "started"])
def test_a_source_that_is_written_back_never_runs_beside_its_successor(
    server: FakeKubernetes, tmp_path: Path, moment: str
) -> None:
    ground = place(tmp_path, server)
    real, seen = server.answer, 0

    def answer(method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        nonlocal seen
        source = server.objects["flinkdeployments", "orders"]["status"]
        is_started = ("flinkdeployments", "orders-new") in server.objects
        if is_started or (moment != "started" and source["lifecycleState"] == "SUSPENDED"):
            seen += 1
            if seen == (1 if moment != "later" else 3):
                written(server, "orders", state="running")
        return real(method, path, query, body)

    server.answer = answer  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="somebody has written"):
        ground.apply(spec_of())
    assert seen and server.running() == ["orders"]
    assert server.runs["orders-new"] == (moment == "started"), "asked before it is started"
    if moment != "suspended":  # then it is stopped once more
        with pytest.raises(ClusterError, match="somebody has written"):
            ground.resume()
        assert server.running() == ["orders"]
    ground.rollback(discard_progress=True)
    assert server.running() == ["orders"]


def test_a_new_job_that_lost_our_marks_is_stopped_by_a_rollback(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    server.epoch = None
    with pytest.raises(ClusterError, match="has completed no checkpoint"):
        ground.apply(spec_of())
    server.epoch = 1_000
    metadata = server.objects["flinkdeployments", "orders-new"]["metadata"]
    metadata |= {"annotations": {}, "labels": {}}
    uid = metadata["uid"]
    metadata["uid"] = "another"
    with pytest.raises(ClusterError, match="another resource has its name"):
        ground.rollback()
    assert server.running() == ["orders-new"], "nobody knows whose it is"
    metadata = server.objects["flinkdeployments", "orders-new"]["metadata"]
    metadata["uid"] = uid
    ground.rollback()
    assert server.running() == ["orders"]


@pytest.mark.parametrize("up", [True, False])
def test_a_job_that_does_not_run_well_is_not_suspended(
    server: FakeKubernetes, cluster: FlinkOperator, up: bool
) -> None:
    server.deploy("orders")
    server.up = up  # else its last word is RUNNING, and the JobManager knows better
    next(iter(server.flink.jobs.values())).state = "RESTARTING"
    with pytest.raises(ClusterError, match=r"does not run \(restarting"):
        cluster.savepoint(asked())
    assert job_of(server)["state"] == "running"


def test_a_job_that_its_owner_has_just_changed_is_not_suspended_before_the_operator_knows(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.up = False
    written(server, "orders", parallelism=3)
    unknown = r"does not run \(no operator has reconciled generation 2 yet\)"
    with pytest.raises(ClusterError, match=unknown):
        cluster.savepoint(asked())
    assert job_of(server)["state"] == "running"


def test_a_job_that_was_suspended_without_a_savepoint_runs_after_a_rollback(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server, DyingOperator)
    server.by_last_state = True
    Dying.writes, Dying.die_at = 0, 2
    with pytest.raises(Killed):
        ground.apply(spec_of())
    Dying.die_at = 0
    server.turn()
    assert server.running() == []
    (job,) = ground.rollback().jobs
    assert not job.left, "nobody has to do anything"
    server.turns(3)
    assert server.running() == ["orders"] and job_of(server)["state"] == "running"


@pytest.mark.parametrize(
    ("mode", "last", "path", "doubt"),
    [
        ("savepoint", None, f"{TAKEN}/savepoint-2", None),
        ("savepoint", "UPGRADE", None, None),
        ("savepoint", "PERIODIC", None, "without a savepoint"),
        ("last-state", "PERIODIC", None, "by Flink's own metadata, without a savepoint"),
        ("last-state", None, f"{TAKEN}/savepoint-1", "without a savepoint"),
        ("savepoint", None, f"{TAKEN}/savepoint-1", "no new savepoint"),
        ("savepoint", None, f"{TAKEN}/chk-7", "no new savepoint"),
        ("savepoint", None, "file:///else/savepoint-2", "is not below file:///taken"),
        ("savepoint", "UPGRADE NATIVE", None, "a savepoint that is native"),
    ],
)
def test_only_a_savepoint_that_ended_the_job_is_its_last(
    mode: str, last: str | None, path: str | None, doubt: str | None
) -> None:
    trigger, _, format = (last or "").partition(" ")
    saved = {"location": f"{TAKEN}/savepoint-2", "triggerType": trigger, "formatType": format}
    job = {"state": "FINISHED", "upgradeSavepointPath": path}
    job["savepointInfo"] = {"lastSavepoint": saved if last else None}
    known = {"lastReconciledSpec": json.dumps({"job": {"state": "suspended", "upgradeMode": mode}})}
    before = json.dumps({"savepoint": f"{TAKEN}/savepoint-1"})
    metadata = {"name": "orders", "annotations": {"stateshift/before": before}}
    status = {"jobStatus": job, "reconciliationStatus": known}
    ended = FlinkResource(DEPLOYMENT, {"metadata": metadata, "spec": {}, "status": status})
    said = ended.doubt(TAKEN, native=False)
    assert said is None if doubt is None else doubt in str(said)


def test_where_the_first_deployment_fails_a_rollback_starts_the_old_job(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    server.no_pods = "pods is forbidden: exceeded quota"
    with pytest.raises(ClusterError, match="exceeded quota"):
        ground.apply(spec_of())
    assert server.objects["flinkdeployments", "orders-new"]["status"]["jobStatus"]["jobId"]
    ground.rollback()
    server.no_pods = ""
    server.turns(3)
    assert server.running() == ["orders"]


@pytest.mark.parametrize("stuck", ["", "no savepoint"])
def test_a_session_job_of_ours_is_stopped_with_a_savepoint_if_it_can_take_one(
    server: FakeKubernetes, cluster: FlinkOperator, stuck: str
) -> None:
    server.deploy("lines", "flinksessionjobs", deploymentName="session")
    model = server.objects["flinksessionjobs", "lines"]["spec"]
    model["flinkConfiguration"] = {}
    server.flink.configured = {"state.savepoints.dir": TAKEN}
    options = {"like": {"resource": "lines"}, "resource": "new"}
    cluster.submit(Submission("t", "lines", TARGET, options=options))
    server.turns(3)
    server.stuck = stuck
    for _ in range(2):
        after = cluster.stop(StopRequest("lines", TARGET, "t", seconds_max=2.0))
        assert after.state is JobState.FINISHED
    assert len(server.running()) == 1 and len(server.savepoints) == (not stuck)


def test_a_session_job_is_not_started_from_another_savepoint_in_its_resource(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("lines", "flinksessionjobs", deploymentName="session")
    here = Submission("t", "lines", TARGET, options={"resource": "flinksessionjob/lines"})
    refused = "cannot start flinksessionjob/lines from another savepoint"
    assert refused in cluster.try_start(here).refused
    location = cluster.savepoint(replace(asked(), job_id="lines"))
    with pytest.raises(ClusterError, match=refused):
        cluster.submit(here)
    with pytest.raises(SpecError, match="once it is suspended"):
        check_submit(ClusterSpec("east", "flink_operator"), Submit(here.options, "/jobs/0/submit"))
    other = {"resource": "flinksessionjob/lines", "session": "other"}
    assert "another session" in cluster.try_start(replace(here, options=other)).refused
    cluster.submit(replace(here, tag="back", location=location))
    server.turns(3)
    assert server.restored == [None, location]


def test_a_job_that_the_operator_has_yet_to_start_is_queued_whatever_the_last_one_was(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    location = cluster.savepoint(asked())
    server.late = {"orders"}
    cluster.submit(Submission("back", "orders", location, options={"resource": "orders"}))
    for _ in range(2):
        assert cluster.find("back").state is JobState.QUEUED
    assert cluster.progress("back").epoch is None
    assert (
        server.objects["flinkdeployments", "orders"]["status"]["jobStatus"]["state"] == "FINISHED"
    )
    with pytest.raises(ClusterError, match="would be suspended without a savepoint"):
        cluster.savepoint(replace(asked(), tag="other"))
    server.late = set()
    assert cluster.savepoint(replace(asked(), tag="other")) != location, "it is waited for"


def test_a_savepoint_that_takes_longer_than_the_operator_may_be_silent_is_waited_for(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.slow = 25
    assert cluster.savepoint(replace(asked(), seconds_max=20.0)) == f"{TAKEN}/savepoint-1"


@pytest.mark.parametrize(
    ("configured", "match"),
    [
        ({"kubernetes.operator.job.drain-on-savepoint-deletion": "true"}, "the operator drains"),
        ({"state.savepoints.dir": ""}, "to file:///by-default"),
        ({"state.checkpoints.dir": ""}, "is stateless and has no folder of checkpoints"),
    ],
)
def test_the_jobs_whole_configuration_is_asked_before_it_is_stopped(
    server: FakeKubernetes, cluster: FlinkOperator, configured: dict[str, str], match: str
) -> None:
    spec = server.deploy("orders", upgradeMode="stateless")["spec"]
    spec["flinkConfiguration"] |= configured
    for key in [key for key, value in configured.items() if not value]:
        del spec["flinkConfiguration"][key]
    server.flink.configured = {"state.savepoints.dir": "file:///by-default"}
    with pytest.raises(ClusterError, match=match):
        cluster.savepoint(asked())
    assert job_of(server)["state"] == "running"


def test_a_savepoint_in_another_folder_than_was_asked_for_is_gone_on_from(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.folder = "file:///elsewhere"
    with pytest.raises(ClusterError, match="which is not below file:///taken"):
        cluster.savepoint(asked())
    server.turns(3)
    assert server.running() == ["orders"]
    assert server.restored == [None, "file:///elsewhere/savepoint-1"]


def test_a_rollback_after_the_source_was_resumed_by_hand_leaves_it_running(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    ground = place(tmp_path, server)
    server.epoch = None
    with pytest.raises(ClusterError, match="has completed no checkpoint"):
        ground.apply(spec_of())
    server.epoch = 1_000
    written(server, "orders-new", state="suspended")
    written(server, "orders", state="running")
    ground.rollback(discard_progress=True)
    assert server.running() == ["orders"] and server.runs["orders"] == 2


def test_a_manifest_keeps_its_labels_and_is_of_this_namespace(
    server: FakeKubernetes, cluster: FlinkOperator, tmp_path: Path
) -> None:
    plain = copy.deepcopy(server.deploy("orders"))
    plain["metadata"] = {"name": "new", "labels": {"team": "a"}, "annotations": {"x": "y"}}
    path = tmp_path / "orders.yaml"
    path.write_text(json.dumps(plain))
    cluster.submit(Submission("t", "orders", TARGET, options={"manifest": str(path)}))
    metadata = server.objects["flinkdeployments", "new"]["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]["x"]) == ("a", "y")
    for wrong, match in (
        ({"metadata": {"name": "new", "namespace": "production"}}, "is for the namespace product"),
        ({"spec": {"image": "flink:2.3"}}, "is no manifest of a job"),
    ):
        path.write_text(json.dumps({**plain, **wrong}))
        with pytest.raises(ClusterError, match=match):
            cluster.submit(Submission("u", "orders", TARGET, options={"manifest": str(path)}))


# ---- nothing is doubled


def test_a_resource_whose_job_runs_is_not_made_anothers(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.deploy("totals")
    options = {"like": {"resource": "orders"}, "resource": "totals"}
    with pytest.raises(ClusterError, match=r"totals is there, and running.*namespace shop"):
        cluster.submit(Submission("t", "orders", TARGET, options=options))
    assert cluster.find("t").state is JobState.ABSENT
    assert server.runs == {"orders": 1, "totals": 1}
    stored = server.deploy("idle")
    stored["spec"]["job"] |= {"state": "suspended", "upgradeMode": "savepoint"}
    stored["metadata"]["generation"] += 1
    server.turns(4)
    options = {"like": {"resource": "orders"}, "resource": "idle"}
    with pytest.raises(ClusterError, match="idle is there, suspended by somebody else"):
        cluster.submit(Submission("t", "orders", TARGET, options=options))
    assert server.runs == {"orders": 1, "totals": 1, "idle": 1}


def test_a_failed_start_is_made_again_in_its_own_resource(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    options = {"like": {"resource": "orders"}, "resource": "new"}
    cluster.submit(Submission("t", "orders", TARGET, options=options))
    cluster.find("t")
    server.flink.jobs[next(iter(reversed(server.flink.jobs)))].state = "FAILED"
    assert cluster.find("t").state is JobState.FAILED
    cluster.submit(Submission("t.again2", "orders", TARGET, options=options))
    server.turn()
    assert sorted(server.running()) == ["new", "orders"]
    assert cluster.find("t").state is JobState.FINISHED, "its resource has another tag now"


def test_a_conflict_is_read_again_and_no_write_of_others_is_lost(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.conflicts = 3
    assert cluster.savepoint(asked()) == f"{TAKEN}/savepoint-1"
    server.deploy("busy")
    server.conflicts = 1_000
    with pytest.raises(ClusterError, match="Operation cannot be fulfilled"):
        cluster.savepoint(replace(asked(), tag="other", job_id="busy"))


def test_a_job_of_ours_that_does_not_run_is_suspended_without_a_savepoint(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    options = {"like": {"resource": "orders"}, "resource": "new"}
    cluster.submit(Submission("t", "orders", TARGET, options=options))
    cluster.find("t")
    server.stuck = "no savepoint"
    after = cluster.stop(StopRequest("orders", TARGET, "t", seconds_max=1.0))
    assert not after.state.alive
    assert server.running() == ["orders"]


# ---- refusals and their ways out


def test_missing_rights_are_told_with_the_verb_and_the_resource(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    server.denied = {("update", "flinkdeployments")}
    with pytest.raises(ClusterError, match="cannot update") as raised:
        cluster.savepoint(asked())
    assert 'needs "update" of flinkdeployments (flink.apache.org)' in str(raised.value.hint)
    server.denied = {("get", "services/proxy")}
    with pytest.raises(ClusterError, match="HTTP 403") as raised:
        cluster.savepoint(asked())
    assert 'needs "get" of services/proxy' in str(raised.value.hint)
    assert job_of(server)["state"] == "running", "asked before anything is written"


@pytest.mark.parametrize(
    ("attribute", "value", "fact", "hint"),
    [
        (
            "kinds",
            {},
            "has no flinkdeployments in flink.apache.org/v1beta1",
            "install the operator",
        ),
        ("version", "v1", "v1beta1, but the group in v1", "install the operator"),
        ("webhook", "jarURI must be set", "jarURI must be set", 'in "submit" or in the resource'),
        ("quota", True, "exceeded quota", "raise the quota"),
        ("namespace_is_gone", True, 'namespaces "shop" not found', "there is no namespace shop"),
    ],
)
def test_a_start_is_refused_before_the_old_job_is_stopped_with_the_servers_words(
    server: FakeKubernetes,
    cluster: FlinkOperator,
    tmp_path: Path,
    attribute: str,
    value: Any,
    fact: str,
    hint: str,
) -> None:
    (tmp_path / "orders.yaml").write_text(json.dumps(server.deploy("orders")))
    setattr(server, attribute, value)
    options = {"manifest": str(tmp_path / "orders.yaml"), "resource": "new"}
    trial = cluster.try_start(Submission("t", "orders", TARGET, options=options))
    assert fact in trial.refused
    assert hint in str(trial.hint)


def test_a_trial_writes_nothing(server: FakeKubernetes, cluster: FlinkOperator) -> None:
    server.deploy("orders")
    options = {"like": {"resource": "orders"}, "resource": "new"}
    assert not cluster.try_start(Submission("t", "orders", TARGET, options=options)).refused
    assert ("flinkdeployments", "new") not in server.objects


def test_an_api_server_that_is_away_is_waited_for_and_then_named(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path)
    server.deploy("orders")
    server.faults.extend(["503", "cut off after all"])
    assert cluster.savepoint(asked()) == f"{TAKEN}/savepoint-1"
    assert len(server.savepoints) == 1
    gone = opened(server, tmp_path / "gone")
    Path(gone.options["kubeconfig"]).write_text(
        Path(gone.options["kubeconfig"]).read_text().replace(server.url, "http://127.0.0.1:9")
    )
    with pytest.raises(ClusterError, match="does not answer"):
        gone.find("t")


def test_an_api_server_that_is_busy_is_asked_again(
    server: FakeKubernetes, cluster: FlinkOperator
) -> None:
    server.deploy("orders")
    for ask in (cluster.alive, lambda: cluster.savepoint(asked())):
        server.busy = 2
        assert ask() and not server.busy
    server.busy = 1_000
    with pytest.raises(ClusterError, match="storage is"):
        cluster.alive()


def test_a_session_cluster_is_no_job(server: FakeKubernetes, cluster: FlinkOperator) -> None:
    del server.deploy("orders")["spec"]["job"]
    with pytest.raises(ClusterError, match="is a session cluster, and no job"):
        cluster.savepoint(asked())


def test_a_name_of_two_kinds_is_not_guessed(server: FakeKubernetes, cluster: FlinkOperator) -> None:
    server.deploy("orders")
    server.deploy("orders", "flinksessionjobs", deploymentName="session")
    with pytest.raises(ClusterError, match="is flinkdeployment/orders and flinksessionjob/orders"):
        cluster.savepoint(asked())
    assert cluster.savepoint(replace(asked(), job_id="flinksessionjob/orders"))


@pytest.mark.parametrize(
    ("more", "keeper"),
    [
        ({"annotations": {"argocd.argoproj.io/tracking-id": "orders"}}, "Argo CD"),
        ({"labels": {"app.kubernetes.io/instance": "orders"}}, "perhaps Argo CD"),
        (
            {"ownerReferences": [{"kind": "Shop", "name": "east", "controller": True}]},
            "the controller of Shop east",
        ),
    ],
)
def test_a_resource_that_others_keep_is_warned_of(
    server: FakeKubernetes, tmp_path: Path, more: dict[str, Any], keeper: str
) -> None:
    ground = place(tmp_path, server)
    server.objects["flinkdeployments", "orders"]["metadata"] |= more
    texts = [
        finding.message for plan in ground.propose(spec_of()).plans for finding in plan.findings
    ]
    assert any(f"{keeper} keeps orders" in text for text in texts)


def test_a_warm_move_is_refused_in_the_plan(server: FakeKubernetes, tmp_path: Path) -> None:
    ground = place(tmp_path, server)
    with pytest.raises((PlanError, SpecError)) as raised:
        ground.apply(spec_of(mode="warm"))
    assert "ends a job with a savepoint" in str(raised.value)


# ---- who we are


def test_no_token_is_in_notes_or_messages(
    server: FakeKubernetes, cluster: FlinkOperator, tmp_path: Path
) -> None:
    server.deploy("orders")
    location = cluster.savepoint(asked())
    cluster.submit(Submission("back", "orders", location, options={"resource": "orders"}))
    written = [path.read_text() for path in (tmp_path / "state").glob("*.json")]
    assert written and not any(TOKEN in text for text in written)
    assert TOKEN not in repr(cluster.calls.access) + repr(cluster.calls.access.prove(False))
    server.tokens = {"another"}
    with pytest.raises(ClusterError, match="Unauthorized") as raised:
        cluster.find("back")
    assert TOKEN not in str(raised.value)
    assert "sign in again" in str(raised.value.hint)


def test_a_file_of_a_token_is_read_again_when_it_is_rotated(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    cluster = opened(server, tmp_path)
    server.kubeconfig(tmp_path, tokenFile="token")
    server.deploy("orders")
    assert cluster.find_source(StopRequest("orders", "")).state is JobState.RUNNING
    server.tokens = {"rotated"}
    (tmp_path / "token").write_text("rotated")
    assert cluster.find_source(StopRequest("orders", "")).state is JobState.RUNNING


def test_a_token_in_a_kubeconfig_is_read_again_once_it_is_refused(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.deploy("orders")
    cluster = opened(server, tmp_path)
    assert cluster.find_source(StopRequest("orders", "")).state is JobState.RUNNING
    server.tokens = {"second"}
    server.kubeconfig(tmp_path, token="second")
    assert cluster.find_source(StopRequest("orders", "")).state is JobState.RUNNING


def test_a_list_whose_pages_have_expired_is_begun_again(tmp_path: Path) -> None:
    expired = Refused("the provided continue parameter is too old", 410, {})
    first = {"items": [1], "metadata": {"continue": "more"}}
    answers: list[Any] = [first, expired, first, {"items": [2]}]

    class Listed(KubernetesCalls):
        def _call(self, *words: Any, **more: Any) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Refused):
                raise answer
            return answer

    assert Listed("east", {}).every(DEPLOYMENT) == [1, 2]


def plugin(folder: Path, answer: str) -> dict[str, Any]:
    """A user that a program speaks for; each run of it is a line of `runs`."""
    script = folder / "plugin.sh"
    script.write_text(
        f'#!/bin/sh\necho "$WHO $1 $KUBERNETES_EXEC_INFO" >> {folder}/runs\n{answer}\n'
    )
    script.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {
        "exec": {
            "apiVersion": version,
            "command": "./plugin.sh",
            "args": ["get-token"],
            "env": [{"name": "WHO", "value": "us"}],
            "provideClusterInfo": True,
        }
    }


def credential(token: str, until: str = "2999-01-01T00:00:00Z") -> str:
    plain = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": until},
    }
    return f"cat <<'END'\n{json.dumps(plain)}\nEND"


def test_an_exec_plugin_is_run_as_kubectl_does_and_again_when_its_token_is_over(
    server: FakeKubernetes, tmp_path: Path
) -> None:
    server.deploy("orders")
    cluster = opened(server, tmp_path)
    server.kubeconfig(tmp_path, **plugin(tmp_path, credential(TOKEN)))
    source = StopRequest("orders", "")
    assert cluster.find_source(source).state is JobState.RUNNING
    assert cluster.find_source(source).state is JobState.RUNNING
    (line,) = (tmp_path / "runs").read_text().splitlines()
    assert line.startswith("us get-token {") and server.url in line
    server.tokens = {"second"}
    plugin(tmp_path, credential("second", "2000-01-01T00:00:00Z"))
    assert cluster.find_source(source).state is JobState.RUNNING
    assert cluster.find_source(source).state is JobState.RUNNING
    assert len((tmp_path / "runs").read_text().splitlines()) > 3, "an expired one is not kept"


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ("echo token=hunter22 >&2; exit 3", r"ended with 3: token=\*\*\*"),
        ('echo \'{"token": "hunter22"}\'', "prints no ExecCredential"),
        (credential("").replace("v1", "v9"), "prints no ExecCredential"),
        ("printf '\\377\\376' >&2; exit 1", "ended with 1"),
    ],
)
def test_an_exec_plugin_that_fails_is_told_without_its_secret(
    server: FakeKubernetes, tmp_path: Path, answer: str, match: str
) -> None:
    cluster = opened(server, tmp_path)
    server.kubeconfig(tmp_path, **plugin(tmp_path, answer))
    with pytest.raises(ClusterError, match=match) as raised:
        cluster.find("t")
    assert "hunter22" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify"),
        ({"server": "http://api.example:6443"}, "is not https"),
        ({"proxy-url": "http://proxy"}, '"proxy-url", which is not done'),
    ],
)
def test_a_kubeconfig_that_would_show_our_token_is_refused(
    server: FakeKubernetes, tmp_path: Path, change: dict[str, Any], match: str
) -> None:
    path = Path(server.kubeconfig(tmp_path))
    plain = json.loads(path.read_text())
    plain["clusters"][0]["cluster"] |= change
    path.write_text(json.dumps(plain))
    with pytest.raises(ClusterError, match=match):
        opened(server, tmp_path / "other", kubeconfig=str(path)).find("t")
    with pytest.raises(ClusterError, match="has no context west, but shop"):
        opened(server, tmp_path / "other", kubeconfig=str(path), context="west").find("t")


def test_the_file_of_rights_is_what_the_code_calls(server: FakeKubernetes, tmp_path: Path) -> None:
    for path, text in manifests().items():
        assert path.read_text() == text, "python -m tests.support.rbac writes it"
    ground = place(tmp_path, server)
    server.deploy("lines", "flinksessionjobs")
    assert ground.apply(spec_of()).state == "finished"
    cluster = opened(server, tmp_path)
    cluster.savepoint(replace(asked(stop=False), tag="x", job_id="orders-new"))
    location = cluster.savepoint(replace(asked(), tag="y", job_id="lines"))
    cluster.alive()
    options = {"like": {"resource": "lines"}, "resource": "lines-new"}
    cluster.submit(Submission("t", "lines", location, options=options))
    needed = {(group, name, verb) for (group, name), verbs in FLINK_NEEDS.items() for verb in verbs}
    assert server.asked == needed
    needed = {(group, name, verb) for (group, name), (verb,) in CLUSTER_NEEDS.items()}
    assert server.asked_everywhere == needed
