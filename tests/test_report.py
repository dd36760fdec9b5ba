"""The run, told: nothing in a report that is not in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stateshift.journal import (
    PlanAdopted,
    PlanFinished,
    PlanUndone,
    Record,
    RollbackStarted,
    RunFailed,
    RunFinished,
    RunResumed,
    RunRolledBack,
    RunStarted,
    Steered,
    StepFinished,
    StepStarted,
    StepUndone,
    fold,
)
from stateshift.purpose import Purpose
from stateshift.report import FailureReport, Report, summarize
from stateshift.step import Evidence


def report(*records: Record) -> Report:
    return summarize(fold(iter((RunStarted(100.0, "r", "0", "s", ("orders",)), *records))))


def plan(number: int = 0, at: float = 101.0, purpose: Purpose = "move") -> PlanAdopted:
    return PlanAdopted(at, number, "orders", purpose, "f", 1)


def step(
    phase: str,
    name: str,
    at: float,
    seconds: float,
    number: int = 0,
    files: int = 0,
    size: int = 0,
    evidence: Mapping[str, Any] | None = None,
) -> tuple[Record, ...]:
    return (
        StepStarted(at, number, phase, name),
        StepFinished(
            at + seconds, number, name, seconds, files, size, Evidence.from_plain(evidence or {})
        ),
    )


STOP = {"state_before": "running", "state": "finished", "at": 102.0, "seconds": 1.0}
CONFIRM = {"committed": ["commits/3"], "idle": [], "epoch": 2, "at": 130.0, "seconds": 5.0}

WHOLE = (
    plan(0, 101.0, "halt"),
    *step("halt", "halt/stop", 102.0, 1.0, 0, evidence=STOP),
    PlanFinished(103.0, 0),
    plan(1, 104.0),
    *step("copy", "copy/0", 105.0, 4.0, 1, 10, 1000),
    *step("copy", "copy/1", 106.0, 1.0, 1, 5, 50),
    *step("publish", "publish/0", 110.0, 1.0, 1, 1, 7),
    *step("submit", "submit/job", 112.0, 1.0, 1),
    *step("confirm", "confirm/progress", 125.0, 5.0, 1, evidence=CONFIRM),
    PlanFinished(130.0, 1),
    RunFinished(131.0),
)


def test_downtime_is_from_the_halt_to_the_first_batch_on_the_target() -> None:
    told = report(*WHOLE)
    assert (told.state, told.seconds, told.downtime_seconds) == ("finished", 31.0, 28.0)
    assert (told.jobs[0].downtime_from, told.jobs[0].downtime_start) == ("halt", 2.0)


def test_a_job_that_was_stopped_and_not_seen_since_is_down_until_that_was_taken_back() -> None:
    stopped = (plan(0, 101.0, "halt"), *step("halt", "halt/stop", 102.0, 1.0, 0, evidence=STOP))
    job = report(*stopped, RunFailed(104.0, "StorageError", "full", None, 6, None)).jobs[0]
    assert (job.downtime_seconds, job.downtime_from, job.downtime_start) == (None, None, 2.0)
    back = report(*stopped, RollbackStarted(110.0), StepUndone(111.0, 0, "halt/stop", ())).jobs[0]
    assert back.downtime_start is None


def test_a_report_knows_when_its_run_began() -> None:
    assert report().began == 100.0


@pytest.mark.row("T-22")
def test_phases_are_a_timeline_in_their_order_with_what_was_done() -> None:
    phases = report(*WHOLE).phases
    assert [phase.name for phase in phases] == ["halt", "copy", "publish", "submit", "confirm"]
    copy = phases[1]
    assert (copy.start, copy.seconds, copy.steps, copy.done, copy.files, copy.bytes) == (
        5.0,
        4.0,
        2,
        2,
        15,
        1050,
    )
    assert (report(*WHOLE).jobs[0].files, report(*WHOLE).jobs[0].bytes) == (16, 1057)


def test_entries_are_those_that_were_the_same_on_both_sides_and_none_at_all_is_told() -> None:
    def folded(*counts: int) -> dict[str, object]:
        return {"operators": {str(n): {"entries": c, "digest": "0"} for n, c in enumerate(counts)}}

    compared = (
        *step("compare", "compare/0", 107.0, 1.0, evidence=folded(40, 2)),
        *step("compare", "compare/1", 107.0, 1.0, evidence=folded(8)),
    )
    assert report(plan(), *compared).jobs[0].entries == 50
    assert report(*WHOLE).jobs[0].entries is None
    empty = report(plan(), *step("compare", "compare/0", 107.0, 1.0, evidence=folded(0))).jobs[0]
    assert (empty.entries, empty.notes) == (
        0,
        ("the state that was copied here holds no entries",),
    )


def test_a_job_that_was_stopped_before_has_only_the_runs_own_part_of_the_downtime() -> None:
    told = report(
        plan(),
        *step("copy", "copy/0", 105.0, 1.0, evidence={"files": []}),
        *step("confirm", "confirm/progress", 110.0, 5.0, evidence={**CONFIRM, "at": 115.0}),
    )
    assert told.downtime_seconds == 10.0
    assert told.jobs[0].downtime_from == "start of the run: the job was stopped before"


@pytest.mark.parametrize("kind", ["savepoint", "checkpoint"])
def test_a_job_that_ends_with_an_image_is_down_from_when_that_was_asked_for(kind: str) -> None:
    image = {"image": f"file:///{kind}s/1", "job_id": "a" * 32, "at": 103.0, "seconds": 2.0}
    halted = (plan(0, 101.0, "halt"), *step("halt", f"halt/{kind}", 103.0, 2.0, 0, evidence=image))
    confirmed = step(
        "confirm", "confirm/progress", 110.0, 5.0, 1, evidence={**CONFIRM, "at": 115.0}
    )
    job = report(*halted, plan(1), *confirmed).jobs[0]
    assert (job.downtime_seconds, job.downtime_from, job.downtime_start) == (12.0, "halt", 3.0)
    assert report(*halted).jobs[0].downtime_start == 3.0, (
        "it is down, and nobody has seen it going on"
    )


def test_a_clock_that_goes_back_gives_no_negative_times() -> None:
    told = report(
        plan(0, 101.0, "halt"),
        *step("halt", "halt/stop", 102.0, 1.0, 0, evidence=STOP),
        plan(1, 60.0),
        *step("copy", "copy/0", 61.0, 4.0, 1),
        *step("confirm", "confirm/progress", 62.0, 1.0, 1, evidence={**CONFIRM, "at": 63.0}),
        RunFinished(64.0),
    )
    times = [told.seconds, told.downtime_seconds, told.jobs[0].downtime_start]
    times += [time for phase in told.phases for time in (phase.start, phase.seconds)]
    assert all(time is not None and time >= 0 for time in times)
    assert any("clock" in note for note in told.jobs[0].notes)


def test_without_a_first_batch_there_is_no_downtime_to_tell() -> None:
    assert (
        report(
            plan(), *step("copy", "copy/0", 105.0, 1.0), PlanFinished(107.0, 0), RunFinished(108.0)
        ).downtime_seconds
        is None
    )


def test_a_job_without_input_is_told_as_idle() -> None:
    idle = {**CONFIRM, "committed": [], "idle": ["commits/3"]}
    told = report(plan(), *step("confirm", "confirm/progress", 110.0, 5.0, evidence=idle))
    assert told.jobs[0].idle
    assert "nothing to read" in told.jobs[0].notes[0]


def test_a_step_that_was_begun_and_not_finished_counts_as_not_done() -> None:
    told = report(plan(), StepStarted(105.0, 0, "copy", "copy/0"))
    assert (told.phases[0].steps, told.phases[0].done, told.phases[0].files) == (1, 0, 0)
    assert (told.state, told.jobs[0].state) == ("running", "unfinished")


def test_a_failure_is_told_until_the_run_goes_on() -> None:
    failed = (
        plan(),
        StepStarted(105.0, 0, "copy", "copy/0"),
        RunFailed(106.0, "StorageError", "full", "df -h", 6, "copy/0"),
    )
    told = report(*failed)
    assert told.failure is not None
    assert told.state == "failed"
    assert told.failure == FailureReport("StorageError", "full", "df -h", 6, "copy/0")
    assert report(*failed, RunResumed(107.0)).failure is None


def test_hours_in_which_nobody_worked_on_a_run_are_told_apart() -> None:
    """Interrupted for two hours and paused for one; taken back a day after its end."""
    told = report(
        plan(),
        *step("halt", "halt/stop", 105.0, 1.0),
        StepStarted(106.0, 0, "copy", "copy/0"),
        RunFailed(116.0, "Interrupted", "interrupted", "resume", 130, "copy/0"),
        RunResumed(7316.0),
        StepStarted(7317.0, 0, "copy", "copy/0"),
        Steered(7320.0, "pause", ""),
        *step("copy", "copy/1", 7321.0, 2.0),
        Steered(10923.0, "go on", ""),
        StepFinished(10925.0, 0, "copy/0", 8.0, 3, 30, Evidence.from_plain({})),
        RunFinished(10926.0),
        RollbackStarted(97326.0),
        StepUndone(97330.0, 0, "copy/0", ()),
        RunRolledBack(97331.0),
    )
    assert told.seconds == 97231.0
    assert told.idle_seconds == 7200.0 + 3600.0 + 86400.0
    assert told.worked_seconds == 31.0
    copy = next(phase for phase in told.phases if phase.name == "copy")
    assert (copy.start, copy.seconds) == (6.0, 10819.0)  # to its end: what is drawn, and told


def test_what_a_rollback_had_to_leave_is_told() -> None:
    told = report(
        plan(),
        *step("copy", "copy/0", 105.0, 1.0, files=1),
        RollbackStarted(110.0),
        StepUndone(111.0, 0, "copy/0", ("x: changed since",)),
        PlanUndone(112.0, 0, ("file:///t: 1 files that this run did not write (y …)",)),
        RunRolledBack(113.0),
    )
    assert (told.state, told.jobs[0].state) == ("rolled-back", "rolled-back")
    assert told.jobs[0].left == ("x: changed since",)
    assert told.left[0].startswith("file:///t: 1 files")
    assert told.downtime_seconds is None


def test_a_rollback_that_a_run_begins_by_itself_is_part_of_its_work() -> None:
    failed = RunFailed(106.0, "StorageError", "full", "df -h", 6, "copy/0")
    told = report(plan(), failed, RollbackStarted(109.0, automatic=True), RunRolledBack(113.0))
    assert (told.seconds, told.idle_seconds) == (13.0, 0.0)


def test_a_run_that_only_began_has_a_report() -> None:
    told = report()
    assert (told.state, told.phases, told.jobs) == ("running", (), ())
