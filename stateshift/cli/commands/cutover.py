"""`stateshift cutover`: now the job may be stopped, once what is left of it is little enough."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import WorkdirOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift cutover .stateshift/20260301-120000-orders-1f3a",
    2,
    4,
    8,
    e0="requested: `stateshift status WORKDIR --watch` shows when it happens",
    e4="no job of this run is waiting to be stopped",
)


def command(
    terminal: Terminal,
    workdir: WorkdirOf,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="At once, however much is left: the job is down for as long as that copy takes.",
        ),
    ] = False,
) -> int | None:
    """Let a warm move stop its job.

    The job stops as soon as what is left takes less time than `until` says; with --now it stops
    at once.
    """
    from stateshift import migration
    from stateshift.cli.shell import steer
    from stateshift.cli.views.units import span
    from stateshift.errors import PlanError
    from stateshift.migration.standby_source import BY_HAND
    from stateshift.report import SourceLostReport
    from stateshift.specification.grammars import seconds_of
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    progress = steer.refuse_over(place, "cut over")
    warm = steer.warm_jobs(place, progress)
    if not warm:
        raise PlanError(
            'no job of this run moves warm ("mode": "warm")', hint=steer.status_command(place)
        )
    for job in warm:
        lost = progress.lost.get(job.name)
        if lost is not None:
            engine = migration.spec_of(place).engine
            raise PlanError(
                f"{job.name}: nothing was changed: {SourceLostReport.of(lost).in_words(engine)}",
                hint=f"to start the copy without its source, by hand: {BY_HAND}",
            )
    if steer.is_halted(progress, place):
        raise PlanError(steer.STOPPED, hint=steer.status_command(place))
    place.steering.ask_cutover(now)
    below = span(min(seconds_of(job.until) for job in warm))
    when = "at once" if now else f"as soon as less than {below} is left to copy"
    names = ", ".join(job.name for job in warm)
    left = steer.time_left(place)
    words = f"{names}: to be stopped {when}" + (f" ({left})" if left else "")
    steer.show_request(terminal, place, "asked", words, now=now)
    return None
