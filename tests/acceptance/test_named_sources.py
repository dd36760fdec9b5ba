"""A real job gets names for its sources, which Spark itself gives to no checkpoint that has none;
and reads on when the sources have changed their places.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import JOBS, environment, stateshift, write_records

pytestmark = [pytest.mark.spark]
SHOWN_ON = "Spark"


@contextmanager
def spark_job(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The job, in one Spark for all of its starts."""
    command = [sys.executable, str(JOBS / "named.py")]
    with (folder / "job.log").open("w") as log:
        job = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            assert job.stdout is not None and job.stdout.readline() == "ready\n"
            yield job
        finally:
            job.kill()
            job.wait()


def run(
    job: subprocess.Popen[str],
    checkpoint: Path,
    named: bool,
    *sources: tuple[Any, Path],
    sink: str | None = None,
) -> Any:
    order: dict[str, Any] = {"checkpoint": str(checkpoint), "named": named, "sink": sink}
    order["sources"] = [[name, str(folder)] for name, folder in sources]
    assert job.stdin is not None and job.stdout is not None
    print(json.dumps(order), file=job.stdin, flush=True)
    return json.loads(job.stdout.readline())


def feed(folder: Path, number: int, value: int) -> None:
    rows = [{"key": f"k{row}", "value": value} for row in range(3)]
    write_records(folder / f"{number}.json", rows)


def sums(count: int, total: int) -> dict[str, list[int]]:
    return {f"k{row}": [count, total] for row in range(3)}


@pytest.mark.row("W-25")
def test_a_checkpoint_without_names_gets_them_and_the_job_goes_on_by_name(tmp_path: Path) -> None:
    orders, returns, here = tmp_path / "orders", tmp_path / "returns", tmp_path / "here"
    feed(orders, 0, 1)
    feed(returns, 0, 10)
    with spark_job(tmp_path) as job:
        assert run(job, here, False, (None, orders), (None, returns)) == sums(2, 11)
        by_itself = run(job, here, True, ("orders", orders), ("returns", returns))
        assert "CANNOT_ENABLE_ON_EXISTING_CHECKPOINT" in by_itself

        more = ("--waive", "paths-stay", "--yes")
        names = ("--source", "0=orders", "--source", "1=returns")
        there = tmp_path / "there"
        stateshift("rename", here, "--to", there, *names, *more, cwd=tmp_path)
        feed(orders, 1, 100)
        feed(returns, 1, 1000)
        exchanged = (("returns", returns), ("orders", orders))
        assert run(job, there, True, *exchanged) == sums(4, 1111)

        again = ("--source", "orders=sales", "--source", "returns=returned")
        last = tmp_path / "last"
        stateshift("rename", there, "--to", last, *again, *more, cwd=tmp_path)
        feed(orders, 2, 10_000)
        renamed = (("returned", returns), ("sales", orders))
        assert run(job, last, True, *renamed) == sums(5, 11_111)
        assert (last / "offsets" / "2").read_text().startswith("v2\n")


@pytest.mark.slow
@pytest.mark.row("W-25")
def test_a_sink_gets_its_names_from_spark_itself_and_keeps_having_one(tmp_path: Path) -> None:
    orders, here = tmp_path / "orders", tmp_path / "here"
    held = {}
    with spark_job(tmp_path) as job:
        for number, sink in enumerate((None, "one", "two")):
            feed(orders, number, 1)
            held = run(job, here, False, (None, orders), sink=sink)
        assert held == sums(3, 3)
        feed(orders, 3, 1)
        assert "non-empty sinkMetadataMap" in run(job, here, False, (None, orders))
    ends = stateshift("inspect", here, "--json", cwd=tmp_path).json["images"][0]["endpoints"]
    sinks = {end["index"]: end["details"]["active"] for end in ends if end["role"] == "sink"}
    assert sinks == {"one": False, "two": True}
