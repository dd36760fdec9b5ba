"""Checkpoints that nobody here wrote: those that Spark's own tests restart from, of Spark 2.1 to 4.0."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.cli.support import said
from tests.support.servers import Unavailable, downloads

# Spark's tests want it refused, or read its offset log alone: a Spark before 4.0.0 wrote its schema.
REFUSED = {
    "checkpoint-test-offsetId-commitId-inconsistent": "offsets/3 is missing",
    "checkpoint-version-4.0.0-tws-avro": "a state schema file ends early",
    "checkpoint-version-4.0.0-tws-unsaferow": "a state schema file ends early",
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("spark-tests")
    try:
        (jar,) = downloads.jars("spark-tests").glob("*.jar")
    except Unavailable as reason:
        pytest.skip(f"the tests of Spark cannot be had: {reason}")
    with ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.startswith("structured-streaming/")]
        archive.extractall(folder, names)
    found = [offsets.parent for offsets in sorted(folder.rglob("offsets")) if offsets.is_dir()]
    assert len(found) > 30
    return found


@pytest.mark.slow
@pytest.mark.row("W-2")
def test_what_spark_restarts_from_is_not_refused(checkpoints: list[Path]) -> None:
    refused = {}
    for checkpoint in checkpoints:
        shown = said("verify", str(checkpoint), "--deep", "--json")
        if shown.code:
            refused[checkpoint.name] = shown.out
    assert refused.keys() == REFUSED.keys()
    for name, fact in REFUSED.items():
        assert fact in refused[name]


@pytest.mark.slow
@pytest.mark.row("IS-12")
def test_what_spark_restarts_from_is_copied_with_the_same_state(
    checkpoints: list[Path], tmp_path: Path
) -> None:
    different = []
    for number, checkpoint in enumerate(checkpoints):
        if checkpoint.name in REFUSED or not (checkpoint / "state").exists():
            continue
        target = tmp_path / str(number)
        waived = ("--waive", "old-state", "--waive", "paths-stay", "--waive", "job-stopped")
        moved = said("move", str(checkpoint), "--to", str(target), *waived, "--yes", "--json")
        if moved.code or said("diff", str(checkpoint), str(target), "--json").code:
            different.append((checkpoint.name, moved.code))
    assert different == []
