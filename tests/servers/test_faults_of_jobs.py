"""Jobs that do not go on where their state was moved to, on real Sparks behind each kind of
cluster: told as a fault of the cluster, with the job and the end of its log; `rollback` then starts
the old job again, from its untouched state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.acceptance.support import stateshift
from tests.servers.streams import SECONDS_MAX, Stream
from tests.support.servers import group

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

# Spark hands on what a driver in Python prints in a thread that it does not wait for when that
# ends.
DIES = "import time\nprint('no orders here', flush=True)\ntime.sleep(2)\nraise SystemExit(1)\n"
HANGS = "import time\nprint('looking for orders', flush=True)\ntime.sleep(600)\n"
SMALL = {"spark.executor.memory": "512m", "spark.cores.max": 1}


@dataclass(frozen=True)
class Ground:
    """A job that runs on a cluster of some kind, in a folder."""

    stream: Stream
    kind: str
    folder: Path

    @property
    def moved(self) -> Path:
        return self.folder / "moved"

    def spec(self, application: Path, seconds_max: float) -> Path:
        """The same job, somewhere else and of another application; back, it is what it was."""
        given = dict(self.stream.submission.options)
        job = {
            "name": self.stream.submission.job,
            "checkpoint_location": self.stream.location,
            "remote_location": str(self.moved),
            "source_cluster": "here",
            "target_cluster": "here",
            "stop": {"tag": self.stream.tag, "seconds_max": 120},
            "source_submit": {**given, "seconds_max": 120},
            "submit": {**given, "application": str(application), "seconds_max": seconds_max},
        }
        clusters = {"here": {"kind": self.kind, **self.stream.options}}
        path = self.folder / "spec.json"
        path.write_text(
            json.dumps({"version": 1, "engine": "spark", "clusters": clusters, "jobs": [job]})
        )
        return path

    def fails(self, application: Path, seconds_max: float = 120) -> Any:
        told = stateshift(
            "apply",
            self.spec(application, seconds_max),
            "--yes",
            "--workdir",
            self.folder / "run",
            "--json",
            cwd=self.folder,
            code=7,
        ).json
        assert "counts" in json.dumps(told)
        assert "was started again where it was" in told["hint"]
        assert f"stateshift resume {self.folder / 'run'}" in told["hint"]
        return told

    def is_refused(self, application: Path) -> None:
        """Before anything is done: the job runs on, and there is nothing to take back."""
        refusal = stateshift(
            "apply",
            self.spec(application, seconds_max=120),
            "--yes",
            "--workdir",
            self.folder / "run",
            "--json",
            cwd=self.folder,
            code=2,
        ).json
        assert refusal["complaints"][0]["pointer"] == "/jobs/0/submit/application"
        assert refusal["complaints"][0]["found"] == str(application)
        self.goes_on()
        assert not self.moved.exists()

    def goes_back(self) -> None:
        """To where the old job was: it goes on there by itself, and a rollback leaves it alone."""
        self.goes_on()
        stateshift("rollback", self.folder / "run", "--yes", cwd=self.folder)
        assert not [path for path in self.moved.rglob("*") if path.is_file()]
        self.goes_on()

    def goes_on(self) -> None:
        """The old job commits what would have been its next batch."""
        committed = {path.name for path in self.stream.committed}
        until = time.monotonic() + SECONDS_MAX
        while {path.name for path in self.stream.committed} <= committed:
            assert time.monotonic() < until, "the old job does not go on"
            time.sleep(0.5)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Options of a cluster of a kind, whose servers are started when it is first asked for."""
    with ExitStack() as stack:
        made: dict[str, dict[str, Any]] = {"spark_submit": {"master": "local[1]"}}

        def options(kind: str) -> dict[str, Any]:
            if kind not in made:
                name = "livy" if kind == "livy" else "spark-a"
                told = stack.enter_context(group(tmp_path_factory.mktemp(kind), name)).exports()
                made[kind] = (
                    {"url": told["STATESHIFT_LIVY"]}
                    if kind == "livy"
                    else {
                        "url": told["STATESHIFT_SPARK_A_REST"],
                        "ui_url": told["STATESHIFT_SPARK_A_UI"],
                    }
                )
            return made[kind]

        yield options


@pytest.fixture(
    params=[
        "spark_submit",
        pytest.param("spark_standalone", marks=pytest.mark.slow),
        pytest.param("livy", marks=pytest.mark.slow),
    ]
)
def ground(request: pytest.FixtureRequest, clusters: Any, tmp_path: Path) -> Iterator[Ground]:
    kind = str(request.param)
    # Each under a name of its own: Livy keeps those of all its batches.
    stream = Stream(kind, clusters(kind), tmp_path, f"counts-{uuid4().hex[:6]}")
    if kind == "spark_standalone":
        given = {**stream.submission.options, "driver_memory": "512m"}
        given["conf"] = {**dict(given["conf"]), **SMALL}  # type: ignore[call-overload]
        stream.submission = replace(stream.submission, options=given)
    marks = Path(stream.location, "_stateshift")
    try:
        stream.begun()
        yield Ground(stream, kind, tmp_path)
    finally:
        marks.mkdir(parents=True, exist_ok=True)
        (marks / "stop").touch()  # whatever still runs of it


@pytest.mark.row("W-26", on="Spark")
def test_a_job_that_dies_at_once_is_told_with_its_log_and_the_old_one_goes_on(
    ground: Ground, tmp_path: Path
) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    told = ground.fails(tmp_path / "dies.py")
    assert "before it committed a batch" in told["message"]
    assert "no orders here" in told["message"]
    ground.goes_back()


@pytest.mark.slow
def test_an_application_that_is_not_there_is_told_with_its_name(
    ground: Ground, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere.py"
    if ground.kind == "spark_submit":  # a file on this machine: known before the job is stopped
        ground.is_refused(nowhere)
        return
    told = ground.fails(nowhere)
    assert "nowhere.py" in told["message"]
    ground.goes_back()


@pytest.mark.slow
def test_a_job_that_does_not_commit_in_time_is_told_with_its_log(
    ground: Ground, tmp_path: Path
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    told = ground.fails(tmp_path / "hangs.py", seconds_max=20)
    assert "has committed nothing in 20 s" in told["message"]
    assert "looking for orders" in told["message"]
    ground.goes_back()
