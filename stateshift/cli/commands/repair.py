"""`stateshift repair`: an image whose files are not where it says that they are."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import LocalRunOptions, Source, To, Waive, WasAt
from stateshift.cli.shell.shortcut import name_of_place, one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog(
    "stateshift repair s3://dr/orders --to s3://dr/orders-2 --was-at s3://lake/orders\n"
    "stateshift repair /ckpts/5f2c.../chk-42 --files /savepoints/savepoint-1 --to /ckpts/repaired",
    e7=None,
)


def command(
    terminal: Terminal,
    options: LocalRunOptions,
    source: Source,
    to: To,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--files",
            metavar="LOCATION",
            help="Where to look for files of a Flink image. Repeatable.",
        ),
    ] = None,
    was_at: WasAt = None,
    waive: Waive = None,
) -> int:
    """Collect an image that names files elsewhere.

    A Spark checkpoint that was copied by other means (distcp, a renamed bucket) may name the place
    where it was made: --was-at. The new image names its own.

    After a CLAIM restore from a native savepoint, checkpoints of Flink 2.2 and 2.3 look for
    the savepoint's files in their own folder. The files are not there, so the restore fails
    (FLINK-39964). The new image holds the files that are found in --files.
    """
    if bool(files) == bool(was_at):
        raise typer.BadParameter("repair takes --was-at OLD (Spark) or --files LOCATION (Flink)")
    if was_at:
        job = one_job(source, to, [], waive) | {"name": name_of_place(source), "was_at": was_at}
        return run_jobs(terminal, options, [job], "spark")
    job = one_job(source, to, [{"kind": "repair", "files": files}], waive)
    return run_jobs(terminal, options, [job], "flink")
