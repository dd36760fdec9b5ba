"""`stateshift compact`: one snapshot for each shard in place of a chain of changes."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Fork, NoSync, RunOptions, Source, Waive
from stateshift.cli.shell.shortcut import (
    drop_empty,
    fork_keys,
    in_place_job,
    one_job,
    run_epilog,
    run_jobs,
)
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
KeepTables = Annotated[
    bool,
    typer.Option(
        "--keep-tables",
        help="Keep RocksDB's tables byte for byte; changelogs become one more.",
    ),
]


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: ToOrInPlace = None,
    in_place: InPlace = False,
    keep_tables: KeepTables = False,
    waive: Waive = None,
    fork: Fork = False,
    no_sync: NoSync = False,
) -> int:
    """Copy a checkpoint with as few files as possible.

    Each shard becomes one snapshot (HDFS-backed) or one consolidated state (RocksDB). Empty
    changes and history are left out. --in-place changes the checkpoint itself; its job must be
    stopped. Replaced files go to _stateshift/superseded/; rollback restores them until the
    job has committed again.

    --keep-tables costs little more than the copy: tables of a RocksDB state stay as they are, and
    one table more holds what the changelogs write. The job's own RocksDB compacts them later. It
    is refused for column families, row checksums and checkpoint format 2.
    """
    if bool(to) == in_place:
        raise typer.BadParameter("compact takes --to LOCATION or --in-place")
    if fork and in_place:
        raise typer.BadParameter("--fork needs --to LOCATION")
    mode = fork_keys(fork, no_sync)
    asked = drop_empty(in_place=in_place or None, keep_tables=keep_tables or None)
    changes = [{"kind": "compact", **asked}]
    job = one_job(source, to, changes, waive, mode) if to else in_place_job(source, changes, waive)
    return run_jobs(terminal, options, [job])
