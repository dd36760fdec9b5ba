"""The name that was probably meant: one wording, one measure, in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.suggestion import (
    BEHIND_COLON,
    BRACKETED,
    COMPARED_MAX,
    closest,
    did_you_mean,
    suggest,
)

PACKAGE = Path(__file__).resolve().parents[1] / "stateshift"


@pytest.mark.parametrize(
    ("name", "known", "match"),
    [
        ("ordrs", ["payments", "orders"], "orders"),
        ("ORDERS", ["orders"], "orders"),
        ("Scoer", ["Score", "read"], "Score"),
        ("rol", ["profile", "rollback"], "rollback"),
        ("pay", ["payments-eu", "payments", "pray"], "payments"),
        ("or", ["orders"], None),
        ("x", ["orders"], None),
        ("orders", [], None),
        ("", ["orders"], None),
    ],
)
def test_the_closest_name_is_found_whatever_its_case(
    name: str, known: list[str], match: str | None
) -> None:
    assert closest(name, known) == match


def test_a_suggestion_joins_the_sentence_before_it() -> None:
    assert did_you_mean("ordrs", ["orders"]) == ", did you mean 'orders'?"
    assert did_you_mean("ordrs", ["orders"], BEHIND_COLON) == ": did you mean 'orders'?"
    assert did_you_mean("ordrs", ["orders"], BRACKETED) == " (did you mean 'orders'?)"
    assert did_you_mean("x", ["orders"], BRACKETED) == ""
    assert suggest(None) == ""


def test_names_with_braces_are_no_format() -> None:
    assert did_you_mean("{orders}", ["{order}"]) == ", did you mean '{order}'?"


def test_too_many_names_are_not_compared() -> None:
    many = [f"operator-{number}" for number in range(COMPARED_MAX + 1)]
    assert closest("operator-1", many[:-1]) == "operator-1"
    assert closest("operator-1", many) is None


def test_nobody_else_compares_names() -> None:
    words = ("get_close_matches", ".ratio(", "did you mean ")
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "suggestion.py"]
    found = [
        f"{path.relative_to(PACKAGE)}: {word}"
        for path in files
        for word in words
        if word in path.read_text("utf-8") and path.name != "failing.py"
    ]
    assert not found, "stateshift.suggestion does this: " + ", ".join(found)
