"""YARN as a cluster: what a ResourceManager's answers mean, and what comes of its faults. The answers
are those of a real one (`yarn_answers`).
"""

from __future__ import annotations

import copy
import getpass
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stateshift.advise.measuring import capacity_of
from stateshift.clusters.kind import check_submit, open_cluster
from stateshift.clusters.protocol import (
    Cluster,
    Fit,
    JobState,
    StopRequest,
    Submission,
)
from stateshift.clusters.yarn.calls import QueueLimits
from stateshift.clusters.yarn.cluster import Yarn
from stateshift.errors import ClusterError, SpecError
from stateshift.specification.model import ClusterSpec
from tests.clusters import fake_yarn
from tests.clusters.fake_yarn import FakeYarn, recorded
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
    opened(server, tmp_path).submit(
        Submission("run-1.orders", "orders", LOCATION, None, options, {"SHOP": "north"})
    )
    (words,) = server.submitted
    conf = settings_of(words)
    theirs, tag, place = conf["spark.yarn.tags"].split(",")
    assert (theirs, tag[:11], place[:17]) == ("theirs", "stateshift-", "stateshift-place-")
    assert conf["spark.yarn.submit.waitAppCompletion"] == "false"
    assert conf["spark.yarn.queue"] == "small"
    assert conf["spark.yarn.appMasterEnv.REGION"] == "eu"
    assert conf["spark.yarn.appMasterEnv.SHOP"] == "north"
    assert conf["spark.stateshift.checkpoint"] == LOCATION
    assert words[words.index("--deploy-mode") + 1] == "cluster"
    opened(server, tmp_path).submit(replace(ORDERS, tag="run-2.orders"))
    assert "spark.yarn.queue" not in settings_of(server.submitted[1])  # spark-defaults.conf may say
    assert words[words.index("--class") + 1] == "org.shop.Orders"


@pytest.mark.parametrize("kept", ["the first", "the second"])
def test_of_a_pair_the_active_one_is_asked(tmp_path: Path, kept: str) -> None:
    with fake_yarn.pair() as (first, second), fake_yarn.serving() as third:
        first.location = second.location = f"{third.url}/ws/v1/cluster/apps"
        cluster = opened(first, tmp_path, url=f"{first.url},{second.url}")
        id = cluster.submit(ORDERS)
        first.standby, second.standby = kept == "the second", kept == "the first"
        assert cluster.find(ORDERS.tag).id == id
        cluster.stop(request())
        assert first.applications[id]["state"] == "KILLED"
        assert third.headers == []  # a redirect is not followed


def test_what_the_first_of_a_pair_refuses_the_second_may_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_yarn.pair() as (first, second):
        second.standby = False
        cluster = opened(first, tmp_path, url=f"{first.url},{second.url}")
        id = cluster.submit(ORDERS)
        monkeypatch.setattr(first, "answer", lambda *_: (404, "no such page"))
        assert cluster.find(ORDERS.tag).id == id
        monkeypatch.setattr(second, "answer", lambda *_: (404, "no such page"))
        with pytest.raises(ClusterError, match="HTTP 404"):
            cluster.find_source(request(application_id=id))  # not YARN's own "not found"


@pytest.mark.parametrize("url", ["rm1:8088", "http://rm1:8088,rm2:8088", "http://rm1:8088,", "a,"])
def test_each_url_has_a_scheme_and_a_host(server: FakeYarn, tmp_path: Path, url: str) -> None:
    with pytest.raises(SpecError, match="/clusters/emr/url"):
        opened(server, tmp_path, url=url)


