"""Drivers that run in the cluster: how they are handed over, what is known of them, and what is
refused.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import migration
from stateshift.clusters.detached import Trace
from stateshift.clusters.kind import check_submit, open_cluster
from stateshift.clusters.protocol import Cluster, JobState, StopRequest, Submission
from stateshift.clusters.spark_submit.deploy import Deployed, driver_in_cluster, status_of
from stateshift.errors import ClusterError, PlanError, SpecError
from stateshift.formats.marks import STOP
from stateshift.specification.model import ClusterSpec
from tests.support.ground import SOURCE, Ground, spec_of

FAKE = str(Path(__file__).with_name("fake_spark_submit.sh"))
APPLICATION = "application_1700000000000_0042"
ACCEPTED = f"INFO YarnClientImpl: Submitted application {APPLICATION}"
LOST = f"ERROR Client: Failed to contact YARN for application {APPLICATION}."
KILLED = f"org.apache.spark.SparkException: Application {APPLICATION} finished with killed status"
TAG = "run.orders"
POD_LOST = "pod name: orders-1-driver\n\t phase: Running\nException: connection reset"


class Place:
    def __init__(self, path: Path) -> None:
        self.path, self.location = path, str(path / "image")

    def cluster(self, **options: object) -> Cluster:
        environment = {"STARTS": str(self.path / "starts")}
        known = {"spark_submit": FAKE, "master": "yarn", "environment": environment}
        return open_cluster(
            ClusterSpec("emr", "spark_submit", {**known, **options}), str(self.path / "work")
        )

    def submission(self, script: str, **options: object) -> Submission:
        application = self.path / "orders.sh"
        application.write_text(script)
        return Submission(
            TAG, "orders", self.location, options={"application": str(application), **options}
        )

    def request(self, tag: str | None = TAG) -> StopRequest:
        return StopRequest("orders", self.location, tag, 5.0, {"graceful_seconds": 0.2})

    def said(self, cluster: Cluster, words: str) -> None:
        """Wait until a job has said this."""
        until = time.monotonic() + 60
        while words not in cluster.log(TAG) and time.monotonic() < until:
            time.sleep(0.02)

    def started_with(self) -> str:
        starts, until = self.path / "starts", time.monotonic() + 60
        while not (starts.exists() and starts.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        return starts.read_text()

    def ended(self, script: str, **options: object) -> Cluster:
        """A cluster to which a job was handed whose launcher is gone."""
        cluster = self.cluster(deploy_mode="cluster")
        cluster.submit(self.submission(script, **options))
        until = time.monotonic() + 60
        while cluster.find(TAG).state is JobState.RUNNING and time.monotonic() < until:
            time.sleep(0.02)
        return cluster


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    for path in (tmp_path / "work").rglob("*.pid"):
        with suppress(ProcessLookupError):
            os.killpg(int(path.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    "master", ["yarn", "k8s://https://a:443", "spark://a:7077", "mesos://a:5050"]
)
def test_a_job_that_no_process_here_is_may_run_where_such_a_master_has_put_it(
    place: Place, master: str
) -> None:
    status = place.cluster(master=master).find_source(place.request(None))
    assert status.state is JobState.UNKNOWN
    assert "may run in the cluster" in str(status.detail)
    with pytest.raises(ClusterError, match="cannot tell whether orders runs"):
        place.cluster(master=master).stop(place.request(None))


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,1024]"])
def test_a_job_that_can_run_on_this_machine_alone_is_known_to_be_absent(
    place: Place, master: str
) -> None:
    assert place.cluster(master=master).find_source(place.request(None)).state is JobState.ABSENT


def test_a_pid_file_names_the_process_so_that_its_end_is_known(place: Place) -> None:
    cluster = place.cluster(pid_file=str(place.path / "none.pid"))
    assert cluster.find_source(place.request(None)).state is JobState.ABSENT


def test_a_process_of_spark_that_names_the_job_may_be_it(place: Place) -> None:
    # Not a wrapper, which replaces itself, and has no command line for a moment.
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    words = [*sleeping, "org.apache.spark.deploy.SparkSubmit"]
    for more in (["--name", "orders"], ["--conf", "x=y", f"--checkpoint={place.location}/"]):
        process = subprocess.Popen([*words, *more])
        try:
            status = place.cluster(master="local[2]").find_source(place.request(None))
            assert (status.state, status.id) == (JobState.UNKNOWN, str(process.pid))
        finally:
            process.kill()
            process.wait()
    assert (
        place.cluster(master="local[2]").find_source(place.request(None)).state is JobState.ABSENT
    )


def test_a_source_that_was_stopped_is_known_to_be_when_the_stop_is_repeated(place: Place) -> None:
    """A run may be killed between a stop and its record."""
    environment = {
        "STATESHIFT_JOB": "orders",
        "STATESHIFT_CHECKPOINT": place.location,
        "PATH": "/usr/bin:/bin",
    }
    process = subprocess.Popen(["sleep", "600"], env=environment)
    try:
        until = time.monotonic() + 60
        while (
            not place.cluster().find_source(place.request(None)).state.alive
            and time.monotonic() < until
        ):
            time.sleep(0.02)
        assert place.cluster().stop(place.request(None)).state is JobState.FINISHED
        assert place.cluster().stop(place.request(None)).state is JobState.FINISHED
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("cluster", "submit", "mode"),
    [
        ({}, {}, "client"),
        ({"deploy_mode": "cluster"}, {}, "cluster"),
        ({}, {"deploy_mode": "cluster"}, "cluster"),
        ({"conf": {"spark.submit.deployMode": "cluster"}}, {}, "cluster"),
        ({}, {"conf": {"spark.submit.deployMode": "cluster"}}, "cluster"),
        ({"deploy_mode": "cluster"}, {"deploy_mode": "client"}, "client"),
        ({"deploy_mode": "cluster"}, {"conf": {"spark.submit.deployMode": "client"}}, "client"),
    ],
)
def test_the_submission_says_where_the_driver_runs_and_else_the_cluster(
    place: Place, cluster: dict[str, object], submit: dict[str, object], mode: str
) -> None:
    place.cluster(**cluster).submit(place.submission("exit 0", **submit))
    said = place.started_with()
    assert f"--master yarn --deploy-mode {mode} --name orders" in said
    assert (f"--conf spark.stateshift.checkpoint={place.location}" in said) == (mode == "cluster")
    assert (f"--conf spark.yarn.tags={TAG}" in said) == (mode == "cluster")


def test_the_tag_the_job_and_the_checkpoint_are_filled_in_arguments_and_settings(
    place: Place,
) -> None:
    conf = {"spark.yarn.tags": "team,{tag}", "spark.x": "{job}"}
    cluster = place.cluster(conf={"spark.y": "{checkpoint}/y"})
    cluster.submit(place.submission("exit 0", conf=conf, arguments=["--at", "{checkpoint}", 7]))
    said = place.started_with()
    for setting in (f"spark.yarn.tags=team,{TAG}", "spark.x=orders", f"spark.y={place.location}/y"):
        assert f"--conf {setting}" in said
    assert said.rstrip().endswith(f"--at {place.location} 7")


@pytest.mark.parametrize(
    ("script", "conf", "state"),
    [
        ("exit 0", {}, JobState.FINISHED),
        (
            f"echo '{ACCEPTED}'; exit 0",
            {"spark.yarn.submit.waitAppCompletion": False},
            JobState.UNKNOWN,
        ),
        ("echo no such queue; exit 1", {}, JobState.FAILED),
        (f"echo '{ACCEPTED}'; echo '{KILLED}'; exit 1", {}, JobState.FAILED),
        (f"echo '{ACCEPTED}'; echo '{LOST}'; exit 1", {}, JobState.UNKNOWN),
    ],
)
def test_what_a_launcher_that_is_gone_tells_of_its_application(
    place: Place, script: str, conf: dict[str, object], state: JobState
) -> None:
    cluster = place.ended(script, conf=conf)
    assert cluster.find(TAG).state is state
    assert cluster.submit(place.submission(script, conf=conf)) == cluster.find(TAG).id
    assert len(place.started_with().splitlines()) == 1, "it is not started twice"


@pytest.mark.parametrize("said", [ACCEPTED, "nothing yet"])
def test_a_launcher_that_was_killed_leaves_behind_a_job_that_may_run(
    place: Place, said: str
) -> None:
    cluster = place.cluster(deploy_mode="cluster")
    id = cluster.submit(place.submission(f"echo '{said}'; sleep 600"))
    place.said(cluster, said)
    os.killpg(int(id), signal.SIGKILL)
    until = time.monotonic() + 60
    while cluster.find(TAG).state is JobState.RUNNING and time.monotonic() < until:
        time.sleep(0.02)
    assert cluster.find(TAG).state is JobState.UNKNOWN


def test_a_driver_whose_launcher_is_lost_while_it_is_asked_to_stop_is_not_taken_for_ended(
    place: Place,
) -> None:
    cluster = place.cluster(deploy_mode="cluster")
    marker = f"{place.location}/{STOP}"
    lost = f"while [ ! -e '{marker}' ]; do sleep 0.05; done; kill -9 0"
    cluster.submit(place.submission(f"echo '{ACCEPTED}'; {lost}"))
    patient = StopRequest("orders", place.location, TAG, 120.0, {"graceful_seconds": 60})
    with pytest.raises(ClusterError, match="cannot tell whether orders runs: spark-submit was"):
        cluster.stop(patient)


def test_a_driver_in_the_cluster_is_not_killed_by_killing_its_launcher(place: Place) -> None:
    cluster = place.cluster(deploy_mode="cluster")
    cluster.submit(place.submission(f"echo '{ACCEPTED}'; sleep 600"))
    place.said(cluster, APPLICATION)
    with pytest.raises(ClusterError, match="cannot be killed from here") as raised:
        cluster.stop(place.request())
    assert f"yarn application -kill {APPLICATION}" in str(raised.value.hint)
    assert cluster.find(TAG).state is JobState.RUNNING
    again = place.cluster(deploy_mode="cluster")
    assert not again.is_stopping(place.request()), "nothing was done to it"


def test_an_application_that_nobody_sees_is_over_once_a_person_has_said_so(place: Place) -> None:
    cluster = place.ended(
        f"echo '{ACCEPTED}'; exit 0", conf={"spark.yarn.submit.waitAppCompletion": False}
    )
    with pytest.raises(
        ClusterError, match="cannot tell whether orders runs: the cluster has accepted it"
    ) as raised:
        cluster.stop(place.request())
    hint = str(raised.value.hint)
    assert f"yarn application -kill {APPLICATION}" in hint
    command = next(part for part in hint.split("; ") if "touch" in part).partition(": ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    assert cluster.stop(place.request()).state is JobState.FINISHED


@pytest.mark.parametrize(
    ("master", "application", "connection", "told"),
    [
        ("local[2]", "a.jar", None, "no cluster mode with master local"),
        ("spark://a:7077", "a.py", None, "hands no Python file to spark://a:7077"),
        ("local[2]", "a.py", "a:7077", "hands no Python file to spark://a:7077"),
        ("local[2]", "a.jar", "yarn", ""),
        ("yarn", "a.py", None, ""),
    ],
)
def test_a_cluster_mode_that_the_master_does_not_have_is_refused_before_anything_moves(
    tmp_path: Path, master: str, application: str, connection: str | None, told: str
) -> None:
    (tmp_path / application).touch()
    spec = ClusterSpec("a", "spark_submit", {"master": master, "deploy_mode": "cluster"})
    options = {"application": str(tmp_path / application)}
    if not told:
        check_submit(spec, options, "/submit", connection)
        return
    with pytest.raises(SpecError, match=told):
        check_submit(spec, options, "/submit", connection)


def test_a_job_of_which_nobody_knows_whether_it_runs_is_not_fenced(tmp_path: Path) -> None:
    """A job in YARN's cluster mode, and its cluster named: apply would fence it while it runs."""
    ground = Ground(tmp_path)
    ground.write()
    emr = {"emr": {"kind": "spark_submit", "master": "yarn", "spark_submit": FAKE}}
    adapters = replace(
        ground.adapters, open_cluster=lambda spec, workdir: open_cluster(spec, str(workdir.path))
    )

    def proposed(**keys: object) -> migration.Proposal:
        spec = spec_of(spec_clusters=emr, source_cluster="emr", **keys)
        return migration.propose(spec, adapters, ground.workdir("planning"))

    for mode in ("move", "warm"):
        refused = proposed(mode=mode)
        (finding,) = {finding.message: finding for finding in refused.refusals}.values()
        assert "emr cannot tell whether" in finding.message
        assert finding.waive == "job-stopped"
        with pytest.raises(PlanError, match="emr cannot tell whether"):
            migration.apply(refused, f"run-{mode}", ground.workdir(mode), adapters)
        assert not [path for path in ground.disk.snapshot(SOURCE) if "_stateshift" in path]
    assert not proposed(mode="fork").refusals
    waived = proposed(waive=["job-stopped"])
    assert not waived.refusals
    report = migration.apply(waived, "run-waived", ground.workdir("waived"), adapters)
    assert report.state == "finished"


@pytest.mark.parametrize(
    ("code", "waits", "log", "state"),
    [
        (1, True, POD_LOST, JobState.UNKNOWN),
        (1, True, POD_LOST.replace("Running", "Failed"), JobState.FAILED),
        (0, True, POD_LOST, JobState.FINISHED),
        (0, False, POD_LOST, JobState.UNKNOWN),
        (1, False, "no pod was made", JobState.FAILED),
    ],
)
def test_a_driver_in_kubernetes_whose_mode_only_its_submit_has_named(
    code: int, waits: bool, log: str, state: JobState
) -> None:
    """A run of an older version: its cluster is opened as one of processes."""
    driver = Deployed("k8s://https://east:6443", waits)
    assert status_of(driver, Trace(False, 7, code), log, ended=False).state is state
    assert driver_in_cluster("k8s://https://east:6443", {}).waits
    killing = "spark-submit --master k8s://https://east:6443 --kill "
    assert driver.to_kill("") == f"{killing}<namespace>:<driver pod>"
    assert driver.to_kill(POD_LOST) == f"{killing}orders-1-driver"
