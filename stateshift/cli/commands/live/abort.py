"""`stateshift live abort`: what is under way, taken back before it is decided."""

from __future__ import annotations

from stateshift.cli.shell.options import GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live abort s3://live/orders",
    2,
    3,
    4,
    6,
    e0="aborted; all workers run on as before",
    e4="nothing is under way, or it has just been applied",
)


def command(terminal: Terminal, group: GroupOf) -> int | None:
    """Abort the change, or the move of bins, that is under way.

    A change that is applied cannot be aborted: take it back with `stateshift live revert`. Of a
    move, steps that are decided are carried out, and no other begins. To undo them, move the bins
    back.
    """
    from stateshift.cli.views import bins_text, live_text
    from stateshift.documents.bins import aborted_move
    from stateshift.documents.live import LiveAbortDocument
    from stateshift.live import acts
    from stateshift.live.bins.controller import Controller, has_bins

    controller = Controller(group) if has_bins(group) else None
    if controller is not None and controller.is_at_work:
        proposal = controller.abort()
        terminal.answer(
            "live-change", lambda: aborted_move(proposal), bins_text.show_aborted(proposal)
        )
        return None
    known = acts.abort(group)
    terminal.answer_value(
        "live-change",
        LiveAbortDocument,
        known.change,
        live_text.show_aborted(known),
        state="aborted",
    )
    return None
