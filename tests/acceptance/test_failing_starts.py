"""A real Spark job that fails at its target: the run ends as soon as the job's own exception is
seen, names it, and names the way out; then that way is taken.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import JOBS, Ran, end_jobs, job, stateshift

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# How long `confirm` would wait for a job that says nothing.
CONFIRM_SECONDS = 3600
# How long a command may take on a machine that does a lot else.
COMMAND_SECONDS = 900
# A job that was killed by a scenario that failed must not outlive it.
LOCATIONS = ("checkpoint", "target")


@dataclass(frozen=True)
class Run:
    """A checkpoint that a real Spark has made, input for its next batch, and a run."""

    folder: Path

    def spec(self, how: str, application: Path = JOBS / "failing.py") -> Path:
        arguments = [str(self.folder.parent / "input"), "{checkpoint}", how]
        moved = {
            "job_name": "words",
            "checkpoint_location": str(self.folder / "checkpoint"),
            "remote_location": str(self.folder / "target"),
            "target_cluster": "spark",
            # the file source's log names the input, which stays where it is
            "waive": ["paths-stay"],
            "submit": {
                "application": str(application),
                "arguments": arguments,
                "seconds_max": CONFIRM_SECONDS,
            },
        }
        clusters = {"spark": {"kind": "spark_submit", "master": "local[2]", "kill_seconds": 30}}
        path = self.folder / f"{how}-{application.stem}.json"
        document = {"version": 1, "engine": "spark", "clusters": clusters, "jobs": [moved]}
        path.write_text(json.dumps(document))
        return path

    def fails(self, spec: Path) -> Any:
        """Apply; return the error with which the run ended, long before `confirm` gave up."""
        return self._stateshift("apply", spec, "--yes", "--json", "--workdir", "run", code=7).json

    def resume_finishes(self, *arguments: str | Path) -> None:
        done = self._stateshift("resume", "run", *arguments, "--json")
        assert done.json["state"] == "finished"
        assert (self.folder / "target" / "commits" / "1").exists()

    def rollback_works(self) -> None:
        self._stateshift("rollback", "run", "--yes")
        status = self._stateshift("status", "run", "--json").json
        assert status["state"] == "rolled-back"
        assert not (self.folder / "target" / "commits").exists()
        self._stateshift("verify", "checkpoint", "--deep", "--json")

    def _stateshift(self, *arguments: str | Path, code: int = 0) -> Ran:
        return stateshift(*arguments, cwd=self.folder, code=code, seconds=COMMAND_SECONDS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of one batch in `made`, and `input` with a file that no batch has read."""
    place = tmp_path_factory.mktemp("failing")
    (place / "input").mkdir()
    (place / "input" / "a.txt").write_text("one\ntwo\nthree\n")
    job("failing.py", place / "input", place / "made", "once", cwd=place)
    (place / "input" / "b.txt").write_text("four\n")
    return place


@pytest.fixture
def run(place: Path, request: pytest.FixtureRequest) -> Any:
    folder = place / request.node.name
    shutil.copytree(place / "made", folder / "checkpoint")
    # a checkpoint that was just written may be that of a job that runs
    long_ago = time.time() - 3600
    for path in (folder / "checkpoint").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    yield Run(folder)
    end_jobs(folder, LOCATIONS)


def test_a_query_that_throws_goes_on_with_a_corrected_submit(run: Run) -> None:
    error = run.fails(run.spec("throw"))
    assert "ValueError: no table called orders for batch 1: --password ***" in error["message"]
    assert "hunter22" not in json.dumps(error)
    assert "stateshift rollback" in error["hint"]
    assert "--spec FILE" in error["hint"]
    run.resume_finishes("--spec", run.spec("on"))


def test_a_query_that_throws_is_rolled_back(run: Run) -> None:
    run.fails(run.spec("throw"))
    run.rollback_works()


def test_a_module_that_is_not_there_is_the_submit_s_matter(run: Run) -> None:
    error = run.fails(run.spec("import"))
    assert "ModuleNotFoundError: No module named 'orders_of_another_env" in error["message"]
    assert error["hint"].startswith('correct "submit" in the spec')
    run.resume_finishes("--spec", run.spec("on"))


def test_a_jar_without_the_application_is_the_submit_s_matter(run: Run) -> None:
    jar = run.folder / "empty.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Main-Class: no.such.Orders\n")
    error = run.fails(run.spec("on", jar))
    assert "no.such.Orders" in error["message"]
    assert error["hint"].startswith('correct "submit" in the spec')
    run.resume_finishes("--spec", run.spec("on"))


def test_a_job_that_does_not_fit_its_state_wants_another_application(run: Run) -> None:
    error = run.fails(run.spec("other"))
    assert "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]" in error["message"]
    assert "the application does not fit this state" in error["hint"]
    run.resume_finishes("--spec", run.spec("on"))


def test_a_driver_that_lives_on_without_its_query_is_not_waited_for(run: Run) -> None:
    error = run.fails(run.spec("lost"))
    assert "words is running, but a query of it has ended before it committed" in error["message"]
    assert "[CANNOT_LOAD_STATE_STORE" in error["message"]
    assert "does not exist" in error["message"]
    assert "stateshift rollback" in error["hint"]
    assert "Resuming does not help" in error["hint"]
    run.rollback_works()
