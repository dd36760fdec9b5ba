"""`stateshift inspect`: what is in an image, a workflow directory or a single file. Reads only."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Location, epilog, names_in
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift inspect s3://bucket/checkpoints/orders\n"
    "stateshift inspect /checkpoints/orders/offsets/79\n"
    "stateshift inspect /checkpoints/orders --entries --limit 5",
    2,
    3,
    6,
)


def command(
    terminal: Terminal,
    location: Location,
    files: Annotated[
        bool, typer.Option("--files", help="List all files, and which of them a restart needs.")
    ] = False,
    entries: Annotated[
        bool, typer.Option("--entries", help="Show the first entries of every store.")
    ] = False,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", min=1, help="Show up to N entries for each store."),
    ] = 20,
    uids: Annotated[
        str | None,
        typer.Option(
            "--uids",
            metavar="NAME,…",
            help="Look for operators with these names, and show their names.",
        ),
    ] = None,
) -> int | None:
    """Show what is in an image, a workflow or a file.

    Shows engine, epochs, operators and stores, the files that a restart needs, absolute paths
    inside, sources and sinks, and problems. Of a single file (an offset log, a commit, a delta,
    a snapshot) it shows the decoded content.
    """
    from stateshift import api
    from stateshift.cli.views import survey_text as render_survey

    inspection = api.inspect(
        location,
        uids=names_in(uids or ""),
        files=files,
        entries=limit if entries else 0,
        adapters=terminal.adapters_given,
    )
    terminal.answer(
        "inspect", inspection.to_dict, render_survey.inspection(inspection, terminal.verbose)
    )
    return None
