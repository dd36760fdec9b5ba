"""`stateshift rewind`: go back to an earlier batch."""

from __future__ import annotations

from typing import Annotated

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
    Fork,
    Source,
    To,
    Waive,
    WorkdirHere,
    carry,
    ending,
    one_job,
)
from stateshift.cli.shell.terminal import Terminal

EPILOG = ending("stateshift rewind /data/orders --to /data/orders-41 --batch 41")

Renumber = Annotated[
    bool,
    typer.Option(
        "--renumber",
        help="Give batch N the newest batch's number, so that a sink that skips known batch "
        "numbers accepts the next one.",
    ),
]


def command(
    context: typer.Context,
    source: Source,
    to: To,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=0, help="The last batch that counts.")
    ],
    waive: Waive = None,
    fork: Fork = False,
    renumber: Renumber = False,
    yes: Yes = False,
    workdir: WorkdirHere = None,
    parallel: Parallel = None,
    throttle: Throttle = None,
    fleet: FleetOf = None,
    workdirs: Workdirs = WORKDIRS,
    json: Json = False,
    verbose: Verbose = 0,
) -> int:
    """Copy a checkpoint as of an earlier batch.

    `stateshift verify LOCATION` lists the batches that can be restored. The job reads the input
    after that batch again.
    """
    asked = Asked(
        Terminal.of(context, json, verbose), yes, workdir, workdirs, parallel, throttle, fleet
    )
    change = {"kind": "rewind", "batch": batch, **({"renumber": True} if renumber else {})}
    job = one_job(source, to, [change], waive, fork)
    return carry(asked, [job])
