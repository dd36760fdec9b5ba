"""YARN as a cluster: what a ResourceManager's answers mean, and what comes of its faults. The answers
are those of a real one (`yarn_answers`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.advise.measuring import capacity_of
from stateshift.clusters.kind import check_submit, open_cluster
from stateshift.clusters.protocol import Cluster, JobState, StopRequest, Submission
from stateshift.clusters.yarn.cluster import Yarn
from stateshift.errors import ClusterError, SpecError
from stateshift.specification.model import ClusterSpec
from tests.clusters import fake_yarn
from tests.clusters.fake_yarn import FakeYarn
from tests.support.processes import in_time

SUBMIT = str(Path(__file__).with_name("fake_spark_submit.py"))
LOCATION = "hdfs://shop/ck/orders"
ORDERS = Submission("run-1.orders", "orders", LOCATION, options={"application": "hdfs://shop/o.py"})


@pytest.fixture
def server() -> Iterator[FakeYarn]:
    with fake_yarn.serving() as server:
        yield server


def spec(server: FakeYarn, tmp_path: Path, **options: Any) -> ClusterSpec:
    known = {
        "url": server.url,
        "spark_submit": SUBMIT,
        "settle_seconds": 0.3,
        "graceful_seconds": 0.1,
        "environment": {"FAKE_YARN": server.url, "HADOOP_CONF_DIR": str(tmp_path)},
        "state_dir": str(tmp_path / "state"),
    }
    return ClusterSpec("emr", "yarn", {**known, **options})


def opened(server: FakeYarn, tmp_path: Path, **options: Any) -> Yarn:
    cluster = open_cluster(spec(server, tmp_path, **options), str(tmp_path))
    assert isinstance(cluster, Yarn)
    return cluster


def stranger(server: FakeYarn, tmp_path: Path) -> Cluster:
    """Another run, which has none of the first one's notes."""
    return opened(server, tmp_path, state_dir=str(tmp_path / "elsewhere"))


def request(job: str = "orders", location: str = LOCATION, **options: Any) -> StopRequest:
    return StopRequest(job, location, None, 5.0, options)


def settings_of(words: list[str]) -> dict[str, str]:
    pairs = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "--conf"]
    return {key: value for key, _, value in pairs}


def test_a_job_is_handed_over_with_our_tags_and_without_waiting_for_its_end(
    server: FakeYarn, tmp_path: Path
) -> None:
    options = {
        "application": "hdfs://shop/o.jar",
        "class": "org.shop.Orders",
        "queue": "small",
        "conf": {"spark.yarn.tags": "theirs"},
        "environment": {"REGION": "eu"},
    }
    opened(server, tmp_path).submit(Submission("run-1.orders", "orders", LOCATION, options=options))
    (words,) = server.submitted
    conf = settings_of(words)
    theirs, tag, place = conf["spark.yarn.tags"].split(",")
    assert (theirs, tag[:11], place[:17]) == ("theirs", "stateshift-", "stateshift-place-")
    assert conf["spark.yarn.submit.waitAppCompletion"] == "false"
    assert conf["spark.yarn.queue"] == "small"
    assert conf["spark.yarn.appMasterEnv.REGION"] == "eu"
    assert conf["spark.stateshift.checkpoint"] == LOCATION
    assert words[words.index("--deploy-mode") + 1] == "cluster"
    assert words[words.index("--class") + 1] == "org.shop.Orders"


@pytest.mark.parametrize("kept", ["the first", "the second"])
def test_of_a_pair_the_active_one_is_asked(tmp_path: Path, kept: str) -> None:
    with fake_yarn.pair() as (first, second):
        cluster = opened(first, tmp_path, url=f"{first.url},{second.url}")
        id = cluster.submit(ORDERS)
        first.standby, second.standby = kept == "the second", kept == "the first"
        assert cluster.find(ORDERS.tag).id == id
        cluster.stop(request())
        assert first.applications[id]["state"] == "KILLED"


def test_a_pair_of_which_none_is_active_is_waited_for(tmp_path: Path) -> None:
    with fake_yarn.pair() as (first, second):
        first.standby = True
        urls = f"{first.url},{second.url}"
        with pytest.raises(ClusterError, match="a standby, and no active ResourceManager") as given:
            opened(first, tmp_path, url=urls, outage_seconds=0.2).find("x")
        assert given.value.exit_code == 7 and "both of a pair" in str(given.value.hint)

        def ends(*_: object) -> None:
            second.standby = False

        before = signal.signal(signal.SIGALRM, ends)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            assert opened(first, tmp_path, url=urls).find("x").state is JobState.ABSENT
        finally:
            signal.signal(signal.SIGALRM, before)


