"""`stateshift live buffer`, as a user types it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import said
from tests.live.buffer.ground import posted, serving


def test_a_buffer_runs_until_it_is_stopped_and_says_where_it_listens(tmp_path: Path) -> None:
    folder = str(tmp_path / "orders")
    words = ["live", "buffer", folder, "--listen", "http://127.0.0.1:0", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "stateshift", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        running = json.loads(process.stdout.readline())
        assert posted(running["listens"][0], b"first")[0] == 200
        seen = said("live", "buffer", folder, "--status", "--json").document
        assert (seen["state"], seen["next"], seen["serves"]) == ("running", 1, running["serves"])
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "what was accepted is written" in err
    stopped = said("live", "buffer", folder, "--status", "--json").document
    assert (stopped["state"], stopped["next"], stopped["serves"]) == ("stopped", 1, None)


def test_readers_are_shown_and_forgotten(tmp_path: Path) -> None:
    with serving(tmp_path, "http") as at_work:
        for number in range(3):
            posted(at_work.running.listens[0], b"%d" % number)
        at_work.buffer.set_position("orders", 1)
        shown = said("live", "buffer", str(tmp_path), "--status")
        assert "records    0 to 2" in shown.out and "orders           1       2" in shown.out
        assert "orders" not in said("live", "buffer", str(tmp_path), "--forget", "orders").out
        again = said("live", "buffer", str(tmp_path), "--forget", "orders")
        assert again.code == 4 and "has no reader orders" in again.err


@pytest.mark.parametrize(
    ("words", "code", "fact"),
    [
        (("--memory", "much"), 2, "'much' is not a size"),
        (("--memory", "1KiB"), 2, "--memory: less than 1 MiB"),
        (("--disk", "1MiB"), 2, "--disk: less than 16 MiB"),
        (("--ack", "never"), 2, "'never' is not one of disk, memory"),
        (("--listen", "udp://127.0.0.1:1"), 2, "is no tcp or http://HOST:PORT"),
        (("--serve", "tcp://127.0.0.1:1"), 2, "is no http://HOST:PORT"),
        (("--listen", "tcp://203.0.113.7:1"), 4, "cannot listen at tcp://203.0.113.7:1"),
        (("--status",), 4, "is no buffer"),
        (("--forget", "x"), 4, "is no buffer"),
    ],
)
def test_what_cannot_run_is_refused(
    tmp_path: Path, words: tuple[str, ...], code: int, fact: str
) -> None:
    ran = said("live", "buffer", str(tmp_path / "orders"), *words)
    assert ran.code == code and fact in ran.err, ran.err
