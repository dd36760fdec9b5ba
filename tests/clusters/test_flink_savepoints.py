"""Savepoints asked for over lost answers, forgotten triggers and our own ends: one per tag, and
never a wrong one.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.flink.savepoints import cautions, lies_below, trigger_id
from stateshift.clusters.kind import Contacts, open_cluster
from stateshift.clusters.protocol import SavepointCluster, SavepointRequest, Slots
from stateshift.errors import ClusterError, Interrupted
from stateshift.specification.model import ClusterSpec
from tests.clusters.fake_flink import FakeFlink, FakeJob, serving, stack
from tests.clusters.faulty_server import Fault, hasty
from tests.support.processes import in_time

ID = "a" * 32
STOP = SavepointRequest("run-1.orders", ID, "file:///savepoints", seconds_max=60.0)
CANCEL = replace(STOP, stop=False, cancel=True)
PLAIN = replace(STOP, stop=False)
EXPIRED = (
    "org.apache.flink.runtime.checkpoint.CheckpointException: Checkpoint expired before completing."
)


@pytest.fixture
def server() -> Iterator[FakeFlink]:
    with serving() as flink:
        yield flink


@pytest.fixture
def job(server: FakeFlink) -> FakeJob:
    begun = server.begin(ID)
    begun.checkpointed(1, f"file:/ck/{ID}/chk-1")
    return begun


def cluster(server: FakeFlink, tmp_path: Path, **more: Any) -> SavepointCluster:
    options = {
        "url": server.url,
        "request_seconds": 60,
        "state_dir": str(tmp_path / "state"),
        **more.pop("options", {}),
    }
    opened: Any = open_cluster(
        ClusterSpec("flink", "flink_rest", options), str(tmp_path), Contacts(**more)
    )
    return opened  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("request_", "place", "body", "state"),
    [
        (
            STOP,
            "stop",
            {"targetDirectory": STOP.directory, "drain": False, "formatType": "CANONICAL"},
            "FINISHED",
        ),
        (
            replace(STOP, drain=True),
            "stop",
            {"targetDirectory": STOP.directory, "drain": True, "formatType": "CANONICAL"},
            "FINISHED",
        ),
        (
            replace(CANCEL, native=True),
            "savepoints",
            {"target-directory": STOP.directory, "cancel-job": True, "formatType": "NATIVE"},
            "CANCELED",
        ),
        (
            PLAIN,
            "savepoints",
            {"target-directory": STOP.directory, "cancel-job": False, "formatType": "CANONICAL"},
            "RUNNING",
        ),
        (
            replace(STOP, directory=""),
            "stop",
            {"drain": False, "formatType": "CANONICAL"},
            "FINISHED",
        ),
    ],
    ids=["stop", "drained", "cancel native", "plain", "where the cluster has them"],
)
def test_a_savepoint_is_asked_for_in_flinks_words_and_waited_for_as_the_jobs_end_is(
    server: FakeFlink,
    job: FakeJob,
    tmp_path: Path,
    request_: SavepointRequest,
    place: str,
    body: Any,
    state: str,
) -> None:
    location = cluster(server, tmp_path).savepoint(request_)
    assert location == "file:/savepoints/savepoint-1"
    assert server.asked == [(place, {**body, "triggerId": trigger_id(request_.tag)})]
    assert job.state == state


@pytest.mark.parametrize("request_", [STOP, CANCEL, PLAIN], ids=["stop", "cancel", "plain"])
@pytest.mark.parametrize("forgotten", [False, True])
def test_twice_with_one_tag_takes_one_savepoint(
    server: FakeFlink, job: FakeJob, tmp_path: Path, request_: SavepointRequest, forgotten: bool
) -> None:
    first = cluster(server, tmp_path).savepoint(request_)
    if forgotten:
        server.triggers.clear()
    assert cluster(server, tmp_path).savepoint(request_) == first
    assert len(server.asked) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "fault", ["503", "503 after all", "cut off", "cut off after all", "hang", "page"]
)
@pytest.mark.parametrize("request_", [STOP, PLAIN], ids=["stop", "plain"])
def test_an_answer_that_is_lost_takes_no_second_savepoint(
    server: FakeFlink, job: FakeJob, tmp_path: Path, request_: SavepointRequest, fault: Fault
) -> None:
    server.faulty = "/stop" if request_.stop else "/savepoints"
    server.faults.append(fault)
    flink = cluster(server, tmp_path, options=hasty(fault))
    assert flink.savepoint(request_) == "file:/savepoints/savepoint-1"
    assert len(server.asked) == 1
    assert len([one for one in job.made if one["is_savepoint"]]) == 1


@pytest.mark.parametrize("request_", [STOP, CANCEL], ids=["stop", "cancel"])
def test_what_the_job_ended_with_is_found_by_who_knows_nothing_of_it(
    server: FakeFlink, job: FakeJob, tmp_path: Path, request_: SavepointRequest
) -> None:
    """The run's folder is lost, and Flink has forgotten that it was asked."""
    first = cluster(server, tmp_path / "lost").savepoint(request_)
    server.triggers.clear()
    assert cluster(server, tmp_path).savepoint(request_) == first
    assert len(server.asked) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("state", "kind", "path"),
    [
        ("FINISHED", "SAVEPOINT", "file:/savepoints/savepoint-9"),  # the job went on after it
        ("FINISHED", "SYNC_SAVEPOINT", "file:/savepoints-of-others/savepoint-9"),
        (
            "CANCELED",
            "SYNC_SAVEPOINT",
            "file:/savepoints/savepoint-9",
        ),  # a stop that did not come to its end
        ("FAILED", "SYNC_SAVEPOINT", "file:/savepoints/savepoint-9"),
    ],
)
def test_another_savepoint_is_not_taken_for_the_one_that_the_job_ended_with(
    server: FakeFlink, job: FakeJob, tmp_path: Path, state: str, kind: str, path: str
) -> None:
    job.checkpointed(9, path, kind)
    job.state = state
    with pytest.raises(
        ClusterError,
        match=f"orders .* is {state}, and no savepoint below file:///savepoints ended it",
    ):
        cluster(server, tmp_path).savepoint(STOP)
    assert server.asked == []


