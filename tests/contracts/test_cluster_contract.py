"""The promises of `clusters/protocol.py`, held against every member."""

from __future__ import annotations

import json
import math
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from stateshift.clusters.flink.jobs import job_id
from stateshift.clusters.http import Refused
from stateshift.clusters.kind import open_cluster
from stateshift.clusters.kubernetes.flink_operator import FlinkOperator
from stateshift.clusters.kubernetes.spark_operator import SparkOperator
from stateshift.clusters.noted import digest
from stateshift.clusters.protocol import (
    Cluster,
    Fit,
    JobState,
    StopRequest,
    Submission,
    TellsRoom,
)
from stateshift.clusters.tagged import TaggedCluster
from stateshift.errors import ClusterError
from stateshift.specification.model import ClusterSpec
from stateshift.testing.memory_cluster import MemoryCluster
from tests.clusters import (
    fake_flink,
    fake_flink_yarn,
    fake_kubernetes,
    fake_livy,
    fake_standalone,
    fake_yarn,
)
from tests.clusters.faulty_server import Fault, StandIn, hasty
from tests.support.processes import in_time, killed_while

CLUSTERS = Path(__file__).parents[1] / "clusters"


@dataclass
class Member:
    """A cluster under test: `open` gives one that knows nothing but what it finds, as another
    process would.
    """

    open: Callable[[], Cluster]
    submission: Submission
    started: Callable[[], Counter[str]]
    lost: Mapping[str, Callable[[], object]] = field(
        default_factory=dict
    )  # the next submission counts, unanswered
    refused: Mapping[str, Callable[[], object]] = field(
        default_factory=dict
    )  # the next submission has no effect
    forget: Callable[[], object] | None = None  # what ended, or never did
    stopping: Mapping[str, object] = field(default_factory=lambda: {"graceful_seconds": 0.1})

    def request(self, tag: str | None = None) -> StopRequest:
        s = self.submission
        return StopRequest(s.job, s.location, tag or s.tag, 60.0, self.stopping)


def _submission(tmp_path: Path, **options: object) -> Submission:
    return Submission("run-1.orders", "orders", str(tmp_path / "image"), options=options)


def _lines(path: Path) -> Counter[str]:
    return (
        Counter(line.split()[0] for line in path.read_text().splitlines())
        if path.exists()
        else Counter()
    )


def _memory(tmp_path: Path) -> Iterator[Member]:
    cluster = MemoryCluster()
    lost = {"lost": cluster.lose_answers, "late": cluster.delay}
    yield Member(
        lambda: cluster,
        _submission(tmp_path),
        lambda: cluster.started,
        lost,
        {"refused": cluster.fail},
    )


def _manual(tmp_path: Path) -> Iterator[Member]:
    """A person who does what the files ask for, played by a thread."""
    spec = ClusterSpec(
        "hands", "manual", {"marker_dir": str(tmp_path / "markers"), "seconds_max": 60}
    )
    started, gone = Counter[str](), threading.Event()

    def person() -> None:
        while not gone.wait(0.02):
            for asked in (tmp_path / "markers").glob("*.submit"):
                if not asked.with_suffix(".submitted").exists():
                    tag = json.loads(asked.read_text())["tag"]
                    started[tag] += 1
                    asked.with_suffix(".new").write_text(f"id-of-{tag}\n")
                    asked.with_suffix(".new").rename(asked.with_suffix(".submitted"))
            for asked in (tmp_path / "markers").glob("*.stop"):
                asked.with_suffix(".stopped").touch()

    thread = threading.Thread(target=person)
    thread.start()
    yield Member(lambda: open_cluster(spec, str(tmp_path)), _submission(tmp_path), lambda: started)
    gone.set()
    thread.join()


