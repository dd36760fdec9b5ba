"""`stateshift convert`: another state store provider, codec or checkpoint format, or another
version of Flink.
"""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Fork, NoSync, RunOptions, Source, To, Waive
from stateshift.cli.shell.shortcut import drop_empty, fork_keys, one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog(
    "stateshift convert /data/orders --to /data/orders-rocksdb --provider rocksdb\n"
    "stateshift convert /data/savepoint-1 --to /data/savepoint-for-1.20 --flink 1.20"
)


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: To,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="P", help="hdfs-backed or rocksdb.")
    ] = None,
    codec: Annotated[
        str | None, typer.Option("--codec", metavar="C", help="lz4, zstd, snappy or lzf.")
    ] = None,
    checkpoint_format: Annotated[
        str | None,
        typer.Option(
            "--checkpoint-format", metavar="V", help="v1, for a Spark that knows no other."
        ),
    ] = None,
    flink: Annotated[
        str | None,
        typer.Option(
            "--flink",
            metavar="V",
            help="Of a savepoint: the Flink that will read it, such as 1.20.",
        ),
    ] = None,
    waive: Waive = None,
    fork: Fork = False,
    no_sync: NoSync = False,
) -> int:
    """Write state for another provider, codec or format.

    The checkpoint records how its state is kept, so the job's configuration stays as it is.
    --flink writes a savepoint's metadata for another version of Flink.
    """
    change = drop_empty(
        kind="convert",
        provider=provider,
        codec=codec,
        checkpoint_format=checkpoint_format,
        flink=flink,
    )
    job = one_job(source, to, [change], waive, fork_keys(fork, no_sync))
    return run_jobs(terminal, options, [job])
