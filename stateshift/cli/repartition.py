"""`stateshift repartition`: another number of state partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.options import WORKDIRS, FleetOf, Json, Parallel, Throttle, Verbose, Workdirs, Yes
from stateshift.cli.shortcut import Asked, Fork, Source, To, Waive, WorkdirHere, carry, ending, one_job
from stateshift.cli.terminal import Terminal

EPILOG = ending("stateshift repartition /data/orders --to /data/orders-64 --partitions 64")


def command(
    context: typer.Context,
    source: Source,
    to: To,
    partitions: Annotated[int, typer.Option("--partitions", metavar="N", min=1, help="How many.")],
    waive: Waive = None,
    fork: Fork = False,
    yes: Yes = False,
    workdir: WorkdirHere = None,
    parallel: Parallel = None,
    throttle: Throttle = None,
    fleet: FleetOf = None,
    workdirs: Workdirs = WORKDIRS,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Spread state over another number of partitions.

    For every kind of operator and both providers. The job goes on with that number: the checkpoint says it."""
    asked = Asked(Terminal.of(context, json, verbose), yes, workdir, workdirs, parallel, throttle, fleet)
    job = one_job(source, to, [{"kind": "repartition", "partitions": partitions}], waive, fork)
    return carry(asked, [job])
