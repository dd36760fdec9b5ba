"""The real Livy takes a batch, watches it to its end, and gives one name to one batch at a time."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.livy import Livy
from stateshift.clusters.opening import open_cluster
from stateshift.clusters.protocol import JobState, StopRequest, Submission
from stateshift.spec.model import ClusterSpec
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.spark]
SECONDS_MAX = 300.0
ROOT = Path(__file__).resolve().parents[2]

# A job that finds its checkpoint by what it was handed over, and goes on until it is stopped.
JOB = """
import sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
from stateshift import job

spark = SparkSession.builder.getOrCreate()
events = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
counts = events.groupBy((events.value % 3).alias("key")).count()
query = counts.writeStream.outputMode("complete").format("noop").option("checkpointLocation", job.location())
print("handed over", job.location() == sys.argv[2])
if "deaf" in sys.argv:
    query.start().awaitTermination()
job.run(query.start())
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("livy"), "livy") as servers:
        yield servers


def asked(servers: Servers, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    url = f"{servers.exports()['STATESHIFT_LIVY']}{path}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_batches_are_told_submitted_watched_and_named_once(servers: Servers, tmp_path: Path) -> None:
    assert asked(servers, "/batches") == (200, {"from": 0, "total": 0, "sessions": []})
    assert asked(servers, "/batches/7") == (404, {"msg": "Session '7' not found."})
    script, written = tmp_path / "job.py", tmp_path / "written"
    script.write_text("import pathlib, sys\nprint('it ran')\npathlib.Path(sys.argv[1]).write_text('ran')\n")
    batch = {"file": str(script), "args": [str(written)], "name": "orders"}
    status, told = asked(servers, "/batches", batch)
    assert (status, told["id"], told["name"]) == (201, 0, "orders")
    again, reason = asked(servers, "/batches", batch)
    assert again == 400
    assert reason["msg"].startswith("Duplicate session name: Some(orders)")
    until = time.monotonic() + SECONDS_MAX
    while (state := asked(servers, "/batches/0/state")[1]["state"]) in ("starting", "running"):
        assert time.monotonic() < until
        time.sleep(0.5)
    assert (state, written.read_text()) == ("success", "ran")
    assert "it ran" in asked(servers, "/batches/0/log")[1]["log"]


class Stream:
    """A streaming job behind Livy, as `Livy` sees it."""

    def __init__(self, servers: Servers, folder: Path, name: str, *words: str) -> None:
        self.location, self.options = str(folder / "checkpoint"), {
            "url": servers.exports()["STATESHIFT_LIVY"], "state_dir": str(folder / "state"),
        }  # fmt: skip
        script = folder / "stream.py"
        script.write_text(JOB)
        settings = {"spark.sql.shuffle.partitions": 1, "spark.ui.enabled": False}
        given = {"application": str(script), "arguments": [str(ROOT), "{checkpoint}", *words], "conf": settings}
        self.submission = Submission(f"run-1.{name}", name, self.location, options=given)

    @property
    def livy(self) -> Livy:
        """As another process opens it."""
        opened = open_cluster(ClusterSpec("livy", "livy", self.options), "")
        assert isinstance(opened, Livy)
        return opened

    @property
    def committed(self) -> list[Path]:
        return sorted(Path(self.location, "commits").glob("[0-9]*"))

    def begun(self) -> str:
        """It was submitted and has committed a batch."""
        id = self.livy.submit(self.submission)
        until = time.monotonic() + SECONDS_MAX
        while not self.committed:
            assert self.livy.find(self.submission.tag).state.alive, self.livy.log(self.submission.tag)
            assert time.monotonic() < until, self.livy.log(self.submission.tag)
            time.sleep(0.5)
        return id

    def request(self, **options: Any) -> StopRequest:
        return StopRequest(self.submission.job, self.location, self.submission.tag, 120.0, options)


@pytest.mark.row("IS-6", "IS-15")
def test_a_job_is_submitted_once_found_by_its_tag_and_stopped_between_two_batches(
    servers: Servers, tmp_path: Path
) -> None:
    stream = Stream(servers, tmp_path, "counts")
    assert stream.livy.find(stream.submission.tag).state is JobState.ABSENT
    id = stream.begun()
    assert stream.livy.submit(stream.submission) == id
    assert "handed over True" in stream.livy.log(stream.submission.tag, 200)
    names = [one["name"] for one in asked(servers, "/batches")[1]["sessions"]]
    assert names.count(stream.submission.tag) == 1

    assert stream.livy.stop(stream.request()).state is JobState.FINISHED
    assert asked(servers, f"/batches/{id}")[1]["state"] == "success"  # by itself: what Livy ends it deletes
    committed = stream.committed
    assert len(committed) == len(list(Path(stream.location, "offsets").glob("[0-9]*")))  # nothing is planned
    time.sleep(3)
    assert stream.committed == committed
    assert stream.livy.stop(stream.request()).state is JobState.FINISHED
    assert stream.livy.submit(stream.submission) == id  # it is not started again


@pytest.mark.row("IS-15", "IS-19")
def test_a_job_that_does_not_watch_for_the_marker_is_ended_by_livy(servers: Servers, tmp_path: Path) -> None:
    stream = Stream(servers, tmp_path, "deaf", "deaf")
    stream.begun()
    assert stream.livy.stop(stream.request(graceful_seconds=1)).state is JobState.FINISHED
    time.sleep(1)
    committed = stream.committed
    time.sleep(3)
    assert stream.committed == committed
