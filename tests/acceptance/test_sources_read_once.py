"""A plan says beforehand what a stop loses of a source that cannot be read a second time: of a job
that a real Spark has fed from a socket.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.support import job, stateshift, write_spec

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LINES = 6


class Sends(socketserver.BaseRequestHandler):
    """Send the lines, and keep the connection until the other side is gone."""

    def handle(self) -> None:
        self.request.sendall(b"".join(b"line %d\n" % (number % 3) for number in range(LINES)))
        while self.request.recv(1024):
            pass


@pytest.fixture
def port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Sends) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.row("T-21")
def test_a_plan_warns_of_input_that_a_stop_would_lose(port: int, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    job("from_socket.py", str(port), checkpoint, str(LINES), cwd=tmp_path)
    spec = write_spec(
        tmp_path / "move.json",
        name="lines",
        checkpoint_location=str(checkpoint),
        remote_location=str(tmp_path / "new"),
    )
    planned = stateshift("plan", spec, "--json", cwd=tmp_path).json
    told = [
        finding for finding in planned["findings"] if "cannot be read again" in finding["message"]
    ]
    assert [finding["level"] for finding in told] == ["warn"]
    assert "input between the last commit and the stop is lost" in told[0]["message"]
    assert "cannot be read again" in stateshift("inspect", checkpoint, cwd=tmp_path).out
