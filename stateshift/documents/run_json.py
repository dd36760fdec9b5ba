"""The JSON documents of runs: `apply`, `resume`, `rollback`, `status`, `runs`, `verify WORKDIR`,
and of what steers one. Values in, typed dictionaries out. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict, cast

from stateshift.documents.diff_json import ComparedDocument, compared
from stateshift.documents.problems import ErrorDocument, error_document
from stateshift.journal import State
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.documents.run import Listed, RunFacts, VerdictFacts
    from stateshift.errors import StateshiftError
    from stateshift.executor import Broken
    from stateshift.report import (
        FailureReport,
        JobReport,
        PhaseReport,
        Report,
        RoundReport,
        SourceLostReport,
        SteeredReport,
    )
    from stateshift.steering import Live
    from stateshift.survey import Left

# ---- the shapes ----------------------------------------------------------------------------------


class PhaseReportDocument(TypedDict):
    """What a phase has done so far."""

    name: Annotated[str, "the phase"]
    start: Annotated[float, "seconds since the run began"]
    seconds: Annotated[float, "how long it took, or has taken so far"]
    steps: Annotated[int, "how many steps it has"]
    done: Annotated[int, "how many of them are finished"]
    files: Annotated[int, "how many files they wrote or read"]
    bytes: Annotated[int, "their size together"]


class RoundDocument(TypedDict):
    """One round of a warm move: what it copied while the job ran, and what it left."""

    number: Annotated[int, "counted from 1"]
    start: Annotated[float, "seconds since the run began"]
    seconds: Annotated[float, "how long it took"]
    files: Annotated[int, "how many files it copied"]
    bytes: Annotated[int, "their size together"]
    left_files: Annotated[int | None, "files that were still to be copied after it"]
    left_bytes: Annotated[int | None, "their size together"]
    left_seconds: Annotated[float | None, "for how long the job would have been down for them"]


class SteeredDocument(TypedDict):
    """What somebody asked of the run while it was at work."""

    start: Annotated[float, "seconds since the run began"]
    what: Annotated[str, "cutover, pause, throttle, ..."]
    value: Annotated[str, "what was asked for"]


class FailureDocument(TypedDict):
    """Why a run, or one of its jobs, stopped."""

    error: Annotated[str, "the class of the error, such as StorageError"]
    message: Annotated[str, "the fact, in one line"]
    hint: Annotated[str | None, "the way out"]
    exit_code: Annotated[int, "the exit code of the process that failed"]
    step: Annotated[str | None, "the step of the plan it happened in"]


class SourceLostDocument(TypedDict):
    """A standby whose source cannot be followed."""

    since: Annotated[float, "seconds since 1970"]
    reason: Annotated[str, "why, in one line"]
    epoch: Annotated[int | None, "of the image that stays at the target, where it has one"]


class JobReportDocument(TypedDict):
    """What has been done with one job."""

    job: Annotated[str, "its name"]
    state: Annotated[str, "not begun, unfinished, finished or rolled-back"]
    files: Annotated[int, "how many files were moved"]
    bytes: Annotated[int, "their size together"]
    downtime_seconds: Annotated[float | None, "null while it is down, or where it never was"]
    downtime_from: Annotated[str | None, "what the downtime is counted from"]
    entries: Annotated[int | None, "entries that were compared on both sides"]
    compared: Annotated[ComparedDocument, "what was found to be the same on both sides"]
    idle: Annotated[bool, "whether it restored its state and had nothing to read"]
    notes: Annotated[list[str], "what else to know"]
    left: Annotated[list[str], "what a rollback had to leave"]
    failure: Annotated[FailureDocument | None, "why it was given up"]
    phases: Annotated[list[PhaseReportDocument], "its phases, in order"]
    rounds: Annotated[list[RoundDocument], "the rounds of a warm move"]
    downtime_without_rounds: Annotated[
        float | None, "an estimate of the downtime, had nothing been copied before"
    ]
    source_lost: Annotated[
        SourceLostDocument | None, "since when a standby cannot follow its source; null: it can"
    ]


class ReportDocument(TypedDict):
    """What a run has done so far."""

    downtime_seconds: Annotated[float | None, "the longest downtime of its jobs"]
    seconds: Annotated[float, "from its beginning to its end, or until now"]
    phases: Annotated[list[PhaseReportDocument], "of all jobs together"]
    jobs: Annotated[list[JobReportDocument], "each job"]
    left: Annotated[list[str], "what a rollback had to leave"]
    steered: Annotated[list[SteeredDocument], "what somebody asked of it meanwhile"]


class RunDocument(TypedDict):
    """Return the state of a run as a document."""

    run: Annotated[str, "its name"]
    state: Annotated[State, "interrupted is a run that no process works on any more"]
    report: Annotated[ReportDocument, "what it has done so far"]
    workdir: Annotated[str, "where its journal is"]


class EndedRunDocument(RunDocument):
    """A run that has ended."""

    report_html: Annotated[str | None, "the report as a page, where it could be written"]


class FailedRunDocument(EndedRunDocument, ErrorDocument):
    """A run that stopped on the way: where it stands, and why."""


class LeftDocument(TypedDict):
    """What is still to be copied of a job that runs."""

    round: Annotated[int, "the round after which this was counted"]
    epoch: Annotated[int | None, "the number of the job's newest image at that moment"]
    files: Annotated[int, "how many files"]
    bytes: Annotated[int, "their size together"]
    seconds: Annotated[float, "for how long the job would be down for them"]
    written_per_second: Annotated[float | None, "bytes a second that the job writes"]
    brought_per_second: Annotated[float | None, "bytes a second that we copy"]


class LiveDocument(TypedDict):
    """What the process at work is at."""

    at: Annotated[float, "when it said so, in seconds since 1970"]
    job: Annotated[str, "the job it works on"]
    phase: Annotated[str, "the phase it is in"]
    began: Annotated[float, "when that phase began, in seconds since 1970"]
    files: Annotated[int, "files of that phase"]
    bytes: Annotated[int, "their size together"]
    files_done: Annotated[int, "those of them that are done"]
    bytes_done: Annotated[int, "the size of those"]
    waiting: Annotated[str | None, "what it waits for"]
    paused: Annotated[bool, "whether somebody paused it"]
    left: Annotated[dict[str, LeftDocument], "what is still to be copied of each job"]
    down_since: Annotated[float | None, "when the job was stopped, in seconds since 1970"]
    downtime_seconds: Annotated[
        float | None, "for how long a job would be down if it were stopped now"
    ]


class StatusDocument(EndedRunDocument):
    """What `status` tells of a run, also while it is at work."""

    at_work: Annotated[bool, "whether a process is at work on it"]
    failure: Annotated[FailureDocument | None, "why it stopped"]
    live: Annotated[LiveDocument | None, "what the process at work is at"]


class DamageDocument(TypedDict):
    """Why a run cannot be listed."""

    message: Annotated[str | None, "what is wrong with its journal"]


class DamagedRunDocument(TypedDict):
    """A workdir of `runs` whose journal cannot be read."""

    run: Annotated[str, "the name of its workdir"]
    state: Annotated[Literal["damaged"], "tells it from the others"]
    report: None
    workdir: Annotated[str, "where its journal is"]
    failure: Annotated[DamageDocument, "what is wrong"]


class BrokenDocument(TypedDict):
    """A finding of `verify WORKDIR`: a step whose evidence does not hold, or a note."""

    level: Annotated[Literal["refuse", "note"], "refuse: something does not hold"]
    message: Annotated[str, "what was expected, and what was found"]
    path: Annotated[str | None, "where"]
    offset: None
    hint: None
    plan: NotRequired[Annotated[int, "the number of the plan that the step is of"]]
    step: NotRequired[Annotated[str, "the step whose evidence does not hold"]]


class VerdictDocument(TypedDict):
    """What `verify WORKDIR` finds: does what the run did still hold?"""

    holds: Annotated[bool, "whether all evidence still holds"]
    restartable: Annotated[bool, "whether a job could restart from what the run finished"]
    epoch: Annotated[int | None, "the number of the image that was moved, of a single job"]
    epochs: Annotated[dict[str, int | None], "the number of each job's image"]
    findings: Annotated[list[BrokenDocument], "what does not hold, and what could not be asked"]
    run: Annotated[str, "its name"]
    state: Annotated[State, "where the run stands"]
    workdir: Annotated[str, "where its journal is"]


class SteeringDocument(TypedDict):
    """What `cutover`, `pause` and `throttle` asked of a run."""

    state: Annotated[str, "asked, paused, throttled or running"]
    at_work: Annotated[bool, "whether a process is there to heed it at once"]
    workdir: Annotated[str, "where the run's journal is"]
    left: Annotated[dict[str, LeftDocument], "what is still to be copied of each job"]
    now: NotRequired[Annotated[bool, "cutover: whether at once, however much is left"]]
    bytes_per_second: NotRequired[Annotated[float | None, "throttle: null is no limit"]]
    operations_per_second: NotRequired[Annotated[float | None, "throttle: null is no limit"]]


# ---- runs ----------------------------------------------------------------------------------------


def run(facts: RunFacts) -> RunDocument:
    """Return where a run stands."""
    return {
        "run": facts.report.run,
        "state": facts.state,
        "report": report(facts.report),
        "workdir": facts.workdir,
    }


def report(done: Report) -> ReportDocument:
    """Return what a run has done so far."""
    return {
        "downtime_seconds": done.downtime_seconds,
        "seconds": done.seconds,
        "phases": [_phase_report(phase) for phase in done.phases],
        "jobs": [_job_report(job) for job in done.jobs],
        "left": [redact(line) for line in done.left],
        "steered": [_steered(mark) for mark in done.steered],
    }


def ended_run(facts: RunFacts) -> EndedRunDocument:
    """Return what `apply`, `resume` and `rollback` print."""
    return {**run(facts), "report_html": facts.page}


def failed_run(facts: RunFacts, caught: StateshiftError) -> FailedRunDocument:
    """Return where a run that stopped on the way stands, and why, in one document."""
    return {**error_document(caught), **ended_run(facts)}


def status(facts: RunFacts) -> StatusDocument:
    """Return where a run stands, and what the process at work is at."""
    return {
        **ended_run(facts),
        "at_work": facts.held,
        "failure": _failure(facts.report.failure),
        "live": at_work(facts.live),
    }


def listed(entry: Listed) -> StatusDocument | DamagedRunDocument:
    """Return one workdir of `runs`."""
    if entry.facts is None:
        return damaged_run(entry.workdir, entry.damage)
    return status(entry.facts)


def damaged_run(workdir: str, damage: str | None) -> DamagedRunDocument:
    """Return a workdir whose journal cannot be read."""
    return {
        "run": os.path.basename(workdir),
        "state": "damaged",
        "report": None,
        "workdir": workdir,
        "failure": {"message": damage},
    }


def at_work(live: Live | None) -> LiveDocument | None:
    """Return what the process at work is at, and what is left of each job that it follows."""
    if live is None:
        return None
    return {
        "at": live.at,
        "job": live.job,
        "phase": live.phase,
        "began": live.began,
        "files": live.files,
        "bytes": live.bytes,
        "files_done": live.files_done,
        "bytes_done": live.bytes_done,
        "waiting": live.waiting or None,
        "paused": live.paused,
        "left": left(live.left),
        "down_since": live.down_since,
        "downtime_seconds": max((rest.seconds for rest in live.left.values()), default=None),
    }


def left(by_job: Mapping[str, Left]) -> dict[str, LeftDocument]:
    """Return what is still to be copied of each job."""
    return {job: _left(rest) for job, rest in by_job.items()}


def _left(rest: Left) -> LeftDocument:
    return {
        "round": rest.round,
        "epoch": rest.epoch,
        "files": rest.files,
        "bytes": rest.bytes,
        "seconds": rest.seconds,
        "written_per_second": rest.written_per_second,
        "brought_per_second": rest.brought_per_second,
    }


def _failure(failed: FailureReport | None) -> FailureDocument | None:
    if failed is None:
        return None
    return {
        "error": failed.error,
        "message": redact(failed.message),
        "hint": failed.hint and redact(failed.hint),
        "exit_code": failed.exit_code,
        "step": failed.step,
    }


def steering(
    state: str, held: bool, workdir: str, live: Live | None, more: Mapping[str, object]
) -> SteeringDocument:
    """Return what was asked of a run; `more` is what the command says besides."""
    asked: SteeringDocument = {
        "state": state,
        "at_work": held,
        "workdir": workdir,
        "left": {} if live is None else left(live.left),
    }
    return cast("SteeringDocument", {**asked, **more})


# ---- verify WORKDIR ------------------------------------------------------------------------------


def verdict(facts: VerdictFacts) -> VerdictDocument:
    """Return whether what a run did still holds, in the words of `verify LOCATION`.

    A finding here is a step whose evidence does not hold. A job can restart from what a run has
    finished, at the epoch it was moved at; `epochs` has those of several jobs.
    """
    judged, report = facts.verdict, facts.report
    notes = [_note(text) for text in judged.notes]
    return {
        "holds": not judged.broken,
        "restartable": judged.finished and not judged.broken,
        "epoch": facts.epoch,
        "epochs": dict(judged.epochs),
        "findings": [_broken(step) for step in judged.broken] + notes,
        "run": report.run,
        "state": report.state,
        "workdir": facts.workdir,
    }


def _broken(step: Broken) -> BrokenDocument:
    discrepancy = step.discrepancy
    return {
        "level": "refuse",
        "message": redact(f"expected {discrepancy.expected}, found {discrepancy.found}"),
        "path": redact(discrepancy.place),
        "offset": None,
        "hint": None,
        "plan": step.plan,
        "step": step.step,
    }


def _note(text: str) -> BrokenDocument:
    return {"level": "note", "message": redact(text), "path": None, "offset": None, "hint": None}


# ---- parts of a report ---------------------------------------------------------------------------


def _phase_report(phase: PhaseReport) -> PhaseReportDocument:
    return {
        "name": phase.name,
        "start": phase.start,
        "seconds": phase.seconds,
        "steps": phase.steps,
        "done": phase.done,
        "files": phase.files,
        "bytes": phase.bytes,
    }


def _job_report(job: JobReport) -> JobReportDocument:
    return {
        "job": job.job,
        "state": job.state,
        "files": job.files,
        "bytes": job.bytes,
        "downtime_seconds": job.downtime_seconds,
        "downtime_from": job.downtime_from,
        "entries": job.entries,
        "compared": compared(job.compared),
        "idle": job.idle,
        "notes": [redact(note) for note in job.notes],
        "left": [redact(line) for line in job.left],
        "failure": _failure(job.failure),
        "phases": [_phase_report(phase) for phase in job.phases],
        "rounds": [_round(copied) for copied in job.rounds],
        "downtime_without_rounds": job.downtime_without_rounds,
        "source_lost": _source_lost(job.source_lost),
    }


def _source_lost(lost: SourceLostReport | None) -> SourceLostDocument | None:
    if lost is None:
        return None
    return {"since": lost.since, "reason": redact(lost.reason), "epoch": lost.epoch}


def _round(copied: RoundReport) -> RoundDocument:
    return {
        "number": copied.number,
        "start": copied.start,
        "seconds": copied.seconds,
        "files": copied.files,
        "bytes": copied.bytes,
        "left_files": copied.left_files,
        "left_bytes": copied.left_bytes,
        "left_seconds": copied.left_seconds,
    }


def _steered(mark: SteeredReport) -> SteeredDocument:
    return {"start": mark.start, "what": mark.what, "value": mark.value}
