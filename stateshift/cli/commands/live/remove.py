"""`stateshift live remove`: a chain that runs without one of its functions."""

from __future__ import annotations

from stateshift.cli.shell.change import change_epilog
from stateshift.cli.shell.options import At, ChainOf, ChangeOptions, GroupOf
from stateshift.cli.shell.terminal import Terminal

EPILOG = change_epilog(
    "stateshift live remove s3://live/orders score --at 0 --check\n"
    "stateshift live remove s3://live/orders score --at keep_eu --expect 3"
)


def command(
    terminal: Terminal,
    options: ChangeOptions,
    group: GroupOf,
    chain: ChainOf,
    at: At = None,
) -> int | None:
    """Remove a function from a chain that runs.

    A chain without functions returns its rows as they are.
    """
    from stateshift.cli.shell.change import carry_out, place
    from stateshift.live.acts import Edit

    return carry_out(terminal, group, [Edit(chain, "remove", at=place(at))], options)
