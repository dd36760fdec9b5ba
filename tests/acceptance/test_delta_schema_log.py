"""A real Delta job whose table changes its schema after a move goes on at the target as it would
in place (W-4).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.jobs.tracked import ROWS
from tests.acceptance.support import JOBS, environment, stateshift, write_spec
from tests.support.servers import Unavailable, downloads

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SHOWN_ON = "Spark, Delta"

SPARK_OF_DELTA = "4.0.5"
SECONDS_MAX = 420


@dataclass(frozen=True)
class Tracked:
    """The job of jobs/tracked.py in one folder."""

    folder: Path
    python: Path
    jars: tuple[Path, ...]

    def do(self, *steps: str) -> list[Any]:
        """Let one Spark do these steps. Return what each of them said."""
        words = ["--folder", str(self.folder), "--jars", ",".join(map(str, self.jars)), *steps]
        environ = {**environment(), "PYSPARK_PYTHON": str(self.python)}
        done = subprocess.run(
            [str(self.python), str(JOBS / "tracked.py"), *words],
            cwd=self.folder,
            env=environ,
            text=True,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"[-4000:]
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def job(tmp_path: Path) -> Tracked:
    try:
        jars = tuple(sorted(downloads.jars("delta-spark-4.0").glob("*.jar")))
        home = downloads.spark(SPARK_OF_DELTA)
    except Unavailable as reason:
        pytest.skip(f"Delta cannot be had: {reason}")
    python = next(
        above / "bin" / "python" for above in home.parents if (above / "bin" / "python").exists()
    )
    (tmp_path / "job").mkdir()
    return Tracked(tmp_path / "job", python, jars)


def counted(appends: int) -> list[list[Any]]:
    ids = range(appends * ROWS)
    return [[f"w{word}", sum(number % 3 == word for number in ids)] for word in range(3)]


@pytest.mark.row("W-4")
def test_a_column_renamed_after_the_move_is_one_scheduled_stop_and_no_row_is_lost(
    job: Tracked, tmp_path: Path
) -> None:
    here, there = job.folder / "here", job.folder / "there"
    said = job.do("create", "append:0", f"run:{here}", "append:1", f"run:{here}", "rows")
    assert said[-1] == counted(2)
    shutil.copytree(job.folder, tmp_path / "before")

    spec = write_spec(
        tmp_path / "spec.json",
        name="words",
        checkpoint_location=str(here),
        remote_location=str(there),
        sink={"kind": "delta", "location": str(job.folder / "sink")},
    )
    plan = stateshift("plan", spec, "--json", cwd=tmp_path).json
    (source, sink) = plan["plans"][-1]["endpoints"]
    assert (source["kind"], source["details"]["version"]) == ("delta", 3)
    assert sink["details"]["queries"][0]["last_batch"] == 1
    stateshift("apply", spec, "--yes", "--workdir", tmp_path / "run", cwd=tmp_path)
    stateshift("verify", there, "--deep", cwd=tmp_path)
    changed = job.do(
        "rename", "append:2", *[f"run:{there}"] * 4, "append:3", f"run:{there}", "rows"
    )
    moved = after_the_change(changed)
    assert changed[-1] == counted(4)

    shutil.rmtree(job.folder)
    shutil.copytree(tmp_path / "before", job.folder)
    in_place = job.do("rename", "append:2", *[f"run:{here}"] * 4, "append:3", f"run:{here}", "rows")
    assert after_the_change(in_place) == moved == ["evolution", "ran", "ran", "ran"]


def after_the_change(said: list[Any]) -> list[str]:
    """How the four starts after the change ended."""
    starts = [
        line
        for line in said
        if isinstance(line, str) and (line == "ran" or line.startswith("failed"))
    ][:4]
    return [
        "evolution" if "DELTA_STREAMING_METADATA_EVOLUTION" in start else start for start in starts
    ]
