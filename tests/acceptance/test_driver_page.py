"""A real driver tells `advise` its cores, and the rates and the state of each of its queries.

STATESHIFT_RECORD=1 writes what it answered to tests/golden/advise.
"""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.formats.spark.metadata import decode_metadata
from tests.acceptance.support import JOBS, wait_until
from tests.acceptance.support import running as started
from tests.cli.support import said

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.row("IF-19", on="Spark"),
]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "advise"
SECONDS_MAX = 300.0
QUERIES = {"": "unnamed", "per region": "named"}


@dataclass
class Running:
    """A driver, its page, and the checkpoints of its queries."""

    checkpoint: Path
    url: str

    def ids(self) -> dict[str, str]:
        return {
            name: decode_metadata((self.checkpoint / folder / "metadata").read_bytes()).id
            for name, folder in QUERIES.items()
        }

    def answer(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as response:
            return json.load(response)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    checkpoint = tmp_path / "checkpoint"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = (JOBS / "told_by_driver.py", checkpoint, port)
    with started(tmp_path / "driver.log", *words):
        folders = [checkpoint / folder / "commits" for folder in QUERIES.values()]

        def has_committed() -> bool:
            return all(len(list(folder.glob("[0-9]*"))) >= 5 for folder in folders)

        wait_until(has_committed, "no batches", SECONDS_MAX, tmp_path)
        yield Running(checkpoint, f"http://127.0.0.1:{port}")


def test_a_real_driver_tells_of_each_of_its_queries(running: Running) -> None:
    if os.environ.get("STATESHIFT_RECORD"):
        record(running)
    ran = said("advise", str(running.checkpoint), "--driver-ui", running.url, "--json")
    assert ran.code == 0, ran.err
    assert len(ran.document) == len(QUERIES)
    for told in ran.document:
        print(told["job"], told["verdict"], told["reasons"])
        (sample, *_) = reversed(told["inputs"]["samples"])
        assert sample["driver_trouble"] == ""
        assert (sample["driver"]["cores"], sample["driver"]["executors"]) == (1, 1)
        assert sample["driver"]["processing_rate"] > 0
        assert sample["driver"]["state_rows"] == 7
        assert sample["driver"]["state_bytes"] > 0
        assert told["inputs"]["cores_from"] == "driver"


def record(running: Running) -> None:
    """Write what the driver answers, without most of its jobs."""
    (application,) = running.answer("/api/v1/applications")
    below = f"/api/v1/applications/{application['id']}"
    version = application["attempts"][0]["appSparkVersion"]
    metrics = running.answer("/metrics/json/")
    answers = {
        "/api/v1/applications": [application],
        f"{below}/executors": running.answer(f"{below}/executors"),
        f"{below}/jobs": running.answer(f"{below}/jobs")[:4],
        "/metrics/json/": {key: metrics[key] for key in ("version", "gauges")},
    }
    plain = {"queries": running.ids(), "answers": answers}
    file = GOLDEN / f"spark-{version}-driver.json"
    file.write_text(json.dumps(plain, indent=1) + "\n")
