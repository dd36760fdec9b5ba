"""`stateshift rewind`: go back to an earlier batch."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Fork, NoSync, RunOptions, Source, To, Waive
from stateshift.cli.shell.shortcut import drop_empty, fork_keys, one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog("stateshift rewind /data/orders --to /data/orders-41 --batch 41")

Renumber = Annotated[
    bool,
    typer.Option(
        "--renumber",
        help="Give batch N the newest batch's number, so that a sink that skips known batch "
        "numbers accepts the next one.",
    ),
]


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: To,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=0, help="The last batch that counts.")
    ],
    waive: Waive = None,
    fork: Fork = False,
    no_sync: NoSync = False,
    renumber: Renumber = False,
) -> int:
    """Copy a checkpoint as of an earlier batch.

    `stateshift verify LOCATION` lists the batches that can be restored. The job reads the input
    after that batch again.
    """
    change = drop_empty(kind="rewind", batch=batch, renumber=renumber or None)
    job = one_job(source, to, [change], waive, fork_keys(fork, no_sync))
    return run_jobs(terminal, options, [job])
