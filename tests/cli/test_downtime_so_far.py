"""While a job is down, its downtime grows: whoever asks for the status sees that."""

from __future__ import annotations

from stateshift.cli.views import run_text as render_run
from stateshift.cli.views.text import plain_text
from stateshift.documents.run import RunFacts
from stateshift.journal import PlanAdopted, RunFailed, RunStarted, StepFinished, StepStarted, fold
from stateshift.report import Report, summarize
from stateshift.steering import Live, ticking
from stateshift.step import Evidence

STOP = {"state_before": "running", "state": "finished", "at": 102.0, "seconds": 1.0}


def stopped_and_failed() -> Report:
    records = (
        RunStarted(100.0, "r", "0", "s", ("orders",)),
        PlanAdopted(101.0, 0, "orders", "halt", "f", 1),
        StepStarted(102.0, 0, "halt", "halt/stop"),
        StepFinished(103.0, 0, "halt/stop", 1.0, 0, 0, Evidence.from_plain(STOP)),
        RunFailed(104.0, "StorageError", "full", None, 6, None),
    )
    return summarize(fold(iter(records)))


def test_the_downtime_of_a_run_at_work_ticks_between_two_words_of_its_process() -> None:
    told = Live(110.0, "orders", "copy", began=105.0, down_since=102.0)
    later = ticking(told, 162.0)
    assert later is not None
    assert "1 min 00 s so far" in render_run.line(stopped_and_failed(), later)


def test_a_clock_that_goes_back_gives_no_negative_downtime() -> None:
    told = ticking(Live(90.0, "orders", "copy", down_since=102.0), 80.0)
    assert "-" not in render_run.line(stopped_and_failed(), told)


def test_a_failed_run_tells_for_how_long_its_job_has_been_down() -> None:
    at = lambda now: plain_text(render_run.status(RunFacts(stopped_and_failed(), "w", now=now)))  # noqa: E731
    assert "1 min 00 s so far" in at(162.0)
    assert "2 min 00 s so far" in at(222.0)
