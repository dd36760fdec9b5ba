"""Frontiers of several workers: the one that a worker without bins may take, the moves that are
still to be made, and whether all of them are.

    frontier_without_bins   own, or that of the slowest worker with bins, as far as none is its own
    next_move               the first time from one on at which a worker gives or takes a bin
    is_settled              whether a worker may agree to another number of bins

A row is folded by the worker that has its bin at its time. A worker has nothing to do before the
first time at which it has a bin, and counts as having come so far, whatever it has read: one that
starts from nothing holds up nobody. From its first bin on its frontier is again what its source
promises.

Bins are split or merged while workers run, all of them, to another power of two. No key is
elsewhere for it at any time, so no two workers have to change their number at one moment. But each
names bins to the others, in what it gives and takes. Two rules keep these names apart:

    is_settled   a worker agrees to another number once every move that it knows is made: it has
                 passed the last one, awaits nothing, and all that it gave was taken
    and then     it agrees to no move by the new number before its own bins are redistributed

What was given by the old number was therefore taken by it, and nothing is given by the new number
to somebody who still counts by the old one. In between a worker may take as long as it likes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from stateshift.live.protocol.applying import Moment
from stateshift.live.protocol.configuration import Configuration, Time


def frontier_without_bins(
    configuration: Configuration, worker: int, own: Moment | None, others: Iterable[Moment]
) -> Moment | None:
    """Return the frontier that a worker may take; `own` is None where it has read nothing, `others`
    are those of the workers with bins. The configuration was read after the others' frontiers: they
    have passed no time of a move that it does not know.
    """
    slowest = min(others, default=None)
    if slowest is None or (own is not None and slowest <= own):
        return own
    at = configuration.since if own is None else max(configuration.since, own[0])
    if worker in configuration.at(at):
        return own
    first: Time | None = None  # after `at`, at which it has a bin
    for history in configuration.history:
        for entry in history:
            if entry.worker == worker and entry.time > at:
                first = entry.time if first is None else min(first, entry.time)
    if first is not None and slowest >= (first,):
        slowest = (first - 1,)
    return slowest if own is None or slowest > own else own


def next_move(configuration: Configuration, worker: int, since: Time) -> Time | None:
    """Return the first time from `since` on at which a worker gives or takes a bin, or None."""
    times: list[Time] = []
    for history in configuration.history:
        for before, after in pairwise(history):
            is_its_own = before.worker != after.worker and worker in (before.worker, after.worker)
            if is_its_own and after.time >= since:
                times.append(after.time)
    return min(times, default=None)


@dataclass(frozen=True, slots=True)
class WorkerMoves:
    """A worker's moves: those before `frontier` are made. None where it has read nothing."""

    frontier: Moment | None
    awaits: int  # bins that have not come yet
    unclaimed: int  # bins that were given, and not taken yet


def is_settled(configuration: Configuration, moves: WorkerMoves) -> bool:
    """Whether a worker has made every move that is decided."""
    if moves.frontier is None or moves.frontier < (configuration.last,):
        return False
    return moves.awaits == 0 and moves.unclaimed == 0
