"""The verdicts, against what real Sparks did with each pair of old and new code. In memory."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stateshift.check.spark.checking import SurveyedCheckpoint
from stateshift.check.spark.compare import compare
from stateshift.check.spark.query import CapturedQuery, Source, StoredQuery, captured_query
from stateshift.check.spark.rules import Pair
from stateshift.check.verdict import Checked, CheckedQuery
from stateshift.cli.views.check_text import verdict_words
from stateshift.documents.check import queries_of
from stateshift.engines.registry import find_image
from stateshift.storage.opening import open_patiently
from tests.check.corpus import CAUTIOUS, CHANGES, HIDDEN, SPARKS_OWN, UNSEEN
from tests.check.outcomes import AGREES, OF_SPARKS, agrees_with_spark, continues, recorded_outcomes
from tests.check.playing import GOLDEN, load_captures, stored_at

OUTCOMES: dict[str, list[str]] = json.loads((GOLDEN / "outcomes.json").read_text())


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
        assert not checked.operators or "expressions" in [each.rule for each in checked.differences]
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("window: stateless", "starts"),
        ("chain: no deduplication", "starts-but"),
        ("within: no longer within", "starts-but"),
        ("chain: aggregation less", "never"),
        ("window: a key more", "never"),
    ],
)
def test_spark_3_kept_no_names_of_operators_and_spark_4_does_not_miss_them(
    name: str, expected: str
) -> None:
    old = stored(CHANGES[name].base)
    unnamed = tuple(replace(operator, name=None) for operator in old.operators)
    code = replace(code_of(name), refused=None)  # by the names
    checked = compare(Pair(code, replace(old, operators=unnamed)))
    assert checked.verdict == expected, checked.differences


def test_code_that_starts_after_a_command_and_would_then_compute_something_wrong_says_both() -> (
    None
):
    more, longer = code_of("window: an aggregate more"), code_of("window: longer")
    (operator,), (windows,) = more.operators, longer.operators
    code = replace(more, operators=(replace(operator, windows=windows.windows),))
    both = compare(Pair(code, stored("window")))
    never = replace(both, verdict="never")

    def words(query: CheckedQuery) -> str:
        (facts,) = queries_of(Checked("file:///orders", "job.py", "spark", "4.3.0", (query,)))
        return verdict_words(facts)

    assert words(both) == "starts after 1 command, but not from the state that it expects"
    assert words(never) == "never starts"
    waived = compare(Pair(code, stored("window")), ("window-length",))
    assert words(waived) == "starts after 1 command"


def test_a_folder_of_files_that_lacks_the_newest_batch_is_not_the_sink_of_the_state(
    tmp_path: Path,
) -> None:
    location = f"file://{GOLDEN}/stateless/checkpoint"
    _, storage, survey = find_image(location, open_patiently)
    checkpoint = SurveyedCheckpoint(location, storage, survey, lambda _: ())
    place, epoch = tmp_path / "out", survey.images[0].epoch
    assert epoch is not None
    found = [checkpoint.is_behind(Source("file", (str(place),)))]
    for name in ("part-0.json", f"_spark_metadata/{epoch - 1}", f"_spark_metadata/{epoch}.compact"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
        found.append(checkpoint.is_behind(Source("file", (f"file:{place}/",))))
    assert found == [False, True, True, False]
    code = code_of("filed: nothing")
    checked = compare(Pair(code, stored("filed"), code, is_behind=True))
    assert (checked.verdict, [each.rule for each in checked.differences]) == ("never", ["sink"])


def test_the_verdicts_on_state_of_older_sparks_agree_with_what_the_newest_one_did() -> None:
    for version, pairs in recorded_outcomes(OF_SPARKS).items():
        for name, (word, _, said, *mended) in pairs.items():
            assert agrees_with_spark(name, str(word), str(said)), (version, name)
            if mended:
                assert continues(name, str(mended[0]), str(mended[2])), (version, name)


def test_the_page_tells_what_spark_did_with_the_changes_of_its_own_list() -> None:
    page = (GOLDEN.parents[2] / "stateshift" / "check" / "README.md").read_text()
    rows = re.findall(r"^\|.*\| `([^`]+: [^`]+)` \| (\w+) \| `([a-z-]+)` \|$", page, re.MULTILINE)
    assert len(rows) >= 20
    for name, did, said in rows:
        assert (did, said) == (OUTCOMES[name][0], verdict(name, before=True).verdict), name
