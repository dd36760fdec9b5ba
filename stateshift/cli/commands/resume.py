"""`stateshift resume`: go on where the journal ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import FleetOf, WorkdirOf, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.migration import Adapters
    from stateshift.report import Report

EPILOG = epilog(
    "stateshift resume .stateshift/20260301-120000-orders-1f3a\n"
    "stateshift resume .stateshift/20260301-120000-orders-1f3a --spec corrected.json",
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    130,
    e0="the image is at its target, its job runs if there is a `submit`; or the rollback is done",
    e4="source or target changed since the plan was made",
    e130="interrupted: the same command continues",
)

OVER = {"finished": "is finished", "rolled-back": "was rolled back"}


def command(
    terminal: Terminal,
    workdir: WorkdirOf,
    spec: Annotated[
        str | None,
        typer.Option(
            "--spec",
            metavar="FILE",
            help="The same spec with another `submit`: jobs start as that says.",
        ),
    ] = None,
    fleet: FleetOf = None,
) -> int | None:
    """Continue a run where it stopped.

    Works with or without a fleet, whichever the run began with.
    """
    from stateshift import migration
    from stateshift.api.requests import spec_of
    from stateshift.cli.shell import steer
    from stateshift.cli.shell.launch import refuse_unknown_master
    from stateshift.cli.shell.work import carry_out
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    place.require()
    refuse_unknown_master(fleet)
    state = migration.progress_of(place).state
    if state in OVER:
        unused = "" if spec is None else f"; {spec} changes nothing"
        terminal.say(f"nothing is left to do: the run {OVER[state]}{unused}")
    if place.held and place.steering.wishes().paused:
        place.steering.pause(False)
        steer.show_request(terminal, place, "running", "it was paused, and goes on")
        return None
    corrected = None if spec is None else spec_of(spec)
    asked = None
    if state not in (*OVER, "rolling-back"):  # else there is nothing that others would do
        asked = migration.spec_of(place)

    def work(adapters: Adapters, begun: Callable[[], None]) -> Report:
        return migration.resume(place, adapters, corrected, begun)

    return carry_out(terminal, place, work, asked, fleet)
