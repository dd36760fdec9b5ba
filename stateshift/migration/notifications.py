"""The events of a run that are told. They are sent beside the run (`notification`).

    ready     once a process: warm jobs could be stopped now and wait for a person or their hours;
              or a standby has its first image to start from
    failed    the run has ended with an error, or was interrupted
    rpo-passed, rpo-kept
              a standby would lose more than the spec allows, or no longer would; the journal has it
    finished  the run is finished; noted in the workdir once it was sent, so that a resume sends it
              if the process died in between

The end of a run that is killed and resumed is told at least once, and maybe twice. Nothing is told
of a plan that is refused before the run begins, nor of a rollback that succeeds: the person who
asked for it sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from stateshift.clusters.redaction import redact
from stateshift.errors import JOB_DOWN, Interrupted, StateshiftError, StorageError
from stateshift.migration.context import RunContext
from stateshift.migration.telemetry import Telemetry
from stateshift.notification.event import Event, Notification, RunFailure
from stateshift.report import Report, summarize

NOTED = "notified.json"
BUG_EXIT_CODE = 1


def with_end_told(context: RunContext, work: Callable[[RunContext], Report]) -> Report:
    """Do the work of a run, and tell its end. Earlier unsent notices are sent meanwhile."""
    with Telemetry(context):
        context.notifier.send_kept()
        try:
            report = work(context)
        except StateshiftError as error:
            report = summarize(context.progress)
            down, unsure, named = report.down, report.may_be_down, error
            if unsure and not down and isinstance(error, Interrupted):
                named = error.restated(f"{unsure}: {error.fact}", error.exit_code)
            elif down:
                exit_code = error.exit_code if isinstance(error, Interrupted) else JOB_DOWN
                named = error.restated(f"{down}: {error.fact}", exit_code)
            _tell_failed(context, named)
            context.notifier.wait()
            raise named from error.__cause__
        except Exception as error:
            _tell_failed(context, error)
            context.notifier.wait()
            raise
        if report.state == "finished":
            tell_finished(context, report)
        else:
            context.notifier.wait()
        return report


def tell_finished(context: RunContext, report: Report) -> None:
    """Tell that the run is finished, unless that was told before; wait until it is sent."""
    if not context.notifier.wants("finished") or (context.workdir.path / NOTED).exists():
        context.notifier.wait()
        return
    detail = ""
    if report.downtime_seconds is not None:
        detail = f"down for {report.downtime_seconds:.1f} s"
    if "finished" not in context.notifier.send_kept():
        context.notifier.notify(_notification(context, "finished", report, detail))
    if "finished" in context.notifier.wait():
        with suppress(StorageError):  # then it is told again
            context.workdir.write(NOTED, {"finished": context.now()})


def tell_ready(context: RunContext, jobs: Sequence[str], detail: str) -> None:
    """Tell that these jobs are ready."""
    if context.notifier.wants("ready"):
        report = summarize(context.progress)
        notification = _notification(context, "ready", report, detail)
        context.notifier.notify(replace(notification, jobs=tuple(jobs)))


def tell_rpo(context: RunContext, job: str, detail: str, is_kept: bool) -> None:
    """Tell that a standby would lose more than its spec allows, or no longer would."""
    event: Event = "rpo-kept" if is_kept else "rpo-passed"
    if context.notifier.wants(event):
        notification = _notification(context, event, summarize(context.progress), detail)
        context.notifier.notify(replace(notification, jobs=(job,)))


def _tell_failed(context: RunContext, error: Exception) -> None:
    if not context.notifier.wants("failed"):
        return
    kind = type(error).__name__
    if not isinstance(error, StateshiftError):
        message = "a bug of stateshift's"
        hint = context.with_workdir("stateshift resume WORKDIR")
        failure = RunFailure(kind, message, hint, BUG_EXIT_CODE)
    else:
        hint = context.with_workdir(error.hint)
        failure = RunFailure(kind, redact(error.fact), hint and redact(hint), error.exit_code)
    detail = f"{failure.message} (exit code {failure.exit_code})"
    if failure.hint is not None:
        detail = f"{detail}; {failure.hint}"
    report = summarize(context.progress)
    notification = _notification(context, "failed", report, detail)
    context.notifier.notify(replace(notification, failure=failure))


def _notification(context: RunContext, event: Event, report: Report, detail: str) -> Notification:
    return Notification(
        event=event,
        run=report.run,
        state=report.state,
        jobs=context.progress.jobs,
        workdir=str(context.workdir.path.absolute()),
        host=context.adapters.host,
        at=context.now(),
        detail=detail,
        downtime_seconds=report.downtime_seconds,
    )
