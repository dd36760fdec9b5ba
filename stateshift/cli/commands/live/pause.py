"""`stateshift live pause`: no step of a move of bins begins."""

from __future__ import annotations

from stateshift.cli.shell.options import GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live pause s3://live/orders",
    2,
    3,
    4,
    6,
    e0="paused: the step under way is carried out, no other begins",
    e4="the group has no bins",
)


def command(terminal: Terminal, group: GroupOf) -> int | None:
    """Let no step of a move begin; the jobs run on.

    The step under way is carried out. The next one waits until `stateshift live resume`.
    """
    from stateshift.cli.shell.bin_moves import show_steering
    from stateshift.documents.live import live_command
    from stateshift.live.bins.controller import Controller

    controller = Controller(group)
    controller.pause()
    words = f"paused; to go on: {live_command('resume', group)}"
    show_steering(terminal, controller, "paused", words)
    return None
