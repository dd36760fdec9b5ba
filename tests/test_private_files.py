"""A workdir is its owner's alone, follows no link, and waits for no pipe."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from stateshift.clusters.whole_files import write_whole
from stateshift.errors import StateshiftError
from stateshift.steering import Steering, Throttle
from stateshift.workdir import Workdir

pytestmark = pytest.mark.every_case


def modes_in(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in folder.rglob("*")
    }


def test_folders_are_0700_and_files_0600(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path / "new" / "run")
    workdir.create()
    workdir.lines.append(b"line\n")
    workdir.write("spec.json", {"version": 1})
    workdir.write_page("<html>")
    Steering(workdir.path).throttle(Throttle(1.0))
    write_whole(workdir.jobs / "one.json", b"{}")
    with workdir.hold():
        assert stat.S_IMODE(workdir.path.stat().st_mode) == 0o700
        for name, mode in modes_in(workdir.path).items():
            expected = 0o700 if (workdir.path / name).is_dir() else 0o600
            assert mode == expected, f"{name} has {mode:o}"


def test_a_folder_that_was_made_beforehand_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    shared.chmod(0o750)
    Workdir(shared).create()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o750


ACTIONS: dict[str, tuple[str, Callable[[Workdir], object]]] = {
    "journal read": ("journal", lambda workdir: workdir.lines.read()),
    "journal appended": ("journal", lambda workdir: workdir.lines.append(b"line\n")),
    "journal cut": ("journal", lambda workdir: workdir.lines.cut(0)),
    "journal replaced": (".journal.tmp", lambda workdir: workdir.lines.replace(b"line\n")),
    "spec read": ("spec.json", lambda workdir: workdir.read("spec.json")),
    "spec written": (".spec.json.tmp", lambda workdir: workdir.write("spec.json", {})),
    "page written": (".report.html.tmp", lambda workdir: workdir.write_page("")),
    "held": ("held", lambda workdir: workdir.hold().__enter__()),
    "asked whether held": ("held", lambda workdir: workdir.held),
}
OBSTACLES: dict[str, Callable[[Path, Path], None]] = {
    "pipe": lambda place, _: os.mkfifo(place),
    "endless": lambda place, _: place.symlink_to("/dev/zero"),
    "link": lambda place, elsewhere: place.symlink_to(elsewhere),
    "dangling": lambda place, _: place.symlink_to("nowhere"),
    "loop": lambda place, _: place.symlink_to(place.name),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("obstacle", OBSTACLES.values(), ids=OBSTACLES)
@pytest.mark.parametrize(("name", "action"), ACTIONS.values(), ids=ACTIONS)
def test_what_is_no_file_is_refused_and_nothing_is_written_elsewhere(
    tmp_path: Path,
    name: str,
    action: Callable[[Workdir], object],
    obstacle: Callable[[Path, Path], None],
) -> None:
    workdir = Workdir(tmp_path / "run")
    workdir.create()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"somebody else's")
    obstacle(workdir.path / name, elsewhere)
    with pytest.raises(StateshiftError, match=name.replace(".", r"\.")) as caught:
        action(workdir)
    assert "link" in str(caught.value) or "not a file" in str(caught.value)
    assert elsewhere.read_bytes() == b"somebody else's"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("obstacle", OBSTACLES.values(), ids=OBSTACLES)
@pytest.mark.parametrize("name", ["cutover", "throttle", "stop", "paused"])
def test_a_wish_that_is_no_file_does_not_stop_the_run(
    tmp_path: Path, name: str, obstacle: Callable[[Path, Path], None]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"now")
    steering = Steering(tmp_path)
    steering.folder.mkdir()
    obstacle(steering.folder / name, elsewhere)
    assert steering.wishes().cutover in (None, "ready")


def test_a_linked_folder_in_a_workdir_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    workdir = Workdir(tmp_path / "run")
    workdir.create()
    (workdir.path / "plans").rmdir()
    (workdir.path / "plans").symlink_to(elsewhere)
    with pytest.raises(StateshiftError, match="is a symbolic link"):
        workdir.create()
    with pytest.raises(StateshiftError, match="is a symbolic link"):
        workdir.write("plans/0.json", {})
    assert list(elsewhere.iterdir()) == []