@pytest.mark.parametrize(
    "answer",
    [{}, {"status": "password=hunter22"}, {"apps": []}, {"apps": ["x"]}, {"apps": {"app": ["x"]}}],
)
def test_an_answer_that_is_not_yarns_is_not_taken_for_an_empty_list(
    server: FakeYarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    monkeypatch.setattr(server, "answer", lambda *_: (200, answer))
    with pytest.raises(ClusterError, match="in a way that YARN does not") as raised:
        opened(server, tmp_path).find("x")
    assert "hunter22" not in str(raised.value)
    named = request(application_id="application_1_1")
    with pytest.raises(ClusterError, match="in a way that YARN does not"):
        opened(server, tmp_path).find_source(named)


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
    server.users.clear()
    opened(server, tmp_path, environment={"HADOOP_USER_NAME": "shop"}).find("x")
    assert server.users == {"shop"}


def test_the_user_of_a_ticket_is_whom_yarn_says(
    server: FakeYarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticket's name need not be that of the account here."""
    tickets = ModuleType("requests_kerberos")
    vars(tickets).update(OPTIONAL=2, HTTPKerberosAuth=lambda **_: lambda request: request)
    monkeypatch.setitem(sys.modules, "requests_kerberos", tickets)
    app = server.applications[opened(server, tmp_path).submit(ORDERS)]
    app |= {"applicationTags": "", "user": "us"}
    cluster = opened(server, tmp_path, auth="kerberos", state_dir=str(tmp_path / "other"))
    assert cluster.find_source(request()).state is JobState.RUNNING
    app["user"] = "root"
    assert cluster.find_source(request()).state is JobState.UNKNOWN


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
    by_name = request("other", "hdfs://shop/ck/elsewhere", app_name="orders")
    assert stranger(server, tmp_path).find_source(by_name).state is JobState.ABSENT
    by_id = request("other", "hdfs://shop/ck/elsewhere", application_id=id)
    assert stranger(server, tmp_path).find_source(by_id).id == id
    server.applications[id]["applicationTags"] = "theirs"
    for asked in (elsewhere, by_name):
        assert stranger(server, tmp_path).find_source(asked).id == id
    # What was to have a tag of ours, and is not there, goes by no name.
    tagged = StopRequest("orders", "hdfs://shop/ck/elsewhere", "run-9.orders", 5.0)
    assert stranger(server, tmp_path).find_source(tagged).state is JobState.ABSENT


def test_of_one_name_only_our_own_job_of_spark_is_taken(server: FakeYarn, tmp_path: Path) -> None:
    cluster = opened(server, tmp_path)
    app = server.applications[cluster.submit(ORDERS)]
    app |= {"applicationTags": "", "user": "team-b"}
    other = stranger(server, tmp_path)
    status = other.find_source(request())
    assert (status.state, status.id) == (JobState.UNKNOWN, app["id"])
    assert "of the user team-b" in str(status.detail) and app["id"] in str(status.detail)
    with pytest.raises(ClusterError, match="cannot tell whether orders runs"):
        other.stop(request())
    assert app["state"] == "RUNNING"
    theirs = opened(server, tmp_path, user="team-b").find_source(request())
    assert (theirs.state, theirs.id) == (JobState.RUNNING, app["id"])
    app["applicationType"] = "SPARK-STREAMING"
    assert other.find_source(request()).state is JobState.UNKNOWN
    app["applicationType"] = "MAPREDUCE"
    assert other.find_source(request()).state is JobState.ABSENT


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
    assert "the queue root.small uses 0 of the 307 MB that it may have" in detail
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


ACCEPTED = "INFO Client: Submitted application application_1796022664147_0001"


def launcher(tmp_path: Path, *lines: str) -> str:
    script = tmp_path / "launcher"
    script.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    script.chmod(0o755)
    return str(script)


def pid_of(tmp_path: Path) -> int:
    return int((tmp_path / "state" / f"{ORDERS.tag}.pid").read_text())


@pytest.mark.parametrize("end", ["exit 1", "kill -9 $$", "exit 0"])
def test_what_spark_submit_says_to_have_submitted_and_yarn_does_not_know_is_unknown(
    server: FakeYarn, tmp_path: Path, end: str
) -> None:
    cluster = opened(
        server, tmp_path, spark_submit=launcher(tmp_path, f"echo '{ACCEPTED}' >&2", end)
    )
    cluster.submit(ORDERS)
    assert in_time(lambda: cluster.find(ORDERS.tag).state is JobState.UNKNOWN)
    assert cluster.find(ORDERS.tag).id == "application_1796022664147_0001"
    app = fake_yarn.recorded("running")["app"] | {"applicationTags": "their-proxy-drops-tags"}
    server.applications[app["id"]] = app
    assert cluster.find(ORDERS.tag).state is JobState.RUNNING


def test_a_stop_waits_for_a_spark_submit_that_nobody_has_a_note_of(
    server: FakeYarn, tmp_path: Path
) -> None:
    lingering = {"FAKE_YARN": server.url, "FAKE_LINGERS": "3"}
    cluster = opened(server, tmp_path, environment=lingering)
    cluster.submit(ORDERS)
    server.forget()
    stop = replace(request(), tag=ORDERS.tag)
    with pytest.raises(ClusterError, match="cannot tell whether orders runs"):
        cluster.stop(stop)
    cluster.notes.place(ORDERS.tag).unlink()
    with pytest.raises(ClusterError, match="orders is still being submitted after"):
        cluster.stop(replace(stop, seconds_max=0.1))
    assert cluster.stop(replace(stop, seconds_max=60.0)).state is JobState.ABSENT
    assert server.started[ORDERS.tag] == 1


def test_a_launcher_killed_after_it_has_submitted_is_not_taken_for_a_stop(
    server: FakeYarn, tmp_path: Path
) -> None:
    script = launcher(tmp_path, f"echo '{ACCEPTED}' >&2", "exec sleep 60")
    cluster = opened(server, tmp_path, spark_submit=script, seconds_max=0.3)
    cluster.submit(ORDERS)
    with pytest.raises(ClusterError, match="cannot tell whether orders runs"):
        cluster.stop(StopRequest("orders", LOCATION, ORDERS.tag, 5.0))
    assert cluster.find(ORDERS.tag).state is JobState.UNKNOWN


def test_a_driver_that_yarn_has_not_heard_of_is_stopped(server: FakeYarn, tmp_path: Path) -> None:
    script = launcher(tmp_path, "exec sleep 60")
    cluster = opened(server, tmp_path, spark_submit=script, seconds_max=0.3, deploy_mode="client")
    cluster.submit(ORDERS)
    assert cluster.find(ORDERS.tag).state is JobState.QUEUED
    request = StopRequest("orders", LOCATION, ORDERS.tag, 5.0)
    assert in_time(lambda: cluster.stop(request).state is JobState.FINISHED)
    assert in_time(lambda: not Path(f"/proc/{pid_of(tmp_path)}").exists())


def test_an_application_may_appear_for_a_while_after_its_launcher_is_seen_dead(
    server: FakeYarn, tmp_path: Path
) -> None:
    script = launcher(tmp_path, "exec sleep 60")
    cluster = opened(server, tmp_path, spark_submit=script, seconds_max=1.2, settle_seconds=1.0)
    cluster.submit(ORDERS)
    os.killpg(pid_of(tmp_path), signal.SIGKILL)  # it has said nothing for longer than that
    assert in_time(lambda: cluster.find(ORDERS.tag).state is not JobState.QUEUED)
    died = json.loads((tmp_path / "state" / f"{ORDERS.tag}.json").read_text())["died"]
    assert cluster.find(ORDERS.tag).state is JobState.FAILED
    assert 1.0 <= time.time() - died < 3.0


def test_a_kill_that_is_lost_is_sent_again_and_to_all_of_the_tag(
    server: FakeYarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateshift.clusters.yarn.cluster._AGAIN_SECONDS", 0.1)
    cluster = opened(server, tmp_path)
    app = server.applications[cluster.submit(ORDERS)]
    second = {**app, "id": "application_1796022664147_0009"}
    server.applications[second["id"]] = second
    lost = {app["id"], second["id"]}
    heard = server._application

    def forgetful(id: str, state: list[str], body: Any) -> tuple[int, Any]:
        if state and id in lost:
            lost.discard(id)
            return 202, {"state": "RUNNING"}
        return heard(id, state, body)

    monkeypatch.setattr(server, "_application", forgetful)
    status = cluster.stop(StopRequest("orders", LOCATION, ORDERS.tag, 10.0))
    assert status.state is JobState.FINISHED
    assert [each["state"] for each in server.applications.values()] == ["KILLED", "KILLED"]


def test_a_launcher_that_still_ends_is_signalled_once_yarn_has_ended_the_job(
    server: FakeYarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = Submission("run-8.orders", "orders", LOCATION, options=ORDERS.options)
    script = launcher(tmp_path, f'{SUBMIT} "$@"', "sleep 60")
    cluster = opened(server, tmp_path, spark_submit=script)
    id = cluster.submit(submission)
    heard = server._application

    def slow(id: str, state: list[str], body: Any) -> tuple[int, Any]:
        if not state:
            return heard(id, state, body)
        threading.Timer(0.5, heard, (id, state, body)).start()
        return 202, {"state": "RUNNING"}

    monkeypatch.setattr(server, "_application", slow)
    status = cluster.stop(StopRequest("orders", LOCATION, submission.tag, 10.0))
    assert (status.state, server.applications[id]["state"]) == (JobState.FINISHED, "KILLED")


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"queue": "nope"}, "YARN has no queue nope, but root.closed, root.default, root.small"),
        ({"queue": "closed"}, "the queue closed is stopped"),
        ({"queue": "root.small"}, ""),
        ({"conf": {"spark.yarn.queue": "{job}"}}, "YARN has no queue orders, but root.closed"),
        ({"queue": "team"}, "the queue team is a parent of queues, which takes no job itself"),
        ({"queue": "root.team.small"}, ""),
        ({}, ""),
    ],
)
def test_a_start_is_tried_on_its_queue(
    server: FakeYarn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    fact: str,
) -> None:
    scheduler = fake_yarn.recorded("scheduler")
    queues = scheduler["scheduler"]["schedulerInfo"]["queues"]["queue"]
    if "team" in str(options):
        small = next(each for each in queues if each["queueName"] == "small")
        below = {"queue": [{**small, "queuePath": "root.team.small"}]}
        queues.append({"queueName": "team", "queuePath": "root.team", "queues": below})
    if not options:
        queues.clear()  # not even `default`: a queue that nobody names is YARN's to choose
    monkeypatch.setattr(server, "answer", lambda *_: (200, scheduler))
    tried = Submission("t", "orders", LOCATION, options={**ORDERS.options, **options})
    trial = opened(server, tmp_path).try_start(tried)
    assert trial.refused.startswith(fact) if fact else trial.refused == ""
    assert server.started == {}


