"""A real job that reads a table of Delta or Iceberg reads on in another one: a copy of its files, and
a table that was written anew. What its state holds then is what a batch over all rows computes.
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
SHOWN_ON = "Spark, Delta, Iceberg"

SPARK_OF_TABLES = "4.0.5"
SECONDS_MAX = 420


def do(folder: Path, kind: str, *steps: str) -> list[Any]:
    """Let one Spark do these steps. Return what each of them said."""
    try:
        jars = sorted(downloads.jars(f"{kind}-spark-4.0").glob("*.jar"))
        home = downloads.spark(SPARK_OF_TABLES)
    except Unavailable as reason:
        pytest.skip(f"{kind} cannot be had: {reason}")
    python = next(
        above / "bin" / "python" for above in home.parents if (above / "bin" / "python").exists()
    )
    words = ["--folder", str(folder), "--jars", ",".join(map(str, jars)), "--format", kind, *steps]
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
        "delta",
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
    table = ("--table", tmp_path / "anew", "--compare-rows")
    anew = stateshift(
        *("reposition", here, "--to", tmp_path / "there-anew", *table, *where), cwd=tmp_path
    ).json
    (source,) = anew["sources"]
    assert (source["to"], source["again"], source["skipped"]) == (1, 0, 0)
    table = ("--table", tmp_path / "copy")
    stateshift(*("reposition", here, "--to", tmp_path / "there-copy", *table, *where), cwd=tmp_path)

    said = do(
        tmp_path,
        "delta",
        "append:copy:2",
        "append:copy:3",
        "run:as-it-was:anew",
        "run:there-anew:anew",
        "run:there-copy:copy",
    )
    assert "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE" in said[2]
    assert said[3:] == [counted(4)] * 2


@pytest.mark.row("W-5")
def test_a_job_reads_on_in_another_iceberg_table_and_in_another_warehouse(tmp_path: Path) -> None:
    said = do(
        tmp_path,
        "iceberg",
        "append:here.db.source:0",
        "run:job:here.db.source",
        "append:here.db.source:1",
        "run:job:here.db.source",
        "ctas:here.db.source:here.db.anew",
        "append:here.db.anew:2",
        "append:here.db.anew:3",
        "copy:here.db.source:there.db.copy",
    )
    assert said[3] == counted(2)
    shutil.copytree(tmp_path / "job", tmp_path / "as-it-was")

    def reposition(to: str, *table: str | Path, code: int = 0) -> Any:
        words = ("reposition", tmp_path / "job", "--to", tmp_path / to, "--fork", "--yes", "--json")
        return stateshift(*words, *table, cwd=tmp_path, code=code)

    anew, old = tmp_path / "here/db/anew", ("--from-table", tmp_path / "here/db/source")
    unknown = reposition("late", "--table", anew, code=4)
    assert "has no snapshot" in unknown.out
    by_files = reposition("late", "--table", anew, *old, code=4)
    assert "no snapshot of" in by_files.out and "has the files of" in by_files.out
    (source,) = reposition("there-anew", "--table", anew, *old, "--compare-rows").json["sources"]
    assert (source["again"], source["skipped"]) == (0, 0)
    copy = tmp_path / "there/db/copy"
    (source,) = reposition("there-copy", "--table", copy).json["sources"]
    assert source["from"] == source["to"]

    said = do(
        tmp_path,
        "iceberg",
        "append:there.db.copy:2",
        "append:there.db.copy:3",
        "run:as-it-was:here.db.anew",
        "run:there-anew:here.db.anew",
        "run:there-copy:there.db.copy",
    )
    assert "Cannot load current offset at snapshot" in said[2]
    assert said[3:] == [counted(4)] * 2
