"""A real standalone master and its worker run a driver for us, tell how it goes, and end it; also
one whose answer was lost is found, by what its worker shows of its launch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import JobState, StopRequest
from stateshift.specification.model import ClusterSpec
from tests.servers.streams import Stream
from tests.support.servers import Servers, group, processes

pytestmark = [pytest.mark.servers, pytest.mark.spark]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("spark"), "spark-a") as servers:
        yield servers


def stream_of(servers: Servers, folder: Path, *words: str) -> Stream:
    told = servers.exports()
    options = {
        "url": told["STATESHIFT_SPARK_A_REST"],
        "ui_url": told["STATESHIFT_SPARK_A_UI"],
        "settle_seconds": 20,
    }
    stream = Stream("spark_standalone", options, folder, "counts", *words)
    given = {**stream.submission.options, "driver_memory": "512m"}
    given["conf"] = {**dict(given["conf"]), "spark.executor.memory": "512m", "spark.cores.max": 1}  # type: ignore[call-overload]
    stream.submission = replace(stream.submission, options=given)
    return stream


@pytest.mark.slow
@pytest.mark.row("IS-6", "IS-15")
def test_a_job_is_submitted_once_found_by_its_tag_and_stopped_between_two_batches(
    servers: Servers, tmp_path: Path
) -> None:
    stream = stream_of(servers, tmp_path)
    id = stream.is_submitted_once()
    assert id.startswith("driver-")
    assert stream.cluster.version() is not None

    # As if its answer had been lost: nothing but the request is written down.
    (note,) = (tmp_path / "state").glob("*.json")
    plain = json.loads(note.read_text())
    del plain["id"]
    note.write_text(json.dumps(plain))
    assert stream.cluster.submit(stream.submission) == id
    note.unlink()  # and as if somebody else asked, or our notes were lost
    assert stream.cluster.find(stream.tag).id == id
    assert stream.cluster.submit(stream.submission) == id
    note.write_text(json.dumps({**plain, "id": id}))

    stream.stops_between_two_batches()


@pytest.mark.slow
@pytest.mark.row("IS-15", "IS-19")
def test_a_job_that_does_not_watch_for_the_marker_is_ended_by_its_master(
    servers: Servers, tmp_path: Path
) -> None:
    stream = stream_of(servers, tmp_path, "deaf")
    stream.begun()
    spec = ClusterSpec(
        "b", "spark_standalone", {**dict(stream.options), "state_dir": str(tmp_path / "elsewhere")}
    )
    stranger = open_cluster(spec, "")  # knows it by its name alone
    assert stranger.find_source(StopRequest("counts", stream.location)).state is JobState.RUNNING
    stream.is_ended_without_an_answer()
    worker = servers.place("spark-a").process("worker")
    assert worker is not None
    left = [processes.command(pid) for pid in processes.members(worker) if pid != worker.pid]
    assert not [words for words in left if "stream.py" in words]  # Python went with its driver
    assert stranger.find_source(StopRequest("counts", stream.location)).state is JobState.ABSENT
