"""Frontiers of several workers: how far one counts as having come that has no bins, and whose moves
are still to be made.

    frontier_without_bins   own, or that of the slowest worker with bins, as far as none is its own
    next_move               the first time from one on at which a worker gives or takes a bin

A row is folded by whoever has its bin at its time. So a worker has nothing to do before the first
time at which it has a bin, and counts as having come so far, whatever it has read: one that starts
from nothing holds up nobody. From its first bin on its frontier is again what its source promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from stateshift.live.protocol.applying import Moment
from stateshift.live.protocol.configuration import Configuration, Time


def frontier_without_bins(
    configuration: Configuration, worker: int, own: Moment | None, others: Iterable[Moment]
) -> Moment | None:
    """Return the frontier that a worker may take.

    Args:
        configuration: all moves that are decided, known to the worker after the others' frontiers
            were read: they have passed no time of a move that it does not know.
        worker: its number.
        own: its own frontier, a moment; None where it has read nothing.
        others: the frontiers of the workers that have bins.
    """
    slowest = min(others, default=None)
    if slowest is None or (own is not None and slowest <= own):
        return own
    at = configuration.since if own is None else max(configuration.since, own[0])
    if worker in configuration.at(at):
        return own
    first = min(_takes(configuration, worker, at + 1), default=None)
    if first is not None and slowest >= (first,):
        slowest = (first - 1,)
    return slowest if own is None or slowest > own else own


def _takes(configuration: Configuration, worker: int, since: Time) -> Iterator[Time]:
    """Yield the times from one on at which a worker has a bin that it had not before."""
    for history in configuration.history:
        for entry in history:
            if entry.worker == worker and entry.time >= since:
                yield entry.time


def next_move(configuration: Configuration, worker: int, since: Time) -> Time | None:
    """Return the first time from one on at which a worker gives or takes a bin; None where it has
    made all its moves.
    """
    times: list[Time] = []
    for history in configuration.history:
        for before, after in pairwise(history):
            is_its_own = before.worker != after.worker and worker in (before.worker, after.worker)
            if is_its_own and after.time >= since:
                times.append(after.time)
    return min(times, default=None)
