"""`stateshift gather`: a Flink image, wherever its files lie, in one folder."""

from __future__ import annotations

import typer

from stateshift.cli.shell.options import WORKDIRS, Json, Parallel, Throttle, Verbose, Workdirs, Yes
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

EPILOG = ending("stateshift gather hdfs://nn/checkpoints/5f2c.../chk-42 --to s3://bucket/orders")


def command(
    context: typer.Context,
    source: Source,
    to: To,
    waive: Waive = None,
    yes: Yes = False,
    workdir: WorkdirHere = None,
    parallel: Parallel = None,
    throttle: Throttle = None,
    workdirs: Workdirs = WORKDIRS,
    json: Json = False,
    verbose: Verbose = 0,
) -> int:
    """Collect the files of a Flink image in one folder.

    An incremental checkpoint, one with a changelog and one with merged files name their files
    by full paths, and share them with other checkpoints of the job. The new image names only
    files beside it, so it can lie anywhere.
    """
    asked = Asked(Terminal.of(context, json, verbose), yes, workdir, workdirs, parallel, throttle)
    return carry(asked, [one_job(source, to, [], waive, fork=False)], "flink")
