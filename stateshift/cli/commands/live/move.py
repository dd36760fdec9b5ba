"""`stateshift live move`: bins of running jobs, from one worker to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import GroupOf, MoveOptions, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.live.bins.move_request import Manner, Steps
    from stateshift.live.bins.watch import Bins

EPILOG = epilog(
    "stateshift live move s3://live/orders --to east --bins 0-127 --check\n"
    'stateshift live move s3://live/orders --to east --bins 0-127 --strategy "batched(16)"\n'
    "stateshift live move s3://live/orders --to east --bins 0-127,200 --strategy warm\n"
    "stateshift live move s3://live/orders --rebalance 25% --strategy fluid --gap 0.5\n"
    "stateshift live move s3://live/orders --rebalance 25% --by-rows --check\n"
    "stateshift live move s3://live/orders --plan moves.txt --at 1772000000000",
    2,
    3,
    4,
    6,
    7,
    9,
    130,
    e0="moved, and all of it is complete (--check: it could be)",
    e2="the request, the bins or the plan file is not valid",
    e3="a file of the group is not what its format says",
    e4="the bins cannot go there, the time is past, or another move is under way",
    e7="aborted: a worker refused, or did not answer in time; steps that were decided are moved",
    e9="decided, and not complete within --wait; run the command again: it waits for the rest",
    e130="interrupted; run the command again: it moves what is left",
)


def command(
    terminal: Terminal,
    options: MoveOptions,
    group: GroupOf,
    to: Annotated[
        str | None, typer.Option("--to", metavar="WORKER", help="The worker that gets them.")
    ] = None,
    bins: Annotated[
        str | None, typer.Option("--bins", metavar="BINS", help="Their numbers: 0-127,200.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Lines `M time worker …` and `D time bin worker …`, as Megaphone has them.",
        ),
    ] = None,
    rebalance: Annotated[
        str | None,
        typer.Option(
            "--rebalance",
            metavar="SHARE",
            help="Even the state out, moving at most so much of it: 25%.",
        ),
    ] = None,
    by_rows: Annotated[
        bool,
        typer.Option(
            "--by-rows", help="With --rebalance: even the rows out that are folded, not the state."
        ),
    ] = False,
) -> int | None:
    """Move bins between workers that run on.

    Each step is proposed for a time ahead of all workers. If one of them does not acknowledge it,
    the step is aborted and its bins stay. The next step begins once the one before is complete.
    After an interruption run the command again: it moves what is left.
    """
    from stateshift.cli.shell import bin_moves
    from stateshift.cli.shell.bin_moves import HINT_EVEN
    from stateshift.errors import Complaint, SpecError

    _refuse_several(to, bins, plan, rebalance)
    if by_rows and rebalance is None:
        raise SpecError((Complaint("--by-rows", "belongs to --rebalance"),), hint=HINT_EVEN)
    share = None if rebalance is None else bin_moves.share_of(rebalance)
    text = None if plan is None else bin_moves.text_of_plan(plan)
    numbers = () if bins is None else bin_moves.bins_of(bins)

    def steps_of(now: Bins, manner: Manner) -> Steps:
        from stateshift.live.bins import move_request

        if text is not None:
            return move_request.steps_planned(now, text, manner.at)
        if share is not None:
            return move_request.steps_of(move_request.moves_even(now, share, by_rows), manner)
        assert to is not None, "one of the three"
        return move_request.steps_of(move_request.moves_to(now, to, numbers), manner)

    return bin_moves.carry_out(terminal, group, options, steps_of)


def _refuse_several(
    to: str | None, bins: str | None, plan: str | None, rebalance: str | None
) -> None:
    """Refuse what does not say in one way which bins go where."""
    from stateshift.cli.shell.bin_moves import HINT_BINS, HINT_ONE
    from stateshift.errors import Complaint, SpecError

    if (to is None) != (bins is None):
        missing = "--bins" if bins is None else "--to"
        raise SpecError((Complaint(missing, "is missing"),), hint=HINT_BINS)
    given = [name for name in (to, plan, rebalance) if name is not None]
    if len(given) != 1:
        fact = "nothing says what moves" if not given else "more than one of them"
        complaint = Complaint("--to, --plan, --rebalance", fact)
        raise SpecError((complaint,), hint=HINT_ONE)