def _command(tmp_path: Path, *verbs: str) -> Iterator[Member]:
    """A cluster that a script speaks to."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    options = {verb: [str(CLUSTERS / "fake_cluster.sh"), verb] for verb in verbs}
    environment = {"JOBS": str(jobs), "SLOW": "0.1"}
    spec = ClusterSpec("ops", "command", {**options, "environment": environment, "seconds_max": 60})
    yield Member(
        lambda: open_cluster(spec, str(tmp_path)),
        _submission(tmp_path),
        lambda: _lines(jobs / "started"),
    )


def _command_that_finds(tmp_path: Path) -> Iterator[Member]:
    return _command(tmp_path, "submit", "find", "stop", "version", "log")


def _command_with_records(tmp_path: Path) -> Iterator[Member]:
    return _command(tmp_path, "submit", "stop", "version", "log")


def _spark_submit(tmp_path: Path) -> Iterator[Member]:
    """spark-submit played by a script: what is tested here are processes, not Spark."""
    options = {"spark_submit": str(CLUSTERS / "fake_spark_submit.sh"), "seconds_max": 60}
    environment = {"STARTS": str(tmp_path / "starts")}
    spec = ClusterSpec("local", "spark_submit", {**options, "environment": environment})
    (tmp_path / "job.sh").write_text("echo password=hunter22; sleep 600\n")
    submission = _submission(tmp_path, application=str(tmp_path / "job.sh"))
    member = Member(
        lambda: open_cluster(spec, str(tmp_path)), submission, lambda: _lines(tmp_path / "starts")
    )
    yield member
    for tag in member.started():
        member.open().stop(member.request(tag))


def _livy(tmp_path: Path) -> Iterator[Member]:
    """Livy played by a server that takes its time."""
    with fake_livy.serving(seconds=0.1) as livy:
        options = {"url": livy.url, "settle_seconds": 2, "request_seconds": 60}
        spec = ClusterSpec("livy", "livy", {**options, "state_dir": str(tmp_path / "state")})
        submission = _submission(tmp_path, application="/jobs/orders.py")
        yield _over_http(
            Member(lambda: _opened(livy, spec, tmp_path), submission, lambda: livy.started),
            livy,
        )


def _standalone(tmp_path: Path) -> Iterator[Member]:
    """A standalone master played by a server that takes its time."""
    with fake_standalone.serving(seconds=0.1) as server:
        options = {
            "url": server.url,
            "ui_url": server.url,
            "settle_seconds": 2,
            "request_seconds": 60,
        }
        spec = ClusterSpec(
            "alone", "spark_standalone", {**options, "state_dir": str(tmp_path / "state")}
        )
        submission = _submission(tmp_path, application="/jobs/orders.py")
        yield _over_http(
            Member(lambda: _opened(server, spec, tmp_path), submission, lambda: server.started),
            server,
        )


def _yarn(tmp_path: Path, mode: str = "cluster") -> Iterator[Member]:
    """A ResourceManager and spark-submit, played by a server and a script."""
    with fake_yarn.serving(seconds=0.1) as server:
        options = {
            "url": server.url,
            "spark_submit": str(CLUSTERS / "fake_spark_submit.py"),
            "deploy_mode": mode,
            "settle_seconds": 0.5,
            "seconds_max": 60,
            "environment": {"FAKE_YARN": server.url},
            "state_dir": str(tmp_path / "state"),
        }
        spec = ClusterSpec("emr", "yarn", options)
        submission = _submission(tmp_path, application="hdfs://shop/jobs/orders.py")
        member = Member(
            lambda: open_cluster(spec, str(tmp_path)), submission, lambda: server.started
        )
        if mode == "cluster":
            lost = {"spark-submit dies": server.dies}
            member = replace(member, lost=lost, forget=server.forget)
        yield member
        for tag in list(server.started):
            member.open().stop(member.request(tag))


def _flink_yarn(tmp_path: Path) -> Iterator[Member]:
    """A ResourceManager and the JobManagers of its applications, played by servers, and `flink
    run`, played by a script.
    """
    with fake_flink_yarn.serving(seconds=0.1) as server:
        options = {
            "url": server.url,
            "flink": str(CLUSTERS / "fake_flink_run.py"),
            "settle_seconds": 0.5,
            "environment": {"FAKE_YARN": server.url, "HADOOP_CONF_DIR": str(tmp_path)},
            "state_dir": str(tmp_path / "state"),
        }
        (tmp_path / "orders.jar").write_bytes(b"classes")
        submission = _submission(tmp_path, jar=str(tmp_path / "orders.jar"), arguments=["{tag}"])
        yield Member(
            lambda: open_cluster(ClusterSpec("emr", "flink_yarn", options), str(tmp_path)),
            submission,
            lambda: server.started,
            {"flink run dies": server.dies},
            forget=server.forget,
            stopping={},
        )


def _flink_session(tmp_path: Path) -> Iterator[Member]:
    """An application that takes jobs by its REST API, wherever YARN says that it is."""
    with fake_flink_yarn.serving() as server:
        flink = server.begin("application_1796022664147_0900", "shop")
        flink.begin("f" * 32, "beside")  # the fake ends an application with its last job
        flink.seconds = 0.1
        (tmp_path / "orders.jar").write_bytes(b"classes")
        options = {"url": server.url, "session": "shop", "settle_seconds": 2, "request_seconds": 60}
        spec = ClusterSpec("emr", "flink_yarn", {**options, "state_dir": str(tmp_path / "state")})
        submission = _submission(tmp_path, jar=str(tmp_path / "orders.jar"), arguments=["{tag}"])
        member = Member(
            lambda: _opened(flink, spec, tmp_path), submission, lambda: flink.started, stopping={}
        )
        yield _over_http(member, flink)


def _driver_pods(tmp_path: Path) -> Iterator[Member]:
    """An API server and spark-submit, played by a server and a script."""
    with fake_kubernetes.serving(seconds=0.05) as server:
        options = {
            "master": f"k8s://{server.url}",
            "deploy_mode": "cluster",
            "spark_submit": str(CLUSTERS / "fake_pod_submit.py"),
            "conf": {"spark.kubernetes.namespace": "shop"},
            "settle_seconds": 0.5,
            "seconds_max": 60,
            "environment": {"KUBECONFIG": server.kubeconfig(tmp_path)},
            "state_dir": str(tmp_path / "state"),
        }
        spec = ClusterSpec("eks", "spark_submit", options)
        submission = _submission(tmp_path, application="s3a://shop/jobs/orders.py")
        yield Member(
            lambda: open_cluster(spec, str(tmp_path)),
            submission,
            lambda: server.started,
            {"spark-submit dies": server.dies},
        )


def _yarn_client(tmp_path: Path) -> Iterator[Member]:
    return _yarn(tmp_path, "client")


def _flink_rest(tmp_path: Path) -> Iterator[Member]:
    """A Flink played by a server that takes its time."""
    with fake_flink.serving(seconds=0.1) as flink:
        (tmp_path / "orders.jar").write_bytes(b"classes")
        options = {"url": flink.url, "settle_seconds": 2, "request_seconds": 60}
        spec = ClusterSpec("flink", "flink_rest", {**options, "state_dir": str(tmp_path / "state")})
        submission = _submission(tmp_path, jar=str(tmp_path / "orders.jar"), arguments=["{tag}"])
        member = Member(
            lambda: _opened(flink, spec, tmp_path),
            submission,
            lambda: flink.started,
            stopping={},
        )
        yield _over_http(member, flink)


def _flink_sql(tmp_path: Path) -> Iterator[Member]:
    """The same, given SQL: what of it goes where is known by the job's id."""
    tags = (
        "run-1.clicks",
        "run-1.orders.restart",
        *(f"run-{number}.orders" for number in range(12)),
    )
    tag_of = {job_id(tag): tag for tag in tags}
    with fake_flink.serving(seconds=0.1) as flink:
        flink.faulty = "/statements"
        (tmp_path / "orders.sql").write_text("INSERT INTO totals SELECT COUNT(*) FROM orders")
        options = {
            "url": flink.url,
            "sql_gateway": flink.url,
            "settle_seconds": 2,
            "request_seconds": 60,
        }
        spec = ClusterSpec("flink", "flink_rest", {**options, "state_dir": str(tmp_path / "state")})
        submission = _submission(tmp_path, sql=str(tmp_path / "orders.sql"))

        def started() -> Counter[str]:
            return Counter({tag_of.get(id, id): times for id, times in flink.started.items()})

        yield _over_http(
            Member(lambda: _opened(flink, spec, tmp_path), submission, started, stopping={}),
            flink,
        )


