"""A job killed between its sink's commit and Spark's goes on at the target as it does in place
(W-1).

Its sink recognises the batch that runs again and does not run its plan, so that nobody writes the
batch's state anew.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import Numbered
from tests.acceptance.support import stateshift, write_spec
from tests.support.servers import Unavailable, downloads

pytestmark = pytest.mark.spark
SHOWN_ON = "Spark, Delta"

FED = 6  # files before the kill
FILES = 9  # and in the end

SPARK_OF_TABLES = "4.0.5"  # which Delta 4.0 and Iceberg's runtime for 4.0 are made for


def on_delta(folder: Path, sink: str, provider: str, checkpoint_format: int = 1) -> Numbered:
    """The same on the Spark that Delta is made for, where both can be had."""
    python, jars = on_tables("delta-spark-4.0")
    return Numbered(folder, sink, provider, checkpoint_format, python, jars)


def on_iceberg(folder: Path, provider: str) -> Numbered:
    """The same with an Iceberg table."""
    python, jars = on_tables("iceberg-spark-4.0")
    return Numbered(folder, "iceberg", provider, 1, python, jars)


def on_tables(jars: str) -> tuple[str, tuple[Path, ...]]:
    """Return the Python of the Spark that these jars are made for, and the jars."""
    try:
        fetched = tuple(sorted(downloads.jars(jars).glob("*.jar")))
        home = downloads.spark(SPARK_OF_TABLES)
    except Unavailable as reason:
        pytest.skip(f"{jars} cannot be had: {reason}")
    python = (
        next(above for above in home.parents if (above / "bin" / "python").exists())
        / "bin"
        / "python"
    )
    return str(python), fetched


def moved_and_in_place(tmp_path: Path, job: Numbered, **keys: str) -> None:
    """Kill the job; let it go on at the target, then once more in place from the very same
    files.
    """
    job.feed(0, FED)
    job.die(job.folder / "checkpoint")
    shutil.copytree(job.folder, tmp_path / "killed")
    brought(tmp_path, job, **keys)
    both_go_on(tmp_path, job)


def brought(tmp_path: Path, job: Numbered, **keys: Any) -> None:
    """Bring the job's checkpoint to its target; `keys` are those of the job in the spec."""
    here, there = job.folder / "checkpoint", job.folder / "moved"
    clusters = keys.pop("clusters", {})
    spec = write_spec(
        tmp_path / "spec.json",
        name="windows",
        checkpoint_location=str(here),
        remote_location=str(there),
        waive=["paths-stay"],
        **keys,
    )
    if clusters:
        spec.write_text(json.dumps({**json.loads(spec.read_text()), "clusters": clusters}))
    stateshift("apply", spec, "--yes", "--workdir", tmp_path / "run", cwd=tmp_path)
    stateshift("verify", there, "--deep", cwd=tmp_path)


def both_go_on(tmp_path: Path, job: Numbered) -> None:
    """Start the job at the target, then in place, from its folder as it was kept in `killed`."""
    here, there = job.folder / "checkpoint", job.folder / "moved"
    job.feed(FED, FILES)
    said_there = started(job, there)
    moved = job.rows()

    shutil.rmtree(job.folder)
    shutil.copytree(tmp_path / "killed", job.folder)
    job.feed(FED, FILES)
    said_here = started(job, here)
    assert said_there == said_here
    assert moved == job.rows() == job.expected(FILES)


def started(job: Numbered, checkpoint: Path) -> list[str]:
    """Start the job until a start ends well, twice at most, and once more from there. Return the
    errors.

    Spark 4.1 and later validate after each batch of a foreachBatch that its tasks have committed
    the state, and fail one start of a job that skips a batch, in place as well; the batch is
    committed by then, and the next start goes on.
    """
    said = [job.run(checkpoint)]
    if said[0]:
        said.append(job.run(checkpoint))
    rows = job.rows()
    said.append(job.run(checkpoint))
    assert job.rows() == rows, "there was nothing left to read"
    assert said[1:].count("") == len(said) - 1, said[-1][-4000:] or said[1][-4000:]
    return [re.findall(r"\[([A-Z_.]+)\]", one)[0] for one in said if one]


