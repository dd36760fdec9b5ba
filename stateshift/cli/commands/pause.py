"""`stateshift pause`: bring nothing for a while; the job runs on."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import WorkdirOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift pause .stateshift/20260301-120000-orders-1f3a\n"
    "stateshift pause .stateshift/20260301-120000-orders-1f3a --off",
    2,
    4,
    8,
    e0="paused after the current write, or continued",
    e4="the job has been stopped: a pause would keep it down",
)


def command(
    terminal: Terminal,
    workdir: WorkdirOf,
    off: Annotated[
        bool, typer.Option("--off", help="Continue; `stateshift resume WORKDIR` does the same.")
    ] = False,
) -> int | None:
    """Pause the copying of a warm move; its job runs on."""
    from shlex import quote

    from stateshift.cli.shell import steer
    from stateshift.errors import PlanError
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    progress = steer.refuse_over(place, "pause")
    if off:
        place.steering.pause(False)
        steer.show_request(terminal, place, "running", "it goes on")
        return None
    where = quote(str(place.path))
    if not place.held:
        raise PlanError(
            "no process works on this run now: there is nothing to pause",
            hint=steer.status_command(place),
        )
    if steer.is_halted(progress, place):
        raise PlanError(
            f"{steer.STOPPED}: a pause would keep it down",
            hint=f"stateshift rollback {where} takes the run back",
        )
    place.steering.pause(True)
    steer.show_request(
        terminal, place, "paused", f"paused; to go on: stateshift pause {where} --off"
    )
    return None
