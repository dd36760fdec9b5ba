"""The verdicts, against what real Sparks did with each pair of old and new code. In memory."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from stateshift.check.spark.compare import compare
from stateshift.check.spark.pair import Pair
from stateshift.check.spark.query import CapturedQuery, StoredQuery, captured_query
from stateshift.check.verdict import CheckedQuery
from tests.check.corpus import CAUTIOUS, CHANGES, HIDDEN, SPARKS_OWN, UNSEEN
from tests.check.playing import GOLDEN, load_captures, stored_at

OUTCOMES: dict[str, list[str]] = json.loads((GOLDEN / "outcomes.json").read_text())
# The verdicts that agree with what Spark did.
AGREES = {
    "right": ("starts",),
    "wrong": ("starts-but",),
    "refused": ("starts-after", "never"),
}


@cache
def captures() -> dict[str, Any]:
    return load_captures()


@cache
def stored(base: str) -> StoredQuery:
    return stored_at(str(GOLDEN / base / "checkpoint"))


def code_of(name: str) -> CapturedQuery:
    return captured_query(captures()[name])


def verdict(name: str, before: bool) -> CheckedQuery:
    base = CHANGES[name].base
    return compare(Pair(code_of(name), stored(base), code_of(base) if before else None))


@pytest.mark.row("W-24")
@pytest.mark.every_case
@pytest.mark.parametrize("name", CHANGES)
def test_a_verdict_agrees_with_spark_where_the_old_code_is_known(name: str) -> None:
    checked = verdict(name, before=True)
    if name in UNSEEN:
        assert (checked.verdict, checked.differences[0].rule) == ("starts", "function")
        return
    allowed = AGREES[OUTCOMES[name][0]]
    if name in CAUTIOUS:
        allowed = ("starts-but",)
    assert checked.verdict in allowed, checked.differences


@pytest.mark.every_case
@pytest.mark.parametrize("name", CHANGES)
def test_a_verdict_agrees_with_spark_by_the_checkpoint_alone(name: str) -> None:
    checked = verdict(name, before=False)
    outcome = OUTCOMES[name][0]
    if name in (*HIDDEN, *UNSEEN):
        assert checked.verdict == "starts", "then it is not hidden: take it from the list"
        assert "expressions" in [each.rule for each in checked.differences]
        return
    allowed = AGREES[outcome]
    if name in CAUTIOUS:
        allowed = ("starts", "starts-but")
    assert checked.verdict in allowed, checked.differences


@pytest.mark.every_case
@pytest.mark.parametrize("name", CHANGES)
def test_sparks_planner_refuses_no_state_that_a_rule_lets_pass(name: str) -> None:
    """Each refusal is found by a rule of ours, which says more than Spark does."""
    checked = verdict(name, before=True)
    told = [each.rule for each in checked.differences]
    assert ("refused" in told) == (name in SPARKS_OWN)


def test_the_page_tells_what_spark_did_with_the_changes_of_its_own_list() -> None:
    page = (GOLDEN.parents[2] / "stateshift" / "check" / "README.md").read_text()
    rows = re.findall(r"^\|.*\| `([^`]+: [^`]+)` \| (\w+) \| `([a-z-]+)` \|$", page, re.MULTILINE)
    assert len(rows) >= 20
    for name, did, said in rows:
        assert (did, said) == (OUTCOMES[name][0], verdict(name, before=True).verdict), name
