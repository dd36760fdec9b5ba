"""`stateshift live replace`: another function in the place of one that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.change import change_epilog
from stateshift.cli.shell.options import ChangeOptions, GroupOf
from stateshift.cli.shell.terminal import Terminal

EPILOG = change_epilog(
    "stateshift live replace s3://live/orders score model_v2:score --check\n"
    "stateshift live replace s3://live/orders score model_v2:score --on-error revert\n"
    "stateshift live replace s3://live/orders clean rules:clean --at old_clean --expect 3\n"
    "stateshift live replace s3://live/orders trio rules:a trio rules:c --at 0 --at 2\n"
    "stateshift live replace s3://live/orders clean rules:clean score model_v2:score\n"
    "stateshift live replace s3://live/orders sum model_v2:sum --state model_v2:grow"
)


def command(
    terminal: Terminal,
    options: ChangeOptions,
    group: GroupOf,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="CHAIN FUNCTION…",
            help="A chain, and the MODULE:FUNCTION that it gets; of several each in turn. A chain "
            "may stand more than once, with another --at each time.",
        ),
    ],
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="N|NAME",
            help="The function that is replaced, by its number from 0 on, or by its name; of "
            "several each in turn. Not needed where a chain has one.",
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="MODULE:FUNCTION",
            help="What makes the new function's state of the old one's.",
        ),
    ] = None,
) -> int | None:
    """Replace functions of running jobs.

    Several functions change together, of one chain or of several: no record meets an old one and a
    new one. FUNCTION is looked up from the working directory. Its code is shipped, and run on no
    rows before the change is proposed. If a worker does not acknowledge it, the change is aborted
    and the jobs run on as before.
    """
    from stateshift.cli.shell.change import carry_out, place, refuse_for_several
    from stateshift.errors import Complaint, SpecError
    from stateshift.live.acts import Edit

    named = _pairs(targets)
    refuse_for_several(len(named), {"--state": state})
    places = [place(text) for text in at or ()]
    if places and len(places) != len(named):
        fact = f"is about one chain each time: {len(places)} for {len(named)} functions"
        raise SpecError((Complaint("--at", fact),), hint="give one --at for each CHAIN FUNCTION")
    edits = [
        Edit(chain, "replace", function, places[number] if places else None, state=state)
        for number, (chain, function) in enumerate(named)
    ]
    return carry_out(terminal, group, edits, options)


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    """Return chains and functions as they were typed, in turn."""
    from stateshift.errors import Complaint, SpecError

    if len(words) % 2:
        complaint = Complaint("CHAIN FUNCTION", f"{words[-1]!r} has no function behind it")
        raise SpecError(
            (complaint,), hint="stateshift live replace GROUP CHAIN FUNCTION [CHAIN FUNCTION …]"
        )
    return list(zip(words[::2], words[1::2], strict=True))
