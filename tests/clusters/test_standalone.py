"""A standalone master where it does not answer, or answers oddly; and what it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import JobState, Remedy, StopRequest, Submission
from stateshift.clusters.standalone.cluster import Standalone
from stateshift.errors import ClusterError, SpecError
from stateshift.specification.model import ClusterSpec
from tests.clusters.fake_standalone import FakeStandalone, serving
from tests.clusters.faulty_server import Fault
from tests.clusters.test_spark_causes import STATE, began, ended

ORDERS = Submission(
    "run-1.orders", "orders", "hdfs://shop/ck/orders", options={"application": "/jobs/orders.py"}
)


@pytest.fixture
def server() -> Iterator[FakeStandalone]:
    with serving() as standalone:
        yield standalone


def cluster(server: FakeStandalone, tmp_path: Path, **options: Any) -> Standalone:
    known = {"url": server.url, "ui_url": server.url, "settle_seconds": 0.3, "request_seconds": 60}
    spec = ClusterSpec(
        "a", "spark_standalone", {**known, "state_dir": str(tmp_path / "state"), **options}
    )
    opened = open_cluster(spec, str(tmp_path))
    assert isinstance(opened, Standalone)
    return opened


def request(**options: Any) -> StopRequest:
    return StopRequest("orders", "hdfs://shop/ck/orders", options=options, seconds_max=60.0)


def test_a_lost_driver_is_found_though_spark_hides_a_tag_that_looks_like_a_secret(
    server: FakeStandalone, tmp_path: Path
) -> None:
    server.faults.append("cut off after all")
    token = replace(ORDERS, tag="run-1.token-refresh")
    assert cluster(server, tmp_path, settle_seconds=3).submit(token) == "driver-0"


def test_while_a_driver_that_may_be_ours_waits_for_a_worker_nobody_can_tell(
    server: FakeStandalone, tmp_path: Path
) -> None:
    server.launches = False
    server.faults.append("cut off after all")
    with pytest.raises(ClusterError, match="does not answer"):
        cluster(server, tmp_path).submit(ORDERS)
    assert "driver-0 may be it" in str(cluster(server, tmp_path).find(ORDERS.tag).detail)
    with pytest.raises(
        ClusterError, match="cannot tell whether orders was submitted: driver-0 may be it"
    ):
        cluster(server, tmp_path).submit(ORDERS)
    server.launch()
    assert cluster(server, tmp_path).submit(ORDERS) == "driver-0"
    assert server.started == {"run-1.orders": 1}


@pytest.mark.parametrize(
    ("fault", "fact"),
    [
        ("503", "HTTP 503 for POST: Slow down"),
        ("cut off", "does not answer"),
        ("page", "as a standalone Spark does .HTTP 200, text/html"),
    ],
)
def test_a_submission_that_had_no_effect_is_told_with_the_fact_and_a_hint(
    server: FakeStandalone, tmp_path: Path, fault: Fault, fact: str
) -> None:
    server.faults.append(fault)
    with pytest.raises(ClusterError, match=fact) as raised:
        cluster(server, tmp_path).submit(ORDERS)
    assert raised.value.hint is not None


def test_a_master_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with serving() as server:
        gone = cluster(server, tmp_path)
    with pytest.raises(ClusterError, match=rf"{server.url} does not answer: .*refused") as raised:
        gone.find(ORDERS.tag)
    assert raised.value.exit_code == 7
    assert raised.value.hint is not None and '"ui_url"' in raised.value.hint
    assert gone.version() is None


def test_a_page_that_is_not_the_masters_is_told_with_its_option(
    server: FakeStandalone, tmp_path: Path
) -> None:
    elsewhere = cluster(server, tmp_path, ui_url=f"{server.url}/v1/submissions/status/x?")
    with pytest.raises(ClusterError, match="'activedrivers'") as raised:
        elsewhere.find(ORDERS.tag)
    assert raised.value.hint is not None and '"ui_url"' in raised.value.hint


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("SUBMITTED", "queued"),
        ("RELAUNCHING", "queued"),
        ("RUNNING", "running"),
        ("FINISHED", "finished"),
        ("KILLED", "failed"),
        ("FAILED", "failed"),
        ("ERROR", "failed"),
        ("UNKNOWN", "unknown"),
        ("LATER", "unknown"),
    ],
)
def test_each_of_its_states_is_one_of_ours(
    server: FakeStandalone, tmp_path: Path, word: str, state: str
) -> None:
    standalone = cluster(server, tmp_path)
    server.set_state(standalone.submit(ORDERS), word)
    assert standalone.find(ORDERS.tag).state == state


def test_why_a_driver_could_not_be_started_is_told(server: FakeStandalone, tmp_path: Path) -> None:
    """As a worker of 4.3 says of an application that is not there: no log has it."""
    standalone = cluster(server, tmp_path)
    id = standalone.submit(ORDERS)
    server.set_state(id, "ERROR")
    server.drivers[id]["message"] = (
        "Exception from the cluster:\njava.nio.file.NoSuchFileException: /srv/orders.py\n"
        "\tsun.nio.fs.UnixException.translateToIOException(UnixException.java:92)"
    )
    detail = standalone.find(ORDERS.tag).detail
    assert detail == "ERROR: java.nio.file.NoSuchFileException: /srv/orders.py"


def test_the_location_is_handed_over_by_settings_environment_and_arguments(
    server: FakeStandalone, tmp_path: Path
) -> None:
    options = {
        "arguments": ["--checkpoint", "{checkpoint}", 7],
        "conf": {"spark.x": True},
        "driver_memory": "1g",
        "py_files": ["a.py", "b.zip"],
        "environment": {"B": 2},
    }
    standalone = cluster(
        server, tmp_path, conf={"spark.x": "no", "spark.y": "{tag}"}, environment={"A": 1}
    )
    standalone.submit(
        replace(ORDERS, options={**ORDERS.options, **options}, environment={"B": "1", "C": "3"})
    )
    body = server.bodies[0]
    assert body["appResource"] == "file:///jobs/orders.py"
    assert body["mainClass"] == "org.apache.spark.deploy.PythonRunner"
    assert body["appArgs"] == [
        "{{USER_JAR}}",
        "a.py,b.zip",
        "--checkpoint",
        "hdfs://shop/ck/orders",
        "7",
    ]
    assert body["environmentVariables"] == {
        "A": "1",
        "B": "2",
        "C": "3",
        "STATESHIFT_CHECKPOINT": "hdfs://shop/ck/orders",
        "STATESHIFT_JOB": "orders",
        "STATESHIFT_TAG": "run-1.orders",
    }
    told = body["sparkProperties"]
    assert (told["spark.x"], told["spark.y"], told["spark.driver.memory"]) == (
        "true",
        ORDERS.tag,
        "1g",
    )
    assert told["spark.stateshift.checkpoint"] == "hdfs://shop/ck/orders"
    assert told["spark.app.name"] == told["spark.stateshift.job"] == "orders"


def test_an_application_whose_driver_runs_elsewhere_is_not_taken_for_absent(
    server: FakeStandalone, tmp_path: Path
) -> None:
    """In client mode the master knows no driver, and knows the application by its name."""
    standalone = cluster(server, tmp_path)
    assert standalone.find_source(request()).state is JobState.ABSENT
    server.applications = [{"id": "app-7", "name": "orders"}, {"id": "app-8", "name": "payments"}]
    status = standalone.find_source(request())
    assert (status.state, status.id) == (JobState.UNKNOWN, "app-7")
    assert standalone.find_source(request(app_name="returns")).state is JobState.ABSENT


def test_a_job_may_be_a_driver_that_runs_and_whose_worker_does_not_tell(
    server: FakeStandalone, tmp_path: Path
) -> None:
    for name in ("payments", "orders"):
        body = {"sparkProperties": {"spark.app.name": name}}
        server.answer("POST", "/v1/submissions/create", {}, body)
    server.drivers["driver-1"]["worker"] = "worker-that-nobody-reaches"
    standalone = cluster(server, tmp_path)
    status = standalone.find_source(request())
    assert (status.state, status.id) == (JobState.UNKNOWN, "driver-1")
    with pytest.raises(ClusterError, match="cannot tell whether orders runs: driver-1 may be it"):
        standalone.stop(request())
    assert standalone.stop(request(driver="driver-1", graceful_seconds=0.1)).state.alive is False
    assert server.drivers["driver-1"]["state"] == "KILLED"
    assert standalone.find_source(request()).state is JobState.ABSENT


def test_a_job_is_stopped_whatever_another_driver_is(
    server: FakeStandalone, tmp_path: Path
) -> None:
    for name in ("payments", "orders"):
        body = {"sparkProperties": {"spark.app.name": name}}
        server.answer("POST", "/v1/submissions/create", {}, body)
    server.drivers["driver-0"]["worker"] = "worker-that-nobody-reaches"
    stopped = cluster(server, tmp_path).stop(request(graceful_seconds=0.1))
    assert (stopped.state, stopped.id) == (JobState.FAILED, "driver-1")
    assert server.drivers["driver-0"]["state"] == "RUNNING"


def test_the_application_of_a_job_that_was_moved_on_is_not_its_sources(
    server: FakeStandalone, tmp_path: Path
) -> None:
    standalone = cluster(server, tmp_path)
    standalone.submit(replace(ORDERS, location="hdfs://shop/ck/moved"))
    server.applications = [{"id": "app-7", "name": "orders"}]
    assert standalone.find_source(request()).state is JobState.ABSENT


@pytest.mark.parametrize(("version", "opened"), [("3.5.9", True), ("4.3.0", False)])
def test_a_driver_of_spark_3_gets_what_newer_javas_ask_for(
    server: FakeStandalone, tmp_path: Path, version: str, opened: bool
) -> None:
    server.version = version
    cluster(server, tmp_path).submit(ORDERS)
    options = server.bodies[0]["sparkProperties"].get("spark.driver.defaultJavaOptions", "")
    assert ("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED" in options) is opened


def test_a_jar_needs_its_class(server: FakeStandalone, tmp_path: Path) -> None:
    jar = replace(ORDERS, options={"application": "hdfs://shop/orders.jar", "arguments": ["{job}"]})
    with pytest.raises(ClusterError, match="which class"):
        cluster(server, tmp_path).submit(jar)
    cluster(server, tmp_path).submit(
        replace(jar, options={**jar.options, "class": "org.shop.Orders"})
    )
    body = server.bodies[0]
    assert (body["mainClass"], body["appArgs"]) == ("org.shop.Orders", ["orders"])
    assert body["appResource"] == "hdfs://shop/orders.jar"


def test_a_driver_of_somebody_else_is_found_by_its_id_or_name_and_stopped(
    server: FakeStandalone, tmp_path: Path
) -> None:
    for name in ("orders-prod", "orders"):
        server.answer(
            "POST", "/v1/submissions/create", {}, {"sparkProperties": {"spark.app.name": name}}
        )
    standalone = cluster(server, tmp_path)
    wanted: list[dict[str, str]] = [{}, {"driver": "driver-0"}, {"app_name": "orders-prod"}]
    found = [standalone.find_source(request(**options)).id for options in wanted]
    assert found == ["driver-1", "driver-0", "driver-0"]
    assert standalone.find_source(request(app_name="nobody")).state is JobState.ABSENT
    assert not standalone.stop(request(driver="driver-0", graceful_seconds=0.1)).state.alive
    assert standalone.find_source(request()).state is JobState.RUNNING


def test_what_another_run_submitted_is_found_by_its_location_and_not_for_another(
    server: FakeStandalone, tmp_path: Path
) -> None:
    others = cluster(server, tmp_path / "others")
    moved = replace(ORDERS, tag="run-2.orders", location="hdfs://shop/ck/moved")
    ids = [others.submit(one) for one in (ORDERS, moved)]
    standalone = cluster(server, tmp_path)
    assert [
        standalone.find_source(StopRequest("orders", one.location)).id for one in (ORDERS, moved)
    ] == ids
    assert (
        standalone.find_source(StopRequest("orders", "hdfs://shop/ck/else")).state
        is JobState.ABSENT
    )
    # Nor by a name that the spec says; and what has a tag of ours goes by no name.
    named = StopRequest("x", "hdfs://shop/ck/else", options={"app_name": "orders"})
    assert standalone.find_source(named).state is JobState.ABSENT
    by_hand = {"sparkProperties": {"spark.app.name": "returns"}}
    server.answer("POST", "/v1/submissions/create", {}, by_hand)
    untagged = StopRequest("returns", "hdfs://shop/ck/returns")
    assert standalone.find_source(untagged).state is JobState.RUNNING
    assert standalone.find_source(replace(untagged, tag="run-9")).state is JobState.ABSENT
    assert (
        standalone.find_source(StopRequest("renamed", f"{ORDERS.location}/")).state
        is JobState.RUNNING
    )
    assert not standalone.stop(request(graceful_seconds=0.1)).state.alive
    assert standalone.find_source(request()).state is JobState.ABSENT  # the other one goes on
    assert others.find(moved.tag).state is JobState.RUNNING


def test_another_connection_overrides_the_clusters_and_is_remembered(
    server: FakeStandalone, tmp_path: Path
) -> None:
    with serving() as other:
        there = replace(ORDERS, connection=other.url.removeprefix("http://"))
        cluster(server, tmp_path).submit(there)
        assert (other.started, server.started) == ({ORDERS.tag: 1}, {})
        assert cluster(server, tmp_path).find(ORDERS.tag).state is JobState.RUNNING


def test_a_token_comes_from_its_file_and_is_told_to_the_master_alone(
    server: FakeStandalone, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("hunter22\n")
    standalone = cluster(server, tmp_path, token_file=str(tmp_path / "token"))
    standalone.submit(ORDERS)
    assert server.headers[-1]["Authorization"] == "Bearer hunter22"
    kept = "".join(path.read_text() for path in (tmp_path / "state").iterdir())
    assert "hunter22" not in kept + json.dumps(server.bodies)


def test_options_that_it_does_not_know_are_complaints(
    server: FakeStandalone, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as raised:
        cluster(server, tmp_path).submit(
            replace(ORDERS, options={"aplication": "x", "driver_cores": "2"})
        )
    assert sorted(complaint.pointer for complaint in raised.value.complaints) == [
        "/submit/aplication",
        "/submit/application",
        "/submit/driver_cores",
    ]


def test_the_masters_page_is_at_its_usual_port_unless_told(
    server: FakeStandalone, tmp_path: Path
) -> None:
    calls = cluster(server, tmp_path, url="http://master:6066", ui_url="http://ui/spark/").calls(
        None
    )
    assert calls.ui_url == "http://ui/spark"
    assert replace(calls, options={}).ui_url == "http://master:8080"


def test_why_a_query_has_ended_is_told_by_what_its_driver_said(
    server: FakeStandalone, tmp_path: Path
) -> None:
    standalone = cluster(server, tmp_path)
    standalone.submit(ORDERS)
    server.launch()
    assert standalone.failure(ORDERS.tag, alive=True) is None
    server.says = began() + ended(STATE)
    failure = standalone.failure(ORDERS.tag, alive=True)
    assert failure is not None and failure.remedy is Remedy.ROLLBACK
