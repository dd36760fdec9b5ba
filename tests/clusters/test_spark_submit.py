"""Processes of `spark-submit`, with a script in its place: what jobs are given, how they are
found and stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import Cluster, JobState, Remedy, StopRequest, Submission
from stateshift.errors import ClusterError, SpecError
from stateshift.formats.marks import STOP, STOPPING
from stateshift.specification.model import ClusterSpec
from tests.clusters.test_spark_causes import QUERY, STATE, began, ended
from tests.support.processes import in_time, runs

FAKE = str(Path(__file__).with_name("fake_spark_submit.sh"))

# Answers the marker as `stateshift.job` does, and ends.
GRACEFUL = """
until [ -f "$STATESHIFT_CHECKPOINT/_stateshift/stop" ]; do sleep 0.02; done
cp "$STATESHIFT_CHECKPOINT/_stateshift/stop" "$STATESHIFT_CHECKPOINT/_stateshift/stopping"
sleep 0.5
echo between two batches
"""


class Place:
    """A directory with a cluster, a job and its image."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = str(path / "image of it")
        self.tags: list[str] = []

    def cluster(self, **options: object) -> Cluster:
        environment = {"STARTS": str(self.path / "starts")}
        spec = ClusterSpec(
            "local", "spark_submit", {"spark_submit": FAKE, "environment": environment, **options}
        )
        return open_cluster(spec, str(self.path / "work"))

    def submission(self, script: str, tag: str = "run.orders", **options: object) -> Submission:
        application = self.path / f"{tag}.sh"
        application.write_text(script)
        self.tags.append(tag)
        return Submission(
            tag, "orders", self.location, options={"application": str(application), **options}
        )

    def request(
        self, tag: str | None = "run.orders", seconds_max: float = 60.0, **options: object
    ) -> StopRequest:
        return StopRequest(
            "orders", self.location, tag, seconds_max, {"graceful_seconds": 0.2, **options}
        )

    def starts(self) -> str:
        return (self.path / "starts").read_text()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    for tag in found.tags:
        found.cluster().stop(found.request(tag))


def _ended(place: Place, tag: str = "run.orders") -> bool:
    return not place.cluster().find(tag).state.alive


def test_a_job_that_ends_well_is_finished_and_one_that_does_not_has_failed(place: Place) -> None:
    place.cluster().submit(place.submission("exit 0"))
    place.cluster().submit(place.submission("echo oh no; exit 3", "run.other"))
    assert in_time(lambda: _ended(place) and _ended(place, "run.other"))
    assert place.cluster().find("run.orders").state is JobState.FINISHED
    failed = place.cluster().find("run.other")
    assert (failed.state, failed.detail) == (JobState.FAILED, "exit code 3")
    assert place.cluster().log("run.other") == "oh no"


@pytest.mark.row("IS-6")
def test_the_job_is_handed_its_location_name_and_tag(place: Place) -> None:
    script = 'echo "$STATESHIFT_TAG|$STATESHIFT_JOB|$STATESHIFT_CHECKPOINT|$1|$COLOUR|$PWD"'
    directory = place.path / "somewhere else"
    directory.mkdir()
    submission = place.submission(
        script, arguments=["a b", 7], environment={"COLOUR": "red"}, cwd=str(directory)
    )
    place.cluster().submit(submission)
    assert in_time(lambda: _ended(place))
    assert (
        place.cluster().log("run.orders")
        == f"run.orders|orders|{place.location}|a b|red|{directory}"
    )


@pytest.mark.row("IS-4")
@pytest.mark.parametrize(
    ("connection", "master"),
    [
        (None, "local[3]"),
        ("10.0.0.7:7077", "spark://10.0.0.7:7077"),
        ("spark://a:7077,b:7077", "spark://a:7077,b:7077"),
        ("k8s://https://a:443", "k8s://https://a:443"),
        ("yarn", "yarn"),
    ],
)
def test_the_connection_overrides_the_master(
    place: Place, connection: str | None, master: str
) -> None:
    cluster = place.cluster(master="local[3]", conf={"spark.ui.enabled": False})
    submission = place.submission("exit 0", conf={"spark.x": 1}, py_files=["a.py", "b.zip"])
    cluster.submit(replace(submission, connection=connection))
    assert in_time(lambda: _ended(place))
    said = place.starts().strip()
    assert said.startswith(
        f"run.orders --master {master} --deploy-mode client --name orders"
        " --conf spark.ui.enabled=false --conf spark.x=1 --py-files a.py,b.zip "
    )


