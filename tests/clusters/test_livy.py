"""Livy where it does not answer, or answers oddly; and what it is told."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.http import Unanswered
from stateshift.clusters.kind import open_cluster
from stateshift.clusters.livy import Livy, LivyCalls, batch_of
from stateshift.clusters.protocol import JobState, Remedy, StopRequest, Submission
from stateshift.errors import ClusterError, SpecError
from stateshift.specification.model import ClusterSpec
from tests.clusters.fake_livy import FakeLivy, serving
from tests.clusters.faulty_server import Fault
from tests.clusters.test_spark_causes import STATE, began, ended

ORDERS = Submission(
    "run-1.orders",
    "orders",
    "hdfs://shop/ck/orders",
    options={"application": "hdfs://shop/orders.py"},
)


@pytest.fixture
def server() -> Iterator[FakeLivy]:
    with serving() as livy:
        yield livy


def cluster(server: FakeLivy, tmp_path: Path, **options: Any) -> Livy:
    known = {
        "url": server.url,
        "settle_seconds": 0.3,
        "request_seconds": 60,
        "state_dir": str(tmp_path / "state"),
    }
    opened = open_cluster(ClusterSpec("livy", "livy", {**known, **options}), str(tmp_path))
    assert isinstance(opened, Livy)
    return opened


def request(**options: Any) -> StopRequest:
    return StopRequest("orders", "hdfs://shop/ck/orders", options=options, seconds_max=60.0)


@pytest.mark.parametrize(
    ("fault", "fact"),
    [
        ("503", "HTTP 503 for POST: Slow down"),
        ("cut off", "does not answer"),
        ("page", "as Livy does .HTTP 200, text/html"),
    ],
)
def test_a_submission_that_had_no_effect_is_told_with_the_fact_and_a_hint(
    server: FakeLivy, tmp_path: Path, fault: Fault, fact: str
) -> None:
    server.faults.append(fault)
    with pytest.raises(ClusterError, match=fact) as raised:
        cluster(server, tmp_path).submit(ORDERS)
    assert raised.value.hint is not None


def test_the_trial_of_a_start_asks_livy_which_has_to_answer(
    server: FakeLivy, tmp_path: Path
) -> None:
    assert not cluster(server, tmp_path).try_start(ORDERS).refused
    with serving() as gone:
        dead = cluster(gone, tmp_path)
    refused = dead.try_start(ORDERS).refused
    assert refused is not None and "Livy gives no answer" in refused


def test_a_livy_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with serving() as server:
        gone = cluster(server, tmp_path)
    with pytest.raises(ClusterError, match=rf"{server.url} does not answer: .*refused") as raised:
        gone.find(ORDERS.tag)
    assert raised.value.exit_code == 7


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("not_started", "queued"),
        ("starting", "queued"),
        ("recovering", "queued"),
        ("running", "running"),
        ("busy", "running"),
        ("success", "finished"),
        ("dead", "failed"),
        ("error", "failed"),
        ("killed", "failed"),
        ("of_a_later_version", "unknown"),
    ],
)
def test_each_of_livys_states_is_one_of_ours(
    server: FakeLivy, tmp_path: Path, word: str, state: str
) -> None:
    livy = cluster(server, tmp_path)
    livy.submit(ORDERS)
    server.set_state(ORDERS.tag, word)
    assert livy.find(ORDERS.tag).state == state


def test_the_location_is_handed_over_by_settings_and_by_arguments(
    server: FakeLivy, tmp_path: Path
) -> None:
    arguments = ["--checkpoint", "{checkpoint}", 7]
    options = {"arguments": arguments, "conf": {"spark.x": True}, "num_executors": 2, "class": "A"}
    livy = cluster(
        server, tmp_path, proxy_user="etl", conf={"spark.x": "no", "spark.y": "{job}/{tag}"}
    )
    livy.submit(replace(ORDERS, options={**ORDERS.options, **options}))
    assert server.bodies == [
        {
            "file": "hdfs://shop/orders.py",
            "name": f"run-1.orders@{sha256(b'hdfs://shop/ck/orders').hexdigest()[:16]}",
            "args": ["--checkpoint", "hdfs://shop/ck/orders", "7"],
            "conf": {
                "spark.x": "true",
                "spark.y": "orders/run-1.orders",
                "spark.stateshift.checkpoint": "hdfs://shop/ck/orders",
                "spark.stateshift.job": "orders",
                "spark.stateshift.tag": "run-1.orders",
            },
            "proxyUser": "etl",
            "className": "A",
            "numExecutors": 2,
        }
    ]


def test_a_batch_of_somebody_else_is_found_by_its_id_or_name_and_stopped(
    server: FakeLivy, tmp_path: Path
) -> None:
    for name in ("orders-prod", "orders"):
        server.answer("POST", "/batches", {}, {"name": name})
    livy = cluster(server, tmp_path)
    found = [
        livy.find_source(request(**options)).id
        for options in ({}, {"batch": 0}, {"batch_name": "orders-prod"})
    ]
    assert found == ["1", "0", "0"]
    assert livy.find_source(request(batch_name="nobody")).state is JobState.ABSENT
    assert not livy.stop(request(batch=0)).state.alive
    assert [batch["name"] for batch in server.batches.values()] == ["orders"]


def test_what_another_run_submitted_is_found_by_its_location_and_not_for_another(
    server: FakeLivy, tmp_path: Path
) -> None:
    others = cluster(server, tmp_path / "others")
    moved = replace(ORDERS, tag="run-2.orders", location="hdfs://shop/ck/moved")
    ids = [others.submit(one) for one in (ORDERS, moved)]
    livy = cluster(server, tmp_path)
    assert [
        livy.find_source(StopRequest("orders", one.location)).id for one in (ORDERS, moved)
    ] == ids
    assert livy.find_source(StopRequest("orders", "hdfs://shop/ck/else")).state is JobState.ABSENT
    assert livy.find_source(StopRequest("renamed", f"{ORDERS.location}/")).state is JobState.RUNNING
    assert not livy.stop(request()).state.alive
    assert livy.find_source(request()).state is JobState.ABSENT  # the other one goes on
    assert others.find(moved.tag).state is JobState.RUNNING


def test_many_batches_are_looked_through_page_by_page(server: FakeLivy, tmp_path: Path) -> None:
    livy = cluster(server, tmp_path)
    for number in range(101):
        livy.submit(replace(ORDERS, tag=f"run-{number}.orders"))
    assert cluster(server, tmp_path / "elsewhere").find("run-100.orders").id == "100"


def test_another_connection_overrides_the_clusters_and_is_remembered(
    server: FakeLivy, tmp_path: Path
) -> None:
    with serving() as other:
        there = replace(ORDERS, connection=other.url.removeprefix("http://"))
        cluster(server, tmp_path).submit(there)
        assert (other.started, server.started) == ({ORDERS.tag: 1}, {})
        assert cluster(server, tmp_path).find(ORDERS.tag).state is JobState.RUNNING


def test_a_password_comes_from_its_file_and_is_told_to_livy_alone(
    server: FakeLivy, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("hunter22\n")
    livy = cluster(
        server, tmp_path, auth="basic", user="etl", password_file=str(tmp_path / "password")
    )
    livy.submit(ORDERS)
    assert (
        server.headers[-1]["Authorization"] == "Basic " + base64.b64encode(b"etl:hunter22").decode()
    )
    assert server.headers[-1]["X-Requested-By"] == "stateshift"
    kept = "".join(path.read_text() for path in (tmp_path / "state").iterdir())
    assert "hunter22" not in kept + json.dumps(server.bodies)


def test_a_password_file_that_is_not_there_is_told(server: FakeLivy, tmp_path: Path) -> None:
    livy = cluster(
        server, tmp_path, auth="basic", user="etl", password_file=str(tmp_path / "nowhere")
    )
    with pytest.raises(ClusterError, match="nowhere cannot be read"):
        livy.find(ORDERS.tag)


def test_options_that_livy_does_not_know_are_complaints(server: FakeLivy, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        cluster(server, tmp_path).submit(
            replace(ORDERS, options={"aplication": "x", "num_executors": "2"})
        )
    assert sorted(complaint.pointer for complaint in raised.value.complaints) == [
        "/submit/aplication",
        "/submit/application",
        "/submit/num_executors",
    ]


def test_why_a_query_has_ended_is_told_by_the_log_of_its_batch(
    server: FakeLivy, tmp_path: Path
) -> None:
    livy = cluster(server, tmp_path)
    livy.submit(ORDERS)
    assert livy.failure(ORDERS.tag, alive=True) is None
    server.says = [
        "stdout: ",
        "",
        "stderr: ",
        *(began() + ended(STATE)).splitlines(),
        "",
        "YARN Diagnostics: ",
    ]
    failure = livy.failure(ORDERS.tag, alive=True)
    assert failure is not None and failure.remedy is Remedy.ROLLBACK


@pytest.mark.parametrize("id", ["first", None, math.inf, math.nan])
def test_a_batch_without_a_number_is_no_answer_of_livys(id: object) -> None:
    calls = LivyCalls("livy", "http://127.0.0.1:1", {})
    with pytest.raises(Unanswered, match="in a way that Livy does not"):
        batch_of({"id": id, "state": "running"}, calls)
