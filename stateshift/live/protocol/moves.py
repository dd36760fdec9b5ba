"""Moves of bins from the worker that has them to one that shall have them: the difference between
two assignments.

    before   0 0 2 2        Move(1, 0, 1), Move(3, 2, 3)
    after    0 1 2 3
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stateshift.dataflow.move_steps import Move, Step
from stateshift.errors import Complaint, SpecError
from stateshift.live.protocol.bins import is_count, not_a_count
from stateshift.live.protocol.configuration import Time, Update


def moves_between(before: Sequence[int], after: Sequence[int]) -> tuple[Move, ...]:
    """Return the moves in the order of the bins; a bin that stays is none."""
    wrong = tuple(_count_complaints(len(before), len(after)))
    if wrong:
        raise SpecError(wrong, hint="split or merge bins first: both sides need as many of them")
    pairs = enumerate(zip(before, after, strict=True))
    return tuple(Move(bin, source, target) for bin, (source, target) in pairs if source != target)


def _count_complaints(before: int, after: int) -> Iterator[Complaint]:
    """Yield what is wrong with the numbers of bins on both sides."""
    for name, bins in (("before", before), ("after", after)):
        if not is_count(bins):
            yield Complaint(f"/{name}", not_a_count(bins), bins)
    if before != after:
        yield Complaint("/after", f"{after} bins, but {before} before", after)


def updates_of(step: Step, time: Time) -> tuple[Update, ...]:
    """Return the step as updates of the configuration."""
    return tuple(Update(time, move.bin, move.target) for move in step)
