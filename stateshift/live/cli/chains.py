"""`stateshift live replace`, `introduce`, `remove` and `revert`: chains that run, changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from stateshift.cli.shell.options import Command, epilog
from stateshift.cli.shell.terminal import Terminal
from stateshift.live.cli import CheckOnly, GroupOf, argument, option

if TYPE_CHECKING:
    from stateshift.live.acts import Where

ChainOf = Annotated[str, argument("CHAIN", "The name of a chain.")]


@dataclass(frozen=True)
class ChangeOptions:
    """How a change of a group's chains is brought in."""

    scheduler: Annotated[
        str | None,
        option(
            "--scheduler S",
            "epoch (by batch) or fries (at once). Otherwise fries where the dataflow allows it.",
        ),
    ] = None
    dataflow: Annotated[
        str | None,
        option(
            "--dataflow FILE",
            "What lies between the chains (see: stateshift dataflow). Operators have their names.",
        ),
    ] = None
    on_error: Annotated[
        str,
        option(
            "--on-error WAY",
            "When a new function raises: fail (the batch), or revert (take the change back).",
        ),
    ] = "fail"
    timeout: Annotated[
        float,
        option(
            "--timeout SECONDS",
            "Abort the change if not all workers have acknowledged it by then.",
            min=0.1,
        ),
    ] = 60.0
    wait: Annotated[
        float,
        option(
            "--wait SECONDS", "How long to wait until every worker runs an applied change.", min=0.0
        ),
    ] = 60.0
    key: Annotated[
        str | None, option("--key FILE", "Sign the change with this private key (Ed25519).")
    ] = None
    unattended: Annotated[
        bool, option("--unattended", "Decide without the workers' word, also where no job runs.")
    ] = False
    expect: Annotated[
        int | None,
        option(
            "--expect VERSION",
            "Refuse if a chain has been changed since this version of it.",
            min=0,
        ),
    ] = None
    check: CheckOnly = False


def replace(
    terminal: Terminal,
    options: ChangeOptions,
    group: GroupOf,
    targets: Annotated[
        list[str],
        argument(
            "CHAIN FUNCTION…",
            "A chain, and the MODULE:FUNCTION that it gets; of several each in turn. A chain "
            "may stand more than once, with another --at each time.",
        ),
    ],
    at: Annotated[
        list[str] | None,
        option(
            "--at N|NAME",
            "The function that is replaced, by its number from 0 on, or by its name; of "
            "several each in turn. Not needed where a chain has one.",
        ),
    ] = None,
    state: Annotated[
        str | None,
        option("--state MODULE:FUNCTION", "What makes the new function's state of the old one's."),
    ] = None,
) -> int | None:
    """Replace functions of running jobs.

    Several functions change together, of one chain or of several: no record meets an old one and a
    new one. FUNCTION is looked up from the working directory. Its code is shipped, and run on no
    rows before the change is proposed. If a worker does not acknowledge it, the change is aborted
    and the jobs run on as before.
    """
    from stateshift.errors import Complaint, SpecError
    from stateshift.live.acts import Edit
    from stateshift.live.cli.change import carry_out, place

    if len(targets) % 2:
        complaint = Complaint("CHAIN FUNCTION", f"{targets[-1]!r} has no function behind it")
        raise SpecError(
            (complaint,), hint="stateshift live replace GROUP CHAIN FUNCTION [CHAIN FUNCTION …]"
        )
    named = list(zip(targets[::2], targets[1::2], strict=True))
    if len(named) > 1 and state is not None:
        complaint = Complaint("--state", "is about one chain", len(named))
        raise SpecError((complaint,), hint="change one chain after the other")
    places = [place(text) for text in at or ()] or [None] * len(named)
    if len(places) != len(named):
        fact = f"is about one chain each time: {len(places)} for {len(named)} functions"
        raise SpecError((Complaint("--at", fact),), hint="give one --at for each CHAIN FUNCTION")
    edits = []
    for (chain, function), its_place in zip(named, places, strict=True):
        edits.append(Edit(chain, "replace", function, its_place, state=state))
    return carry_out(terminal, group, edits, options)


