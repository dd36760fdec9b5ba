"""`stateshift uid`: the directory and the Flink operator id of an operator's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.documents.survey import OperatorIdDocument

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
    from stateshift.cli.views.text import Table

    rows = describe_names(names, constants(profile))
    refuse_collisions(rows)
    heads = ("name", ">hash", "directory", "results (in production)", "Flink operator id")
    cells = []
    for row in rows:
        directories = row["directory"], row["results_directory"]
        cells.append((row["name"], str(row["hash"]), *directories, row["flink_operator_id"]))
    terminal.answer("uid", lambda: rows, [Table(heads, tuple(cells), indent=0)])
    return None


def constants(profile: str) -> tuple[int, int, int, bool]:
    """Return p, m, offset and signed of a named profile, or as they are given."""
    from stateshift.errors import Complaint, SpecError
    from stateshift.formats.uid import PROFILES

    if profile in PROFILES:
        named = PROFILES[profile]
        return named.p, named.m, named.offset, named.signed
    given = _constants_in(profile)
    if given is None:
        expected = f"{', '.join(PROFILES)}, or p,m,offset[,signed] such as 31,1000000009,-96"
        raise SpecError(
            (Complaint("--profile", "no such profile", profile, expected),),
            hint="stateshift uid --profile 31,1000000009,-96 NAME",
        )
    return given


def _constants_in(text: str) -> tuple[int, int, int, bool] | None:
    """Return p, m, offset and signed as they are given; None where the text is none of these."""
    parts = [part.strip() for part in text.split(",")]
    signed = parts[-1] == "signed"
    if signed:
        parts.pop()
    try:
        p, m, offset = (int(part) for part in parts)
    except ValueError:
        return None
    return (p, m, offset, signed) if p > 0 and m > 0 else None


def describe_names(
    names: list[str], profile: tuple[int, int, int, bool]
) -> list[OperatorIdDocument]:
    """Return a row for each name."""
    from stateshift.errors import Complaint, SpecError
    from stateshift.formats import uid

    if not all(name.strip() for name in names):
        raise SpecError(
            (Complaint("NAME", "a name is empty; every operator has one"),),
            hint="stateshift uid 'Aggregate (5)'",
        )
    rows: list[OperatorIdDocument] = []
    for name in names:
        directory = uid.directory_name(name, *profile)
        results = uid.results_directory(directory, production=True)
        assert results is not None, "in production, results lie beside the state"
        rows.append(
            {
                "name": name,
                "hash": uid.rolling_hash(name, *profile),
                "directory": directory,
                "results_directory": results,
                "flink_operator_id": uid.flink_operator_id(name),
            }
        )
    return rows


def refuse_collisions(rows: list[OperatorIdDocument]) -> None:
    """Refuse names with the same directory: their operators would read each other's state."""
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
