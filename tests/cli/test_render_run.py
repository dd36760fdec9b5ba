"""Reports and states as text, from values."""

from dataclasses import replace

import pytest

from stateshift.cli.views import run_html as render_html
from stateshift.cli.views import run_text as render_run
from stateshift.cli.views.text import plain_text
from stateshift.documents.run import (
    ListedRun,
    RunDocument,
    RunFacts,
    StatusDocument,
    VerdictDocument,
    VerdictFacts,
)
from stateshift.documents.shape import document_of
from stateshift.executor import Broken
from stateshift.migration import Verdict
from stateshift.report import FailureReport, JobReport, PhaseReport, Report, RoundReport
from stateshift.step import Discrepancy

PHASES = (
    PhaseReport("halt", 0.0, 2.0, 2, 2, 0, 0),
    PhaseReport("copy", 2.0, 6.0, 12, 12, 3000, 3 << 20),
    PhaseReport("confirm", 8.0, 4.0, 1, 1, 0, 0),
)
JOB = JobReport("orders", "finished", PHASES, 3000, 3 << 20, 11.5, "halt", 1_200_000, False, (), ())
REPORT = Report("r1", "finished", 12.0, 11.5, PHASES, (JOB,), (), None)


def test_a_report_shows_when_each_phase_was_at_work_and_how_long_the_job_was_down() -> None:
    assert plain_text(render_run.report(RunFacts(REPORT, "w"))).splitlines() == [
        "run r1: finished",
        "  orders (finished): 3,000 files, 3.0 MiB written; the same on both sides: 1,200,000 entries",
        "  phase    begun at   took  steps  files     size  timeline",
        "  halt       0.00 s  2.0 s      2      -        -  ████",
        "  copy        2.0 s  6.0 s     12  3,000  3.0 MiB      ████████████",
        "  confirm     8.0 s  4.0 s      1      -        -                  ████████",
        "  took      12 s",
        "  downtime  12 s, counted from the halt, to the first batch committed on the target",
        "  workdir   w",
    ]


def test_what_came_after_the_last_look_is_not_hidden_by_what_that_had_left() -> None:
    """The last look found nothing left, and the job wrote on until it was stopped."""
    looked = (
        RoundReport(1, 0.0, 1.0, 20, 900, 2, 80, 0.2),
        RoundReport(2, 1.0, 1.0, 2, 80, 0, 0, 0.0),
    )
    copied = (PhaseReport("copy", 4.0, 1.0, 1, 1, 15, 2048),)
    told = replace(REPORT, jobs=(replace(JOB, rounds=looked, phases=copied),))
    said = "2 rounds while it ran; left by the last look: 0 files, 0 B"
    whole = f"{said}; copied with the job stopped: 15 files, 2.0 KiB"
    assert whole in plain_text(render_run.report(RunFacts(told, "w")))
    assert whole in plain_text(render_run.status(RunFacts(told, "w")))
    assert whole in render_html.page(RunFacts(told, "w"))
    assert "left behind" not in plain_text(
        render_run.report(RunFacts(told, "w"))
    ) + render_html.page(RunFacts(told, "w"))
    nothing = replace(told, jobs=(replace(told.jobs[0], phases=()),))
    assert said in plain_text(render_run.report(RunFacts(nothing, "w")))
    assert "with the job stopped" not in render_html.page(RunFacts(nothing, "w"))


def test_what_a_rollback_had_to_leave_and_what_is_worth_a_note_is_shown() -> None:
    job = replace(
        JOB, state="rolled-back", left=("x was changed since: left",), notes=("no batch yet",)
    )
    back = replace(
        REPORT, state="rolled-back", jobs=(job,), left=("y: 2 files that this run did not write",)
    )
    shown = plain_text(render_run.report(RunFacts(back, "w")))
    assert "left: x was changed since: left" in shown and "left: y: 2 files" in shown
    assert "note: no batch yet" in shown and "undone" in shown


def test_a_failure_says_why_where_and_how_to_go_on() -> None:
    failure = FailureReport("StorageError", "no space left", "make room", 6, "copy/3")
    failed = replace(REPORT, state="failed", failure=failure)
    shown = plain_text(render_run.status(RunFacts(failed, "my run")))
    assert "stopped by StorageError (in step copy/3): no space left\nhint: make room\n" in shown
    assert "stateshift resume 'my run'" in shown and "stateshift rollback 'my run'" in shown


def test_a_run_that_nobody_works_on_is_interrupted_and_one_at_work_is_running() -> None:
    running = replace(REPORT, state="running")
    assert document_of(StatusDocument, RunFacts(running, "w"))["state"] == "interrupted"
    assert document_of(StatusDocument, RunFacts(running, "w", held=True))["state"] == "running"
    assert "a process is at work on it now" in plain_text(
        render_run.status(RunFacts(running, "w", held=True))
    )
    assert "stateshift resume w" in plain_text(render_run.status(RunFacts(running, "w")))


def test_runs_are_a_line_each_also_when_one_is_damaged() -> None:
    found = [ListedRun("a", "./a", RunFacts(REPORT, "./a")), ListedRun("b", "/b", None, "torn")]
    lines = plain_text(render_run.runs(found, ".")).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "a", "b"]
    assert "finished" in lines[1] and "damaged" in lines[2] and "torn" in lines[2]
    assert (
        plain_text(render_run.runs([], "dir"))
        == "no runs below dir; of those elsewhere: stateshift runs DIR\n"
    )


def test_a_verdict_names_the_step_the_place_and_the_difference() -> None:
    broken = Verdict(
        (Broken(0, "copy/3", Discrepancy("hdfs://t/a", "size 3", "nothing")),), ("gone on",)
    )
    assert plain_text(render_run.verdict(VerdictFacts(broken, REPORT, "w"))).splitlines() == [
        "1 thing does not hold any more of run r1: w",
        "  copy/3: hdfs://t/a: expected size 3, found nothing",
        "  note: gone on",
    ]
    document = document_of(VerdictDocument, VerdictFacts(broken, REPORT, "w"))
    assert document["restartable"] is document["holds"] is False
    assert document["findings"][0]["message"] == "expected size 3, found nothing"


@pytest.mark.parametrize(
    ("found", "restartable", "epoch"),
    [
        (Verdict((), (), {"orders": 7}, True), True, 7),
        (Verdict((), (), {"orders": 7, "clicks": 3}, True), True, None),
        (Verdict((), (), {"orders": 7}, False), False, 7),
        (Verdict((), (), {}, False), False, None),
    ],
    ids=["finished", "two jobs", "not finished", "taken back"],
)
def test_a_job_can_restart_from_what_a_run_has_finished(
    found: Verdict, restartable: bool, epoch: int | None
) -> None:
    document = document_of(VerdictDocument, VerdictFacts(found, REPORT, "w"))
    assert (document["holds"], document["restartable"], document["epoch"]) == (
        True,
        restartable,
        epoch,
    )
    assert document["epochs"] == found.epochs


def test_the_report_of_a_run_has_the_promised_keys() -> None:
    document = document_of(RunDocument, RunFacts(REPORT, "w"))
    assert document.keys() == {"run", "state", "report", "workdir"}
    assert document["report"]["downtime_seconds"] == 11.5
    assert [phase["name"] for phase in document["report"]["phases"]] == ["halt", "copy", "confirm"]
    assert document["report"]["phases"][0].keys() >= {"name", "seconds", "files", "bytes"}
