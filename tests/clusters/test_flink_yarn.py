"""Flink on YARN: what a ResourceManager and the JobManagers that it names say together, and what
comes of their faults. Both are stand-ins; `test_flink_on_yarn.py` of tests/servers asks real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.flink.jobs import job_id
from stateshift.clusters.http import Refused, Unanswered
from stateshift.clusters.kind import check_submit, open_cluster
from stateshift.clusters.protocol import (
    CheckpointRequest,
    Gone,
    JobState,
    SavepointRequest,
    StopRequest,
    Submission,
)
from stateshift.clusters.yarn.flink import FlinkOnYarn, JobManagerCalls, SessionOnYarn
from stateshift.errors import ClusterError, SpecError
from stateshift.specification.model import ClusterSpec
from tests.clusters import fake_flink_yarn
from tests.clusters.fake_flink import stack
from tests.clusters.fake_flink_yarn import FakeFlinkYarn

RUN = str(Path(__file__).with_name("fake_flink_run.py"))
SAVEPOINT = "file:///savepoints/savepoint-1"
TAG = "run-1.orders"
THEIRS = "application_1796022664147_0900"
JOB = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def server() -> Iterator[FakeFlinkYarn]:
    with fake_flink_yarn.serving() as server:
        yield server


def spec(server: FakeFlinkYarn, tmp_path: Path, **options: Any) -> ClusterSpec:
    known = {
        "url": server.url,
        "flink": RUN,
        "settle_seconds": 0.3,
        "outage_seconds": 0.3,
        "environment": {"FAKE_YARN": server.url, "HADOOP_CONF_DIR": str(tmp_path)},
        "state_dir": str(tmp_path / "state"),
    }
    return ClusterSpec("emr", "flink_yarn", {**known, **options})


def opened(server: FakeFlinkYarn, tmp_path: Path, **options: Any) -> FlinkOnYarn:
    cluster = open_cluster(spec(server, tmp_path, **options), str(tmp_path))
    assert isinstance(cluster, FlinkOnYarn)
    return cluster


def orders(tmp_path: Path, **options: Any) -> Submission:
    (tmp_path / "orders.jar").write_bytes(b"classes")
    given = {"jar": str(tmp_path / "orders.jar"), "arguments": ["--from", "{checkpoint}", True]}
    return Submission(TAG, "orders", SAVEPOINT, options={**given, **options})


def request(tag: str | None = TAG, **options: Any) -> StopRequest:
    return StopRequest("orders", SAVEPOINT, tag, 5.0, options)


def saved(seconds_max: float = 10.0) -> SavepointRequest:
    return SavepointRequest("run-1.halt", JOB, "file:///taken", seconds_max=seconds_max)


def test_a_job_is_handed_over_with_its_savepoint_its_id_and_our_tags(
    server: FakeFlinkYarn, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path, flink_configuration={"yarn.tags": "theirs"})
    more: dict[str, Any] = {"entry_class": "Orders", "parallelism": 3, "queue": "small"}
    assert cluster.submit(orders(tmp_path, **more)) == job_id(TAG)
    (words,) = server.submitted
    assert words[:3] == ["run", "-t", "yarn-application"]
    settings = dict(word[2:].split("=", 1) for word in words if word.startswith("-D"))
    theirs, tag, place = settings.pop("yarn.tags").split(",")
    assert (theirs, tag[:11], place[:17]) == ("theirs", "stateshift-", "stateshift-place-")
    assert settings == {
        "yarn.application.name": "orders",
        "yarn.application.queue": "small",
        "$internal.pipeline.job-id": job_id(TAG),
    }
    rest = [word for word in words[3:] if not word.startswith("-D")]
    assert rest == [
        *("-s", SAVEPOINT, "-rm", "NO_CLAIM", "-c", "Orders", "-p", "3"),
        *(str(tmp_path / "orders.jar"), "--from", SAVEPOINT, "true"),
    ]
    status = cluster.find(TAG)
    assert (status.state, status.id) == (JobState.RUNNING, job_id(TAG))
    assert cluster.progress(TAG).restored == SAVEPOINT
    assert cluster.submit(orders(tmp_path)) == job_id(TAG), "and is there once"
    assert len(server.submitted) == 1


def test_before_2_0_another_word_starts_it(server: FakeFlinkYarn, tmp_path: Path) -> None:
    home = tmp_path / "flink-1.19.3"
    for folder in ("bin", "lib"):
        (home / folder).mkdir(parents=True)
    (home / "lib" / "flink-dist-1.19.3.jar").touch()
    (home / "bin" / "flink").write_bytes(Path(RUN).read_bytes())
    (home / "bin" / "flink").chmod(0o755)
    cluster = opened(server, tmp_path, flink=str(home / "bin" / "flink"))
    assert cluster.version() == "1.19.3"
    cluster.submit(replace(orders(tmp_path), location=""))
    (words,) = server.submitted
    assert words[0] == "run-application" and "-s" not in words


def test_a_launcher_that_dies_is_not_submitted_again(server: FakeFlinkYarn, tmp_path: Path) -> None:
    server.dies()
    opened(server, tmp_path).submit(orders(tmp_path))
    elsewhere = opened(server, tmp_path, state_dir=str(tmp_path / "elsewhere"))
    elsewhere.submit(orders(tmp_path))
    assert len(server.submitted) == 1


def test_what_flink_refuses_to_start_has_failed(server: FakeFlinkYarn, tmp_path: Path) -> None:
    variables = {"FAKE_YARN": server.url, "FAKE_REFUSES": "1", "HADOOP_CONF_DIR": str(tmp_path)}
    cluster = opened(server, tmp_path, environment=variables)
    cluster.submit(orders(tmp_path))
    status = cluster.find(TAG)
    assert (status.state, status.detail) == (JobState.FAILED, "flink ended with 1")
    assert "Couldn't deploy" in cluster.log(TAG)


def test_a_start_that_fails_tells_the_words_of_flink(server: FakeFlinkYarn, tmp_path: Path) -> None:
    misfit = "java.lang.IllegalStateException: Failed to rollback to checkpoint/savepoint"
    server.fails_with = stack("x.JobInitializationException: Could not start the JobMaster", misfit)
    cluster = opened(server, tmp_path)
    cluster.submit(orders(tmp_path))
    status = cluster.find(TAG)
    assert status.state is JobState.FAILED
    assert "Failed to rollback to checkpoint/savepoint" in str(status.detail)
    assert cluster.stop(request()).state is JobState.FAILED


def test_a_jobmanager_whose_jvm_does_not_start_has_the_words_of_yarn_and_its_own(
    server: FakeFlinkYarn, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path)
    cluster.submit(orders(tmp_path))
    (id,) = server.managers
    sentence = "AM Container for appattempt_1 exited with exitCode: 1"
    told = f"{sentence}\nFailing this attempt.Diagnostics: ExitCodeException: \n. Failing the application."
    over = {"state": "FAILED", "finalStatus": "FAILED", "diagnostics": told}
    server.applications[id].update(over)
    server.says = "Error occurred during initialization of VM"
    status = cluster.find(TAG)
    assert status.state is JobState.FAILED and sentence in str(status.detail)
    log = cluster.log(TAG)
    assert server.says in log and "404" not in log


def test_an_application_that_is_accepted_and_not_started_is_queued_and_can_be_stopped(
    server: FakeFlinkYarn, tmp_path: Path
) -> None:
    server.first_state = "ACCEPTED"
    cluster = opened(server, tmp_path)
    cluster.submit(orders(tmp_path))
    status = cluster.find(TAG)
    assert status.state is JobState.QUEUED
    assert "accepted since" in str(status.detail)
    assert not cluster.progress(TAG).running
    assert cluster.stop(request()).state is JobState.FINISHED


@pytest.mark.parametrize("ends", [True, False])
def test_a_job_is_cancelled_and_its_application_killed_where_it_stays(
    server: FakeFlinkYarn, tmp_path: Path, ends: bool
) -> None:
    cluster = opened(server, tmp_path)
    cluster.submit(orders(tmp_path))
    (id,) = server.managers
    if not ends:
        server.managers[id].begin("f" * 32, "another")
    assert cluster.stop(request()).state is JobState.FINISHED
    assert server.applications[id]["state"] == ("FINISHED" if ends else "KILLED")
    assert server.managers[id].jobs[job_id(TAG)].ends_as in ("", "CANCELED")


@pytest.mark.parametrize("ends", [True, False])
def test_a_session_of_somebody_else_is_never_killed(
    server: FakeFlinkYarn, tmp_path: Path, ends: bool
) -> None:
    flink = server.begin(THEIRS, "shop session")
    flink.begin(JOB, "orders")
    flink.begin("f" * 32, "payments")
    cluster = opened(server, tmp_path)
    flink.lingers = 0 if ends else 1000
    if ends:
        assert not cluster.stop(request(None)).state.alive
        assert flink.jobs[JOB].state == "CANCELED"
    else:
        with pytest.raises(ClusterError, match="which stateshift has not started"):
            cluster.stop(replace(request(None), seconds_max=0.5))
    assert server.applications[THEIRS]["state"] == "RUNNING"
    assert flink.jobs["f" * 32].state == "RUNNING"


def test_a_kill_that_is_refused_says_so(server: FakeFlinkYarn, tmp_path: Path) -> None:
    server.allows = False
    cluster = opened(server, tmp_path)
    cluster.submit(orders(tmp_path))
    (id,) = server.managers
    server.managers[id].begin("f" * 32, "another")
    with pytest.raises(Refused, match=r"dr\.who cannot perform it"):
        cluster.stop(request())


def test_a_job_of_somebody_else_ends_with_a_savepoint(
    server: FakeFlinkYarn, tmp_path: Path
) -> None:
    server.begin(THEIRS, "Flink Application Cluster").begin(JOB, "orders")
    server.begin("application_1796022664147_0901", "other").begin("f" * 32, "payments")
    cluster = opened(server, tmp_path)
    source = cluster.find_source(request(None, job_ids=[JOB]))
    assert (source.state, source.id) == (JobState.RUNNING, JOB)
    assert cluster.find_source(request(None)).id == JOB, "by its name"
    assert [job.id for job in cluster.running(JOB)] == [JOB]
    assert {job.id for job in cluster.alive()} == {JOB, "f" * 32}
    try:
        location = cluster.savepoint(saved())
        assert location.startswith("file:/taken")
    except Gone as gone:  # its JobManager went before it could say where
        assert "its cluster is gone" in gone.fact
    assert server.managers[THEIRS].jobs[JOB].state == "FINISHED"
    assert cluster.find_source(request(None, job_ids=[JOB])).state is JobState.FINISHED
    assert server.managers["application_1796022664147_0901"].jobs["f" * 32].state == "RUNNING"


def test_a_job_that_a_move_has_started_is_not_the_source_of_its_name(
    server: FakeFlinkYarn, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path)
    cluster.submit(orders(tmp_path))
    (id,) = server.managers
    server.managers[id].jobs[job_id(TAG)].name = "orders"
    there = StopRequest("orders", "file:///ck/before", None, 5.0)
    assert cluster.find_source(there).state is JobState.ABSENT
    assert cluster.find_source(request(None)).id == job_id(TAG)
    assert cluster.origin(request(None), None).options == orders(tmp_path).options


def test_a_jobmanager_that_is_silent_is_not_gone_while_yarn_runs_it(
    server: FakeFlinkYarn, tmp_path: Path
) -> None:
    """Otherwise the job would be taken to have ended, and be started beside itself."""
    flink = server.begin(THEIRS, "orders")
    flink.begin(JOB, "orders")
    flink.slow = 3
    cluster = opened(server, tmp_path)
    cluster.find_source(request(None, job_ids=[JOB]))
    address = server.applications[THEIRS]["amRPCAddress"]
    server.applications[THEIRS]["amRPCAddress"] = "127.0.0.1:1"
    for ask in (
        lambda: cluster.find_source(request(None, job_ids=[JOB])),
        lambda: cluster.savepoint(saved(2.0)),
        lambda: cluster.checkpoint(CheckpointRequest("run-1.end", JOB, 2.0)),
        lambda: cluster.latest_checkpoint(JOB),
    ):
        with pytest.raises(Unanswered):
            ask()
    server.applications[THEIRS]["amRPCAddress"] = address  # YARN has started it again elsewhere
    assert cluster.find_source(request(None, job_ids=[JOB])).state is JobState.RUNNING


def test_an_application_that_ended_in_between_is_gone(
    server: FakeFlinkYarn, tmp_path: Path
) -> None:
    server.begin(THEIRS, "orders").begin(JOB, "orders")
    cluster = opened(server, tmp_path)
    cluster.find_source(request(None, job_ids=[JOB]))
    over = {"state": "FAILED", "finalStatus": "FAILED", "diagnostics": "AM Container exited"}
    server.applications[THEIRS].update(over)
    assert cluster.find_source(request(None, job_ids=[JOB])).state is JobState.FAILED
    with pytest.raises(Gone, match="is over: FAILED"):
        cluster.latest_checkpoint(JOB)
    with pytest.raises(ClusterError, match="is over: FAILED"):
        cluster.savepoint(saved())


@pytest.mark.parametrize("question", ["running", "job_settings", "no_canonical", "alive", "live"])
def test_an_application_may_end_between_any_two_questions(
    server: FakeFlinkYarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """Whoever plans after a stop asks an application that is about to end."""
    place, left = JobManagerCalls.place, iter(())

    def ends(calls: JobManagerCalls, path: str) -> str:
        now = next(left, "")
        if now == "silent":  # its JobManager goes first
            server.applications[THEIRS]["amRPCAddress"] = "127.0.0.1:1"
        if now == "over":
            server.applications[THEIRS].update({"state": "FINISHED", "finalStatus": "SUCCEEDED"})
        return place(calls, path)

    monkeypatch.setattr(JobManagerCalls, "place", ends)
    for answered in range(8):
        server.begin(THEIRS, "orders", state="RUNNING", finalStatus="UNDEFINED").begin(
            JOB, "orders"
        )
        cluster = opened(server, tmp_path)
        cluster.find_source(request(None, job_ids=[JOB]))
        left = iter([*[""] * answered, "silent", "over"])
        asks = getattr(cluster, question)
        answer = asks() if question in ("alive", "live") else asks(JOB)
        assert answered or not answer


def test_two_applications_with_one_job_id_are_told_apart_by_nobody(
    server: FakeFlinkYarn, tmp_path: Path
) -> None:
    for number in (1, 2):
        server.begin(f"application_1796022664147_090{number}", "orders").begin(JOB, "orders")
    cluster = opened(server, tmp_path)
    with pytest.raises(ClusterError, match="2 jobs called 'orders' run in YARN"):
        cluster.find_source(request(None))
    with pytest.raises(ClusterError, match="several applications have a job"):
        cluster.savepoint(saved())
    assert all(flink.asked == [] for flink in server.managers.values())


def test_a_fail_over_in_the_middle_is_waited_for(server: FakeFlinkYarn, tmp_path: Path) -> None:
    with fake_flink_yarn.serving() as other:
        other.applications, other.managers = server.applications, server.managers
        cluster = opened(server, tmp_path, url=f"{server.url},{other.url}")
        cluster.submit(orders(tmp_path))
        server.standby = True
        assert cluster.find(TAG).state is JobState.RUNNING
        assert cluster.stop(request()).state is JobState.FINISHED


def test_a_session_takes_jobs_by_its_rest_api(server: FakeFlinkYarn, tmp_path: Path) -> None:
    flink = server.begin(THEIRS, "shop session")
    flink.jars["1_orders.jar"] = "orders.jar"
    flink.begin(JOB, "orders")
    submission = replace(orders(tmp_path), options={"jar_id": "1_orders.jar", "arguments": [TAG]})
    for session in ("shop session", THEIRS):
        known = spec(server, tmp_path, session=session)
        cluster = open_cluster(known, str(tmp_path))
        assert isinstance(cluster, SessionOnYarn)
        assert cluster.submit(submission) == job_id(TAG)
        assert cluster.find_source(request(None, job_ids=[JOB])).state is JobState.RUNNING
    assert flink.started == {TAG: 1}
    lost = open_cluster(spec(server, tmp_path, session="no such"), str(tmp_path))
    with pytest.raises(ClusterError, match="0 applications of Flink called 'no such'"):
        lost.find(TAG)


def test_no_credentials_of_yarn_go_to_a_jobmanager(
    server: FakeFlinkYarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATESHIFT_YARN_PASSWORD", "hunter22")
    cluster = opened(server, tmp_path, auth="basic", user="shop")
    cluster.submit(orders(tmp_path))
    assert cluster.find(TAG).state is JobState.RUNNING
    (flink,) = server.managers.values()
    assert any("Authorization" in headers for headers in server.headers)
    assert flink.headers and not any("Authorization" in headers for headers in flink.headers)


@pytest.mark.parametrize(
    ("options", "cluster", "place", "fact"),
    [
        ({"jar_id": "1_o.jar"}, {}, "/jar_id", "an application brings its jar along"),
        ({"jar": "/nowhere.jar"}, {}, "/jar", "there is no such file"),
        ({"jar_id": "1", "queue": "x"}, {"session": "s"}, "/queue", "a session has its own"),
        (
            {"jar": __file__, "claim_mode": "claim"},
            {},
            "/claim_mode",
            "lets Flink delete the image",
        ),
        ({"jar": __file__, "sql": "x.sql"}, {}, "/sql", "unknown"),
    ],
)
def test_a_submission_is_checked_before_anything_moves(
    server: FakeFlinkYarn,
    tmp_path: Path,
    options: dict[str, Any],
    cluster: dict[str, Any],
    place: str,
    fact: str,
) -> None:
    with pytest.raises(SpecError) as caught:
        check_submit(spec(server, tmp_path, **cluster), options, "/jobs/0/submit")
    complaint = caught.value.complaints[0]
    assert complaint.pointer.endswith(place) and fact in complaint.message


def test_a_start_is_tried_as_far_as_it_can_be(server: FakeFlinkYarn, tmp_path: Path) -> None:
    tried = opened(server, tmp_path).try_start(orders(tmp_path, queue="nope"))
    assert tried.refused.startswith("YARN has no queue nope, but ")
    tried = opened(server, tmp_path, flink="/no/flink").try_start(orders(tmp_path))
    assert tried.refused == "no executable /no/flink"
    assert opened(server, tmp_path).try_start(orders(tmp_path)).refused == ""
    assert server.submitted == []
