"""A real Spark job that fails at its target: the run ends, says why in Spark's own words, and names what helps."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import JOBS, job, stateshift

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DEADLINE = 900


@dataclass(frozen=True)
class Place:
    """A checkpoint that a real Spark has made, more input for its next batch, and a run."""

    folder: Path

    def spec(self, how: str, name: str = "spec.json") -> Path:
        arguments = [str(self.folder / "input"), "{checkpoint}", how]
        submit = {"application": str(JOBS / "failing.py"), "arguments": arguments, "seconds_max": DEADLINE}
        moved = {
            "job_name": "words", "checkpoint_location": str(self.folder / "checkpoint"),
            "remote_location": str(self.folder / "there"), "target_cluster": "spark", "submit": submit,
        }  # fmt: skip
        clusters = {"spark": {"kind": "spark_submit", "master": "local[2]", "kill_seconds": 30}}
        plain = {"version": 1, "engine": "spark", "clusters": clusters, "jobs": [moved]}
        path = self.folder / name
        path.write_text(json.dumps(plain))
        return path

    def failed(self, how: str) -> Any:
        began = time.monotonic()
        ran = stateshift("apply", self.spec(how), "--yes", "--json", "--workdir", "run", cwd=self.folder, code=7)
        assert time.monotonic() - began < DEADLINE / 2, "it was waited for until its deadline"
        return ran.json

    def goes_on(self, *words: str) -> None:
        """Resumed so, a job is there that has committed its next batch."""
        try:
            done = stateshift("resume", "run", *words, "--json", cwd=self.folder)
            assert done.json["state"] == "finished"
        finally:
            stateshift("rollback", "run", "--yes", "--discard-progress", cwd=self.folder)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.txt").write_text("one\ntwo\nthree\n")
    job("failing.py", tmp_path / "input", tmp_path / "checkpoint", "once", cwd=tmp_path)
    time.sleep(61)  # a checkpoint that was just written may be a job's that runs
    (tmp_path / "input" / "b.txt").write_text("four\n")
    return Place(tmp_path)


def test_a_job_that_throws_at_its_start_goes_on_with_a_corrected_submit(place: Place) -> None:
    error = place.failed("throw")
    assert "before it committed a batch: ValueError: no table called orders: --password ***" in error["message"]
    assert "hunter22" not in json.dumps(error)
    assert "stateshift rollback" in error["hint"] and "--spec FILE" in error["hint"]
    place.goes_on("--spec", str(place.spec("on", "corrected.json")))


def test_a_job_that_does_not_fit_its_state_wants_another_application(place: Place) -> None:
    error = place.failed("other")
    assert "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]" in error["message"]
    assert "the application does not fit this state" in error["hint"]
    place.goes_on("--spec", str(place.spec("on", "corrected.json")))


def test_a_driver_that_lives_on_without_its_query_is_waited_for_no_longer(place: Place) -> None:
    error = place.failed("lost")
    assert "words is running, but a query of it has ended before it committed a batch: " in error["message"]
    assert "[CANNOT_LOAD_STATE_STORE" in error["message"] and "does not exist" in error["message"]
    assert "Resuming does not help" in error["hint"]
    stateshift("rollback", "run", "--yes", cwd=place.folder)
    assert not (place.folder / "there" / "commits").exists()
