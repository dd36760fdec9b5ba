"""`stateshift apply`: carry out a spec, or a plan that was saved."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import (
    WORKDIRS,
    FleetOf,
    Jobs,
    Json,
    Parallel,
    Throttle,
    Verbose,
    Workdirs,
    Yes,
    epilog,
)
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.migration import Doors, Proposal
    from stateshift.report import Report

EPILOG = epilog(
    "stateshift apply orders.json\nstateshift apply orders.plan --yes --json > report.json\n"
    "stateshift apply orders.plan --fleet spark://master:7077\n"
    "stateshift apply orders.json --continuous --yes",
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    130,
    e0="the image is at its target; the job runs there if the spec has a `submit`",
    e4=(
        "refused, stale, or a warm move that cannot catch up: the old job runs on, or its "
        "halt was undone"
    ),
    e8="another run holds the target or the workdir",
    e130="interrupted: `stateshift resume WORKDIR` continues",
)


def command(
    context: typer.Context,
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|FILE", help="The spec, or a plan saved by `stateshift plan -o`."
        ),
    ],
    yes: Yes = False,
    workdir: Annotated[
        str | None,
        typer.Option(
            "--workdir", metavar="D", help="Keep journal and report here, not in WORKDIRS/<run>."
        ),
    ] = None,
    job: Jobs = None,
    parallel: Parallel = None,
    throttle: Throttle = None,
    fleet: FleetOf = None,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous",
            help="Never stop the jobs. Keep at each target an image that a job can start from, "
            "until this ends or `stateshift cutover` asks for the switch.",
        ),
    ] = False,
    workdirs: Workdirs = WORKDIRS,
    json: Json = False,
    verbose: Verbose = 0,
) -> int | None:
    """Carry out a spec or a saved plan, and report.

    Asks first at a terminal, and needs --yes elsewhere. Ctrl-C finishes the current write. The
    journal keeps what was done, and `stateshift resume` continues.
    """
    from dataclasses import replace

    from stateshift import migration
    from stateshift.api.requests import read
    from stateshift.api.runs import refuse_another, run_name
    from stateshift.cli.shell import request
    from stateshift.cli.shell.work import carry_out, confirm
    from stateshift.cli.views import plan_text as render_plan
    from stateshift.workdir import Workdir

    terminal = Terminal.of(context, json, verbose)
    asked, only = read(spec), job or []
    wanted = request.overridden(
        asked.spec if isinstance(asked, migration.Proposal) else asked, parallel, throttle
    )
    if continuous:
        wanted = request.kept_fresh(wanted, only)
        asked = wanted  # what was saved stops its jobs
    refuse_no_master(fleet)
    if not yes and not terminal.someone_there:
        confirm(terminal, "", yes)  # before the reading, which may take a while
    if isinstance(asked, migration.Proposal):
        asked = replace(asked.of_jobs(only), spec=wanted)
    jobs = (
        asked.jobs() if isinstance(asked, migration.Proposal) else migration.jobs_of(wanted, only)
    )
    run = run_name([one.name for one in jobs], time.time(), os.urandom(2))
    place = Workdir(workdir or os.path.join(workdirs, run))
    refuse_another(place)
    if isinstance(asked, migration.Proposal):
        proposed = asked
    else:
        proposed = migration.propose(wanted, terminal.doors(), place, only)
    terminal.talk(
        render_plan.brief(proposed)
        if yes and not terminal.verbose
        else render_plan.proposal(proposed, terminal.verbose)
    )
    refuse_refused(proposed)
    confirm(terminal, "carry this out?", yes)

    def work(doors: Doors, begun: Callable[[], None]) -> Report:
        return migration.apply(proposed, run, place, doors, begun)

    return carry_out(terminal, place, work, wanted, fleet)


def refuse_no_master(fleet: str | None) -> None:
    """What is no master is refused before anything is read for it."""
    if fleet is not None:
        from stateshift.fleet import kind_of

        kind_of(fleet)


def refuse_refused(proposed: Proposal, typed: bool = False) -> None:
    """What was just shown cannot be carried out: say so without saying it all again. Of a job that
    was `typed`, hints that speak of a spec are of no use: what can be waived is waived on the
    command line.
    """
    from stateshift.cli.views import problems_json
    from stateshift.cli.views.units import many
    from stateshift.errors import PlanError

    refusals = proposed.refusals
    if refusals:
        hint = refusals[0].hint
        if typed and all(one.waive for one in refusals):
            names = dict.fromkeys(one.waive for one in refusals)
            hint = "to waive it: " + " ".join(f"--waive {name}" for name in names)
        raise PlanError(
            (
                f"{many(len(refusals), 'finding refuses', 'findings refuse')} this plan; "
                "nothing was done"
            ),
            hint=hint,
            findings=[problems_json.finding(one) for one in refusals],
        )
