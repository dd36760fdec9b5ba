"""What scripts take from the package is there: nothing else runs all of them."""

from __future__ import annotations

import ast
import importlib
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
