"""`stateshift live history`: every change of a group, and the last moves of its bins."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live history s3://live/orders\nstateshift live history s3://live/orders score",
    2,
    3,
    4,
    6,
    e0="shown",
    e4="there is no group at this location, or no such chain",
)


def command(
    terminal: Terminal,
    group: GroupOf,
    chain: Annotated[
        str | None, typer.Argument(metavar="CHAIN", help="Only changes of this chain.")
    ] = None,
) -> int | None:
    """Show every change, and what became of it.

    The number of a change is the version of its chains: `stateshift live revert --to` takes it.
    Seconds are counted from the proposal until the first and until the last worker ran the change.
    The last moves of bins follow, one line for each proposal; older ones are removed. A step that
    was proposed again has several.
    Only reads.
    """
    from stateshift.cli.views import live_text
    from stateshift.documents.bins import PastMoveFacts
    from stateshift.documents.live import PastFacts, history
    from stateshift.live import survey

    found = survey.history(group, chain)
    changes = [PastFacts(told) for told in found.told]
    moves = [PastMoveFacts(move) for move in ([] if chain else survey.moves_of_bins(group))]
    terminal.answer(
        "live-history",
        lambda: history(found.location, changes, moves),
        live_text.history(found.location, changes, moves),
    )
    return None
