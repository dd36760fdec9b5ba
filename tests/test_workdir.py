"""The workdir: held by one process, written whole, honest about what is wrong with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateshift.errors import JournalError, PlanError, SpecError, StorageError
from stateshift.formats.marks import TEMPORARY
from stateshift.journal import decode_records
from stateshift.plan import Phase, Plan, phases_of
from stateshift.step import FenceSource
from stateshift.workdir import FileLines, Workdir

ROOT = Path(__file__).resolve().parent.parent
FENCE = FenceSource("halt/fence", "file:///a", ("commits/3",))
PLAN = Plan(
    "o",
    "spark",
    "move",
    "file:///a",
    "file:///b",
    2,
    phases_of(Phase("halt", (FENCE,))),
    (),
    "facts",
)


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    made = Workdir(tmp_path / "w")
    made.create()
    return made


def test_what_is_written_is_read_back_and_no_temporary_file_stays(workdir: Workdir) -> None:
    workdir.write("spec.json", {"a": ["ü", 1, None, "\udc80"]})
    assert workdir.read("spec.json") == {"a": ["ü", 1, None, "\udc80"]}
    assert sorted(path.name for path in workdir.path.iterdir()) == ["jobs", "plans", "spec.json"]


def test_a_directory_that_holds_something_else_is_no_workdir(tmp_path: Path) -> None:
    """Such as the image that is to be moved."""
    (tmp_path / "commits").mkdir()
    (tmp_path / "spec.json").write_text("{}")
    with pytest.raises(SpecError, match=r"--workdir: .* holds commits: it is no workdir"):
        Workdir(tmp_path).create()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commits", "spec.json"]
    (tmp_path / "commits").rmdir()
    Workdir(tmp_path).create()
    Workdir(tmp_path).create()


def test_a_file_that_is_missing_or_damaged_is_named(workdir: Workdir) -> None:
    with pytest.raises(JournalError, match=r"spec\.json is missing"):
        workdir.read("spec.json")
    (workdir.path / "spec.json").write_text('{"a":')
    with pytest.raises(JournalError, match=r"spec\.json is damaged"):
        workdir.read("spec.json")


def test_a_plan_comes_back_and_another_one_in_its_place_is_refused(workdir: Workdir) -> None:
    workdir.write_plan(0, PLAN)
    assert workdir.read_plan(0, PLAN.fingerprint) == PLAN
    with pytest.raises(JournalError, match="not the one that the journal adopted"):
        workdir.read_plan(0, "0" * 32)


def test_a_plan_edited_in_the_workdir_is_refused(workdir: Workdir) -> None:
    workdir.write_plan(0, PLAN)
    place = workdir.path / "plans" / "0.json"
    place.write_text(place.read_text().replace("commits/3", "commits/9"))
    with pytest.raises(PlanError, match="changed by hand"):
        workdir.read_plan(0, PLAN.fingerprint)


def test_a_held_workdir_is_refused_to_everybody_else_and_free_afterwards(workdir: Workdir) -> None:
    with workdir.hold():
        assert workdir.held
        with (
            pytest.raises(JournalError, match=f"held by process {os.getpid()}") as caught,
            workdir.hold(),
        ):
            pass
        assert f"kill -INT {os.getpid()}" in (caught.value.hint or "")
    assert not workdir.held
    with workdir.hold():
        pass


def test_a_holder_that_has_not_said_who_it_is_cannot_be_killed_by_the_hint(
    workdir: Workdir,
) -> None:
    with workdir.hold():
        (workdir.path / "held").write_text("")
        with pytest.raises(JournalError, match="held by another process") as caught, workdir.hold():
            pass
    assert "kill" not in (caught.value.hint or "")


def test_an_exception_lets_go_as_well(workdir: Workdir) -> None:
    with pytest.raises(KeyError), workdir.hold():
        raise KeyError
    assert not workdir.held


def test_lines_are_appended_and_cut(tmp_path: Path) -> None:
    lines = FileLines(tmp_path / "journal")
    assert lines.read() == b""
    lines.append(b"one\n")
    lines.append(b"two\n")
    lines.cut(4)
    assert lines.read() == b"one\n"


FILLS = """
import resource, sys
from pathlib import Path
from stateshift.errors import StorageError
from stateshift.journal import Journal, RunFailed, RunStarted, StepStarted, PlanAdopted
from stateshift.workdir import FileLines
journal = Journal(FileLines(Path(sys.argv[1])))
journal.append(RunStarted(1.0, "r", "0", "s", ("orders",)))
room = Path(sys.argv[1]).stat().st_size + 250
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
try:
    journal.append(RunFailed(2.0, "StorageError", "x" * 999, None, 6))
except StorageError as error:
    print(error.exit_code, error.hint)
journal.append(RunFailed(2.0, "StorageError", "short", None, 6))
"""


def test_a_record_that_does_not_fit_on_the_disk_is_told_and_nothing_is_written_behind_its_torn_line(
    tmp_path: Path,
) -> None:
    """write(2) takes what fits and says so only in its answer."""
    journal = tmp_path / "journal"
    done = subprocess.run(
        [sys.executable, "-c", FILLS, str(journal)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert done.stdout.startswith("6 df -h")
    records, good = decode_records(journal.read_bytes())
    assert good == journal.stat().st_size
    assert [type(record).__name__ for record in records] == ["RunStarted", "RunFailed"]


def test_a_folder_where_the_workdir_cannot_be_is_told_as_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Not a directory"):
        Workdir(tmp_path / "file" / "w").create()


def test_a_folder_without_a_journal_is_no_workdir(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="holds no journal"):
        Workdir(tmp_path).require()


def test_what_a_killed_process_had_half_written_of_its_clusters_goes_as_well(
    workdir: Workdir,
) -> None:
    place = workdir.path / "clusters" / "ours"
    place.mkdir(parents=True)
    (place / f"{TEMPORARY}abc.tmp").write_bytes(b"half")
    (place / "job.exit.tmp").write_bytes(b"of somebody who is still there")
    with workdir.hold():
        assert [path.name for path in place.iterdir()] == ["job.exit.tmp"]