def test_a_start_is_tried_on_the_class_in_its_jar(server: FakeYarn, tmp_path: Path) -> None:
    more: dict[str, str] = {"spark.jars": "/more.jar"}
    jar = tmp_path / "o.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("org/shop/Orders.class", b"x")
    refused = []
    for name, conf in (("Orders", None), ("Nope", None), ("Nope", more)):
        options = {"application": str(jar), "class": f"org.shop.{name}", "conf": conf or {}}
        trial = opened(server, tmp_path).try_start(
            Submission("t", "orders", LOCATION, options=options)
        )
        refused.append("no class 'org.shop.Nope'" in trial.refused)
    assert refused == [False, True, False]


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


def test_a_driver_that_was_started_by_hand_is_started_again_as_one_without_its_secrets_shown(
    server: FakeYarn, tmp_path: Path
) -> None:
    place = "hdfs://shop/ck/by-hand"
    environment = {
        **os.environ,
        "STATESHIFT_JOB": "by-hand",
        "STATESHIFT_CHECKPOINT": place,
        "DB_PASSWORD": "hunter22",
    }
    words = ["--master", "yarn", "--conf", "spark.hadoop.fs.s3a.secret.key=S3CRET77"]
    words += ["--conf", "spark.yarn.tags=theirs,stateshift-0", "hdfs://shop/o.py"]
    main = "org.apache.spark.deploy.SparkSubmit"
    command = [sys.executable, "-c", "import time; time.sleep(60)", main, *words]
    driver = subprocess.Popen(command, env=environment)
    cluster = opened(server, tmp_path)
    try:
        assert in_time(lambda: cluster.origin(request("by-hand", place), None).options is not None)
        origin = cluster.origin(request("by-hand", place), None)
    finally:
        driver.kill()
        driver.wait()
    assert origin.options is not None and origin.options["deploy_mode"] == "client"
    assert origin.environment["DB_PASSWORD"] == "hunter22" and "" not in origin.environment
    tag = "run-1.by-hand"
    again = Submission(tag, "by-hand", place, None, origin.options, origin.environment)
    cluster.submit(again)
    try:
        (submitted,) = server.submitted
        assert submitted[submitted.index("--deploy-mode") + 1] == "client"
        conf = settings_of(submitted)
        assert conf["spark.yarn.tags"].startswith("theirs,stateshift-")
        assert "stateshift-0" not in conf["spark.yarn.tags"].split(",")
        assert "S3CRET77" not in (tmp_path / "state" / f"{tag}.json").read_text()
        of_driver = (tmp_path / "state" / f"{tag}.pid").read_text().strip()
        assert b"DB_PASSWORD=hunter22" in Path(f"/proc/{of_driver}/environ").read_bytes()
    finally:
        cluster.stop(StopRequest("by-hand", place, tag, 5.0))
    # In the cluster it has no such environment, and a command line is for everybody to see.
    options = {**origin.options, "deploy_mode": "cluster", "environment": {"REGION": "eu"}}
    cluster.submit(Submission("run-2", "by-hand", place, None, options, origin.environment))
    assert "hunter22" not in str(server.submitted[1])
    assert settings_of(server.submitted[1])["spark.yarn.appMasterEnv.REGION"] == "eu"