def test_one_of_a_pair_that_is_away_is_no_fault(server: FakeYarn, tmp_path: Path) -> None:
    cluster = opened(server, tmp_path, url=f"http://127.0.0.1:1,{server.url}/")
    assert cluster.find("x").state is JobState.ABSENT


def test_requests_name_the_user_where_yarn_believes_it(server: FakeYarn, tmp_path: Path) -> None:
    opened(server, tmp_path, user="etl").find("x")
    assert server.users == {"etl"}
    server.users.clear()
    opened(server, tmp_path, auth="basic", user="etl").find("x")
    assert server.users == {""}


def test_who_may_not_kill_a_job_is_told_so(server: FakeYarn, tmp_path: Path) -> None:
    cluster = opened(server, tmp_path)
    cluster.submit(ORDERS)
    server.allows = False
    with pytest.raises(ClusterError, match=r"User dr\.who cannot perform it") as raised:
        cluster.stop(request())
    assert "ACLs" in str(raised.value.hint)
    assert cluster.find(ORDERS.tag).state is JobState.RUNNING


def test_a_source_is_found_by_its_place_else_by_its_name(server: FakeYarn, tmp_path: Path) -> None:
    cluster = opened(server, tmp_path)
    id = cluster.submit(ORDERS)
    assert stranger(server, tmp_path).find_source(request("renamed")).id == id
    # The job of this name at another place, as after a move, is not it.
    elsewhere = request("orders", "hdfs://shop/ck/elsewhere")
    assert stranger(server, tmp_path).find_source(elsewhere).state is JobState.ABSENT
    server.applications[id]["applicationTags"] = ""
    assert stranger(server, tmp_path).find_source(elsewhere).id == id
    by_name = request("other", "hdfs://shop/ck/elsewhere", app_name="orders")
    assert stranger(server, tmp_path).find_source(by_name).id == id


def test_two_jobs_of_one_name_are_not_told_apart_but_by_their_id(
    server: FakeYarn, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path)
    ids = [
        cluster.submit(ORDERS),
        cluster.submit(Submission("x", "orders", "/y", options=ORDERS.options)),
    ]
    for app in server.applications.values():
        app["applicationTags"] = ""
    status = stranger(server, tmp_path).find_source(request())
    assert status.state is JobState.UNKNOWN and all(id in str(status.detail) for id in ids)
    assert stranger(server, tmp_path).find_source(request(application_id=ids[0])).id == ids[0]


def test_an_application_that_is_not_started_says_since_when_and_what_is_free(
    server: FakeYarn, tmp_path: Path
) -> None:
    server.first_state = "ACCEPTED"
    cluster = opened(server, tmp_path)
    id = cluster.submit(ORDERS)
    assert cluster.find(ORDERS.tag).state is JobState.QUEUED
    server.applications[id]["queue"] = "root.small"
    detail = str(cluster.find(ORDERS.tag).detail)
    assert detail.startswith("accepted since ")
    assert "Application is Activated, waiting for resources to be assigned for AM" in detail
    assert "the queue root.small uses 0 % of the cluster, and may use 10 %" in detail
    assert "of 3072 MB and" in detail and "vcores of all nodes are free" in detail
    server.applications[id]["startedTime"] = time.time() * 1000
    assert cluster.find(ORDERS.tag).detail is None  # it may start in a moment


