"""Bins that are split or merged while their jobs run: all of them, to another power of two.

    split 4 -> 8     bin 2 becomes bins 4 and 5, by one more bit of each key's hash
    merge 8 -> 4     bins 4 and 5 become bin 2, where one worker has both

No key is elsewhere for it at any time. So no two workers have to change their number at one moment;
but each names bins to the others, in what it gives and takes. Two rules keep these names apart:

    is_settled   a worker agrees to another number once every move that it knows is behind it: it
                 has passed the last one, awaits nothing, and all that it gave was taken
    and then     it agrees to no move by the new number before its own bins are dealt anew

So whatever was given by the old number was taken by it, and nothing is given by the new number to
somebody who still counts by the old one. In between a worker may take as long as it likes.

    resettled    the configuration by the new number: as it is from its last move on
    dealt        which bins are dealt anew together
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stateshift.live.protocol.applying import Moment
from stateshift.live.protocol.bins import related
from stateshift.live.protocol.configuration import Configuration, resized, retired


@dataclass(frozen=True, slots=True)
class WorkerMoves:
    """A worker's moves: those before `frontier` are made. None where it has read nothing."""

    frontier: Moment | None
    awaits: int  # bins that have not come yet
    unclaimed: int  # bins that were given, and not taken yet


def is_settled(configuration: Configuration, moves: WorkerMoves) -> bool:
    """Whether every move that is decided is behind a worker."""
    if moves.frontier is None or moves.frontier < (configuration.last,):
        return False
    return moves.awaits == 0 and moves.unclaimed == 0


def resettled(configuration: Configuration, bins: int) -> Configuration:
    """Return the configuration by another number of bins, for workers that are all settled: no time
    before its last move can be asked for any more.

    Raises:
        SpecError: no power of two, or halves that are at different workers.
    """
    return resized(retired(configuration, configuration.last), bins)


def dealt(here: Iterable[int], before: int, after: int) -> Iterator[tuple[int, ...]]:
    """Yield those of the bins that are dealt anew together: where they are merged, the ones that
    become one.

    Args:
        here: bins by the number before.
        before: how many there were.
        after: how many there will be.
    """
    together: dict[int, list[int]] = {}
    for bin in sorted(here):
        first = related(bin, before, after)[0]
        together.setdefault(first, []).append(bin)
    for bins in together.values():
        yield tuple(bins)
