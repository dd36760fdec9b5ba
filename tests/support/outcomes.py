"""What came of each test, kept for the run around pytest (scripts/test.d/running.py).

    STATESHIFT_OUTCOMES=FILE  JSON lines, one a failed test: {"test", "repeatable", "text"}
    STATESHIFT_LEDGER=FILE    tests that stand there, one a line, are left out; those that pass now
                              go to FILE.new

A test is repeatable where it is marked `servers` or `spark`: it stands on a real engine, which has
hiccups of its own. No other test is: where a test of our own code passes the second time, it is
wrong, or the code is.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

REPEATABLE_MARKS = ("servers", "spark")
REPEATABLE = ("repeatable", True)


class Outcomes:
    """Writes both files, in the process that hears of all tests."""

    def __init__(self, outcomes: Path | None, ledger: Path | None) -> None:
        self.outcomes = outcomes
        self.ledger = ledger
        self.failures: dict[str, dict[str, object]] = {}
        self.unfinished: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures[report.nodeid] = {
                "test": report.nodeid,
                "repeatable": REPEATABLE in [tuple(item) for item in report.user_properties],
                "text": full_text(report),
            }
        if not report.passed:
            self.unfinished.add(report.nodeid)
        if report.when == "teardown" and report.nodeid not in self.unfinished:
            self.note_passed(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            text = report.longreprtext
            self.failures[report.nodeid] = {
                "test": report.nodeid,
                "repeatable": False,
                "text": text,
            }

    def note_passed(self, test: str) -> None:
        if self.ledger is None:
            return
        with newly_passed(self.ledger).open("a", encoding="utf-8") as passed:
            passed.write(test + "\n")

    def pytest_sessionfinish(self) -> None:
        if self.outcomes is None:
            return
        lines = [json.dumps(failure) + "\n" for failure in self.failures.values()]
        self.outcomes.write_text("".join(lines), encoding="utf-8")


def full_text(report: pytest.TestReport) -> str:
    """Return what a failed test said and printed, as one text."""
    parts = [f"{report.nodeid}, {report.when}", report.longreprtext]
    for title, content in report.sections:
        parts.append(f"--- {title}\n{content}")
    return "\n".join(parts) + "\n"


def mark_repeatable(items: list[pytest.Item]) -> None:
    """Note on each test whether it may be run a second time; the note travels with its reports."""
    for item in items:
        if any(item.get_closest_marker(mark) for mark in REPEATABLE_MARKS):
            item.user_properties.append(REPEATABLE)


def newly_passed(ledger: Path) -> Path:
    """Return where this run's own go: a worker that is started anew has to leave out the same
    tests as the first.
    """
    return ledger.with_name(ledger.name + ".new")


def passed_before(ledger: Path | None) -> frozenset[str]:
    """Return the tests that stand in the ledger."""
    if ledger is None or not ledger.exists():
        return frozenset()
    return frozenset(ledger.read_text("utf-8").splitlines())
