"""A standalone Spark takes a submission over REST, tells how it goes, and leaves nothing behind."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Servers, group, processes

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]
ENDED = ("FINISHED", "FAILED", "ERROR", "KILLED")
SECONDS_MAX = 300.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("spark"), "spark-b") as servers:
        yield servers


def rest(servers: Servers, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    url = f"{servers.exports()['STATESHIFT_SPARK_B_REST']}/v1/submissions/{path}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return dict(json.loads(response.read()))


def created(servers: Servers, script: Path, *arguments: str) -> dict[str, Any]:
    """A Python file as a driver on the cluster: spark-submit refuses that, its REST server does
    not.
    """
    master = servers.exports()["STATESHIFT_SPARK_B"]
    properties = {
        "spark.app.name": "orders",
        "spark.master": master,
        "spark.submit.deployMode": "cluster",
        "spark.driver.memory": "300m",
    }
    return {
        "action": "CreateSubmissionRequest",
        "clientSparkVersion": "4.3.0",
        "appResource": script.as_uri(),
        "mainClass": "org.apache.spark.deploy.PythonRunner",
        "appArgs": [str(script), "", *arguments],
        "environmentVariables": {},
        "sparkProperties": properties,
    }


def test_a_submission_nobody_made_is_not_known(servers: Servers) -> None:
    assert rest(servers, "status/driver-0")["success"] is False


def test_drivers_are_submitted_over_rest_and_what_a_worker_started_ends_with_it(
    servers: Servers, tmp_path: Path
) -> None:
    short, written = tmp_path / "short.py", tmp_path / "written"
    short.write_text("import pathlib, sys\npathlib.Path(sys.argv[1]).write_text('ran')\n")
    long, at_work = tmp_path / "long.py", tmp_path / "pid"
    long.write_text(
        "import os, pathlib, sys, "
        "time\npathlib.Path(sys.argv[1]).write_text(f'{os.getpid()}\\n')\ntime.sleep(600)\n"
    )
    answer = rest(servers, "create", created(servers, short, str(written)))
    assert answer["success"] is True, answer
    assert rest(servers, "create", created(servers, long, str(at_work)))["success"] is True

    assert until(lambda: ended(servers, answer["submissionId"])) == "FINISHED"
    assert written.read_text() == "ran"
    pid = int(
        until(
            lambda: at_work.exists() and at_work.read_text().endswith("\n") and at_work.read_text()
        )
    )
    worker = servers.place("spark-b").process("worker")
    assert worker is not None
    assert pid in processes.members(worker)
    servers.down("spark-b")
    assert processes.command(pid) == ""
    assert processes.members(worker) == []


def ended(servers: Servers, submission: str) -> str | None:
    state = str(rest(servers, f"status/{submission}")["driverState"])
    return state if state in ENDED else None


def until(happens: Callable[[], Any]) -> Any:
    last = time.monotonic() + SECONDS_MAX
    while not (found := happens()):
        assert time.monotonic() < last
        time.sleep(0.3)
    return found
