"""`stateshift split`: the state of one job as several parts: keys of a checkpoint, operators of
a savepoint.
"""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import NoSync, RunOptions, Source, Waive, names_in
from stateshift.cli.shell.shortcut import Keys, fork_keys, one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog(
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
    no_sync: NoSync = False,
) -> int:
    """Divide a job's state into several images.

    A Spark checkpoint is divided by ranges of shards, or by the values of a key column. Each
    part is a query of its own; give its job only the input of its own keys. A Flink savepoint
    is divided by operators.
    """
    _refuse_mismatch(to, column, values or [], operators or [])
    mode = fork_keys(True, no_sync)
    jobs: list[Keys] = []
    if operators:
        for number, (target, names) in enumerate(zip(to, operators, strict=True)):
            job = one_job(source, target, [], waive, mode)
            jobs.append({**job, "name": f"part-{number}", "operators": names_in(names)})
        return run_jobs(terminal, options, jobs, "flink")
    if column is not None:
        parts: list[Keys] = [{"column": column, "values": part} for part in values or ()]
    else:
        parts = [{"by": len(to), "part": number} for number in range(len(to))]
    for number, (target, part) in enumerate(zip(to, parts, strict=True)):
        job = one_job(source, target, [{"kind": "split", **part}], waive, mode)
        jobs.append({**job, "name": f"{job['name']}-{number}"})
    return run_jobs(terminal, options, jobs)


def _refuse_mismatch(
    to: list[str], column: str | None, values: list[str], operators: list[str]
) -> None:
    """Refuse options that do not say the same number of parts, or that do not go together."""
    values_expected = 0 if column is None else len(to)
    if len(values) != values_expected:
        raise typer.BadParameter(
            "--column and --values go together, with one --values for each --to"
        )
    operators_expected = 0 if column else len(to)
    if operators and len(operators) != operators_expected:
        raise typer.BadParameter(
            "--operators is for savepoints, with one --operators for each --to"
        )
    _refuse_twice("--values", values)
    _refuse_twice("--operators", operators)


def _refuse_twice(flag: str, parts: list[str]) -> None:
    """Refuse what two parts take along: it would go on in two jobs."""
    seen: set[str] = set()
    for part in parts:
        names = {name.strip() for name in part.split(",")}
        twice = sorted(names & seen)
        if twice:
            raise typer.BadParameter(f"{flag} names {twice[0]!r} in two parts")
        seen |= names
