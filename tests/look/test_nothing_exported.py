"""No export of zero entries where there is state (real images of both engines, whole and without
their commits).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift import look
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.errors import PlanError
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden as flink
from tests.formats.golden import CASES, IDS
from tests.look.golden_images import HERE, contents, disk_with
from tests.support.checkpoints import Checkpoint

STATES = [case for case in CASES if (case / "checkpoint/state").is_dir()]
ALL = [
    pytest.param(
        case,
        id=IDS[CASES.index(case)],
        marks=() if case.parent.name == "spark-4.3.0" else pytest.mark.slow,
    )
    for case in STATES
]
EVERYTHING = 1 << 40


def exported(disk: MemoryDisk, location: str = HERE, wanted: look.Wanted | None = None) -> int:
    made = look.export(location, "x.jsonl", wanted, disk.open)
    lines = b"".join(made.chunks()).count(b"\n")
    assert made.entries == lines
    return lines


def counted(disk: MemoryDisk) -> int:
    """The entries that `inspect` shows, without a limit."""
    return sum(1 for _ in look.entries(HERE, disk.open, EVERYTHING))


@pytest.mark.parametrize("case", ALL)
def test_every_entry_of_a_checkpoint_is_exported(case: Path) -> None:
    disk = disk_with(contents(case))
    assert exported(disk) == counted(disk) > 0


@pytest.mark.parametrize("case", ALL)
def test_without_commits_the_state_is_exported_or_the_export_refused(case: Path) -> None:
    files = contents(case)
    disk = disk_with({path: files[path] for path in files if not path.startswith("commits/")})
    image = survey.survey(disk.open(HERE)).images[0]
    by_commits = any(path.startswith("commits/") and files[path][:2] != b"v1" for path in files)
    if by_commits and any(finding.level == "refuse" for finding in image.findings):
        with pytest.raises(PlanError):
            exported(disk)
        return
    last = max(int(path.rpartition("/")[2]) for path in files if path.startswith("offsets/"))
    assert image.epoch == last - 1
    assert exported(disk) == counted(disk)
    assert counted(disk) > 0 or case.name == "rate", "its first batch has no rows"


def test_state_of_a_batch_that_nobody_has_finished_is_not_exported_as_nothing() -> None:
    files = Checkpoint(batches=0, planned=True, written=True).files()
    assert any("state/" in path for path in files)
    with pytest.raises(PlanError, match="no batch that is finished"):
        exported(disk_with(files))


def test_state_without_any_log_is_not_exported_as_nothing() -> None:
    files = Checkpoint().files()
    kept = {path: files[path] for path in files if path.startswith(("state/", "metadata"))}
    with pytest.raises(PlanError):
        exported(disk_with(kept))


def test_a_job_that_has_planned_its_first_batch_has_no_state_yet() -> None:
    assert exported(disk_with(Checkpoint(batches=0, planned=True).files())) == 0


@pytest.mark.parametrize("name", flink.NAMES)
def test_a_flink_image_with_state_is_exported_with_entries(name: str) -> None:
    disk = MemoryDisk()
    location = flink.write(disk, name)
    (image,) = flink.looked_at(disk, location)[1].images
    has_state = any(store.bytes for operator in image.operators for store in operator.stores)
    assert (exported(disk, location) > 0) == has_state


# ---- state without a schema


def test_entries_without_a_schema_are_said_to_be_hexadecimal() -> None:
    disk = disk_with(Checkpoint().files())
    made = look.export(HERE, "x.jsonl", None, disk.open)
    assert len(made.notes) == 1
    assert made.notes[0].startswith(
        "operator 0, store default: keys and values are hexadecimal, because the "
        "checkpoint has no schema"
    )
    assert {entry.note for entry in look.entries(HERE, disk.open, 5)} == set(made.notes)


@pytest.mark.parametrize("case", ALL)
def test_hexadecimal_entries_have_a_note_and_others_have_none(case: Path) -> None:
    disk = disk_with(contents(case))
    for entry in look.entries(HERE, disk.open, 3):
        is_hexadecimal = any(
            isinstance(part, dict) and list(part) == ["hex"] for part in (entry.key, entry.value)
        )
        assert is_hexadecimal == (entry.note is not None)