class _ResourceOfEachTag(FlinkOperator):
    """A resource is one job: each submission of the suite is given one of its own."""

    def submit(self, submission: Submission) -> str:
        options = {**submission.options, "resource": f"job-{digest(submission.tag)}"}
        return super().submit(replace(submission, options=options))


def _flink_operator(tmp_path: Path) -> Iterator[Member]:
    """An API server played by a server that takes its time, and a scripted operator."""
    with fake_kubernetes.serving(seconds=0.05) as server:
        server.deploy("orders", state="suspended")
        (tmp_path / "orders.yaml").write_text(
            json.dumps(server.objects["flinkdeployments", "orders"])
        )
        options = {
            "kubeconfig": server.kubeconfig(tmp_path),
            "settle_seconds": 2,
            "request_seconds": 60,
        }
        submission = _submission(tmp_path, manifest=str(tmp_path / "orders.yaml"))

        def opened() -> Cluster:
            fault = server.faults[0] if server.faults else None
            return _ResourceOfEachTag("east", tmp_path / "state", {**options, **hasty(fault)})

        server.forget()
        member = Member(opened, submission, lambda: server.started, stopping={})
        # A write is made again until its answer comes: it is refused by a "no" alone.
        refused = {"webhook": lambda: setattr(server, "webhooks", 1)}
        with server.operating():
            yield replace(_over_http(member, server), refused=refused)


