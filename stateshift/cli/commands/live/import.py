"""`stateshift live import`: state of a checkpoint or a savepoint as a live operator's first."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import GroupOf, OperatorOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live import s3://live/orders jobs:visits orders.parquet --with jobs:from_row "
    "--worker west",
    2,
    3,
    4,
    6,
    e0="brought in; the workers begin with it",
    e4="the operator has a state already, or the group has other bins",
)


def command(
    terminal: Terminal,
    group: GroupOf,
    operator: OperatorOf,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `stateshift export` wrote.")],
    worker: Annotated[
        list[str],
        typer.Option(
            "--worker", metavar="NAME", help="A worker that the bins begin at. Repeatable."
        ),
    ],
    make_state: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="FUNCTION",
            help="MODULE:FUNCTION of a key and a value, which returns the state; all forms but "
            "columns need it.",
        ),
    ] = None,
) -> int | None:
    """Bring state into a group that has none.

    The operator has not run yet. The job then begins to read where the exported one had stopped.
    """
    from stateshift.cli.shell.change import found_from_here
    from stateshift.cli.views import live_state_json, live_state_text
    from stateshift.live.bins import state_acts

    with found_from_here():
        came = state_acts.import_state(group, operator, file, worker, make_state)
    terminal.answer(
        "live-import",
        lambda: live_state_json.imported(came),
        lambda: live_state_text.imported(came),
    )
    return None
