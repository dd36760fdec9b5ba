"""`stateshift live introduce`: one more function in a chain that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.change import change_epilog
from stateshift.cli.shell.options import ChainOf, ChangeOptions, FunctionOf, GroupOf
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.live.acts import Where

EPILOG = change_epilog(
    "stateshift live introduce s3://live/orders score --before 0 rules:keep_eu\n"
    "stateshift live introduce s3://live/orders score --after keep_eu rules:round_score\n"
    "stateshift live introduce s3://live/orders score --around 0 tracing:timed"
)


def command(
    terminal: Terminal,
    options: ChangeOptions,
    group: GroupOf,
    chain: ChainOf,
    function: FunctionOf,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="N|NAME", help="Before the function of this number or name."
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="N|NAME", help="After the function of this number or name."
        ),
    ] = None,
    around: Annotated[
        str | None,
        typer.Option(
            "--around",
            metavar="N|NAME",
            help="Around it: it is given the rows, and the function of this number or name.",
        ),
    ] = None,
) -> int | None:
    """Introduce a function into a chain that runs.

    Functions are numbered from 0 on, as `stateshift live status` shows them.
    """
    from stateshift.cli.shell.change import carry_out, place
    from stateshift.live.acts import Edit

    where, at = _place({"before": before, "after": after, "around": around})
    edit = Edit(chain, "introduce", function, place(at), where)
    return carry_out(terminal, group, [edit], options)


def _place(given: dict[Where, str | None]) -> tuple[Where, str]:
    """Return the place of the function: exactly one."""
    from stateshift.errors import Complaint, SpecError

    places = [(where, at) for where, at in given.items() if at is not None]
    if len(places) != 1:
        fact = "name one place" if not places else "more than one place"
        complaint = Complaint("--before, --after, --around", fact)
        raise SpecError(
            (complaint,), hint="stateshift live introduce GROUP CHAIN FUNCTION --before 0"
        )
    return places[0]
