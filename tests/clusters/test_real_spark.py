"""A real Spark, started, found and stopped: one job that watches for the marker, and one that
does not.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from stateshift.clusters.kind import Contacts, open_cluster
from stateshift.clusters.protocol import Cluster, JobState, StopRequest, Submission
from stateshift.formats import marks, uid
from stateshift.specification.model import ClusterSpec
from stateshift.storage.local.storage import LocalStorage
from tests.support.processes import in_time

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "tests" / "jobs"


def _cluster(tmp_path: Path, **conf: object) -> Cluster:
    """viewfs:///data is a directory of this test's, under a scheme that only Hadoop knows."""
    image = tmp_path / "data" / "image"
    conf = {
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.memory": "1g",
        "spark.hadoop.fs.viewfs.mounttable.default.link./data": f"file://{tmp_path}/data",
        **conf,
    }
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    spec = ClusterSpec(
        "local", "spark_submit", {"master": "local[2]", "conf": conf, "environment": environment}
    )
    return open_cluster(spec, str(tmp_path / "work"), Contacts(lambda _: LocalStorage(str(image))))


def _newest(directory: Path) -> int:
    return max((int(path.name) for path in directory.glob("[0-9]*")), default=-1)


def _input(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.txt").write_text("one\ntwo\ntwo\n")
    return tmp_path / "input"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.row("IS-7")
@pytest.mark.row("IS-9", on="Spark")
@pytest.mark.row("IS-10", on="Spark")
@pytest.mark.row("IS-19")
def test_a_watching_job_reports_idle_and_stops_between_two_batches(tmp_path: Path) -> None:
    """On a location that only Hadoop can open: what the job reads and writes there goes through
    the JVM.
    """
    cluster, image = _cluster(tmp_path), tmp_path / "data" / "image"
    (tmp_path / "data").mkdir()
    options = {"application": str(JOBS / "watched.py"), "arguments": [str(_input(tmp_path))]}
    production = {"STATESHIFT_PRODUCTION": "true"}
    place = "viewfs:///data/image"
    submission = Submission("run.words", "words", place, options=options, environment=production)
    request = StopRequest("words", submission.location, submission.tag, 60.0)
    id = cluster.submit(submission)
    try:
        words, ticks = (image / uid.directory_name(name) for name in ("Count (words)", "ticks"))
        idle = words / marks.IDLE
        assert in_time(lambda: idle.exists() or not cluster.find("run.words").state.alive, 180.0), (
            cluster.log("run.words")
        )
        assert json.loads(idle.read_text()) == {"tag": "run.words", "epoch": 0}
        assert in_time(lambda: _newest(ticks / "commits") >= 2, 180.0)
        assert cluster.submit(submission) == id
        assert (
            cluster.find_source(StopRequest("words", submission.location)).state is JobState.RUNNING
        )
        assert cluster.stop(request).state is JobState.FINISHED, cluster.log("run.words")
    finally:
        cluster.stop(request)
    assert "the job ends well" in cluster.log("run.words")
    hashed = uid.rolling_hash("Count (words)")
    assert words.name == f"{hashed}_words", "the whole name is hashed, and can be recognised"
    results = image / f"{ticks.name}_RES"
    assert list(results.glob("*/*.parquet")), "it runs in production"
    assert not (image / f"{words.name}_RES").exists(), "nobody has asked for it"
    for query in (words, ticks):
        assert _newest(query / "offsets") == _newest(query / "commits") >= 0, cluster.log(
            "run.words"
        )
    assert marks.decode_index((image / marks.INDEX).read_bytes()) == {
        "Count (words)": words.name,
        "ticks": ticks.name,
    }
    assert not (image / marks.STOP).exists() and not (image / marks.STOPPING).exists()


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_that_does_not_watch_is_killed_and_found_before_that_by_another_process(
    tmp_path: Path,
) -> None:
    cluster, image = _cluster(tmp_path), tmp_path / "image"
    options = {
        "application": str(JOBS / "unwatched.py"),
        "arguments": [str(_input(tmp_path)), str(image)],
    }
    submission = Submission("run.words", "words", str(image), options=options)
    request = StopRequest("words", str(image), submission.tag, 60.0, {"graceful_seconds": 1})
    cluster.submit(submission)
    try:
        assert in_time(lambda: _newest(image / "commits") >= 0, 180.0), cluster.log("run.words")
        script = (
            "import sys; from stateshift.clusters.kind import Contacts, open_cluster;"
            "from stateshift.specification.model import ClusterSpec;"
            "print(open_cluster(ClusterSpec('local', 'spark_submit'), "
            "sys.argv[1]).find('run.words').state)"
        )
        arguments = [sys.executable, "-c", script, str(tmp_path / "work")]
        assert (
            subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
            == "running\n"
        )
        assert (
            cluster.find_source(StopRequest("words", f"file://{image}")).state is JobState.RUNNING
        )
    finally:
        after = cluster.stop(request)
    assert after.state is JobState.FAILED
    assert after.detail == "exit code 143, asked to stop"
    assert cluster.find_source(StopRequest("words", f"file://{image}")).state is JobState.ABSENT
    assert not (image / marks.FOLDER).exists()


def test_the_version_of_the_installed_spark_is_known_without_starting_it(tmp_path: Path) -> None:
    began = _children_seconds()
    version = _cluster(tmp_path).version()
    from pyspark.version import __version__

    assert version == __version__
    assert _children_seconds() - began < 0.5, "a JVM takes more to begin with"


def _children_seconds() -> float:
    """Return how much of a processor all processes have taken that were started here."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
