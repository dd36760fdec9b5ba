"""`stateshift repair`: a Flink image whose files are not where its metadata has them."""

from __future__ import annotations

from typing import Annotated

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

EPILOG = ending(
    "stateshift repair /ckpts/5f2c.../chk-42 --files /savepoints/savepoint-1 --to /ckpts/repaired"
)


def command(
    context: typer.Context,
    source: Source,
    files: Annotated[
        list[str],
        typer.Option(
            "--files", metavar="LOCATION", help="Where to look for these files. Repeatable."
        ),
    ],
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
    """Collect a Flink image whose files lie elsewhere.

    After a restore with CLAIM from a native savepoint, a checkpoint of Flink 2.2 or 2.3 says
    that the savepoint's files lie beside it. They do not, and it cannot be restored
    (FLINK-39964). The new image has these files.
    """
    asked = Asked(Terminal.of(context, json, verbose), yes, workdir, workdirs, parallel, throttle)
    return carry(
        asked,
        [one_job(source, to, [{"kind": "repair", "files": files}], waive, fork=False)],
        "flink",
    )
