"""A job goes back to an earlier batch beside a sink that knows batches by number, and ends with the
sink that a job has which was never interrupted (W-1): under new numbers, or in a fork. What the
sink has of the batches since is taken back as the plan says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import Numbered
from tests.acceptance.support import last_number, stateshift, write_spec
from tests.acceptance.test_numbered_sinks import on_delta, on_iceberg

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FED, MORE, FILES = 6, 8, 9  # files before the rewind, until the next run, and in the end
BACK_TO = 2

RENUMBERED = {"transform": [{"kind": "rewind", "batch": BACK_TO, "renumber": True}]}
IN_A_FORK = {"transform": [{"kind": "rewind", "batch": BACK_TO}], "mode": "fork"}


def gone_back(tmp_path: Path, job: Numbered, keys: dict[str, Any]) -> dict[str, Any]:
    """Bring the job back to the batch. Return the finding of the plan that says what to take
    back from the sink.
    """
    here, there = job.folder / "checkpoint", job.folder / "there"
    spec = write_spec(
        tmp_path / "spec.json",
        name="windows",
        checkpoint_location=str(here),
        remote_location=str(there),
        waive=["paths-stay"],
        **keys,
    )
    plan = stateshift("plan", spec, "--json", cwd=tmp_path).json
    stateshift("apply", spec, "--yes", "--workdir", tmp_path / "run", cwd=tmp_path)
    stateshift("verify", there, "--deep", cwd=tmp_path)
    finding: dict[str, Any] = next(
        one for one in plan["findings"] if "goes back from batch" in one["message"]
    )
    return finding


def goes_on(job: Numbered, restore: int | None = None) -> None:
    """Run it twice, each time with more input, and once without any."""
    there = job.folder / "there"
    job.feed(FED, MORE)
    assert job.run(there, restore) == ""
    assert job.rows() == job.expected(MORE)
    job.feed(MORE, FILES)
    assert job.run(there) == ""
    assert job.rows() == job.expected(FILES)
    assert job.run(there) == ""
    assert job.rows() == job.expected(FILES)


def started(job: Numbered) -> int:
    """Let the job read its first files. Return the number of its newest batch."""
    job.feed(0, FED)
    assert job.run(job.folder / "checkpoint") == ""
    return last_number(job.folder / "checkpoint" / "commits")


def version_in(hint: str, word: str) -> int:
    (version,) = re.findall(rf"{word} (\d+)", hint)
    return int(version)


# ---- Delta


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "changelog"])
def test_beside_delta_a_rewind_under_new_numbers_and_restore_end_with_the_same_table(
    tmp_path: Path, provider: str
) -> None:
    job = on_delta(tmp_path / "job", "delta", provider)
    newest = started(job)
    sink = {"kind": "delta", "location": str(job.output)}
    finding = gone_back(tmp_path, job, {**RENUMBERED, "sink": sink})
    assert last_number(job.folder / "there" / "commits") == newest
    goes_on(job, version_in(finding["hint"], "AS OF"))


def test_beside_delta_a_rewind_in_a_fork_and_restore_end_with_the_same_table(
    tmp_path: Path,
) -> None:
    job = on_delta(tmp_path / "job", "delta", "hdfs")
    started(job)
    finding = gone_back(
        tmp_path, job, {**IN_A_FORK, "sink": {"kind": "delta", "location": str(job.output)}}
    )
    goes_on(job, version_in(finding["hint"], "AS OF"))


def test_a_batch_that_delta_has_and_spark_has_not_committed_gives_its_number_away(
    tmp_path: Path,
) -> None:
    job = on_delta(tmp_path / "job", "delta", "hdfs")
    job.feed(0, FED)
    killed = job.die(job.folder / "checkpoint")
    keys = {"transform": [{"kind": "rewind", "batch": killed - 1, "renumber": True}]}
    finding = gone_back(
        tmp_path, job, {**keys, "sink": {"kind": "delta", "location": str(job.output)}}
    )
    assert last_number(job.folder / "there" / "commits") == killed
    goes_on(job, version_in(finding["hint"], "AS OF"))


# ---- Iceberg


@pytest.mark.parametrize("keys", [RENUMBERED, IN_A_FORK], ids=["renumbered", "fork"])
def test_beside_iceberg_a_rewind_and_a_rollback_end_with_the_same_table(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    job = on_iceberg(tmp_path / "job", "hdfs")
    started(job)
    sink = {"kind": "iceberg", "location": str(job.output / "db" / "rows")}
    finding = gone_back(tmp_path, job, {**keys, "sink": sink})
    goes_on(job, version_in(finding["hint"], "snapshot"))


# ---- a file sink, and a function that goes by numbers


def emptied(job: Numbered, newest: int) -> None:
    """What the plan says of a file sink: of each entry since, the first line alone."""
    log = job.output / "_spark_metadata"
    for batch in range(BACK_TO + 1, newest + 1):
        entry = log / str(batch)
        entry.write_text(entry.read_text().splitlines()[0])
        (log / f".{batch}.crc").unlink(missing_ok=True)


def removed(job: Numbered, newest: int) -> None:
    for batch in range(BACK_TO + 1, newest + 1):
        (job.output / f"{batch:06}.json").unlink()


@pytest.mark.parametrize(
    ("sink", "provider", "checkpoint_format", "clear"),
    [
        ("file", "hdfs", 1, emptied),
        ("file", "changelog", 1, emptied),
        ("foreach-batch", "rocksdb", 2, removed),
        ("foreach-batch", "changelog", 2, removed),
    ],
)
def test_beside_a_sink_that_goes_by_numbers_alone(
    tmp_path: Path,
    sink: str,
    provider: str,
    checkpoint_format: int,
    clear: Callable[[Numbered, int], None],
) -> None:
    job = Numbered(tmp_path / "job", sink, provider, checkpoint_format)
    newest = started(job)
    named = {"kind": "file", "location": str(job.output)}
    keys = {**RENUMBERED, "sink": named} if sink == "file" else RENUMBERED
    finding = gone_back(tmp_path, job, keys)
    assert f"which ends with batch {BACK_TO}" not in json.dumps(finding)
    clear(job, newest)
    goes_on(job)


def test_a_file_sinks_log_is_compacted_behind_a_rewind_under_new_numbers(tmp_path: Path) -> None:
    """Spark compacts it at batches 9, 19, ...: every entry before must be there."""
    job = Numbered(tmp_path / "job", "file", "hdfs")
    newest = started(job)
    gone_back(tmp_path, job, {**RENUMBERED, "sink": {"kind": "file", "location": str(job.output)}})
    emptied(job, newest)
    job.feed(FED, FED + 6)
    assert job.run(job.folder / "there") == ""
    assert list((job.output / "_spark_metadata").glob("[0-9]*.compact"))
    assert job.rows() == job.expected(FED + 6)
