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


@pytest.mark.long
def test_the_projects_own_table_is_read_whole() -> None:
    lines = (ROOT / "tests" / "rows.md").read_text("utf-8").splitlines()
    table = [line for line in lines if line.startswith("| ") and not line.startswith("| id ")]
    assert len(told()["rows"]) == len(table) > 90


@pytest.mark.long
def test_no_test_names_a_row_that_the_table_does_not_have() -> None:
    assert told()["unknown"] == []


@pytest.mark.long
def test_open_rows_are_those_that_lack_a_place_they_name() -> None:
    everything, still_open = told()["rows"], told("--open")["rows"]
    assert [row["id"] for row in still_open] == [row["id"] for row in everything if row["missing"]]


def missing(rows: ModuleType, shown_on: str, *places: str) -> tuple[str, ...]:
    """What a row of these places lacks, if its tests ran at those."""
    table = [rows.Row("A-1", "one thing", shown_on, "First paper")]
    found = [rows.Mention("A-1", "t", (place,)) for place in places]
    return tuple(rows.shown(table, found)[0].missing)


@pytest.mark.parametrize(
    ("shown_on", "places", "lacks"),
    [
        ("model, Spark", ("model",), ("Spark",)),
        ("model, Spark", ("model", "Spark"), ()),
        ("Spark", ("Flink",), ("Spark",)),
        ("benchmark", ("model",), ("benchmark",)),
        ("spec", ("any",), ()),
        ("spec, HDFS", ("any",), ("HDFS",)),
        ("report", (), ("report",)),
    ],
)
def test_a_row_is_shown_once_each_place_that_it_names_has_a_test(
    rows: ModuleType, shown_on: str, places: tuple[str, ...], lacks: tuple[str, ...]
) -> None:
    assert missing(rows, shown_on, *places) == lacks


def test_where_a_test_ran_is_said_by_its_marker_its_module_or_its_folder(rows: ModuleType) -> None:
    marked = 'import pytest\n@pytest.mark.row("A-1", on="Spark, HDFS")\ndef test_it(): ...\n'
    plain = 'import pytest\n@pytest.mark.row("A-1")\ndef test_it(): ...\n'

    def on(source: str, path: str) -> tuple[str, ...]:
        (mention,) = rows.mentions_in_test(source, path)
        return tuple(mention.on)

    assert on(plain, "tests/models/test_x.py") == ("model",)
    assert on(plain, "tests/servers/test_flink_moves.py") == ("Flink",)
    assert on(plain, "tests/cli/test_x.py") == ("any",)
    assert on(f'{plain}SHOWN_ON = "Delta"\n', "tests/models/test_x.py") == ("Delta",)
    assert on(f'{marked}SHOWN_ON = "Delta"\n', "tests/models/test_x.py") == ("Spark", "HDFS")


def test_a_script_s_comment_may_say_on_what_it_ran(rows: ModuleType) -> None:
    comments = "# rows: A-1, A-2 (on benchmark, HDFS)\n# rows: B-3\n"
    found = [match.groups() for match in rows.COMMENT.finditer(comments)]
    assert found == [("A-1, A-2", "benchmark, HDFS"), ("B-3", None)]
