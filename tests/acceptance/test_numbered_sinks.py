"""A job killed between its sink's commit and Spark's goes on at the target as it does in place (W-1).

Its sink recognises the batch that runs again and does not run its plan, so that nobody writes the batch's state anew.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.acceptance.numbered import Numbered
from tests.acceptance.support import stateshift, write_spec
from tests.support.servers import Unavailable, downloads

pytestmark = pytest.mark.spark

FED = 6  # files before the kill
FILES = 9  # and in the end

SPARK_OF_DELTA = "4.0.5"


def on_delta(folder: Path, sink: str, provider: str, checkpoint_format: int = 1) -> Numbered:
    """The same on the Spark that Delta is made for, where both can be had."""
    try:
        jars = tuple(sorted(downloads.jars("delta-spark-4.0").glob("*.jar")))
        home = downloads.spark(SPARK_OF_DELTA)
    except Unavailable as reason:
        pytest.skip(f"Delta cannot be had: {reason}")
    python = next(above for above in home.parents if (above / "bin" / "python").exists()) / "bin" / "python"
    return Numbered(folder, sink, provider, checkpoint_format, str(python), jars)


def moved_and_in_place(tmp_path: Path, job: Numbered, *more: str) -> None:
    """Kill the job; let it go on at the target, then once more in place from the very same files."""
    here, there = job.folder / "checkpoint", job.folder / "moved"
    job.feed(0, FED)
    job.die(here)
    shutil.copytree(job.folder, tmp_path / "killed")

    spec = write_spec(
        tmp_path / "spec.json", name="windows", checkpoint_location=str(here), remote_location=str(there),
        waive=["paths-stay"],
    )  # fmt: skip
    stateshift("apply", spec, "--yes", "--workdir", tmp_path / "run", cwd=tmp_path)
    stateshift("verify", there, "--deep", cwd=tmp_path)
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
    """Start the job until a start ends well, twice at most, and once more from there. Return the errors.

    Spark 4.1 and later validate after each batch of a foreachBatch that its tasks have committed the state, and fail
    one start of a job that skips a batch, in place as well; the batch is committed by then, and the next start goes on.
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
def test_a_batch_that_foreach_batch_skips_has_its_state_at_the_target(tmp_path: Path) -> None:
    moved_and_in_place(tmp_path, Numbered(tmp_path / "job", "foreach-batch", "hdfs"))


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["rocksdb", "changelog"])
def test_the_same_with_state_in_rocksdb(tmp_path: Path, provider: str) -> None:
    moved_and_in_place(tmp_path, Numbered(tmp_path / "job", "foreach-batch", provider))


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "changelog"])
def test_a_batch_that_a_file_sink_skips_has_its_state_at_the_target(tmp_path: Path, provider: str) -> None:
    moved_and_in_place(tmp_path, Numbered(tmp_path / "job", "file", provider))


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["delta", "delta-batches"])
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "changelog"])
def test_a_batch_that_delta_skips_has_its_state_at_the_target(tmp_path: Path, sink: str, provider: str) -> None:
    moved_and_in_place(tmp_path, on_delta(tmp_path / "job", sink, provider))
