"""`stateshift compact`: one snapshot for each shard in place of a chain of changes."""

from __future__ import annotations

import typer

from stateshift.cli.options import WORKDIRS, FleetOf, Json, Parallel, Throttle, Verbose, Workdirs, Yes
from stateshift.cli.shortcut import Asked, Fork, Source, To, Waive, WorkdirHere, carry, ending, one_job
from stateshift.cli.terminal import Terminal

EPILOG = ending("stateshift compact /data/orders --to /data/orders-small")


def command(
    context: typer.Context,
    source: Source,
    to: To,
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
    """Bring a checkpoint over with few files.

    For each shard one snapshot (HDFS-backed) or one consolidated state (RocksDB); empty changes and history are
    left behind."""
    asked = Asked(Terminal.of(context, json, verbose), yes, workdir, workdirs, parallel, throttle, fleet)
    job = one_job(source, to, [{"kind": "compact"}], waive, fork)
    return carry(asked, [job])
