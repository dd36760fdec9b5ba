"""`stateshift evolve`: other columns in the state, so that a changed job goes on with it."""

from __future__ import annotations

import json as plain_json
from contextlib import suppress
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
    "stateshift evolve /data/orders --to /data/orders-2 --add max:integer --widen total=long\n"
    "stateshift evolve /data/orders --to /data/orders-2 --operator 1 --add "
    "last:string=none@count --drop spare"
)


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: To,
    operator: Annotated[
        str, typer.Option("--operator", metavar="ID", help="The stateful operator.")
    ] = "0",
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            metavar="NAME",
            help="Its store, as `inspect --entries` calls it; repeatable. [default]",
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add",
            metavar="NAME:TYPE[=DEFAULT][@AFTER]",
            help="A new column; null if no default is given.",
        ),
    ] = None,
    widen: Annotated[
        list[str] | None,
        typer.Option(
            "--widen", metavar="NAME=TYPE", help="A wider type, such as long for integer."
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="OLD=NEW", help="Another name for a column."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="NAME", help="Remove a column.")
    ] = None,
    nullable: Annotated[
        list[str] | None,
        typer.Option(
            "--nullable", metavar="NAME", help="The column may be null from now on; * for all."
        ),
    ] = None,
    widen_key: Annotated[
        list[str] | None,
        typer.Option("--widen-key", metavar="NAME=TYPE", help="The same for a column of the key."),
    ] = None,
    rename_key: Annotated[
        list[str] | None,
        typer.Option("--rename-key", metavar="OLD=NEW", help="The same for a column of the key."),
    ] = None,
    nullable_key: Annotated[
        list[str] | None,
        typer.Option("--nullable-key", metavar="NAME", help="The same for a column of the key."),
    ] = None,
    waive: Waive = None,
    fork: Fork = False,
    no_sync: NoSync = False,
) -> int:
    """Change the columns of state that Spark refuses.

    Use it when the query has one aggregate more or less, or a wider column, or when a newer
    Spark treats a column as nullable and the old one did not. A new column holds its default
    for every key that exists. Write columns inside a struct with dots.
    """
    change = drop_empty(
        kind="evolve",
        operator=operator,
        add=[column_of(text) for text in add or ()],
        widen=pairs("--widen", "NAME=…", widen),
        rename=pairs("--rename", "NAME=…", rename),
        drop=drop,
        widen_key=pairs("--widen-key", "NAME=…", widen_key),
        rename_key=pairs("--rename-key", "NAME=…", rename_key),
        nullable=nullable,
        nullable_key=nullable_key,
    )
    changes = [{**change, "store": name} for name in store or ["default"]]
    job = one_job(source, to, changes, waive, fork_keys(fork, no_sync))
    return run_jobs(terminal, options, [job])


def column_of(text: str) -> Keys:
    """Return a column of NAME:TYPE[=DEFAULT][@AFTER]. A default is JSON, or else the text itself:
    of a string, a number is one, too. In quotes it may hold an @.
    """
    name, _, rest = text.partition(":")
    rest, after = _split_after(rest)
    kind, equals, default = rest.partition("=")
    if not (name and kind):
        raise typer.BadParameter(f"--add takes NAME:TYPE[=DEFAULT][@AFTER], not {text!r}")
    column: Keys = {"name": name, "type": kind}
    if equals:
        column["default"] = default
        with suppress(ValueError):
            value = plain_json.loads(default)
            if kind.strip().lower() != "string" or isinstance(value, str | None):
                column["default"] = value
    if after is not None:
        column["after"] = after
    return column


def _split_after(text: str) -> tuple[str, str | None]:
    """Return the text before the @, and the column after it; None if there is no @."""
    split = text.rpartition if "=" in text else text.partition
    before, at, after = split("@")
    is_inside_quotes = before.count('"') % 2 == 1
    if is_inside_quotes or not at:
        return text, None
    return before, after
