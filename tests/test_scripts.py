"""What scripts take from the package is there: nothing else runs all of them."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.every_case

ROOT = Path(__file__).resolve().parents[1]


def scripts() -> list[Path]:
    """Of Python, with and without an ending."""
    files = [path for path in sorted((ROOT / "scripts").rglob("*")) if path.is_file()]
    return [
        path
        for path in files
        if path.suffix == ".py" or path.read_bytes()[:22] == b"#!/usr/bin/env python3"
    ]


# What tests import of scripts, by names of their own: folders that they put on Python's path.
IMPORTED = ("bench", "bench/nexmark.d", "demo.d", "readme.d", "servers.d")


def test_what_tests_import_of_scripts_has_names_of_its_own() -> None:
    """Python knows one module of a name: whoever imports it second gets the other folder's."""
    places: dict[str, list[str]] = {}
    for folder in IMPORTED:
        for path in (ROOT / "scripts" / folder).glob("*.py"):
            if path.stem != "main":  # it is run, and not imported
                places.setdefault(path.stem, []).append(folder)
    assert len(places) > 20
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def taken(script: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of ours."""
    for node in ast.walk(ast.parse(script.read_text("utf-8"))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] in ("stateshift", "tests")
        ):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("script", scripts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_script_imports_of_the_package_is_there(script: Path) -> None:
    for module, name in taken(script):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")


def executables() -> list[Path]:
    files = [path for path in sorted((ROOT / "scripts").rglob("*")) if path.is_file()]
    return [path for path in files if os.access(path, os.X_OK)]


def head_of(script: Path) -> str:
    """The first line of its head comment, or of its docstring."""
    second = script.read_text("utf-8").splitlines()[1]
    return second.removeprefix("# ").removeprefix('"""')


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("script", executables(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_that_is_asked_for_help_gives_it_and_does_nothing(script: Path, flag: str) -> None:
    """No environment can be made here: whatever sets itself up first fails."""
    nowhere = {"STATESHIFT_VENV": "/dev/null/venv", "STATESHIFT_NO_INSTALL": "1"}
    done = subprocess.run(
        [str(script), flag],
        cwd=ROOT,
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    assert " ".join(head_of(script).split()) in words
    assert "# rows:" not in words and "pipefail" not in words


def test_a_script_of_bash_shows_its_whole_head_comment() -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / "servers"), "--help"], capture_output=True, text=True, check=True
    )
    assert "./scripts/servers down" in done.stdout and done.stdout.endswith("Linux only.\n")