def introduce(
    terminal: Terminal,
    options: ChangeOptions,
    group: GroupOf,
    chain: ChainOf,
    function: Annotated[
        str, argument("FUNCTION", "MODULE:FUNCTION, found from the working directory on.")
    ],
    before: Annotated[
        str | None, option("--before N|NAME", "Before the function of this number or name.")
    ] = None,
    after: Annotated[
        str | None, option("--after N|NAME", "After the function of this number or name.")
    ] = None,
    around: Annotated[
        str | None,
        option(
            "--around N|NAME",
            "Around it: it is given the rows, and the function of this number or name.",
        ),
    ] = None,
) -> int | None:
    """Introduce a function into a chain that runs.

    Functions are numbered from 0 on, as `stateshift live status` shows them.
    """
    from stateshift.errors import Complaint, SpecError
    from stateshift.live.acts import Edit
    from stateshift.live.cli.change import carry_out, place

    given: dict[Where, str | None] = {"before": before, "after": after, "around": around}
    places = [(where, at) for where, at in given.items() if at is not None]
    if len(places) != 1:
        fact = "name one place" if not places else "more than one place"
        complaint = Complaint("--before, --after, --around", fact)
        raise SpecError(
            (complaint,), hint="stateshift live introduce GROUP CHAIN FUNCTION --before 0"
        )
    where, at = places[0]
    edit = Edit(chain, "introduce", function, place(at), where)
    return carry_out(terminal, group, [edit], options)


def remove(
    terminal: Terminal,
    options: ChangeOptions,
    group: GroupOf,
    chain: ChainOf,
    at: Annotated[
        str | None,
        option(
            "--at N|NAME",
            "The function in the chain, by its number from 0 on, or by its name. Not needed "
            "where there is one.",
        ),
    ] = None,
) -> int | None:
    """Remove a function from a chain that runs.

    A chain without functions returns its rows as they are.
    """
    from stateshift.live.acts import Edit
    from stateshift.live.cli.change import carry_out, place

    return carry_out(terminal, group, [Edit(chain, "remove", at=place(at))], options)


def revert(
    terminal: Terminal,
    options: ChangeOptions,
    group: GroupOf,
    chains: Annotated[list[str], argument("CHAIN…", "Chains, which go back together.")],
    to: Annotated[
        int | None,
        option(
            "--to VERSION",
            "The version to go back to; 0 is what the job began with. Otherwise what was "
            "before the last change of each.",
            min=0,
        ),
    ] = None,
) -> int | None:
    """Take chains back to what they were.

    This is a change as any other, with a number of its own. `stateshift live history` shows the
    versions.
    """
    from stateshift.live.acts import Edit
    from stateshift.live.cli.change import carry_out

    return carry_out(terminal, group, [Edit(chain, "revert", to=to) for chain in chains], options)


def _epilog(example: str) -> str:
    return epilog(
        example,
        *(2, 3, 4, 6, 7, 9, 130),
        e0="applied, and every worker runs it (--check: it could be)",
        e2="the request, the function, the dataflow or the key is not valid",
        e3="a file of the group is not what its format says",
        e4="the function does not fit the chain, the chain is at another version than --expect, or "
        "another change is under way",
        e7="aborted (a worker refused it, or did not answer in time) or taken back by its error",
        e9="applied, and not every worker was seen to run it within --wait: `live status` shows it",
        e130="interrupted; the message says whether the change is applied",
    )


COMMANDS = {
    "replace": Command(
        replace,
        _epilog(
            "stateshift live replace s3://live/orders score model_v2:score --check\n"
            "stateshift live replace s3://live/orders score model_v2:score --on-error revert\n"
            "stateshift live replace s3://live/orders clean rules:clean --at old_clean --expect 3\n"
            "stateshift live replace s3://live/orders trio rules:a trio rules:c --at 0 --at 2\n"
            "stateshift live replace s3://live/orders clean rules:clean score model_v2:score\n"
            "stateshift live replace s3://live/orders sum model_v2:sum --state model_v2:grow"
        ),
    ),
    "introduce": Command(
        introduce,
        _epilog(
            "stateshift live introduce s3://live/orders score --before 0 rules:keep_eu\n"
            "stateshift live introduce s3://live/orders score --after keep_eu rules:round_score\n"
            "stateshift live introduce s3://live/orders score --around 0 tracing:timed"
        ),
    ),
    "remove": Command(
        remove,
        _epilog(
            "stateshift live remove s3://live/orders score --at 0 --check\n"
            "stateshift live remove s3://live/orders score --at keep_eu --expect 3"
        ),
    ),
    "revert": Command(
        revert,
        _epilog(
            "stateshift live revert s3://live/orders score\n"
            "stateshift live revert s3://live/orders score --to 0\n"
            "stateshift live revert s3://live/orders clean score --to 3"
        ),
    ),
}