# ---- room


def node(id: str, free: int, cores: int = 8, **more: Any) -> dict[str, Any]:
    amounts = {"availMemoryMB": free, "usedMemoryMB": 1024, "availableVirtualCores": cores}
    return {"id": id, "state": "RUNNING", "usedVirtualCores": 1, **amounts, **more}


def sized(**conf: object) -> Submission:
    """A driver of 1 GiB and executors of 2 GiB: with what Spark adds, 1408 and 2432 MB."""
    usual = {"spark.driver.memory": "1g", "spark.executor.memory": "2g"}
    usual |= {"spark.executor.instances": "2"}
    usual |= {key.replace("_", "."): str(value) for key, value in conf.items()}
    return replace(ORDERS, options={**ORDERS.options, "conf": usual})


def queues_with(leaf: str, **changed: Any) -> Any:
    page = copy.deepcopy(recorded("scheduler"))
    for queue in page["scheduler"]["schedulerInfo"]["queues"]["queue"]:
        if queue["queueName"] == leaf:
            queue |= changed
    return page


def large(leaf: str = "default", **changed: Any) -> Any:
    """The recorded queues, of which one has all of 64 GiB."""
    whole = {"memory": 65536, "vCores": 64}
    amounts = dict.fromkeys(
        ("minEffectiveCapacity", "maxEffectiveCapacity", "AMResourceLimit"), whole
    )
    return queues_with(leaf, **{**amounts, "maximumAllocation": whole, **changed})


