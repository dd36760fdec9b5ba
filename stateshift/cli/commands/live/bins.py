"""`stateshift live bins`: which bins are hot, and all of them split or merged."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import CheckOnly, GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live bins s3://live/orders\n"
    "stateshift live bins s3://live/orders --to 512 --check\n"
    "stateshift live bins s3://live/orders --to 512\n"
    "stateshift live bins s3://live/orders --to 256 --at 1772000000000",
    2,
    3,
    4,
    6,
    7,
    9,
    130,
    e0="shown, or all workers have it (--check: they could)",
    e2="the number is no power of two, or a key that Spark alone hashes",
    e3="a file of the group is not what its format says",
    e4="halves are apart, bins are on their way, a worker is too old, or the time is past",
    e7="aborted: a worker refused, or did not answer in time; nothing has changed",
    e9="decided, and not all have it within --wait; run the command again: it waits for them",
    e130="interrupted; run the command again: it waits for those that are left",
)


def command(
    terminal: Terminal,
    group: GroupOf,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="N", help="Split or merge all bins until there are N."),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", metavar="TIME", min=1, help="Each worker does so at this logical time."
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            help="Abort if not all workers have acknowledged it by then.",
        ),
    ] = 30.0,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0.0, help="How long to wait for all workers to do it."
        ),
    ] = 60.0,
    check: CheckOnly = False,
) -> int | None:
    """Show which bins are hot, or split or merge all of them.

    With --to, every bin becomes two, or two bins become one, until there are so many. Two bins
    that become one must be at one worker. No job stops, and no key goes to another worker: each
    worker redistributes its own bins between two batches. Without --to it only reads.
    """
    from stateshift.cli.shell.bin_moves import resize, show_count
    from stateshift.live.bins.move_request import Manner

    if to is None:
        return show_count(terminal, group)
    manner = Manner(at=at, timeout_seconds=timeout, wait_seconds=wait)
    return resize(terminal, group, to, manner, check)