def test_a_driver_that_yarn_has_started_again_is_alive(server: FakeYarn, tmp_path: Path) -> None:
    cluster = opened(server, tmp_path)
    id = cluster.submit(ORDERS)
    app = server.applications[id]
    app["amContainerLogs"] = app["amContainerLogs"].replace("_01_0", "_02_0")
    status = cluster.find(ORDERS.tag)
    assert (status.state, status.detail) == (
        JobState.RUNNING,
        "attempt 2: YARN has started its driver again",
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("failed", "User application exited with status 1"),
        ("unknown-queue", "submitted by user root to unknown queue: nope"),
        ("killed", "was killed by user dr.who"),
    ],
)
def test_a_failure_is_told_in_yarns_words_and_the_drivers(
    server: FakeYarn, tmp_path: Path, answer: str, words: str
) -> None:
    cluster = opened(server, tmp_path)
    cluster.submit(ORDERS)
    server.set_state("stateshift-", answer)
    status = cluster.find(ORDERS.tag)
    assert status.state is JobState.FAILED and words in str(status.detail)
    failure = cluster.failure(ORDERS.tag)
    assert failure is not None and words in failure.fact
    server.says = 'Traceback (most recent call last):\n  File "o.py"\nValueError: not today\n'
    failure = cluster.failure(ORDERS.tag)
    shown = "not today" if answer != "unknown-queue" else words  # it had no container
    assert failure is not None and shown in failure.fact


@pytest.mark.parametrize(
    ("aggregation", "way"),
    [("DISABLED", "log aggregation is off, and it may be gone"), ("SUCCEEDED", "yarn logs -app")],
)
def test_a_log_that_its_node_does_not_have_says_where_it_may_be(
    server: FakeYarn, tmp_path: Path, aggregation: str, way: str
) -> None:
    cluster = opened(server, tmp_path)
    id = cluster.submit(ORDERS)
    server.applications[id]["logAggregationStatus"] = aggregation
    server.node_is_away = True
    assert way in cluster.log(ORDERS.tag)


def test_a_client_mode_driver_that_was_killed_has_failed_whatever_yarn_says(
    server: FakeYarn, tmp_path: Path
) -> None:
    cluster = opened(server, tmp_path, deploy_mode="client")
    id = cluster.submit(ORDERS)
    assert cluster.find(ORDERS.tag).state is JobState.RUNNING
    os.killpg(int((tmp_path / "state" / "run-1.orders.pid").read_text()), signal.SIGKILL)
    server.set_state("stateshift-", "client-ended")
    assert server.applications[id]["finalStatus"] == "SUCCEEDED"
    assert in_time(lambda: cluster.find(ORDERS.tag).state is JobState.FAILED)
    assert cluster.find(ORDERS.tag).id == id


def test_what_spark_submit_refuses_is_told_in_its_words(server: FakeYarn, tmp_path: Path) -> None:
    environment = {"FAKE_YARN": server.url, "FAKE_REFUSES": "yes"}
    cluster = opened(server, tmp_path, environment=environment)
    cluster.submit(ORDERS)
    assert cluster.find(ORDERS.tag).state is JobState.FAILED
    failure = cluster.failure(ORDERS.tag)
    assert failure is not None and "YarnException: Failed to submit" in failure.fact
    assert server.started == {}


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"queue": "nope"}, "YARN has no queue nope, but root.closed, root.default, root.small"),
        ({"queue": "closed"}, "the queue closed is stopped"),
        ({"queue": "root.small"}, ""),
        ({}, ""),
    ],
)
def test_a_start_is_tried_on_its_queue(
    server: FakeYarn, tmp_path: Path, options: dict[str, str], fact: str
) -> None:
    tried = Submission("t", "orders", LOCATION, options={**ORDERS.options, **options})
    trial = opened(server, tmp_path).try_start(tried)
    assert (trial.refused, server.started) == (fact, {})


def test_a_start_needs_hadoops_configuration(
    server: FakeYarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    trial = opened(server, tmp_path, environment={}).try_start(ORDERS)
    assert "HADOOP_CONF_DIR" in trial.refused and '"environment"' in str(trial.hint)


def test_a_connection_does_not_name_a_yarn(server: FakeYarn, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="/jobs/0/remote_connection: spark-submit finds YARN by"):
        check_submit(spec(server, tmp_path), ORDERS.options, "/jobs/0/submit", "far:8088")


def test_its_capacity_is_that_of_all_nodes(server: FakeYarn, tmp_path: Path) -> None:
    capacity = capacity_of(spec(server, tmp_path))
    assert (capacity.all, capacity.memory) == (6, 3072 << 20)
    assert capacity.used <= 6 and capacity.memory_used < 3072 << 20


def test_a_job_that_was_started_here_tells_how(server: FakeYarn, tmp_path: Path) -> None:
    cluster = opened(server, tmp_path)
    cluster.submit(ORDERS)
    assert cluster.origin(request(), None).options == ORDERS.options