def test_a_job_fits_where_each_of_its_containers_finds_memory_on_a_node(
    server: FakeYarn, tmp_path: Path
) -> None:
    cluster, server.pages = opened(server, tmp_path), {"scheduler": large()}
    labelled = node("gpu", 99999, nodeLabels=["gpu"])
    server.pages["nodes"] = {"nodes": {"node": [node("a", 4096), node("b", 2560), labelled]}}
    assert cluster.fitting(math.inf)(sized()) == Fit(), (
        "1408 and 2432 on a, which is 3840; 2432 on b"
    )
    assert cluster.fitting(math.inf)(sized(spark_executor_instances=3)).lacks == (
        "it has room for 3 of the 4 containers, by first fit on its 2 nodes: no place for 1 "
        "executor (2.4 GiB); the most that is free on one node is 4.0 GiB. YARN accepts the job, "
        "and starts it or its executors once there is room"
    )
    server.allocation_min = "1024"  # 2048, and 3072 for each executor
    assert "for 2 of the 3 containers" in cluster.fitting(math.inf)(sized()).lacks
    server.allocation_min = None  # which is the usual one
    assert "for 2 of the 3 containers" in cluster.fitting(math.inf)(sized()).lacks
    server.pages["nodes"] = {"nodes": None}
    assert "for 0 of the 3 containers" in cluster.fitting(math.inf)(sized()).lacks
    labels = sized(**{"spark.yarn.executor.nodeLabelExpression": "gpu"})
    (note,) = cluster.fitting(math.inf)(labels).notes
    assert note == "it asks for nodes with a label, whose room is not looked at"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        # It needs 1408 + 2 * 2432 = 6272 MB.
        ({"maxEffectiveCapacity": {"memory": 6272}}, ""),
        ({"maxEffectiveCapacity": {"memory": 6271}}, "the queue root.default may have 6271 MB more"),
        ({"resourcesUsed": {"memory": 60000}}, "the queue root.default may have 5536 MB more, and it needs"),
        # A user's last container may go beyond; it is one of 1408 MB.
        ({"minEffectiveCapacity": {"memory": 4863}}, "in root.default may have 4863 MB more"),
        ({"minEffectiveCapacity": {"memory": 4864}}, ""),
        ({"minEffectiveCapacity": {"memory": 2432}, "userLimitFactor": 2}, ""),
        ({"minEffectiveCapacity": {"memory": 1}, "userLimitFactor": -1}, ""),
        ({"minEffectiveCapacity": {"memory": 0}}, ""),  # which bounds no user then
        ({"maximumAllocation": {"memory": 2431}}, "a container of 2432 MB is larger than root.default"),
        # The first application master is let in, whatever the limit is.
        ({"AMResourceLimit": {"memory": 2000}, "usedAMResource": {"memory": 700}}, ""),
        (
            {
                "AMResourceLimit": {"memory": 2000},
                "usedAMResource": {"memory": 700},
                "numActiveApplications": 1,
            },
            "root.default leaves 1300 MB to drivers (maximum-am-resource-percent), and it needs 1408",
        ),
    ],
)  # fmt: skip
def test_a_queue_bounds_a_job(
    server: FakeYarn, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    server.pages["scheduler"] = large(**changed)
    server.pages["nodes"] = {"nodes": {"node": [node("a", 65536, 64)]}}
    lacks = opened(server, tmp_path).fitting(math.inf)(sized()).lacks
    assert told in lacks if told else not lacks


def test_a_user_has_the_part_of_a_queue_that_it_does_not_use_yet(
    server: FakeYarn, tmp_path: Path
) -> None:
    users = {"user": [{"username": getpass.getuser(), "resourcesUsed": {"memory": 61000}}]}
    server.pages["nodes"] = {"nodes": {"node": [node("a", 65536, 64)]}}
    server.pages["scheduler"] = large(users=users)
    lacks = opened(server, tmp_path).fitting(math.inf)(sized()).lacks
    assert "in root.default may have 4536 MB more, and it needs 6272" in lacks


def test_what_a_real_yarn_says_while_a_job_has_1792_mb(server: FakeYarn, tmp_path: Path) -> None:
    """A driver and an executor of 896 MB run. The queue has 3072, and its user 2457."""
    server.pages = {"scheduler": recorded("scheduler-used"), "nodes": recorded("nodes-used")}
    cluster = opened(server, tmp_path, user="root")
    small = {"spark_driver_memory": "256m", "spark_executor_memory": "256m"}  # 640 each
    assert "for 2 of the 3 containers" in cluster.fitting(math.inf)(sized(**small)).lacks
    one = sized(**small, spark_executor_instances=1)
    assert cluster.fitting(math.inf)(one) == Fit(), (
        "1280 are free; the user is at 2432 before the last"
    )
    assert cluster.calls.queues()[-1].limits == QueueLimits(
        used=1792,
        most=3072,
        user_most=2457.0,
        users={"root": 1792},
        masters_used=896,
        masters_most=3072,
        has_masters=True,
        container_max=3072,
    )


def test_the_queue_is_the_jobs_own_and_those_above_it_bound_it_too(
    server: FakeYarn, tmp_path: Path
) -> None:
    server.pages["nodes"] = {"nodes": {"node": [node("a", 65536, 64)]}}
    page = large()
    top = page["scheduler"]["schedulerInfo"]["queues"]["queue"]
    leaf = next(each for each in top if each["queueName"] == "default")
    below = {**leaf, "queueName": "team", "queuePath": "root.default.team"}
    leaf |= {"queues": {"queue": [below]}, "maxEffectiveCapacity": {"memory": 5000}}
    server.pages["scheduler"] = page
    cluster = opened(server, tmp_path)
    lacks = cluster.fitting(math.inf)(
        replace(sized(), options={**sized().options, "queue": "team"})
    ).lacks
    assert lacks.startswith("the queue root.default may have 5000 MB more, and it needs 6272")
    small = replace(sized(), options={**sized().options, "queue": "small"})
    assert "root.small may have 307 MB more" in cluster.fitting(math.inf)(small).lacks
    server.pages["scheduler"] = {"scheduler": {"schedulerInfo": {"type": "fairScheduler"}}}
    (note,) = cluster.fitting(math.inf)(sized()).notes
    assert note == "what the queue default may use in nodes without a label is not told"


def test_in_client_mode_yarn_has_a_small_master(server: FakeYarn, tmp_path: Path) -> None:
    server.pages = {"scheduler": large(), "nodes": {"nodes": {"node": [node("a", 3328)]}}}
    cluster = opened(server, tmp_path, deploy_mode="client")
    small = sized(spark_driver_memory="64g", spark_executor_instances=1)
    assert cluster.fitting(math.inf)(small) == Fit(), "512 and 384 beside the executor's 2432"
    more = sized(spark_executor_instances=1, spark_yarn_am_memory="513m")
    assert "no place for 1 application master (1.0 GiB)" in cluster.fitting(math.inf)(more).lacks


@pytest.mark.parametrize("page", ["nodes", "scheduler"])
def test_a_page_that_is_not_yarns_is_not_taken_for_a_cluster_without_room(
    server: FakeYarn, tmp_path: Path, page: str
) -> None:
    odd = {"nodes": {"nodes": {"node": [{"id": "a"}]}}, "scheduler": {"scheduler": 7}}
    server.pages = {page: odd[page]}
    with pytest.raises(ClusterError, match=f"describes its {page} in a way that YARN does not"):
        opened(server, tmp_path).fitting(math.inf)(sized())
    server.pages = {}
    with pytest.raises(ClusterError, match=r"spark.executor.memory is no size of memory: 'much'"):
        opened(server, tmp_path).fitting(math.inf)(sized(spark_executor_memory="much"))


@pytest.mark.parametrize(
    "changed",
    [
        {"defaultNodeLabelExpression": "gpu"},
        {"users": {"user": {"username": "a"}}},
        {"minEffectiveCapacity": None},
        {"resourcesUsed": None},
    ],
)
def test_a_queue_with_labels_or_that_is_not_understood_bounds_nothing(
    server: FakeYarn, tmp_path: Path, changed: dict[str, Any]
) -> None:
    server.pages["scheduler"] = large(**changed)
    cluster = opened(server, tmp_path)
    assert {each.limits is None for each in cluster.calls.queues()} == {True, False}
    (note,) = cluster.fitting(math.inf)(sized()).notes
    assert note.startswith("what the queue default may use")


def test_jobs_of_one_plan_share_a_queue(server: FakeYarn, tmp_path: Path) -> None:
    server.pages["nodes"] = {"nodes": {"node": [node("a", 65536, 64)]}}
    server.pages["scheduler"] = large(maxEffectiveCapacity={"memory": 10000})
    fitting = opened(server, tmp_path).fitting(math.inf)
    assert fitting(sized()) == Fit()  # 6272 of it
    assert "root.default may have 3728 MB more, and it needs 6272" in fitting(sized()).lacks
