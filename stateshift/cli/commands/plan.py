"""`stateshift plan`: what would be done. Reads, and changes nothing but the file named by -o."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import (
    WORKDIRS,
    Jobs,
    Parallel,
    Throttle,
    Workdirs,
    epilog,
)
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    pass

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
    `stateshift apply` does what is shown, planned again once the job has stopped; if what is found
    no longer fits, it exits with 4.
    """
    from stateshift.api.requests import read, save
    from stateshift.cli.shell import request
    from stateshift.cli.views import plan_json
    from stateshift.cli.views import plan_text as render_plan
    from stateshift.cli.views.plan_facts import plan_facts
    from stateshift.errors import PlanError
    from stateshift.migration import Proposal, propose
    from stateshift.workdir import Workdir

    if output is not None:
        _refuse_output(spec, output)  # before the reading, which may take a while
    asked, only = read(spec), job or []
    if not isinstance(asked, Proposal):
        asked = request.overridden(asked, parallel, throttle)
        asked = propose(
            asked, terminal.adapters(), Workdir(os.path.join(workdirs, "plan")), only, deep
        )
    else:
        asked = asked.of_jobs(only)
    if terminal.json:
        terminal.document("plan", plan_json.document(plan_facts(asked), terminal.verbose))
    else:
        terminal.show(render_plan.proposal(asked, terminal.verbose))
    if output is not None:
        save(asked, output)
        again = f"carry it out with: stateshift apply {shlex.quote(output)}"
        terminal.say(f"saved; {'it is refused as it stands' if asked.refusals else again}")
    return PlanError.exit_code if asked.refusals else None


def _refuse_output(spec: str, output: str) -> None:
    """The plan goes to a file of its own, in a directory that is there."""
    from stateshift.errors import Complaint, SpecError, StorageError

    if _same(spec, output):
        stem = os.path.splitext(output)[0]
        other = f"{stem}.plan" if not _same(spec, f"{stem}.plan") else f"{stem}-2.plan"
        raise SpecError(
            (Complaint("-o", f"{output} is the file that is read: the plan would take its place"),),
            hint=f"give it another name: -o {shlex.quote(other)}",
        )
    if os.path.isdir(output):
        raise SpecError(
            (Complaint("-o", f"{output} is a directory, and a plan is a file"),),
            hint=f"-o {shlex.quote(os.path.join(output, 'plan.json'))}",
        )
    folder = os.path.dirname(output)
    if folder and not os.path.isdir(folder):
        raise StorageError(
            f"-o {output}: the directory {folder} is not there",
            location=output,
            hint=f"mkdir -p {shlex.quote(folder)}",
        )


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
