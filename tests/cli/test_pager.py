"""A pager for what is longer than the screen: at a terminal, for results that are read, and never
where anything else than a person reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_terminal import at_terminal, environment, place, program

__all__ = ["place"]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "spark-4.3.0"
IMAGE = str(GOLDEN / "window-hdfs" / "checkpoint")
LOOK = [sys.executable, "-m", "stateshift", "inspect", IMAGE]
MARKS = {"PAGER": "sed s/^/P:/"}


def shown(*words: str, lines: int = 10, **given: str) -> tuple[list[str], int]:
    """Return the lines that a terminal of so many shows, and the exit code."""
    at = {**environment(), "LINES": str(lines), **given}
    seen, code = at_terminal([*LOOK, *words], Path.cwd(), b"", b"never", at)
    return seen.splitlines(), code


@pytest.mark.parametrize("colours", [{}, {"NO_COLOR": "1"}], ids=["colours", "plain"])
def test_what_is_longer_than_the_screen_goes_through_the_pager(colours: dict[str, str]) -> None:
    lines, code = shown(**MARKS, **colours)
    assert code == 0
    assert [line for line in lines if not line.startswith("P:")] == []
    (head,) = [line for line in lines if "Spark checkpoint at" in line]
    assert ("\x1b[1m" in head) == (not colours)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ((), {"LINES": "100"}),
        (("--json",), {}),
        ((), {"PAGER": "cat"}),
        ((), {"PAGER": ""}),
        ((), {"STATESHIFT_PAGER": ""}),
        ((), {"CI": "1"}),
        ((), {"TERM": "dumb"}),
    ],
)
def test_no_pager_shows_it(words: tuple[str, ...], given: dict[str, str]) -> None:
    lines, code = shown(*words, **{**MARKS, **given})
    assert code == 0
    assert not any(line.startswith("P:") for line in lines)
    assert any("epoch" in line for line in lines)


def test_ours_comes_before_that_of_all_programs() -> None:
    lines, _ = shown(**MARKS, STATESHIFT_PAGER="sed s/^/OURS:/")
    assert all(line.startswith("OURS:") for line in lines)


def test_a_pager_that_is_left_early_or_missing_is_no_failure() -> None:
    lines, code = shown(PAGER="head -n 1")
    assert (len(lines), code) == (1, 0)
    lines, code = shown(PAGER="/nowhere/pager")
    assert code == 0
    assert any("Sources and sinks" in line for line in lines)
    code = shown(PAGER="sh -c 'exit 3'")[1]
    assert code == 0


def test_less_shows_colours_and_leaves_what_it_showed_unless_the_user_says_else() -> None:
    told = "cat > /dev/null; echo $LESS"
    assert shown(PAGER=told)[0] == ["FRX"]
    assert shown(PAGER=told, LESS="M")[0] == ["M"]


def test_nothing_but_a_terminal_gets_a_pager() -> None:
    at = {**environment(), "LINES": "5", **MARKS}
    done = subprocess.run(LOOK, env=at, capture_output=True, text=True, check=True)
    assert "P:" not in done.stdout
    for words in (["--json"], []):
        piped = subprocess.run([*LOOK, *words], env=at, capture_output=True, text=True, check=True)
        assert "P:" not in piped.stdout
    assert json.loads(subprocess.run([*LOOK, "--json"], env=at, capture_output=True).stdout)


def test_a_run_that_has_ended_waits_for_no_pager(place: Path) -> None:
    at = {**environment(), "LINES": "3", **MARKS}
    seen, code = at_terminal([*program(), "apply", "spec.json", "--yes"], place, b"", b"never", at)
    assert code == 0
    assert "finished" in seen
    assert "P:" not in seen
