"""`stateshift split`: the state of one job as several parts: keys of a checkpoint, operators of
a savepoint.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stateshift.cli.shell.options import RunOptions, Source, Waive, names_in
from stateshift.cli.shell.shortcut import carry, ending, one_job
from stateshift.cli.shell.terminal import Terminal

EPILOG = ending(
    "stateshift split /data/orders --to /data/orders-a --to /data/orders-b\n"
    "stateshift split /data/orders --to /eu --to /us --column country --values de,fr --values us\n"
    "stateshift split /data/savepoint-1 --to /a --to /b --operators source-a,sum-a "
    "--operators source-b,sum-b"
)


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: Annotated[
        list[str],
        typer.Option("--to", metavar="LOCATION", help="Where a part goes; once per part."),
    ],
    column: Annotated[
        str | None,
        typer.Option(
            "--column", metavar="NAME", help="The key column that decides; else shards do."
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--values",
            metavar="V,V…",
            help="The column's values in a part; once per part, in its order.",
        ),
    ] = None,
    operators: Annotated[
        list[str] | None,
        typer.Option(
            "--operators",
            metavar="UID,…",
            help="Of a savepoint: the operators of a part; once per part.",
        ),
    ] = None,
    waive: Waive = None,
) -> int:
    """Divide a job's state into several images.

    A Spark checkpoint is divided by ranges of shards, or by the values of a key column. Each
    part is a query of its own; give its job only the input of its own keys. A Flink savepoint
    is divided by operators.
    """
    if (column is None) != (not values) or (values and len(values) != len(to)):
        raise typer.BadParameter(
            "--column and --values go together, with one --values for each --to"
        )
    if operators and (column or len(operators) != len(to)):
        raise typer.BadParameter(
            "--operators is for savepoints, with one --operators for each --to"
        )
    _refuse_twice("--values", values or [])
    _refuse_twice("--operators", operators or [])
    if operators:
        return carry(terminal, options, _by_operators(source, to, operators, waive), "flink")
    jobs = []
    for number, target in enumerate(to):
        part: dict[str, Any] = {"by": len(to), "part": number}
        if column is not None and values:
            part = {"column": column, "values": values[number]}
        job = one_job(source, target, [{"kind": "split", **part}], waive, fork=True)
        jobs.append({**job, "name": f"{job['name']}-{number}"})
    return carry(terminal, options, jobs)


def _by_operators(
    source: str, to: list[str], operators: list[str], waive: list[str] | None
) -> list[dict[str, Any]]:
    return [
        {
            **one_job(source, target, [], waive, fork=True),
            "name": f"part-{number}",
            "operators": names_in(named),
        }
        for number, (target, named) in enumerate(zip(to, operators, strict=True))
    ]


def _refuse_twice(flag: str, values: list[str]) -> None:
    """What two parts take along would go on in two jobs."""
    named = [
        value for part in values for value in sorted({value.strip() for value in part.split(",")})
    ]
    twice = next((value for value in named if named.count(value) > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"{flag} names {twice!r} in two parts")
