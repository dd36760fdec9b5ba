"""What an earlier version has left behind is read, resumed and rolled back as that version did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration, plain
from stateshift.errors import JOB_DOWN
from stateshift.journal import decode_records, encode_record
from stateshift.migration import decode_proposal, encode_proposal
from stateshift.plan import decode_plan, encode_plan
from tests.support.ground import SOURCE, TARGET, Ground
from tests.support.make_old_runs import CASES, VERBS
from tests.support.old_runs import FOLDER, commit, led_to, thaw, told_of


def said(case: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((FOLDER / case / "said.json").read_text())
    return value


# What is said since of a job that a run has left down.
DOWN = {"spark-failed-in-confirm": "down since 1970-01-12 13:46:40 UTC: orders: "}


def with_jobs_down(case: str, status: dict[str, Any]) -> dict[str, Any]:
    if case not in DOWN:
        return status
    failure = status["failure"]
    return {
        **status,
        "failure": {
            **failure,
            "message": DOWN[case] + failure["message"],
            "exit_code": JOB_DOWN,
        },
    }


def test_every_case_is_there() -> None:
    assert {place.name for place in FOLDER.iterdir() if place.is_dir()} == set(CASES)


@pytest.mark.parametrize("case", sorted(CASES))
def test_its_journal_is_read_and_written_as_it_was(case: str) -> None:
    content = (FOLDER / case / "workdir" / "journal").read_bytes()
    records, good = decode_records(content)
    assert good == len(content) and records
    assert b"".join(encode_record(record) for record in records) == content


@pytest.mark.parametrize("case", sorted(CASES))
def test_its_plans_are_read_and_written_as_they_were(case: str) -> None:
    for place in sorted((FOLDER / case / "workdir" / "plans").iterdir()):
        value = json.loads(place.read_text())
        assert encode_plan(decode_plan(value)) == value


@pytest.mark.parametrize("case", sorted(CASES))
def test_its_report_and_its_evidence_are_what_they_were(case: str, tmp_path: Path) -> None:
    ground, before = thaw(FOLDER / case, tmp_path), said(case)
    assert told_of(migration.status(ground.workdir())) == with_jobs_down(case, before["status"])
    verdict = migration.verify(ground.workdir(), ground.adapters)
    assert plain.to_plain(verdict) == before["verify"]


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("verb", sorted(VERBS))
def test_it_goes_on_and_back_as_it_did(case: str, verb: str, tmp_path: Path) -> None:
    assert led_to(thaw(FOLDER / case, tmp_path), VERBS[verb]) == said(case)[verb]


def test_a_plan_that_was_saved_is_read_and_applied(tmp_path: Path) -> None:
    value = json.loads((FOLDER / "plan.json").read_text())
    proposal = decode_proposal(value)
    assert encode_proposal(proposal) == value
    ground = Ground(tmp_path)
    ground.write()
    ground.cluster.run("orders", SOURCE)
    ground.cluster._on_start = lambda submission: commit(ground, submission.location)
    assert ground.apply(proposal).state == "finished"
    assert "commits/3" in ground.held(TARGET)
