"""`stateshift repair`: a Flink image whose files are not where its metadata has them."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import LocalRunOptions, Source, To, Waive
from stateshift.cli.shell.shortcut import one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog(
    "stateshift repair /ckpts/5f2c.../chk-42 --files /savepoints/savepoint-1 --to /ckpts/repaired",
    e7=None,
)


def command(
    terminal: Terminal,
    options: LocalRunOptions,
    source: Source,
    files: Annotated[
        list[str],
        typer.Option(
            "--files", metavar="LOCATION", help="Where to look for these files. Repeatable."
        ),
    ],
    to: To,
    waive: Waive = None,
) -> int:
    """Collect a Flink image whose files lie elsewhere.

    After a CLAIM restore from a native savepoint, checkpoints of Flink 2.2 and 2.3 look for
    the savepoint's files in their own folder. The files are not there, so the restore fails
    (FLINK-39964). The new image holds these files.
    """
    return run_jobs(
        terminal,
        options,
        [one_job(source, to, [{"kind": "repair", "files": files}], waive)],
        "flink",
    )
