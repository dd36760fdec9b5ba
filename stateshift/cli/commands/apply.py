"""`stateshift apply`: carry out a spec, or a plan that was saved."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Jobs, RunOptions, epilog
from stateshift.cli.shell.terminal import Terminal

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
    10,
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
    terminal: Terminal,
    options: RunOptions,
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|FILE", help="The spec, or a plan saved by `stateshift plan -o`."
        ),
    ],
    job: Jobs = None,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous",
            help="Never stop the jobs. Keep at each target an image that a job can start from, "
            "until this ends or `stateshift cutover` asks for the switch.",
        ),
    ] = False,
) -> int | None:
    """Carry out a spec or a saved plan, and report.

    Asks first at a terminal, and needs --yes elsewhere. Ctrl-C finishes the current write. The
    journal keeps what was done, and `stateshift resume` continues.
    """
    from stateshift.cli.shell.launch import launch
    from stateshift.cli.shell.request import request_in

    return launch(terminal, options, request_in(spec, job or [], options, continuous))
