"""`stateshift compact`: one snapshot for each shard in place of a chain of changes."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Fork, RunOptions, Source, Waive
from stateshift.cli.shell.shortcut import in_place_job, one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog(
    "stateshift compact /data/orders --to /data/orders-small\nstateshift compact "
    "/data/orders --in-place"
)
ToOrInPlace = Annotated[
    str | None,
    typer.Option("--to", metavar="LOCATION", help="Where the new image goes. Must be empty."),
]
InPlace = Annotated[
    bool,
    typer.Option(
        "--in-place", help="Change the checkpoint where it lies. The job must be stopped."
    ),
]


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: ToOrInPlace = None,
    in_place: InPlace = False,
    waive: Waive = None,
    fork: Fork = False,
) -> int:
    """Copy a checkpoint with as few files as possible.

    Each shard becomes one snapshot (HDFS-backed) or one consolidated state (RocksDB). Empty
    changes and history are left out. --in-place changes the checkpoint itself; its job must be
    stopped. Replaced files go to _stateshift/superseded/; rollback restores them until the
    job has committed again.
    """
    if bool(to) == in_place:
        raise typer.BadParameter("compact takes --to LOCATION or --in-place")
    if fork and in_place:
        raise typer.BadParameter("--fork needs --to LOCATION")
    if to:
        job = one_job(source, to, [{"kind": "compact"}], waive, fork)
    else:
        job = in_place_job(source, [{"kind": "compact", "in_place": True}], waive)
    return run_jobs(terminal, options, [job])
