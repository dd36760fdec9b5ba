"""`stateshift move`: a job's image to another place, without a spec to write."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from stateshift.cli.shell.options import RunOptions, Source, To, Waive, WasAt
from stateshift.cli.shell.shortcut import (
    Keys,
    drop_empty,
    name_of_place,
    one_job,
    run_epilog,
    run_jobs,
)
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog(
    "stateshift move /data/orders --to s3://lake/orders\n"
    "stateshift move /data/orders --to s3://lake/orders --start ./start-orders\n"
    "stateshift move /data/orders --to /new/orders --warm --stop ./stop --start ./start",
    e0="the image is at its target; with --start, its job has committed",
    e7="a cluster or the fleet failed",
)

# The names of the clusters in the spec that is written.
COMMANDS, PERSON = "commands", "person"


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: To,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="COMMAND",
            help="Starts the job at its new place: a shell command. It finds the location in "
            "$STATESHIFT_CHECKPOINT. The move ends when that job has committed.",
        ),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option(
            "--stop",
            metavar="COMMAND",
            help="Stops the job where it runs now: a shell command. It finds the location in "
            "$STATESHIFT_CHECKPOINT. Needs --start.",
        ),
    ] = None,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm",
            help="Copy while the job runs, and stop it for the last batches. Without --stop you "
            "are asked to stop it.",
        ),
    ] = False,
    was_at: WasAt = None,
    waive: Waive = None,
) -> int:
    """Move a job's image; with --start, start the job there.

    Writes the spec, shows the plan, asks, and carries it out. Without --stop, stop the job
    yourself first; the old image is fenced. The spec is kept in the workdir: edit and `apply` it
    if you need more than these options.
    """
    if stop is not None and start is None:
        raise typer.BadParameter("--stop needs --start: a job that is stopped is started again")
    job = one_job(source, to, [], waive)
    job |= {"name": name_of_place(source), **drop_empty(was_at=was_at), **_ends(start, stop, warm)}
    return run_jobs(terminal, options, [job], clusters=_clusters(start, stop, warm))


def _ends(start: str | None, stop: str | None, warm: bool) -> Keys:
    """Return the options of the job's start and end."""
    keys: Keys = {}
    if warm:
        keys["mode"] = "warm"
    if stop is not None:
        keys["source_cluster"] = COMMANDS
    elif warm:
        keys["source_cluster"] = PERSON
    if start is not None:
        keys |= {"target_cluster": COMMANDS, "submit": {}}
    return keys


def _clusters(start: str | None, stop: str | None, warm: bool) -> Keys:
    """Return the clusters that the job names."""
    clusters: Keys = {}
    if start is not None:
        # A resume may be typed elsewhere, and means the same commands.
        directory = os.getcwd()
        clusters[COMMANDS] = drop_empty(kind="command", submit=start, cwd=directory, stop=stop)
    if warm and stop is None:
        clusters[PERSON] = {"kind": "manual"}
    return clusters
