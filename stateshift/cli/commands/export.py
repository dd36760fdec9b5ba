"""`stateshift export`: state, or what single batches did to it, for other programs. Reads only,
but for the file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import Location, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.look import Export

EPILOG = epilog(
    "stateshift export s3://bucket/checkpoints/orders --to orders.parquet\n"
    "stateshift export /checkpoints/orders --operator 0 --store left-keyToNumValues --to "
    "counts.arrow\n"
    "stateshift export /checkpoints/orders --changes 70..79 --to - | jq .key",
    2,
    3,
    4,
    6,
)

_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")


def _changes(text: str | None) -> str | None:
    if text is not None and _RANGE.fullmatch(text) is None:
        raise typer.BadParameter(
            f"{text} is not A..B, two batches of which the first is the earlier one"
        )
    return text


def command(
    terminal: Terminal,
    location: Location,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="FILE", help=".parquet, .arrow or .jsonl; - for JSON lines on stdout."
        ),
    ],
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="N", help="Only this operator.")
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="S", help="Only this store.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", min=0, help="The state as batch N left it."),
    ] = None,
    changes: Annotated[
        str | None,
        typer.Option(
            "--changes",
            metavar="A..B",
            callback=_changes,
            help="What batches A to B did to the state, instead of the state.",
        ),
    ] = None,
) -> int | None:
    """Write state as Parquet, Arrow or JSON lines.

    Keys and values have the columns and types of the checkpoint's own schema. A Parquet or
    Arrow file takes stores of one schema; JSON lines take all. The file is written whole or not
    at all.
    """
    from stateshift import look
    from stateshift.errors import Complaint, SpecError

    if to == "-" and terminal.json:
        raise SpecError(
            (Complaint("--to -", "the state goes to stdout, and so would the document of --json"),)
        )
    if batch is not None and changes is not None:
        raise SpecError((Complaint("--batch", "--changes names its batches itself"),))
    opening = terminal.opening()
    first, _, last = (changes or "").partition("..")
    wanted = look.Wanted(operator, store, batch, (int(first), int(last)) if changes else None)
    made = look.export(location, to, wanted, opening)
    if to == "-":
        for chunk in made.chunks():
            terminal.write(chunk)
        for note in made.notes:
            terminal.say(f"note: {note}")
        return None
    size = look.save(made, to, opening)
    _tell(terminal, made, to, size)
    return None


def _tell(terminal: Terminal, made: Export, to: str, size: int) -> None:
    from stateshift.cli.views import survey_json
    from stateshift.cli.views.text import Line
    from stateshift.cli.views.units import many
    from stateshift.cli.views.units import size as sized
    from stateshift.storage.locations import redact

    if terminal.json:
        terminal.document("export", survey_json.export(made, to, size))
        return
    what = (
        many(made.entries, "change")
        if made.wanted.changes is not None
        else many(made.entries, "entry", "entries")
    )
    terminal.show([Line(f"{what}, {sized(size)}: {redact(to)}")])
    for note in made.notes:
        terminal.say(f"note: {note}")
