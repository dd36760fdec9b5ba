"""A planned batch, as a real Spark takes it: what is said of its logs, its watermark and its state,
and what becomes of the job (W-1, W-2).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.acceptance.numbered import Numbered
from tests.acceptance.support import stateshift, write_spec
from tests.acceptance.test_numbered_sinks import FED, FILES, brought

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def killed(tmp_path: Path, sink: str = "foreach-batch", provider: str = "hdfs") -> Numbered:
    """A job that died in a batch: its sink has it, and Spark has not committed it."""
    job = Numbered(tmp_path / "job", sink, provider)
    job.feed(0, FED)
    job.die(job.folder / "checkpoint")
    job.feed(FED, FILES)
    return job


def newest(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.name.isdecimal()), key=_number)


def _number(path: Path) -> int:
    return int(path.name)


def without_sidecar(path: Path) -> None:
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def taken_again(job: Numbered, batch: int) -> None:
    """Let the sink know nothing of the batch: its function skips one whose file is there."""
    for path in job.output.glob("*.json"):
        if int(path.stem) == batch:
            path.unlink()


def refusals(checkpoint: Path, tmp_path: Path) -> list[str]:
    told = stateshift("verify", checkpoint, "--deep", "--json", cwd=tmp_path, code=None).json
    return [each["message"] for each in told["findings"] if each["level"] == "refuse"]


@pytest.mark.row("W-2")
def test_without_its_entry_in_the_sources_log_it_fails_as_verify_says(tmp_path: Path) -> None:
    job = killed(tmp_path)
    checkpoint = job.folder / "checkpoint"
    assert refusals(checkpoint, tmp_path) == []
    entry = newest(checkpoint / "sources" / "0")
    assert entry.name == newest(checkpoint / "offsets").name
    entry.unlink()
    without_sidecar(entry)
    (said,) = refusals(checkpoint, tmp_path)
    assert f"sources/0/{entry.name} is missing" in said
    assert f"batch {entry.name} doesn't exist" in job.run(checkpoint)


@pytest.mark.row("W-2")
def test_with_a_higher_watermark_rows_are_dropped_and_verify_refuses(tmp_path: Path) -> None:
    job = killed(tmp_path)
    checkpoint = job.folder / "checkpoint"
    offsets = newest(checkpoint / "offsets")
    later = re.sub(r'(?<="batchWatermarkMs":)\d+', _a_minute_later, offsets.read_text())
    offsets.write_text(later)
    without_sidecar(offsets)
    taken_again(job, int(offsets.name))
    (said,) = refusals(checkpoint, tmp_path)
    assert f"offsets/{offsets.name} has the watermark" in said
    job.run(checkpoint)
    assert job.rows() != job.expected(FILES)


def _a_minute_later(match: re.Match[str]) -> str:
    return str(int(match[0]) + 60_000)


@pytest.mark.row("W-1")
@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_batch_that_a_file_sink_has_without_its_state_is_refused_and_the_job_dies(
    tmp_path: Path, harm: str
) -> None:
    job = killed(tmp_path, "file")
    checkpoint = job.folder / "checkpoint"
    batch = int(newest(checkpoint / "offsets").name)
    state = next(
        path
        for path in sorted(checkpoint.glob(f"state/0/*/{batch + 1}.delta"))
        if path.stat().st_size > 50
    )
    without_sidecar(state)
    if harm == "gone":
        state.unlink()
    else:
        state.write_bytes(state.read_bytes()[:-30])
    assert refusals(checkpoint, tmp_path) == [], "of another sink the batch runs again"
    spec = write_spec(
        tmp_path / "spec.json",
        name="windows",
        checkpoint_location=str(checkpoint),
        remote_location=str(job.folder / "moved"),
        waive=["paths-stay"],
        sink={"kind": "file", "location": str(job.output)},
    )
    words = ("apply", spec, "--yes", "--workdir", tmp_path / "run")
    said = stateshift(*words, cwd=tmp_path, code=4)
    assert "hint:" in said.err and "fork" in said.err
    assert not (job.folder / "moved").exists()
    assert job.run(checkpoint) != ""


@pytest.mark.row("W-1")
def test_where_the_batch_is_taken_again_its_damaged_state_is_no_loss(tmp_path: Path) -> None:
    job = killed(tmp_path)
    checkpoint = job.folder / "checkpoint"
    batch = int(newest(checkpoint / "offsets").name)
    for state in checkpoint.glob(f"state/0/*/{batch + 1}.delta"):
        state.write_bytes(b"")
        without_sidecar(state)
    assert refusals(checkpoint, tmp_path) == []
    taken_again(job, batch)
    assert job.run(checkpoint) == ""
    assert job.rows() == job.expected(FILES)


@pytest.mark.row("W-1")
@pytest.mark.parametrize(
    ("provider", "change"),
    [
        ("hdfs", {"kind": "repartition", "partitions": 5}),
        ("hdfs", {"kind": "convert", "provider": "rocksdb"}),
        ("rocksdb", {"kind": "repartition", "partitions": 2}),
        ("changelog", {"kind": "convert", "provider": "hdfs-backed"}),
    ],
)
def test_a_crash_is_changed_on_the_way_where_the_sink_has_the_batch(
    tmp_path: Path, provider: str, change: dict[str, object]
) -> None:
    job = killed(tmp_path, "file", provider)
    sink = {"kind": "file", "location": str(job.output)}
    brought(tmp_path, job, sink=sink, transform=[change])
    told = json.loads((tmp_path / "spec.json").read_text())
    assert told["jobs"][0]["sink"] == sink
    assert job.run(job.folder / "moved") == ""
    assert job.rows() == job.expected(FILES)
