"""Clusters that remember by files whom they have stopped, and whose files serve several runs: what
one run has stopped may run again when the next one looks.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stateshift.clusters.kind import Contacts, open_cluster
from stateshift.clusters.protocol import JobState, StopRequest
from stateshift.specification.model import ClusterSpec

FAKE = str(Path(__file__).with_name("fake_spark_submit.sh"))
SLEEPS = "import time; print('up', flush=True); time.sleep(600)"

Options = dict[str, object]


def _manual(shared: Path) -> Options:
    return {"marker_dir": str(shared)}


def _command(shared: Path) -> Options:
    return {"state_dir": str(shared), "submit": "true", "stop": "true"}


def _spark_submit(shared: Path) -> Options:
    return {"state_dir": str(shared), "spark_submit": FAKE, "master": "yarn"}


@contextmanager
def _job(location: str) -> Iterator[None]:
    """A driver on this machine, which somebody has started."""
    named = {"STATESHIFT_JOB": "orders", "STATESHIFT_CHECKPOINT": location}
    command = ["python3", "-c", SLEEPS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env={**os.environ, **named}, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("manual", _manual), ("command", _command), ("spark_submit", _spark_submit)],
    ids=["manual", "command", "spark_submit"],
)
def test_what_another_run_has_stopped_is_not_known_to_be_stopped(
    tmp_path: Path, kind: str, options: Callable[[Path], Options]
) -> None:
    spec = ClusterSpec("ops", kind, options(tmp_path / "shared"))
    one, other = (
        open_cluster(spec, str(tmp_path / run), Contacts(ask=lambda question: ""))
        for run in ("one", "other")
    )
    location = str(tmp_path / "image")
    request = StopRequest("orders", location, None, 5.0, {"graceful_seconds": 0.1})
    if kind == "spark_submit":
        with _job(location):
            stopped = one.stop(request)
    else:
        stopped = one.stop(StopRequest("orders", location))
    assert stopped.state is JobState.FINISHED
    assert one.find_source(request).state is JobState.FINISHED, "who repeats the stop knows it"
    assert other.find_source(request).state is JobState.UNKNOWN
