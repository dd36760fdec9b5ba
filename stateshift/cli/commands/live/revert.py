"""`stateshift live revert`: chains as they were before."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.change import change_epilog
from stateshift.cli.shell.options import ChangeOptions, GroupOf
from stateshift.cli.shell.terminal import Terminal

EPILOG = change_epilog(
    "stateshift live revert s3://live/orders score\n"
    "stateshift live revert s3://live/orders score --to 0\n"
    "stateshift live revert s3://live/orders clean score --to 3"
)


def command(
    terminal: Terminal,
    options: ChangeOptions,
    group: GroupOf,
    chains: Annotated[
        list[str], typer.Argument(metavar="CHAIN…", help="Chains, which go back together.")
    ],
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="VERSION",
            min=0,
            help="The version to go back to; 0 is what the job began with. Otherwise what was "
            "before the last change of each.",
        ),
    ] = None,
) -> int | None:
    """Take chains back to what they were.

    This is a change as any other, with a number of its own. `stateshift live history` shows the
    versions.
    """
    from stateshift.cli.shell.change import carry_out
    from stateshift.live.acts import Edit

    return carry_out(terminal, group, [Edit(chain, "revert", to=to) for chain in chains], options)
