"""The common part of cutover, pause and throttle: they ask something of a run through its workdir,
and say what it is at. Nothing is done here; a run that nobody works on heeds it when it is resumed.
"""

from __future__ import annotations

from shlex import quote

from stateshift import migration
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views.text import Line
from stateshift.cli.views.units import span
from stateshift.documents.run import steering
from stateshift.errors import PlanError
from stateshift.journal import Progress
from stateshift.specification import JobSpec
from stateshift.workdir import Workdir

OVER = ("finished", "rolled-back")
STOPPED = "the job is being stopped, or has been"


def show_request(
    terminal: Terminal, workdir: Workdir, state: str, words: str, **more: object
) -> None:
    """Show the request, and whether a process is there to heed it."""
    held = workdir.held
    if terminal.json:
        live = workdir.steering.live() if held else None
        terminal.document("steering", steering(state, held, str(workdir.path), live, more))
        return
    terminal.show([Line(words)])
    if not held:
        again = f"stateshift resume {quote(str(workdir.path))}"
        terminal.say(f"no process works on this run now: it takes effect once `{again}` goes on")


def status_command(workdir: Workdir) -> str:
    """Return the command that shows where the run stands."""
    return f"stateshift status {quote(str(workdir.path))}"


def refuse_over(workdir: Workdir, what: str) -> Progress:
    """Return the progress of a run; one that is over cannot be steered."""
    workdir.require()
    progress = migration.progress_of(workdir)
    if progress.state in OVER:
        raise PlanError(
            f"the run is {progress.state}: there is nothing to {what}",
            hint=status_command(workdir),
        )
    return progress


def warm_jobs(workdir: Workdir, progress: Progress) -> list[JobSpec]:
    """Return the jobs of the run that are copied while they run."""
    jobs = [job for job in migration.spec_of(workdir).jobs if job.mode == "warm"]
    return [job for job in jobs if job.name in progress.jobs]


def time_left(workdir: Workdir) -> str:
    """Return the downtime of each job if it stopped now; empty if no process is at work."""
    live = workdir.steering.live() if workdir.held else None
    if live is None:
        return ""
    return ", ".join(f"{job}: {span(rest.seconds)} left" for job, rest in live.left.items())


def is_halted(progress: Progress, workdir: Workdir) -> bool:
    """Return whether every job of the run that was followed has been stopped by now. One that is
    followed again, behind a stop that failed, has something left.
    """
    live = workdir.steering.live() if workdir.held else None
    if live is not None and live.left:
        return False
    halted = {plan.job for plan in progress.plans if migration.is_stopping(plan)}
    return halted.issuperset(progress.jobs)