@pytest.mark.parametrize("request_", [STOP, CANCEL], ids=["stop", "cancel"])
@pytest.mark.parametrize("forgotten", [False, True])
def test_what_another_of_our_run_has_ended_the_job_with_since_we_looked_is_found(
    server: FakeFlink,
    job: FakeJob,
    tmp_path: Path,
    request_: SavepointRequest,
    forgotten: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two workflows that divide one job. It is told to have ended at once, its list of
    checkpoints is as it was.
    """
    plainly, looked = server.answer, threading.Event()

    def answer(method: str, path: str, query: Any, body: Any) -> tuple[int, Any]:
        told = plainly(method, path, query, body)
        if path.endswith(trigger_id(request_.tag)) and not looked.is_set():
            looked.set()
            assert told[0] == 404
            cluster(server, tmp_path / "other").savepoint(request_)
            server.stale = 2
            if forgotten:
                server.triggers.clear()
        return told

    server.lingers, server.refresh_milliseconds = 0, 60_000
    monkeypatch.setattr(server, "answer", answer)
    assert cluster(server, tmp_path).savepoint(request_) == "file:/savepoints/savepoint-1"
    assert len(server.asked) == 1


def test_a_list_of_checkpoints_that_flink_miscounts_while_another_asks_is_asked_for_again(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.miscounts = 4
    assert cluster(server, tmp_path).savepoint(STOP) == "file:/savepoints/savepoint-1"
    server.miscounts, job.state = 100, "FINISHED"
    with pytest.raises(ClusterError, match="NullArgumentException: input array"):
        cluster(server, tmp_path / "another").savepoint(replace(STOP, tag="another"))


def test_a_savepoint_from_before_we_asked_is_not_ours(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    job.checkpointed(2, "file:/savepoints/savepoint-of-yesterday", "SAVEPOINT", triggered=1)
    assert cluster(server, tmp_path).savepoint(PLAIN) == "file:/savepoints/savepoint-2"


def test_completed_with_a_cause_is_a_failure_and_the_next_attempt_asks_anew(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.fails.append(EXPIRED)
    with pytest.raises(
        ClusterError, match="no savepoint was taken: Checkpoint expired before completing"
    ) as raised:
        cluster(server, tmp_path).savepoint(STOP)
    assert "execution.checkpointing.timeout" in str(raised.value.hint)
    assert job.state == "RUNNING"
    assert cluster(server, tmp_path).savepoint(STOP) == "file:/savepoints/savepoint-1"
    assert [body["triggerId"] for _, body in server.asked] == [
        trigger_id(STOP.tag),
        trigger_id(STOP.tag, 1),
    ]


@pytest.mark.parametrize(
    "why", ["java.io.IOException: not committed", EXPIRED.replace("expired", "was declined")]
)
@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("tells_state", [False, True])
def test_a_job_that_fails_behind_its_savepoint_has_ended_with_it(
    server: FakeFlink, job: FakeJob, tmp_path: Path, why: str, forgotten: bool, tells_state: bool
) -> None:
    server.tells_state = tells_state
    server.fails_behind.append(why)
    assert cluster(server, tmp_path).savepoint(STOP) == "file:/savepoints/savepoint-1"
    assert job.state == "FAILED"
    said = cluster(server, tmp_path).failed_behind(STOP)
    assert said is not None and why.partition(": ")[2] in said
    if forgotten:
        server.triggers.clear()
    assert cluster(server, tmp_path / "another").savepoint(STOP) == "file:/savepoints/savepoint-1"
    assert cluster(server, tmp_path).savepoint(STOP) == "file:/savepoints/savepoint-1"
    assert len(server.asked) == 1


@pytest.mark.long
def test_a_job_that_fails_before_its_savepoint_is_whole_has_ended_with_none(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.fails.append("org.apache.flink.runtime.checkpoint.CheckpointException: Task has failed.")
    job.state, job.exceptions = "FAILED", [EXPIRED]
    fact = f"orders .* is FAILED, and no savepoint below {STOP.directory} ended it"
    with pytest.raises(ClusterError, match=fact):
        cluster(server, tmp_path).savepoint(STOP)
    job.state = "RUNNING"
    job.ends_as, job.lingers = "FAILED", 4
    with pytest.raises(ClusterError, match="no savepoint was taken: Task has failed"):
        cluster(server, tmp_path).savepoint(STOP)


@pytest.mark.parametrize("request_", [STOP, CANCEL, PLAIN], ids=["stop", "cancel", "plain"])
def test_a_job_on_forst_is_asked_for_no_canonical_savepoint(
    server: FakeFlink, job: FakeJob, tmp_path: Path, request_: SavepointRequest
) -> None:
    job.settings["state_backend"] = "ForStStateBackend"
    with pytest.raises(ClusterError, match="ForSt, which writes no canonical savepoint") as raised:
        cluster(server, tmp_path).savepoint(request_)
    assert "native" in str(raised.value.hint)
    assert server.asked == []
    cluster(server, tmp_path).savepoint(replace(request_, native=True))


@pytest.mark.row("T-21")
def test_only_a_job_that_is_stopped_is_drained(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match="can be drained"):
        cluster(server, tmp_path).savepoint(replace(PLAIN, drain=True))
    assert server.asked == []


def test_a_job_that_is_being_initialized_is_asked_once_it_runs(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    job.state, server.initializes = "INITIALIZING", 9
    assert cluster(server, tmp_path).savepoint(STOP) == "file:/savepoints/savepoint-1"
    assert len(server.asked) == 1


def test_a_job_that_flink_does_not_know_is_told_with_the_jobs_that_run(
    server: FakeFlink, tmp_path: Path
) -> None:
    flink = cluster(server, tmp_path)
    with pytest.raises(ClusterError, match=f"knows no job {ID}") as raised:
        flink.savepoint(STOP)
    assert raised.value.where["job"] == ID
    assert "no job runs there" in str(raised.value.hint)
    server.begin("b" * 32, name="payments")
    for ask in (lambda: flink.savepoint(STOP), lambda: flink.rescale(ID, {"count": 2}, 0.2)):
        with pytest.raises(ClusterError, match=f"knows no job {ID}") as raised:
            ask()
        assert f"jobs that run there: {'b' * 32} (payments)" in str(raised.value.hint)


def test_one_that_takes_too_long_is_told_with_what_makes_it_slow_and_goes_on(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.slow = 8
    job.settings["unaligned_checkpoints"] = True
    with pytest.raises(
        ClusterError, match=r"has taken more than 0.2 s \(its checkpoints are unaligned"
    ) as raised:
        cluster(server, tmp_path).savepoint(replace(STOP, seconds_max=0.2))
    assert "resume" in str(raised.value.hint)
    server.slow = 0
    assert (
        cluster(server, tmp_path).savepoint(replace(STOP, seconds_max=30.0))
        == "file:/savepoints/savepoint-1"
    )
    assert len(server.asked) == 1


@pytest.mark.parametrize("request_", [STOP, CANCEL], ids=["stop", "cancel"])
def test_a_job_is_on_its_way_out_from_when_it_is_asked_until_that_has_failed(
    server: FakeFlink, job: FakeJob, tmp_path: Path, request_: SavepointRequest
) -> None:
    flink, briefly = cluster(server, tmp_path), replace(request_, seconds_max=0.2)
    assert not flink.is_ending(request_)
    server.slow = 10**6
    with pytest.raises(ClusterError, match="has taken more than"):
        flink.savepoint(briefly)
    assert flink.is_ending(request_) and not flink.is_ending(replace(request_, tag="another"))
    server.fails.append("x.CheckpointException: Checkpoint expired before completing.")
    next(iter(server.triggers.values()))["polls"] = 0
    assert not flink.is_ending(request_)
    server.slow = 0
    flink.savepoint(request_)
    assert flink.is_ending(request_)


def test_a_jobmanager_that_was_started_anew_is_asked_again(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    """It has the job from its high availability, and knows of no savepoint."""
    server.slow = 10**6
    waiting = threading.Thread(
        target=lambda: in_time(lambda: bool(server.triggers)) and _forget(server)
    )
    waiting.start()
    assert cluster(server, tmp_path).savepoint(STOP) == "file:/savepoints/savepoint-1"
    waiting.join()
    assert job.state == "FINISHED"


@pytest.mark.long
@pytest.mark.parametrize("application", [True, False])
def test_a_cluster_that_goes_before_the_end_was_seen_has_ended_only_with_its_application(
    tmp_path: Path, application: bool
) -> None:
    options = {"application": application, "outage_seconds": 0.2}
    with serving() as server:
        server.begin(ID)
        server.lingers = 10**6
        flink = cluster(server, tmp_path, options=options)
        for seconds in (1, 10):  # a slow machine has not seen the savepoint before
            with pytest.raises(ClusterError) as raised:
                flink.savepoint(replace(STOP, seconds_max=seconds))
            if "still runs" in raised.value.fact:
                break
        assert f"still runs {seconds} s after its savepoint was asked for" in raised.value.fact
        assert "file:/savepoints/savepoint-0" in raised.value.fact
    if application:
        assert flink.savepoint(STOP) == "file:/savepoints/savepoint-0"
    else:
        with pytest.raises(ClusterError, match="does not answer"):
            flink.savepoint(STOP)


def test_the_wait_is_cut_short_by_an_interruption_and_goes_on(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    interrupt = threading.Event()
    server.slow = 5
    threading.Thread(
        target=lambda: in_time(lambda: bool(server.triggers)) and interrupt.set()
    ).start()
    with pytest.raises(Interrupted):
        cluster(server, tmp_path, interrupt=interrupt).savepoint(STOP)
    assert cluster(server, tmp_path).savepoint(STOP) == "file:/savepoints/savepoint-1"
    assert len(server.asked) == 1


@pytest.mark.long
def test_killed_at_any_moment_one_savepoint_is_taken_all_the_same(
    server: FakeFlink, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    server.slow = 2
    for attempt in range(12):
        job = server.begin(f"{attempt:032x}")
        request = replace((STOP, CANCEL, PLAIN)[attempt % 3], tag=f"run-{attempt}", job_id=job.id)
        child = os.fork()
        if child == 0:
            cluster(server, tmp_path).savepoint(request)
            os._exit(0)
        time.sleep(chance.uniform(0.0, 0.2))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if attempt % 2 and not job.ends_as:  # it does not forget while the job is on its way out
            server.triggers.clear()
        assert cluster(server, tmp_path).savepoint(request) == job.made[-1]["external_path"]
        assert len(job.made) == 1 or (request == PLAIN and attempt % 2)


@pytest.mark.parametrize(
    ("path", "directory", "below"),
    [
        ("file:/a/b/savepoint-1", "file:///a/b", True),
        ("file:/a/b/savepoint-1", "/a/b/", True),
        ("file:/a/b/savepoint-1", "file:/a/b", True),
        ("file:/a/bc/savepoint-1", "file:/a/b", False),
        ("hdfs://one:8020/sp/savepoint-1", "hdfs:///sp", True),
        ("hdfs://one:8020/sp/savepoint-1", "hdfs://two:8020/sp", False),
        ("s3://shop/sp#1/savepoint-1", "s3://shop/sp#1", True),
        ("s3://shop/sp#2/savepoint-1", "s3://shop/sp#1", False),
        ("s3a://shop/sp/savepoint-1", "s3://shop/sp", False),
        ("anything", "", True),
    ],
)
def test_what_lies_below_a_directory_is_known_by_its_path(
    path: str, directory: str, below: bool
) -> None:
    assert lies_below(path, directory) is below


def test_what_delays_or_hinders_is_told_of_the_settings() -> None:
    assert cautions({"unaligned_checkpoints": False, "state_changelog_enabled": False}) == ()
    both = cautions({"unaligned_checkpoints": True, "state_changelog_enabled": True})
    assert ["unaligned" in both[0], "changelog" in both[1]] == [True, True]


def _forget(server: FakeFlink) -> None:
    server.slow = 0
    server.triggers.clear()


@pytest.mark.parametrize("gathers", [0, 5])
def test_a_job_that_asks_its_state_asynchronously_is_asked_for_no_canonical_savepoint(
    server: FakeFlink, job: FakeJob, tmp_path: Path, gathers: int
) -> None:
    """It fails with the attempt, whatever its state backend. It is known by what its operator
    measures.
    """
    job.asks_async, server.gathers = True, gathers
    why = "'orders_count' of orders asks its state asynchronously"
    with pytest.raises(ClusterError, match=why) as raised:
        cluster(server, tmp_path).savepoint(STOP)
    assert '"stop": {"format": "native"}' in str(raised.value.hint)
    assert server.asked == []
    assert why in str(cluster(server, tmp_path).no_canonical(ID))  # type: ignore[attr-defined]
    cluster(server, tmp_path).savepoint(replace(STOP, native=True))
    assert [body["formatType"] for _, body in server.asked] == ["NATIVE"]


def test_a_flink_before_2_has_no_asynchronous_state(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    job.asks_async, server.version = True, "1.20.5"
    assert cluster(server, tmp_path).no_canonical(ID) is None  # type: ignore[attr-defined]


SUSPENDING = (
    "org.apache.flink.runtime.checkpoint.CheckpointException: Checkpoint Coordinator is suspending."
)
NOT_YET = (
    "java.io.IOException: Could not perform checkpoint 13 for operator orders count (1/2)#0.",
    (
        "org.apache.flink.runtime.checkpoint.CheckpointException: Could not complete "
        "snapshot 13 for operator orders count"
    ),
    "java.lang.UnsupportedOperationException: Not supported yet.",
)


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_what_made_the_job_fail_is_told_of_a_savepoint_that_was_given_up(
    server: FakeFlink, job: FakeJob, tmp_path: Path, state: str
) -> None:
    """Flink itself says of it that the coordinator is suspending, which is no reason."""
    server.fails.append(SUSPENDING)
    job.exceptions, job.fails_with = [stack(EXPIRED)], stack(*NOT_YET)
    if state == "FAILED":
        job.ends_as, job.lingers = "FAILED", 7
    with pytest.raises(ClusterError) as raised:
        cluster(server, tmp_path).savepoint(STOP)
    fact, hint = raised.value.fact, str(raised.value.hint)
    assert "Could not complete snapshot 13 for operator orders count: Not supported yet" in fact
    assert '"stop": {"format": "native"}' in hint
    assert ("rollback" in hint, "chk-1" in hint) == (state == "FAILED", state == "FAILED")
    assert "resume" not in hint


@pytest.mark.long
def test_an_exception_from_before_is_not_the_reason(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.fails.append(SUSPENDING)
    job.exceptions = [stack(*NOT_YET)]
    with pytest.raises(
        ClusterError, match="no savepoint was taken: Checkpoint Coordinator is suspending"
    ):
        cluster(server, tmp_path).savepoint(STOP)


@pytest.mark.parametrize(
    ("configured", "told"),
    [
        ({}, Slots(8, 8)),
        ({"jobmanager.scheduler": "Adaptive"}, Slots(8, 8, adaptive=True)),
        ({"execution.target": "kubernetes-session"}, Slots(8, 8, on_demand=True)),
        ({"kubernetes.cluster-id": "a"}, Slots(8, 8, on_demand=True)),
    ],
)
def test_a_cluster_tells_its_slots_and_whether_there_may_be_more(
    server: FakeFlink, tmp_path: Path, configured: dict[str, str], told: Slots
) -> None:
    server.configured = configured
    assert cluster(server, tmp_path).slots() == told  # type: ignore[attr-defined]


def test_a_cluster_tells_the_jobs_and_the_jars_that_are_there(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.begin("b" * 32, "payments", state="FINISHED")
    server.jars["1_orders.jar"] = "orders.jar"
    opened: Any = cluster(server, tmp_path)
    assert [(one.id, one.name) for one in opened.alive()] == [(ID, "orders")]
    assert opened.jars() == {"1_orders.jar": "orders.jar"}


def test_a_cluster_tells_how_the_last_job_of_a_name_has_ended(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.begin("b" * 32, "payments", state="FINISHED", ended_ms=2_000)
    server.begin("c" * 32, "payments", state="CANCELED", ended_ms=3_000)
    server.begin("d" * 32, "payments", state="FAILED", ended_ms=1_000)
    opened: Any = cluster(server, tmp_path)
    assert [opened.ended_as(name) for name in ("payments", "orders")] == ["canceled", None]