class _ApplicationOfEachTag(SparkOperator):
    """As above, of Spark's operator."""

    def submit(self, submission: Submission) -> str:
        options = {**submission.options, "resource": f"job-{digest(submission.tag)}"}
        return super().submit(replace(submission, options=options))


def _spark_operator(tmp_path: Path) -> Iterator[Member]:
    """An API server played by a server that takes its time, and a scripted operator."""
    with fake_kubernetes.serving(seconds=0.05) as server:
        (tmp_path / "orders.yaml").write_text(json.dumps(server.apply("orders", suspend=True)))
        options = {
            "kubeconfig": server.kubeconfig(tmp_path),
            "settle_seconds": 2,
            "request_seconds": 60,
        }
        submission = _submission(tmp_path, manifest=str(tmp_path / "orders.yaml"))

        def opened() -> Cluster:
            fault = server.faults[0] if server.faults else None
            given = {**options, **hasty(fault)}
            return _ApplicationOfEachTag("east", tmp_path / "state", given)

        server.forget()
        member = Member(opened, submission, lambda: server.started)
        refused = {"webhook": lambda: setattr(server, "webhooks", 1)}
        with server.operating():
            yield replace(_over_http(member, server), refused=refused)


def _opened(server: StandIn, spec: ClusterSpec, tmp_path: Path) -> Cluster:
    fault = server.faults[0] if server.faults else None
    return open_cluster(replace(spec, options={**spec.options, **hasty(fault)}), str(tmp_path))


def _over_http(
    member: Member,
    server: fake_livy.FakeLivy
    | fake_standalone.FakeStandalone
    | fake_flink.FakeFlink
    | fake_kubernetes.FakeKubernetes,
) -> Member:
    """One whose server can be told to misbehave."""

    def misbehave(*faults: Fault) -> dict[str, Callable[[], object]]:
        return {fault: partial(server.faults.append, fault) for fault in faults}

    lost = misbehave("503 after all", "cut off after all", "hang")
    return replace(
        member, lost=lost, refused=misbehave("503", "cut off", "page"), forget=server.forget
    )


MEMBERS = {
    "memory": _memory,
    "manual": _manual,
    "command": _command_that_finds,
    "command without find": _command_with_records,
    "spark_submit": _spark_submit,
    "livy": _livy,
    "spark_standalone": _standalone,
    "spark_submit, pods": _driver_pods,
    "yarn": _yarn,
    "yarn, client mode": _yarn_client,
    "flink_yarn": _flink_yarn,
    "flink_yarn, session": _flink_session,
    "flink_rest": _flink_rest,
    "flink_rest with SQL": _flink_sql,
    "flink_operator": _flink_operator,
    "spark_operator": _spark_operator,
}


