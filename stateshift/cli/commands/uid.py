"""`stateshift uid`: the directory and the Flink operator id of an operator's name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stateshift.cli.shell.options import epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    (
        "stateshift uid 'Aggregate (5)' 'Join'\nstateshift uid --profile 53,1000000007,-96 "
        "'Aggregate (5)'"
    ),
    2,
    4,
    e4="two of the names have the same directory",
)


def command(
    terminal: Terminal,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME…", help="Names of operators, which are their UIDs.")
    ],
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="P",
            help="default, java-signed, or p,m,offset with or without `,signed`.",
        ),
    ] = "default",
) -> int | None:
    """Show the directory and Flink id of operators' names."""
    rows = described(names, constants(profile))
    refuse_collisions(rows)
    if terminal.json:
        terminal.document("uid", rows)
        return None
    from stateshift.cli.views.text import Table

    heads = ("name", ">hash", "directory", "results (in production)", "Flink operator id")
    keys = ("name", "hash", "directory", "results_directory", "flink_operator_id")
    terminal.show(
        [Table(heads, tuple(tuple(str(row[key]) for key in keys) for row in rows), indent=0)]
    )
    return None


def constants(profile: str) -> tuple[int, int, int, bool]:
    """p, m, offset and signed of a named profile, or as they are given."""
    from stateshift.errors import Complaint, SpecError
    from stateshift.formats.uid import PROFILES

    if profile in PROFILES:
        named = PROFILES[profile]
        return named.p, named.m, named.offset, named.signed
    parts = [part.strip() for part in profile.split(",")]
    signed = parts[-1] == "signed"
    try:
        p, m, offset = (int(part) for part in (parts[:-1] if signed else parts))
        if p > 0 and m > 0:
            return p, m, offset, signed
    except ValueError:
        pass  # said below, as every other text that is no profile
    expected = f"{', '.join(PROFILES)}, or p,m,offset[,signed] such as 31,1000000009,-96"
    raise SpecError(
        (Complaint("--profile", "no such profile", profile, expected),),
        hint="stateshift uid --profile 31,1000000009,-96 NAME",
    )


def described(names: list[str], profile: tuple[int, int, int, bool]) -> list[dict[str, Any]]:
    """A row for each name."""
    from stateshift.errors import Complaint, SpecError
    from stateshift.formats import uid

    if not all(name.strip() for name in names):
        raise SpecError(
            (Complaint("NAME", "a name is empty; every operator has one"),),
            hint="stateshift uid 'Aggregate (5)'",
        )
    rows = []
    for name in names:
        directory = uid.directory_name(name, *profile)
        rows.append(
            {
                "name": name,
                "hash": uid.rolling_hash(name, *profile),
                "directory": directory,
                "results_directory": uid.results_directory(directory, True),
                "flink_operator_id": uid.flink_operator_id(name),
            }
        )
    return rows


def refuse_collisions(rows: list[dict[str, Any]]) -> None:
    """Two operators with one directory would read each other's state."""
    from stateshift.errors import PlanError
    from stateshift.formats.uid import collisions

    directories = {row["name"]: row["directory"] for row in rows}
    for first, second, directory in collisions(
        [row["name"] for row in rows], directories.__getitem__
    ):
        raise PlanError(
            f"{first!r} and {second!r} have the same directory {directory}",
            hint="names are unique in a workflow: rename one, or choose another --profile",
        )
