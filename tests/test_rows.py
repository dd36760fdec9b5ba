"""scripts/rows tells which capability is shown by which test."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "rows"

TABLE = """
## First paper

| id | row | shown on |
|---|---|---|
| A-1 | one thing | Spark |
| A-2/3 | two things, with a (|| pipe) | model, Spark |

## Second paper
| B-10 | another | benchmark |
"""

TEST_SOURCE = """
import pytest
pytestmark = pytest.mark.row("B-10")

@pytest.mark.row("A-1", "A-3")
def test_plain(): ...

class TestThem:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.row("A-2"))])
    def test_inside(self, x): ...

@pytest.mark.row("Z-9")
def test_stray(): ...
"""


@pytest.fixture(scope="module")
def rows() -> ModuleType:
    loader = SourceFileLoader("rows_script", str(SCRIPT))
    spec = spec_from_loader("rows_script", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["rows_script"] = module
    loader.exec_module(module)
    return module


def told(*arguments: str) -> Any:
    run = subprocess.run(
        [sys.executable, SCRIPT, *arguments, "--json"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_every_line_of_a_table_is_a_row(rows: ModuleType) -> None:
    read = rows.read_rows(TABLE)
    assert [(row.id, row.section) for row in read] == [
        ("A-1", "First paper"),
        ("A-2/3", "First paper"),
        ("B-10", "Second paper"),
    ]
    assert read[1].shown_on == "model, Spark"


def test_a_marker_is_found_on_tests_classes_parameters_and_modules(rows: ModuleType) -> None:
    found = list(rows.mentions_in_test(TEST_SOURCE, "tests/test_x.py"))
    assert {(mention.row, mention.test) for mention in found} == {
        ("B-10", "tests/test_x.py"),
        ("A-1", "tests/test_x.py::test_plain"),
        ("A-3", "tests/test_x.py::test_plain"),
        ("A-2", "tests/test_x.py::TestThem::test_inside"),
        ("Z-9", "tests/test_x.py::test_stray"),
    }


def test_half_of_a_double_row_shows_it_and_an_unknown_row_is_named(rows: ModuleType) -> None:
    table, found = rows.read_rows(TABLE), list(rows.mentions_in_test(TEST_SOURCE, "t"))
    assert [len(row.tests) for row in rows.shown(table, found)] == [1, 2, 1]
    assert [mention.row for mention in rows.strangers(table, found)] == ["Z-9"]


def test_the_projects_own_table_is_read_whole() -> None:
    lines = (ROOT / "tests" / "rows.md").read_text("utf-8").splitlines()
    table = [line for line in lines if line.startswith("| ") and not line.startswith("| id ")]
    assert len(told()["rows"]) == len(table) > 90


def test_no_test_names_a_row_that_the_table_does_not_have() -> None:
    assert told()["unknown"] == []


def test_open_rows_are_those_without_a_test() -> None:
    everything, still_open = told()["rows"], told("--open")["rows"]
    assert [row["id"] for row in still_open] == [
        row["id"] for row in everything if not row["tests"]
    ]
