"""A real job that reads a Delta table reads on in another one: a copy of its files, and a table
that was written anew. What its state holds then is what a batch over all rows computes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.jobs.cloned import ROWS
from tests.acceptance.support import JOBS, environment, stateshift
from tests.support.servers import Unavailable, downloads

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SHOWN_ON = "Spark, Delta"

SPARK_OF_DELTA = "4.0.5"
SECONDS_MAX = 420


def do(folder: Path, *steps: str) -> list[Any]:
    """Let one Spark do these steps. Return what each of them said."""
    try:
        jars = sorted(downloads.jars("delta-spark-4.0").glob("*.jar"))
        home = downloads.spark(SPARK_OF_DELTA)
    except Unavailable as reason:
        pytest.skip(f"Delta cannot be had: {reason}")
    python = next(
        above / "bin" / "python" for above in home.parents if (above / "bin" / "python").exists()
    )
    words = ["--folder", str(folder), "--jars", ",".join(map(str, jars)), *steps]
    done = subprocess.run(
        [str(python), str(JOBS / "cloned.py"), *words],
        cwd=folder,
        env={**environment(), "PYSPARK_PYTHON": str(python)},
        text=True,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def counted(appends: int) -> dict[str, list[int]]:
    ids = range(appends * ROWS)
    own = {f"w{word}": [number for number in ids if number % 3 == word] for word in range(3)}
    return {word: [len(numbers), sum(numbers)] for word, numbers in own.items()}


@pytest.mark.row("W-5")
def test_a_job_reads_on_in_another_delta_table(tmp_path: Path) -> None:
    here = tmp_path / "here"
    said = do(
        tmp_path,
        "append:source:0",
        "run:here:source",
        "append:source:1",
        "run:here:source",
        "ctas:source:anew",
        "append:anew:2",
        "append:anew:3",
    )
    assert said[3] == counted(2)
    shutil.copytree(tmp_path / "source", tmp_path / "copy")
    shutil.copytree(here, tmp_path / "as-it-was")

    where = ("--from-table", tmp_path / "source", "--fork", "--yes", "--json")
    table = ("--table", tmp_path / "anew", "--version", "2")
    too_late = stateshift(
        *("reposition", here, "--to", tmp_path / "late", *table, *where), cwd=tmp_path, code=4
    )
    assert "has 18 records, and" in too_late.out
    table = ("--table", tmp_path / "anew", "--version", "1")
    anew = stateshift(
        *("reposition", here, "--to", tmp_path / "there-anew", *table, *where), cwd=tmp_path
    ).json
    (source,) = anew["sources"]
    assert (source["to"], source["again"], source["skipped"]) == (1, 0, 0)
    table = ("--table", tmp_path / "copy")
    stateshift(*("reposition", here, "--to", tmp_path / "there-copy", *table, *where), cwd=tmp_path)

    said = do(
        tmp_path,
        "append:copy:2",
        "append:copy:3",
        "run:as-it-was:anew",
        "run:there-anew:anew",
        "run:there-copy:copy",
    )
    assert "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE" in said[2]
    assert said[3:] == [counted(4)] * 2
