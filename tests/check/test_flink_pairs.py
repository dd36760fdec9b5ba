"""A check of Flink says what a real Flink does with the same job and the same savepoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.check.flink.capture import statements
from stateshift.check.flink.compare import KEYED, VALUES
from stateshift.check.verdict import Difference, Rehearsal
from stateshift.documents.check import commands_for
from tests.acceptance.support import stateshift
from tests.check.flink_pairs import PAIRS, QUICK, recorded
from tests.check.outcomes import OF_FLINKS, agrees_with_flink, recorded_outcomes
from tests.support.flink import jar
from tests.support.servers import Unavailable, downloads


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.every_case
def test_the_verdict_on_a_plan_of_flink_is_that_of_real_clusters(name: str) -> None:
    pair = PAIRS[name]
    (query,) = pair.judged(QUICK, recorded()[name]).queries
    assert query.verdict == pair.planned_verdict
    assert {*pair.rules} <= {"rehearsal", *(difference.rule for difference in query.differences)}


def test_the_verdicts_of_rehearsals_agree_with_what_real_clusters_did() -> None:
    for version, pairs in recorded_outcomes(OF_FLINKS).items():
        for name, (said, error) in pairs.items():
            assert agrees_with_flink(str(said), error), (version, name)


def test_a_rehearsal_answers_what_is_not_known_and_blames_the_state_for_its_own_errors() -> None:
    pair = PAIRS["nothing"]
    (query,) = pair.judged(QUICK, recorded()["nothing"]).queries
    good = Rehearsal("Flink", 1.5, "it ran", answers=frozenset({(VALUES, KEYED)}))
    refused, failed = replace(good, error="no"), replace(good, error="no", is_final=False)
    late = replace(good, unopened=(Difference("not-known", VALUES, KEYED, "count"),))
    verdicts = [each.judged(query).verdict for each in (good, refused, failed, late)]
    assert verdicts == ["starts", "never", "not-known", "not-known"]
    (waived,) = pair.judged(QUICK, recorded()["nothing"], (VALUES,)).queries
    assert late.judged(waived).verdict == "starts"


def test_expressions_of_sql_are_compared_with_those_of_the_old_code() -> None:
    pair, answer = PAIRS["SQL, nothing"], recorded()["SQL, nothing"]
    assert "SUM(n)" in json.dumps(answer)
    older = json.loads(json.dumps(answer).replace("SUM(n)", "MAX(n)"))
    verdicts = []
    for before in (None, answer, older):
        (query,) = pair.judged(QUICK, answer, (VALUES,), before).queries
        found = {each.level for each in query.differences if each.rule.startswith("expression")}
        verdicts.append((query.verdict, found))
    assert verdicts == [("starts", {"note"}), ("starts", set()), ("starts-but", {"starts-but"})]


def test_a_checkpoint_whose_folder_was_copied_is_gathered() -> None:
    pair, answer = PAIRS["RocksDB, a copied checkpoint"], recorded()["RocksDB, a copied checkpoint"]
    checked = pair.judged(QUICK, answer)
    (query,) = checked.queries
    (command,) = commands_for(query, "/copy/chk-7")
    assert query.has_commands
    assert command == "stateshift gather /copy/chk-7 --to /copy/chk-7-2"


def test_statements_end_with_semicolons_outside_of_texts_comments_and_sets() -> None:
    text = """-- a; b
    SET 'a' = 'b;''c'; /* x; */ CREATE TABLE `t;` (n INT) WITH ('k' = ';');
    EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END;
    begin statement set; INSERT INTO a SELECT 1; END;
    """
    split = [" ".join(statement.split()) for statement in statements(text)]
    assert split == [
        "SET 'a' = 'b;''c'",
        "CREATE TABLE `t;` (n INT) WITH ('k' = ';')",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END",
    ]


@pytest.mark.servers
@pytest.mark.row("W-24", on="Flink")
def test_flink_plans_a_job_and_restores_it_after_the_commands_without_a_cluster(
    tmp_path: Path,
) -> None:
    pair = PAIRS["uids for generated ids"]
    try:
        lib = downloads.flink(QUICK)
    except Unavailable as reason:
        pytest.skip(str(reason))
    words = ["check", str(pair.image(QUICK)), "--with", str(jar(lib)), "--class", pair.main]
    words += ["--flink", str(lib), "--rehearse", "--json", "--", *pair.arguments(QUICK, tmp_path)]
    (document,) = stateshift(*words, cwd=tmp_path, code=4).json
    assert (document["verdict"], document["version"]) == ("starts-after", QUICK)
    assert document["commands"][0].count("--operator ") == 2
    assert document["findings"][-1]["rule"] == "rehearsal"
    assert "opened them: orders count, after" in document["findings"][-1]["message"]
    assert not list(tmp_path.iterdir())
