"""`stateshift repartition`: another number of state partitions, of subtasks or of key groups."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Fork, NoSync, RunOptions, Source, To, Waive
from stateshift.cli.shell.shortcut import Keys, drop_empty, fork_keys, one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog(
    "stateshift repartition /data/orders --to /data/orders-64 --partitions 64\n"
    "stateshift repartition /data/savepoint-1 --to /data/savepoint-256 --max-parallelism 256"
)


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: To,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", metavar="N", min=1, help="How many, of a Spark checkpoint."),
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option(
            "--parallelism", metavar="N", min=1, help="Of a savepoint: how many subtasks."
        ),
    ] = None,
    max_parallelism: Annotated[
        int | None,
        typer.Option(
            "--max-parallelism", metavar="N", min=1, help="Of a savepoint: how many key groups."
        ),
    ] = None,
    waive: Waive = None,
    fork: Fork = False,
    no_sync: NoSync = False,
) -> int:
    """Distribute state over another number of partitions.

    Works for every kind of Spark operator and both providers. The checkpoint records the
    number, and the job uses it. A Flink savepoint gets another parallelism or another max
    parallelism. For the latter it must be canonical, with keys that are strings, integers, longs
    or tuples of them.
    """
    rescaled = drop_empty(parallelism=parallelism, max_parallelism=max_parallelism)
    if (partitions is None) == (not rescaled):
        raise typer.BadParameter(
            "--partitions for a checkpoint of Spark; --parallelism, --max-parallelism for Flink's"
        )
    change: Keys = {"kind": "repartition", "partitions": partitions}
    if rescaled:
        change = {"kind": "rescale", **rescaled}
    job = one_job(source, to, [change], waive, fork_keys(fork, no_sync))
    return run_jobs(terminal, options, [job], "flink" if rescaled else None)