def test_a_job_that_watches_is_stopped_by_the_marker_and_the_marker_taken_away(
    place: Place,
) -> None:
    place.cluster().submit(place.submission(GRACEFUL))
    (Path(place.location) / "offsets").mkdir(parents=True)
    after = place.cluster().stop(place.request(graceful_seconds=60))
    assert after.state is JobState.FINISHED
    assert place.cluster().log("run.orders") == "between two batches"
    assert [path.name for path in Path(place.location).iterdir()] == ["offsets"]


def test_a_job_that_does_not_watch_is_killed_with_all_that_it_started(place: Place) -> None:
    child = place.path / "child"
    place.cluster().submit(
        place.submission(f"trap '' TERM; sleep 600 & echo $! >{child}; while :; do wait; done")
    )
    assert in_time(lambda: child.exists() and child.read_text().strip() != "")
    began = time.monotonic()
    after = place.cluster(kill_seconds=0.5).stop(place.request())
    assert after.state is JobState.FAILED
    assert after.detail == "was killed, asked to stop"
    assert time.monotonic() - began < 300
    assert in_time(lambda: not runs(int(child.read_text())))


def test_a_job_that_ends_on_sigterm_needs_no_sigkill(place: Place) -> None:
    place.cluster().submit(place.submission("sleep 600"))
    assert in_time((place.path / "starts").exists)
    began = time.monotonic()
    after = place.cluster(kill_seconds=60).stop(place.request())
    assert (after.state, after.detail) == (JobState.FAILED, "exit code 143, asked to stop")
    assert time.monotonic() - began < 300


# Reads the marker, and answers when it is gone.
LATE = """
trap '' TERM
until [ -f "$STATESHIFT_CHECKPOINT/_stateshift/stop" ]; do sleep 0.02; done
while [ -f "$STATESHIFT_CHECKPOINT/_stateshift/stop" ]; do sleep 0.02; done
mkdir -p "$STATESHIFT_CHECKPOINT/_stateshift"
echo late >"$STATESHIFT_CHECKPOINT/_stateshift/stopping"
"""


def test_an_answer_that_comes_too_late_is_taken_away(place: Place) -> None:
    place.cluster().submit(place.submission(LATE))
    assert in_time((place.path / "starts").exists)
    (Path(place.location) / "offsets").mkdir(parents=True)
    place.cluster(kill_seconds=300).stop(place.request(graceful_seconds=1))
    assert [path.name for path in Path(place.location).iterdir()] == ["offsets"]


def test_a_marker_left_by_somebody_does_not_stop_the_next_job(place: Place) -> None:
    marker = Path(place.location) / STOP
    marker.parent.mkdir(parents=True)
    marker.write_text("{}")
    place.cluster().submit(place.submission("sleep 600"))
    assert not marker.exists()
    assert not (Path(place.location) / STOPPING).exists()


def test_a_driver_that_was_killed_with_its_wrapper_has_failed_and_is_not_started_again(
    place: Place,
) -> None:
    id = place.cluster().submit(place.submission("sleep 600"))
    assert in_time(lambda: (place.path / "starts").exists())
    os.killpg(int(id), 9)
    assert in_time(lambda: _ended(place))
    status = place.cluster().find("run.orders")
    assert (status.state, status.detail) == (JobState.FAILED, "was killed")
    assert place.cluster().submit(place.submission("sleep 600")) == id
    assert place.starts().count("run.orders ") == 1


@pytest.mark.parametrize("spelled", ["{}", "file://{}", "file:{}/"])
def test_a_job_started_by_hand_is_found_by_its_environment_and_stopped(
    place: Place, spelled: str
) -> None:
    environment = {
        "STATESHIFT_JOB": "orders",
        "STATESHIFT_CHECKPOINT": spelled.format(place.location),
    }
    by_hand = subprocess.Popen(["sleep", "600"], env={**os.environ, **environment})
    try:
        assert in_time(
            lambda: place.cluster().find_source(place.request(None)).state is JobState.RUNNING
        )
        assert place.cluster().find_source(place.request(None)).id == str(by_hand.pid)
        elsewhere = StopRequest("orders", place.location + "2")
        assert place.cluster().find_source(elsewhere).state is JobState.ABSENT
        assert not place.cluster().stop(place.request(None)).state.alive
        assert by_hand.wait(60) == -15
    finally:
        by_hand.kill()
        by_hand.wait()