@pytest.fixture(params=list(MEMBERS))
def member(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Member]:
    yield from MEMBERS[request.param](tmp_path)


def test_a_tag_nobody_submitted_is_absent(member: Member) -> None:
    assert member.open().find("run-0.nothing").state is JobState.ABSENT
    assert member.started() == Counter()


def test_asking_for_room_starts_nothing_and_stops_nothing(member: Member) -> None:
    if not hasattr(member.open(), "fitting"):
        return  # it does not tell
    cluster = cast(TellsRoom, member.open())
    assert cluster.room().cores_free <= cluster.room().cores
    with suppress(ClusterError):  # nobody says the slots of this Flink
        assert isinstance(cluster.fitting(math.inf)(member.submission), Fit)
    assert member.open().find(member.submission.tag).state is JobState.ABSENT
    member.open().submit(member.submission)
    with suppress(ClusterError):
        cluster.fitting(math.inf)(replace(member.submission, tag="run-2.orders"))
    assert member.open().find(member.submission.tag).state.alive
    assert in_time(lambda: member.started() == {member.submission.tag: 1})


def test_another_process_sees_the_job_under_its_tag(member: Member) -> None:
    id = member.open().submit(member.submission)
    status = member.open().find(member.submission.tag)
    assert status.state.alive
    assert status.id == id
    assert member.open().find_source(member.request()).state.alive


@pytest.mark.long
def test_submitting_twice_starts_one_job(member: Member) -> None:
    first = member.open().submit(member.submission)
    assert member.open().submit(member.submission) == first
    assert in_time(lambda: member.started() == {member.submission.tag: 1})


