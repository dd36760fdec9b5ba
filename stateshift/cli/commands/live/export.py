"""`stateshift live export`: the state of an operator's keys, as a file."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import GroupOf, OperatorOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live export s3://live/orders jobs:visits --to visits.parquet\n"
    "stateshift live export s3://live/orders jobs:visits --to visits.jsonl --with jobs:as_row",
    2,
    3,
    4,
    6,
    e0="written",
)


def command(
    terminal: Terminal,
    group: GroupOf,
    operator: OperatorOf,
    to: Annotated[
        str, typer.Option("--to", metavar="FILE", help="A file: .parquet, .arrow or .jsonl.")
    ],
    show: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="FUNCTION",
            help="MODULE:FUNCTION of a state, which returns what is written; JSON without it.",
        ),
    ] = None,
) -> int | None:
    """Write every key of an operator with its state.

    Each row names its worker, and how far that worker had come. Running workers have come to
    different times: stop them first if all keys must be of one time.
    """
    from stateshift.cli.shell.change import search_working_directory
    from stateshift.cli.views import live_state_text
    from stateshift.live.bins import state_acts

    with search_working_directory():
        keys, size = state_acts.export_state(group, operator, to, show)
    terminal.answer(
        "live-export",
        lambda: {"to": to, "keys": keys, "bytes": size},
        live_state_text.show_export(to, keys, size),
    )
    return None
