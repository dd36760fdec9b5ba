"""What a worker says to a proposed move, and why it refuses one. Pure.

A move can be made while it is ahead of every worker: one that has passed its time, or is planning a
batch that passes it, refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateshift.errors import SpecError
from stateshift.live.bins.files import Proposal, wide_enough
from stateshift.live.bins.hashing import encoders_of
from stateshift.live.bins.times import Moment, cut
from stateshift.live.protocol.configuration import Configuration, complaints, resize_settled

ACKNOWLEDGED, REFUSED = "acknowledged", "refused"


def reason_against_moves(
    proposal: Proposal, configuration: Configuration, planned: Moment | None
) -> str | None:
    """Return why a worker refuses to move bins, as it is said behind its name; `planned` is the
    frontier of the batch that is at work.
    """
    if not proposal.updates:
        return None
    if planned is None:
        return "has read no rows yet"
    if cut(proposal.earliest) <= planned:
        return f"is at {planned[0]} already, and {proposal.earliest} is not ahead of it"
    wide = wide_enough(configuration, proposal.updates)
    wrong = complaints(wide, proposal.updates, wide.bins)
    return wrong[0].message if wrong else None


def reason_against_number(
    bins: int, configuration: Configuration, key_kinds: Sequence[str], key: Sequence[str]
) -> str | None:
    """Return why a worker refuses another number of bins, as it is said behind its name."""
    if bins == configuration.bins:
        return f"has {bins} bins already"
    try:
        encoders_of(key_kinds, key)
        resize_settled(configuration, bins)
    except SpecError as error:
        return f"cannot: {error.complaints[0].message}"
    return None


def is_passed(proposal: Proposal, frontier: Moment | None) -> bool:
    """Whether a frontier passes the time of a move."""
    return bool(proposal.updates) and frontier is not None and cut(proposal.earliest) <= frontier
