"""Two applications read one buffer, as before and after a move: the first is killed, and the second
goes on from its offset. The buffer is killed, too, and started again at another port.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from stateshift.live.buffer.client import Client
from stateshift.live.buffer.runner import look
from tests.acceptance.support import JOBS, running, wait_until
from tests.live.buffer.ground import posted

pytestmark = pytest.mark.spark

SECONDS_MAX = 240.0
OPTIONS = {"value": "string", "maxRecordsPerBatch": "150", "partitions": "2"}
LINES = 500  # of a post, 2 KiB each: more than memory holds


def buffering(folder: Path, name: str) -> list[str]:
    limits = ["--memory", "1MiB", "--disk", "64MiB", "--keep", "0"]
    hook = ["--listen", "http://127.0.0.1:0"]
    return ["-m", "stateshift", "live", "buffer", str(folder / "buffer"), *hook, *limits]


def reading(folder: Path, checkpoint: str) -> list[str]:
    words = {
        "buffer": folder / "buffer",
        "checkpoint": folder / checkpoint,
        "output": folder / "output",
        "reader": "orders",
        "options": json.dumps(OPTIONS),
        "until": folder / f"{checkpoint}.stop",
    }
    flags = [[f"--{name}", str(value)] for name, value in words.items()]
    return [str(JOBS / "buffered.py"), *(word for pair in flags for word in pair)]


def until_running(folder: Path) -> str:
    """Wait for the buffer, and return where it listens."""
    directory = folder / "buffer"
    wait_until(
        lambda: (directory / "buffer.json").exists() and look(directory).running is not None,
        "no buffer",
        SECONDS_MAX,
        folder,
    )
    running = look(directory).running
    assert running is not None
    return running.listens[0]


def rows(folder: Path) -> list[list[object]]:
    """What all batches have put out, in the order of batches."""
    files = sorted((folder / "output").glob("[0-9]*.json"))
    return [row for file in files for row in json.loads(file.read_text())]


def post(hook: str, part: int) -> None:
    """Post so many lines; their first word is their number over all parts."""
    lines = [f"{number} {'x' * 2000}" for number in range(part * LINES, (part + 1) * LINES)]
    for first in range(0, LINES, 5):
        body = "\n".join(lines[first : first + 5]).encode()
        assert posted(hook, body, "/lines")[0] == 200


def until_rows(folder: Path, count: int) -> None:
    wait_until(lambda: len(rows(folder)) >= count, f"no {count} rows", SECONDS_MAX, folder)


@pytest.mark.slow
@pytest.mark.row("T-7", on="Spark")
def test_a_second_application_goes_on_where_a_killed_one_was(tmp_path: Path) -> None:
    with running(tmp_path / "buffer-1.log", *buffering(tmp_path, "1")) as first_buffer:
        hook = until_running(tmp_path)
        post(hook, 0)
        with running(tmp_path / "before.log", *reading(tmp_path, "west")) as before:
            until_rows(tmp_path, 300)
            os.killpg(before.pid, signal.SIGKILL)
            before.wait()
        post(hook, 1)
        os.killpg(first_buffer.pid, signal.SIGKILL)
        first_buffer.wait()
    shutil.copytree(tmp_path / "west", tmp_path / "east")
    with running(tmp_path / "buffer-2.log", *buffering(tmp_path, "2")):
        hook = until_running(tmp_path)
        with running(tmp_path / "after.log", *reading(tmp_path, "east")) as after:
            post(hook, 2)
            until_rows(tmp_path, 3 * LINES)
            (tmp_path / "east.stop").touch()
            assert after.wait(60) == 0
        status = Client(str(tmp_path / "buffer")).status()
    found = rows(tmp_path)
    assert [number for number, _ in found] == list(range(3 * LINES))
    assert [int(str(value).split()[0]) for _, value in found] == list(range(3 * LINES))
    assert status.memory_bytes < status.disk_bytes, "memory did not hold all of it"
    (reader,) = status.readers
    assert reader.name == "orders" and reader.next > 300