def test_four_that_submit_one_tag_at_once_start_one_job(member: Member) -> None:
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: ids.append(member.open().submit(member.submission)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 4 and len(set(ids)) == 1
    assert in_time(lambda: member.started() == {member.submission.tag: 1})


def test_a_tag_is_any_text(member: Member) -> None:
    tag = "../päck: 100% of/it?\n#1"
    member.open().submit(replace(member.submission, tag=tag))
    assert member.open().find(tag).state.alive
    assert member.open().find("../päck: 100% of/it?\n#2").state is JobState.ABSENT


def test_a_stopped_job_is_not_alive_and_stopping_it_again_succeeds(member: Member) -> None:
    member.open().submit(member.submission)
    assert not member.open().stop(member.request()).state.alive
    assert not member.open().find_source(member.request()).state.alive
    assert not member.open().stop(member.request()).state.alive
    assert not member.open().find(member.submission.tag).state.alive


def test_a_job_whose_stop_was_cut_short_is_known_to_be_ending_until_it_has(
    member: Member,
) -> None:
    """Whoever takes the stop back has to know: it would end once everything is taken back."""
    if not isinstance(member.open(), TaggedCluster) or isinstance(member.open(), SparkOperator):
        return  # the others have no kill that takes its time, or another way
    id = member.open().submit(member.submission)
    cluster = cast(TaggedCluster, member.open())
    assert not cluster.is_stopping(member.request())

    def refuse() -> None:
        raise Refused("it is not yours", 403)

    with pytest.raises(Refused):
        cluster.kill_noted(member.request(), id, refuse)
    assert not cast(TaggedCluster, member.open()).is_stopping(member.request()), "it runs on"
    cluster.kill_noted(member.request(), id, lambda: None)
    assert cast(TaggedCluster, member.open()).is_stopping(member.request())
    again = replace(member.submission, tag="run-1.orders.restart")
    cluster.stop(member.request())
    assert not cluster.is_stopping(member.request())
    cluster.submit(again)
    assert not cluster.is_stopping(replace(member.request(), tag=again.tag))


def test_stopping_one_job_leaves_the_other_alone(member: Member) -> None:
    other = replace(
        member.submission,
        tag="run-1.clicks",
        job="clicks",
        location=member.submission.location + "-2",
    )
    member.open().submit(member.submission)
    member.open().submit(other)
    member.open().stop(member.request())
    assert member.open().find(other.tag).state.alive


def test_a_stopped_tag_is_not_started_again(member: Member) -> None:
    """A second attempt at a submission must not bring a job back that somebody stopped
    meanwhile.
    """
    member.open().submit(member.submission)
    member.open().stop(member.request())
    member.open().submit(member.submission)
    assert not member.open().find(member.submission.tag).state.alive
    assert in_time(lambda: member.started() == {member.submission.tag: 1})


def test_the_job_that_was_stopped_can_be_started_again_under_another_tag(member: Member) -> None:
    """What a rollback does: the same job at the same place."""
    member.open().submit(member.submission)
    member.open().stop(member.request())
    again = replace(member.submission, tag="run-1.orders.restart")
    member.open().submit(again)
    assert member.open().find(again.tag).state.alive


def test_no_secret_is_in_the_log(member: Member) -> None:
    member.open().submit(member.submission)
    in_time(lambda: "password" in member.open().log(member.submission.tag), seconds=0.5)
    assert "hunter22" not in member.open().log(member.submission.tag)
    assert member.open().log(member.submission.tag, 0) == ""


def test_the_version_is_a_text_or_nothing(member: Member) -> None:
    assert member.open().version() in (None, "4.3.0", "2.3.0")


@pytest.mark.long
def test_an_answer_that_is_lost_after_the_fact_starts_no_second_job(member: Member) -> None:
    for number, (fault, happens) in enumerate(member.lost.items()):
        submission = replace(member.submission, tag=f"run-{number}.orders")
        happens()
        with suppress(ClusterError):  # it may find out by itself what became of it
            member.open().submit(submission)
        assert member.open().find(submission.tag).state is not JobState.ABSENT, fault
        assert member.open().submit(submission) == member.open().find(submission.tag).id
        assert member.started()[submission.tag] == 1, fault


@pytest.mark.long
@pytest.mark.sample(2)
def test_a_submission_that_had_no_effect_is_an_error_and_can_be_made_again(member: Member) -> None:
    for number, (fault, happens) in enumerate(member.refused.items()):
        submission = replace(member.submission, tag=f"run-{number}.orders")
        happens()
        with pytest.raises(ClusterError):
            member.open().submit(submission)
        assert member.open().find(submission.tag).state is JobState.ABSENT, fault
        member.open().submit(submission)
        assert member.started()[submission.tag] == 1, fault


def test_what_the_cluster_has_forgotten_is_unknown_and_not_submitted_again(member: Member) -> None:
    id = member.open().submit(member.submission)
    if member.forget is None:
        return  # it keeps what it was given
    member.forget()
    assert member.open().find(member.submission.tag).state is JobState.UNKNOWN
    assert member.open().submit(member.submission) == id
    with pytest.raises(ClusterError, match="cannot tell whether orders runs") as raised:
        member.open().stop(member.request())
    assert member.started() == {member.submission.tag: 1}
    removing = str(raised.value.hint).partition(": ")[2].partition(",")[0]
    subprocess.run(removing, shell=True, check=True)
    assert member.open().stop(member.request()).state is JobState.ABSENT


@pytest.mark.long
@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "member", [name for name in MEMBERS if name not in ("memory", "manual")], indirect=True
)
def test_killed_in_the_middle_of_submit_it_starts_one_job_all_the_same(
    member: Member, seed: int
) -> None:
    """We are killed at a random moment; the next look and the next attempt find what that left."""
    chance = random.Random(seed)
    for attempt in range(12):
        submission = replace(member.submission, tag=f"run-{attempt}.orders")
        killed_while(
            lambda submission=submission: member.open().submit(submission),
            chance.uniform(0.0, 0.16),
        )
        absent = member.open().find(submission.tag).state is JobState.ABSENT
        if absent and attempt % 2:
            time.sleep(0.15)  # it never says absent while something may still happen
            assert member.started()[submission.tag] == 0
        member.open().submit(submission)
        assert in_time(lambda submission=submission: member.started()[submission.tag] > 0)
        assert member.open().find(submission.tag).state.alive
    time.sleep(0.15)
    assert set(member.started().values()) == {1}
