"""`stateshift live throttle`: how fast bins move, from the next step on."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live throttle s3://live/orders --bins 4 --gap 1\n"
    "stateshift live throttle s3://live/orders",
    2,
    3,
    4,
    6,
    e0="set: whoever moves bins obeys from the next step on",
    e4="the group has no bins",
)


def command(
    terminal: Terminal,
    group: GroupOf,
    bins: Annotated[
        int | None,
        typer.Option("--bins", metavar="N", min=1, help="Bins a step at most."),
    ] = None,
    gap: Annotated[
        float | None,
        typer.Option("--gap", metavar="SECONDS", min=0.0, help="The pause behind a step."),
    ] = None,
) -> int | None:
    """Change how fast bins move.

    Without options, they move again as `stateshift live move` said.
    """
    from stateshift.cli.shell.bin_moves import show_steering
    from stateshift.live.bins.controller import Controller

    controller = Controller(group)
    controller.throttle(bins, gap)
    limits = []
    if bins is not None:
        limits.append(f"at most {bins} bins a step")
    if gap is not None:
        limits.append(f"{gap:g} s behind a step")
    words = ", ".join(limits) or "as it was asked for"
    show_steering(terminal, controller, "throttled" if limits else "running", words)
    return None
