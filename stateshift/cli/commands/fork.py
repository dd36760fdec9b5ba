"""`stateshift fork`: a copy with an identity of its own."""

from __future__ import annotations

import typer

from stateshift.cli.shell.options import (
    WORKDIRS,
    FleetOf,
    Json,
    Parallel,
    Throttle,
    Verbose,
    Workdirs,
    Yes,
)
from stateshift.cli.shell.shortcut import (
    Asked,
    Source,
    To,
    Waive,
    WorkdirHere,
    carry,
    ending,
    one_job,
)
from stateshift.cli.shell.terminal import Terminal

EPILOG = ending("stateshift fork /data/orders --to /test/orders")


def command(
    context: typer.Context,
    source: Source,
    to: To,
    waive: Waive = None,
    yes: Yes = False,
    workdir: WorkdirHere = None,
    parallel: Parallel = None,
    throttle: Throttle = None,
    fleet: FleetOf = None,
    workdirs: Workdirs = WORKDIRS,
    json: Json = False,
    verbose: Verbose = 0,
) -> int:
    """Copy a checkpoint for another job; its own job runs on.

    The copy gets a query id of its own, so that idempotent sinks do not take it for the
    original.
    """
    asked = Asked(
        Terminal.of(context, json, verbose), yes, workdir, workdirs, parallel, throttle, fleet
    )
    return carry(asked, [one_job(source, to, [], waive, fork=True)])
