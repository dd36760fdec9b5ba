"""What cutover, pause and throttle have in common: they ask something of a run through its workdir,
and say what it is at. Nothing is done here; a run that nobody works on heeds it when it is resumed.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from stateshift.cli.views import run_json
from stateshift.cli.views.text import Line

if TYPE_CHECKING:
    from stateshift.cli.shell.terminal import Terminal
    from stateshift.journal import Progress
    from stateshift.workdir import Workdir

OVER = ("finished", "rolled-back")
STOPPED = "the job is being stopped, or has been"


def asked(terminal: Terminal, workdir: Workdir, state: str, told: str, **more: Any) -> None:
    """What was asked for, and whether somebody is there to heed it."""
    held = workdir.held
    if terminal.json:
        live = workdir.steering.live() if held else None
        terminal.document("steering", run_json.steering(state, held, str(workdir.path), live, more))
        return
    terminal.show([Line(told)])
    if not held:
        again = f"stateshift resume {quote(str(workdir.path))}"
        terminal.talk(
            [Line(f"no process works on this run now: it takes effect once `{again}` goes on")]
        )


def refuse_over(workdir: Workdir, what: str) -> Progress:
    """What is over cannot be steered; what it stands at otherwise."""
    from stateshift import migration
    from stateshift.errors import PlanError

    workdir.require()
    progress = migration.progress_of(workdir)
    if progress.state in OVER:
        raise PlanError(
            f"the run is {progress.state}: there is nothing to {what}",
            hint=f"stateshift status {quote(str(workdir.path))}",
        )
    return progress


def is_halted(progress: Progress, workdir: Workdir) -> bool:
    """Whether every job of the run that was followed has been stopped by now. One that is followed
    again, behind a stop that failed, has something left.
    """
    from stateshift import migration

    live = workdir.steering.live() if workdir.held else None
    if live is not None and live.left:
        return False
    halted = {plan.job for plan in progress.plans if migration.is_stopping(plan)}
    return all(job in halted for job in progress.jobs)
