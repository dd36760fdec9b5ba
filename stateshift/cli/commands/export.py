"""`stateshift export`: state, or what single batches did to it, for other programs. Reads only,
but for the file.
"""

from __future__ import annotations

import re
from typing import Annotated

import typer

from stateshift.cli.shell.options import Location, Parallel, epilog
from stateshift.cli.shell.terminal import Terminal

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
STDOUT = "-"


def _changes(text: str | None) -> str | None:
    """Refuse what names no batches, as soon as it is parsed."""
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
    parallel: Parallel = None,
) -> int | None:
    """Write state as Parquet, Arrow or JSON lines.

    Keys and values have the columns and types of the checkpoint's own schema. A Parquet or
    Arrow file takes stores of one schema; JSON lines take all. The file is written whole or not
    at all.
    """
    from stateshift import look
    from stateshift.cli.shell.fleet import readers_for
    from stateshift.cli.views import survey_text
    from stateshift.documents.survey import export_document
    from stateshift.errors import Complaint, SpecError

    if to == STDOUT and terminal.json:
        raise SpecError(
            (Complaint("--to -", "the state goes to stdout, and so would the document of --json"),)
        )
    if batch is not None and changes is not None:
        raise SpecError((Complaint("--batch", "--changes names its batches itself"),))
    opening = terminal.opening()
    batches = None
    if changes is not None:
        first, _, last = changes.partition("..")
        batches = int(first), int(last)
    wanted = look.Wanted(operator, store, batch, batches)
    state = look.export(location, to, wanted, opening)
    with readers_for(terminal, None, [location], parallel) as readers:
        if to == STDOUT:
            for chunk in state.chunks(readers):
                terminal.write(chunk)
        else:
            size = look.save(state, to, opening, readers)
            terminal.answer(
                "export",
                lambda: export_document(state, to, size),
                [survey_text.export_line(state, to, size)],
            )
    if not terminal.json:
        for note in state.notes:
            terminal.say(f"note: {note}")
    return None
