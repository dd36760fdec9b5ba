"""`stateshift live resume`: steps of a move of bins begin again."""

from __future__ import annotations

from stateshift.cli.shell.options import GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live resume s3://live/orders",
    2,
    3,
    4,
    6,
    e0="whoever moves bins goes on",
    e4="the group has no bins",
)


def command(terminal: Terminal, group: GroupOf) -> int | None:
    """Let steps of a move begin again.

    If the command that moved the bins has ended, run `stateshift live move` again: it moves what is
    left.
    """
    from stateshift.cli.shell.bin_moves import show_steering
    from stateshift.live.bins.controller import Controller

    controller = Controller(group)
    controller.resume()
    is_carried = controller.carried is not None
    words = "moves go on" if is_carried else "nothing is paused; nobody moves bins now"
    show_steering(terminal, controller, "running", words)
    return None