@pytest.mark.row("W-1")
def test_a_batch_that_a_file_sink_skips_has_its_state_at_the_target(tmp_path: Path) -> None:
    job = Numbered(tmp_path / "job", "file", "hdfs")
    job.feed(0, FED)
    job.die(job.folder / "checkpoint")
    brought(tmp_path, job)
    job.feed(FED, FILES)
    assert job.run(job.folder / "moved") == ""
    assert job.rows() == job.expected(FILES)


@pytest.mark.slow
@pytest.mark.row("W-1")
@pytest.mark.parametrize("sink", ["foreach-batch", "file"])
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "changelog"])
def test_at_the_target_a_skipped_batch_does_what_it_does_in_place(
    tmp_path: Path, sink: str, provider: str
) -> None:
    moved_and_in_place(tmp_path, Numbered(tmp_path / "job", sink, provider))


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["delta", "delta-batches"])
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "changelog"])
def test_a_batch_that_delta_skips_has_its_state_at_the_target(
    tmp_path: Path, sink: str, provider: str
) -> None:
    moved_and_in_place(tmp_path, on_delta(tmp_path / "job", sink, provider))


@pytest.mark.slow
@pytest.mark.row("W-4", on="Iceberg")
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "changelog"])
def test_a_batch_that_iceberg_has_goes_on_at_the_target_as_it_does_in_place(
    tmp_path: Path, provider: str
) -> None:
    """Its plan runs again, over the state that was brought along, and the commit is skipped."""
    moved_and_in_place(tmp_path, on_iceberg(tmp_path / "job", provider))


# ---- a fork, and a move of a job that runs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sink", "provider"),
    [("foreach-batch", "hdfs"), ("foreach-batch", "changelog"), ("file", "hdfs")],
)
def test_a_fork_beside_a_sink_that_goes_by_numbers_has_the_state_of_the_batch(
    tmp_path: Path, sink: str, provider: str
) -> None:
    moved_and_in_place(tmp_path, Numbered(tmp_path / "job", sink, provider), mode="fork")


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["hdfs", "changelog"])
def test_a_fork_runs_the_batch_again_where_the_sink_goes_by_the_query(
    tmp_path: Path, provider: str
) -> None:
    """The state that was brought along is overwritten. The table goes back to the batch before."""
    job = on_delta(tmp_path / "job", "delta", provider)
    job.feed(0, FED)
    killed = job.die(job.folder / "checkpoint")
    brought(tmp_path, job, mode="fork")
    job.feed(FED, FILES)
    assert job.run(job.folder / "moved", restore=job.version_of(killed - 1)) == ""
    assert job.rows() == job.expected(FILES)
    assert job.run(job.folder / "moved") == ""
    assert job.rows() == job.expected(FILES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sink", "provider"),
    [
        *(("foreach-batch", provider) for provider in ("hdfs", "rocksdb", "changelog")),
        ("delta-batches", "hdfs"),
    ],
)
def test_a_warm_move_brings_the_state_of_the_batch_in_which_the_job_was_stopped(
    tmp_path: Path, sink: str, provider: str
) -> None:
    """The cluster stops the job by SIGKILL, between its sink's commit and Spark's."""
    is_delta = sink == "delta-batches"
    job = (on_delta if is_delta else Numbered)(tmp_path / "job", sink, provider)
    job.feed(0, FED)
    with job.waiting(job.folder / "checkpoint") as group:
        shutil.copytree(job.folder, tmp_path / "killed")
        cluster = {
            "kind": "command",
            "find": f"kill -0 {group} 2>/dev/null && echo running {group} || echo absent",
            "stop": [sys.executable, "-c", f"import os; os.killpg({group}, 9)"],
            "submit": "false",
        }
        brought(
            tmp_path,
            job,
            mode="warm",
            source_cluster="ours",
            until="remaining < 60s",
            stop={"seconds_max": 60},
            clusters={"ours": cluster},
        )
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["jobs"][0]["rounds"]
    both_go_on(tmp_path, job)
