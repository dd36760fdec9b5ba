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
    """Abort the change that is under way.

    A change that is applied is not aborted any more: take it back with `stateshift live revert`.
    """
    from stateshift.cli.views import live_json, live_text
    from stateshift.live import acts

    known = acts.abort(group)
    terminal.answer(
        "live-change",
        lambda: live_json.aborted(known),
        lambda: live_text.aborted(known),
    )
    return None
