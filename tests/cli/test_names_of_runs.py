"""A run is named by its folder or by its name, wherever its workdir is; and what a hint prints can
be pasted in another directory.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.support import said

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TAKERS = ("status", "resume", "verify", "pause", "cutover", "throttle", "rollback")


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN / "spark-4.3.0/window-hdfs/checkpoint", "orders")
    return tmp_path


def moved(*options: str) -> str:
    ran = said("move", "orders", "--to", "new", "--yes", "--waive", "paths-stay", *options)
    assert ran.code == 0, ran.err
    (name,) = re.findall(r"^run (\S+): ", ran.out, re.MULTILINE)
    return name


@pytest.mark.parametrize("options", [(), ("--workdir", "run"), ("--workdir", "far/away/run")])
def test_a_run_goes_by_its_name_wherever_its_workdir_is(
    ground: Path, options: tuple[str, ...]
) -> None:
    if options:
        Path(".stateshift").mkdir()
    name = moved(*options)
    (row,) = said("runs").out.splitlines()[1:]
    assert row.startswith(f"{name}  finished")
    folder = ground / (options[1] if options else f".stateshift/{name}")
    assert f"workdir  {folder}\n" in said("status", name).out
    for verb in TAKERS:
        more = ("5MB",) if verb == "throttle" else ()
        yes = ("--yes",) if verb == "rollback" else ()
        named, placed = said(verb, name, *more, *yes), said(verb, str(folder), *more, *yes)
        assert named.code == placed.code != 2, (verb, named.err)
        assert "is not the workdir of a run" not in named.err
    assert said("status", name, "--json").document["state"] == "rolled-back"


def test_a_name_that_several_runs_have_is_refused_with_their_folders(ground: Path) -> None:
    name = moved()
    shutil.move(f".stateshift/{name}", ".stateshift/copy")
    shutil.copytree(".stateshift/copy", ".stateshift/copy-2")
    told = said("rollback", name, "--yes")
    assert told.code == 2 and f"2 runs are called {name}: " in told.err
    assert f"{ground}/.stateshift/copy, {ground}/.stateshift/copy-2" in told.err
    assert said("status", "copy-2").code == 0


def test_a_command_of_a_hint_means_the_same_in_another_directory(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved("--workdir", "run")
    shown = said("status", "run")
    commands = re.findall(r"stateshift (verify|rollback) (\S+)", shown.out)
    assert {verb for verb, _ in commands} == {"verify", "rollback"}
    (ground / "elsewhere").mkdir()
    monkeypatch.chdir(ground / "elsewhere")
    for _, workdir in commands:
        assert os.path.isabs(workdir) and said("verify", workdir).code == 0


def test_a_workdir_elsewhere_makes_no_folder_of_workdirs(ground: Path) -> None:
    moved("--workdir", "far/away/run")
    assert sorted(path.name for path in ground.iterdir()) == ["far", "new", "orders"]
    assert "of those elsewhere: stateshift runs DIR" in said("runs").out


def test_a_folder_that_was_removed_is_listed_no_more(ground: Path) -> None:
    Path(".stateshift").mkdir()
    name = moved("--workdir", "run")
    shutil.rmtree("run")
    assert name not in said("runs").out and said("status", name).code == 4
