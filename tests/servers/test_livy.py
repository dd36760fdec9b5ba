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

from tests.servers.streams import SECONDS_MAX, Stream
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.spark]
SHOWN_ON = "Spark, Livy"


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


@pytest.mark.slow
def test_batches_are_told_submitted_watched_and_named_once(
    servers: Servers, tmp_path: Path
) -> None:
    assert asked(servers, "/batches") == (200, {"from": 0, "total": 0, "sessions": []})
    assert asked(servers, "/batches/7") == (404, {"msg": "Session '7' not found."})
    script, written = tmp_path / "job.py", tmp_path / "written"
    script.write_text(
        "import pathlib, sys\nprint('it ran')\npathlib.Path(sys.argv[1]).write_text('ran')\n"
    )
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


def stream_of(servers: Servers, folder: Path, name: str, *words: str) -> Stream:
    """Livy gives a name to one batch at a time, also after it has ended."""
    return Stream("livy", {"url": servers.exports()["STATESHIFT_LIVY"]}, folder, name, *words)


@pytest.mark.slow
@pytest.mark.row("IS-6", "IS-15")
def test_a_job_is_submitted_once_found_by_its_tag_and_stopped_between_two_batches(
    servers: Servers, tmp_path: Path
) -> None:
    stream = stream_of(servers, tmp_path, "counts")
    id = stream.is_submitted_once()
    names = [one["name"].partition("@")[0] for one in asked(servers, "/batches")[1]["sessions"]]
    assert names.count(stream.tag) == 1
    stream.stops_between_two_batches()
    assert (
        asked(servers, f"/batches/{id}")[1]["state"] == "success"
    )  # by itself: what Livy ends it deletes


@pytest.mark.slow
@pytest.mark.row("IS-15", "IS-19")
def test_a_job_that_does_not_watch_for_the_marker_is_ended_by_livy(
    servers: Servers, tmp_path: Path
) -> None:
    stream = stream_of(servers, tmp_path, "deaf", "deaf")
    stream.begun()
    stream.is_ended_without_an_answer()
