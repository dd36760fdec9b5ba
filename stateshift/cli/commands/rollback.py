"""`stateshift rollback`: take a run back, everything it wrote and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import WorkdirOf, Yes, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.migration import Adapters
    from stateshift.report import Report
    from stateshift.workdir import Workdir

SECONDS_MAX = 120.0  # for a process at work to end

EPILOG = epilog(
    "stateshift rollback .stateshift/20260301-120000-orders-1f3a",
    2,
    4,
    5,
    6,
    7,
    8,
    10,
    130,
    e0="rolled back; the report names what could not be",
    e4="the job has committed batches at the target since, or the copy may be the last one",
    e130="interrupted: `stateshift resume WORKDIR` continues the rollback",
)


def command(
    terminal: Terminal,
    workdir: WorkdirOf,
    yes: Yes = False,
    discard_progress: Annotated[
        bool,
        typer.Option(
            "--discard-progress", help="Discard what the job has committed at the target since."
        ),
    ] = False,
    discard_last_copy: Annotated[
        bool,
        typer.Option(
            "--discard-last-copy",
            help="Delete the copy even if the source holds no image any more to take its place.",
        ),
    ] = False,
) -> int | None:
    """Take a run back, and nothing else.

    Lifts the fence, restarts the old job as it was started before (or by the spec's
    `source_submit`), deletes what the run wrote at the target, and lists what it could not
    delete. If a process works on the run, and the rollback is not refused, it is asked to stop
    first.
    """
    from stateshift import migration
    from stateshift.cli.shell.work import carry_out, confirm
    from stateshift.cli.views import run_text as render_run
    from stateshift.documents.run import RunFacts
    from stateshift.errors import PlanError
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    report = migration.status(place)
    if report.state != "rolled-back":
        if terminal.someone_there and not yes:
            terminal.talk(render_run.report(RunFacts(report, workdir, place.held)))
        confirm(terminal, "roll this back?", yes)

    def work(adapters: Adapters, begun: Callable[[], None]) -> Report:
        try:
            if place.held:
                migration.check_rollback(place, adapters, discard_progress, discard_last_copy)
                _end(terminal, place)
            return migration.rollback(place, adapters, discard_progress, begun, discard_last_copy)
        except PlanError as error:
            hint = error.hint or ""
            if hint.endswith(" --discard-progress"):  # together with what else was said here
                words, _, _ = hint.partition("stateshift rollback ")
                hint = words + terminal.again("--discard-progress")
            raise error.with_hint(hint) from error

    return carry_out(terminal, place, work)


def _end(terminal: Terminal, place: Workdir) -> None:
    """End whoever works on it as by Ctrl-C, behind the write it is in; what waits longer than that
    is shown as held.
    """
    terminal.say("a process is at work on it: it was asked to stop")
    place.steering.ask_stop()
    until = time.monotonic() + SECONDS_MAX
    while place.held and time.monotonic() < until:
        time.sleep(0.1)
