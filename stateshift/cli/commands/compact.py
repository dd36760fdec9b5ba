"""`stateshift compact`: one snapshot for each shard in place of a chain of changes."""

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
    Waive,
    WorkdirHere,
    carry,
    ending,
    in_place_job,
    one_job,
)
from stateshift.cli.shell.terminal import Terminal

EPILOG = ending(
    "stateshift compact /data/orders --to /data/orders-small\nstateshift compact "
    "/data/orders --in-place"
)
ToOrInPlace = Annotated[
    str | None,
    typer.Option("--to", metavar="LOCATION", help="Where the changed image goes: an empty place."),
]
InPlace = Annotated[
    bool, typer.Option("--in-place", help="Where it lies, instead; its job has to be stopped.")
]


def command(
    context: typer.Context,
    source: Source,
    to: ToOrInPlace = None,
    in_place: InPlace = False,
    waive: Waive = None,
    fork: Fork = False,
    yes: Yes = False,
    workdir: WorkdirHere = None,
    parallel: Parallel = None,
    throttle: Throttle = None,
    fleet: FleetOf = None,
    workdirs: Workdirs = WORKDIRS,
    json: Json = False,
    verbose: Verbose = 0,
) -> int:
    """Bring a checkpoint over with few files.

    For each shard one snapshot (HDFS-backed) or one consolidated state (RocksDB); empty changes and
    history are left behind. With --in-place the checkpoint of a stopped job gets fewer files where
    it lies; what they replace is set aside in its _stateshift/superseded/, and a rollback puts it
    back until the job has gone on.
    """
    if bool(to) == in_place:
        raise typer.BadParameter("compact takes --to LOCATION or --in-place")
    asked = Asked(
        Terminal.of(context, json, verbose), yes, workdir, workdirs, parallel, throttle, fleet
    )
    if to:
        return carry(asked, [one_job(source, to, [{"kind": "compact"}], waive, fork)])
    if fork:
        raise typer.BadParameter("--fork needs --to LOCATION")
    return carry(asked, [in_place_job(source, [{"kind": "compact", "in_place": True}], waive)])
