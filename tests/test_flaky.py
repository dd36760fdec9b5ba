"""Which failed tests are run a second time, and what the run says of it
(scripts/test.d/running.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

# each runs pytest in a process of its own
pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[1]
RUNNING = ROOT / "scripts" / "test.d" / "running.py"

# Fails the first time it is run in a folder, and passes from then on.
FAILS_ONCE = """
import pathlib, pytest

@pytest.mark.{mark}
def test_fails_once():
    marker = pathlib.Path(__file__).with_suffix(".ran")
    if not marker.exists():
        marker.touch()
        raise AssertionError("a hiccup")
"""
FAILS_ALWAYS = """
import pytest

@pytest.mark.{mark}
def test_fails_always():
    raise AssertionError("no hiccup")
"""
PASSES = """
import pathlib

def test_passes():
    marker = pathlib.Path(__file__).with_suffix(".count")
    marker.write_text(marker.read_text() + "x" if marker.exists() else "x")
"""
MANY_CASES = """
import pytest

@pytest.mark.parametrize("case", range(50))
def test_of_many(case):
    pass

@pytest.mark.sample(8)
@pytest.mark.parametrize("case", range(30))
def test_of_a_sample(case):
    pass

@pytest.mark.every_case
@pytest.mark.parametrize("case", range(60))
def test_of_every_case(case):
    pass
"""


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the tests of a folder as scripts/test does; return the exit code and what was printed."""
    (folder / "conftest.py").write_text(
        (ROOT / "tests" / "conftest.py").read_text("utf-8"), "utf-8"
    )
    markers = "\n".join(
        f"    {mark}: for this test"
        for mark in ("servers", "spark", "slow", "own", "row", "sample", "every_case")
    )
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{markers}\n", "utf-8")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("STATESHIFT_")
    }
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(RUNNING), "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("mark", ["servers", "spark"])
def test_a_hiccup_of_a_real_engine_passes_and_is_named_in_the_last_lines(
    tmp_path: Path, mark: str
) -> None:
    (tmp_path / "test_one.py").write_text(FAILS_ONCE.format(mark=mark))
    (tmp_path / "test_two.py").write_text(PASSES)
    code, said = run(tmp_path)
    assert code == 0, said
    assert said.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
    assert "flaky: test_one.py::test_fails_once failed, then passed alone" in said
    assert "a hiccup" in (tmp_path / "build/flaky/1-first.txt").read_text()
    assert "passed" in (tmp_path / "build/flaky/1-second.txt").read_text()
    assert (tmp_path / "test_two.count").read_text() == "x", "what had passed was run again"


def test_with_two_processes_it_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(FAILS_ONCE.format(mark="servers"))
    (tmp_path / "test_two.py").write_text(PASSES)
    code, said = run(tmp_path, "--numprocesses", "2")
    assert code == 0, said
    assert said.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"


def test_no_other_test_is_ever_repeated(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(FAILS_ONCE.format(mark="own"))
    code, said = run(tmp_path)
    assert code == 1
    assert said.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"
    assert "run once more" not in said


def test_a_folder_called_spark_makes_no_test_one_of_a_real_engine(tmp_path: Path) -> None:
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "test_one.py").write_text(FAILS_ONCE.format(mark="own"))
    code, said = run(tmp_path)
    assert code == 1
    assert "run once more" not in said


def test_nothing_is_repeated_beside_a_failure_of_our_own(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(FAILS_ONCE.format(mark="servers"))
    (tmp_path / "test_two.py").write_text(FAILS_ALWAYS.format(mark="own"))
    code, said = run(tmp_path)
    assert code == 1
    assert said.splitlines()[-1] == "0 passed, 2 failed, 0 skipped"


def test_what_fails_twice_has_failed(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(FAILS_ONCE.format(mark="servers"))
    (tmp_path / "test_two.py").write_text(FAILS_ALWAYS.format(mark="servers"))
    code, said = run(tmp_path)
    assert code == 1
    assert said.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
    assert "no hiccup" in (tmp_path / "build/flaky/2-second.txt").read_text()


def test_a_full_run_goes_on_where_it_ended_and_begins_anew_with_other_code(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text(".matrix/\nbuild/\n__pycache__/\n*.count\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "test_one.py").write_text(FAILS_ALWAYS.format(mark="slow"))
    (tmp_path / "test_two.py").write_text(PASSES)
    first, _ = run(tmp_path, "--full")
    second, said = run(tmp_path, "--full")
    assert (first, second) == (1, 1)
    assert (tmp_path / "test_two.count").read_text() == "x", said
    page = tmp_path / "tests" / "full.md"
    assert "| test_two.py | 1 | 0 |" in page.read_text()
    assert "| test_one.py | 0 | 1 |" in page.read_text()
    (tmp_path / "test_one.py").write_text(PASSES)
    third, said = run(tmp_path, "--full", "test_one.py")
    assert third == 0, said
    assert "| test_one.py | 1 | 0 |" in page.read_text()
    assert "| test_two.py | 1 | 0 |" in page.read_text(), "the row of a file that has not run stays"
    fourth, said = run(tmp_path, "--full")
    assert fourth == 0, said
    assert (tmp_path / "test_two.count").read_text() == "xx", "other code: it is run again"


def test_the_quick_run_leaves_out_what_needs_an_engine(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(FAILS_ALWAYS.format(mark="servers"))
    (tmp_path / "test_two.py").write_text(FAILS_ALWAYS.format(mark="spark"))
    (tmp_path / "test_three.py").write_text(PASSES)
    code, said = run(tmp_path, "--quick")
    assert code == 0, said
    assert said.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


def test_the_list_names_tests_that_are_there() -> None:
    for name in re.findall(
        r"^\| `([^`]+)`", (ROOT / "tests" / "flaky.md").read_text("utf-8"), re.MULTILINE
    ):
        file, _, test = name.partition("::")
        assert f"def {test.split('[')[0]}" in (ROOT / file).read_text("utf-8"), name


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ((), 20 + 8 + 60),
        (("--quick",), 2 + 2 + 2),
        (("--numprocesses", "2"), 20 + 8 + 60),
        ([f"test_many.py::test_of_a_sample[{case}]" for case in range(10)], 10),
    ],
    ids=["default", "quick", "two processes", "by name"],
)
def test_of_many_cases_some_are_run(tmp_path: Path, arguments: Sequence[str], passed: int) -> None:
    (tmp_path / "test_many.py").write_text(MANY_CASES)
    code, said = run(tmp_path, *arguments)
    assert code == 0, said
    assert said.splitlines()[-1] == f"{passed} passed, 0 failed, 0 skipped"


def test_a_full_run_runs_all_cases(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "test_many.py").write_text(MANY_CASES)
    (tmp_path / "tests").mkdir()
    code, said = run(tmp_path, "--full")
    assert code == 0, said
    assert said.splitlines()[-1] == "140 passed, 0 failed, 0 skipped"
