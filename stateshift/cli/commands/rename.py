"""`stateshift rename`: other ids for operators and sources, or none."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Fork, NoSync, RunOptions, Source, To, Waive
from stateshift.cli.shell.shortcut import (
    Keys,
    drop_empty,
    fork_keys,
    one_job,
    pairs,
    run_epilog,
    run_jobs,
)
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog(
    "stateshift rename /data/orders --to /data/orders-2 --operator 0=1 --operator 1=0"
)


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: To,
    operator: Annotated[
        list[str] | None,
        typer.Option("--operator", metavar="OLD=NEW", help="An operator's id or uid. Repeatable."),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="OLD=NEW", help="A source's index or name. Repeatable."),
    ] = None,
    drop_operator: Annotated[
        list[str] | None,
        typer.Option("--drop-operator", metavar="ID", help="Leave its state behind."),
    ] = None,
    drop_source: Annotated[
        list[str] | None,
        typer.Option("--drop-source", metavar="ID", help="Leave its offsets behind."),
    ] = None,
    waive: Waive = None,
    fork: Fork = False,
    no_sync: NoSync = False,
) -> int:
    """Rename or drop operators and sources.

    Use it when a changed job would not find its state: Spark numbers operators and sources
    differently, or a Flink operator has another uid.
    """
    named = drop_empty(
        operators=pairs("--operator", "OLD=NEW", operator),
        sources=pairs("--source", "OLD=NEW", input),
    )
    dropped = drop_empty(operators=drop_operator, sources=drop_source)
    changes: list[Keys] = []
    if named or not dropped:
        changes.append({"kind": "rename", **named})
    if dropped:
        changes.append({"kind": "drop", **dropped})
    job = one_job(source, to, changes, waive, fork_keys(fork, no_sync))
    return run_jobs(terminal, options, [job])