def test_we_are_not_taken_for_the_job_because_the_shell_has_its_variables(place: Place) -> None:
    """Somebody exported them and then ran stateshift: that process and its parents are left
    alone.
    """
    script = (
        "import sys; from stateshift.clusters.spark_submit.processes import "
        "of_job;sys.exit(len(of_job('orders', sys.argv[1])))"
    )
    environment = {
        **os.environ,
        "STATESHIFT_JOB": "orders",
        "STATESHIFT_CHECKPOINT": place.location,
    }
    command = 'python="$1"; shift; "$python" -c "$@"; exit $?'
    done = subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, script, place.location], env=environment
    )
    assert done.returncode == 0


def test_a_job_is_found_by_its_pid_file_unless_the_number_is_an_old_one(place: Place) -> None:
    by_hand = subprocess.Popen(["sleep", "600"])
    try:
        pid_file = place.path / "job.pid"
        pid_file.write_text(f"{by_hand.pid}\n")
        request = place.request(None, pid_file=str(pid_file))
        assert place.cluster().find_source(request).id == str(by_hand.pid)
        os.utime(pid_file, (1e9, 1e9))  # written long before this process began
        assert place.cluster().find_source(request).state is JobState.ABSENT
        os.utime(pid_file)
        assert not place.cluster(pid_file=str(pid_file)).stop(place.request(None)).state.alive
        assert by_hand.wait(60) == -15
    finally:
        by_hand.kill()
        by_hand.wait()


def test_the_options_of_a_submission_may_come_along_when_it_is_taken_back(place: Place) -> None:
    """A rollback stops the target with what it was submitted with."""
    place.cluster().submit(place.submission("sleep 600"))
    request = place.request(application="x.py", conf={"spark.x": 1})
    assert not place.cluster().stop(request).state.alive


def test_an_unknown_option_is_refused_with_the_nearest_known_one(place: Place) -> None:
    with pytest.raises(
        SpecError, match=r"unknown option 'aplication' .did you mean 'application'"
    ) as raised:
        place.cluster().submit(
            Submission("t", "orders", place.location, options={"aplication": "x.py"})
        )
    assert [c.pointer for c in raised.value.complaints] == [
        "/submit/aplication",
        "/submit/application",
    ]
    assert place.cluster().find("t").state is JobState.ABSENT


def test_a_spark_submit_that_is_not_there_is_named(place: Place) -> None:
    cluster = place.cluster(spark_submit="/no/such/spark-submit")
    assert cluster.version() is None
    with pytest.raises(ClusterError, match="no executable /no/such/spark-submit"):
        cluster.submit(place.submission("exit 0"))
    assert cluster.find("run.orders").state is JobState.ABSENT


def test_the_job_can_be_found_by_a_process_that_did_not_start_it(place: Place) -> None:
    id = place.cluster().submit(place.submission("sleep 600"))
    script = (
        "import json, sys; from stateshift.clusters.kind import open_cluster;"
        "from stateshift.specification.model import ClusterSpec;"
        "cluster = open_cluster(ClusterSpec('local', 'spark_submit'), sys.argv[1]);"
        "status = cluster.find('run.orders'); print(json.dumps([status.state, status.id]))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, str(place.path / "work")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(said.stdout) == ["running", id]


def test_why_a_query_or_a_job_has_ended_is_told_by_the_log_of_its_tag(place: Place) -> None:
    script = "cat <<'EOF'\n" + began() + ended(STATE) + "EOF\n"
    place.cluster().submit(place.submission(f"{script} sleep 600"))
    place.cluster().submit(place.submission(f"{script} exit 1", "run.other"))
    place.cluster().submit(place.submission("sleep 600", "run.third"))
    assert in_time(lambda: _ended(place, "run.other"))
    assert in_time(lambda: place.cluster().failure("run.orders", alive=True) is not None)
    for tag, alive in (("run.orders", True), ("run.other", False)):
        failure = place.cluster().failure(tag, alive)
        assert failure is not None and failure.remedy is Remedy.ROLLBACK
        assert failure.query == QUERY
    assert place.cluster().failure("run.third", alive=True) is None
