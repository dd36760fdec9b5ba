"""`stateshift plan`: what would be done. Reads, and changes nothing but the file named by -o."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer

from stateshift.cli.shell.options import (
    WORKDIRS,
    Jobs,
    Parallel,
    Throttle,
    Workdirs,
    epilog,
    refuse_no_file,
)
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift plan orders.json -o orders.plan",
    2,
    3,
    4,
    6,
    7,
    e0="the plan can be carried out",
    e4="a finding says refuse; the plan is shown",
)


def command(
    terminal: Terminal,
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="The spec, or a saved plan to look at again.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Save the plan for `stateshift apply FILE`."
        ),
    ] = None,
    job: Jobs = None,
    parallel: Parallel = None,
    throttle: Throttle = None,
    workdirs: Workdirs = WORKDIRS,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Read every byte that a restart needs, as `verify --deep` and `apply` do.",
        ),
    ] = False,
) -> int | None:
    """Show what would be done, how long it takes, the risks.

    Shows phases, files, bytes, an estimate of time and downtime, and all findings. Only reads.
    `stateshift apply` carries it out. It plans again once the job has stopped, and exits with 4
    if source or target no longer fit.
    """
    from dataclasses import replace

    from stateshift.api.requests import move_of, save
    from stateshift.cli.shell.request import overridden
    from stateshift.cli.views import plan_text as render_plan
    from stateshift.documents.plan import plan_document, plan_facts
    from stateshift.errors import PlanError
    from stateshift.migration import Proposal, processes_for, propose
    from stateshift.workdir import Workdir

    if output is not None:
        _refuse_output(spec, output)  # before the reading, which may take a while
    given, only = move_of(spec), job or []
    if isinstance(given, Proposal):
        proposal = given.of_jobs(only)
    else:
        workdir = Workdir(os.path.join(workdirs, "plan"))
        given = overridden(given, parallel, throttle)
        proposal = propose(given, terminal.adapters(), workdir, only, deep)
    processes = processes_for(proposal.plans, proposal.spec.parallel)
    facts = replace(plan_facts(proposal), processes=processes)
    terminal.answer(
        "plan",
        lambda: plan_document(facts, terminal.verbose),
        render_plan.proposal(facts, terminal.verbose),
    )
    if output is not None:
        save(proposal, output)
        if proposal.refusals:
            terminal.say("saved; it is refused as it stands")
        else:
            terminal.say(f"saved; carry it out with: stateshift apply {shlex.quote(output)}")
    return PlanError.exit_code if proposal.refusals else None


def _refuse_output(spec: str, output: str) -> None:
    """Refuse a file that is read, or that cannot be written."""
    from stateshift.errors import Complaint, SpecError

    if _same(spec, output):
        stem = os.path.splitext(output)[0]
        other = f"{stem}.plan"
        if _same(spec, other):
            other = f"{stem}-2.plan"
        raise SpecError(
            (Complaint("-o", f"{output} is the file that is read: the plan would take its place"),),
            hint=f"give it another name: -o {shlex.quote(other)}",
        )
    refuse_no_file("-o", output, "a plan", "plan.json")


def _same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)
