"""Which bins to write as a whole, so that files that are mostly dead can be removed. Pure.

A file of data lives as long as one piece of it is needed. A bin that nobody touches keeps the file
that it was written in, with all that has died around it; and a bin that came from another worker
keeps that one's. Both are written anew, a little at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from stateshift.live.bins.commits import BinSnapshot

SLACK = 1 << 20  # bytes that files may have beyond what is needed, however small the state is
SHARE = 8  # an eighth of the state is written anew at one time, at most
MOST = 1.5  # files over what is needed, beyond which they are cleaned


def worth_rewriting(here: Mapping[int, BinSnapshot], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the bins to write as a whole next.

    Args:
        here: a worker's bins, as they are kept.
        sizes: the worker's own files that are needed, with their sizes.
    """
    state = sum(kept.size for kept in here.values())
    wanted = [*_borrowing(here, sizes)]
    if sum(sizes.values()) > MOST * state + SLACK:
        wanted += _keeping_dead(here, sizes)
    budget = max(SLACK, state // SHARE)
    return tuple(_within(dict.fromkeys(wanted), here, budget))


def _within(bins: Iterable[int], here: Mapping[int, BinSnapshot], budget: int) -> Iterator[int]:
    """Yield the first bins, as many as a budget allows."""
    for bin in bins:
        budget -= here[bin].size
        if budget < 0:
            return
        yield bin


def _borrowing(here: Mapping[int, BinSnapshot], sizes: Mapping[str, int]) -> Iterator[int]:
    """Yield the bins that need files of others."""
    for bin, kept in here.items():
        if kept.files - sizes.keys():
            yield bin


def _keeping_dead(here: Mapping[int, BinSnapshot], sizes: Mapping[str, int]) -> Iterator[int]:
    """Yield the bins that keep files, those first that free the most for what they cost."""
    alive: Counter[str] = Counter()
    cost: Counter[str] = Counter()
    bins: dict[str, list[int]] = defaultdict(list)
    for bin, kept in here.items():
        for piece in kept.pieces:
            alive[piece.file] += piece.size
        for file in kept.files & sizes.keys():
            bins[file].append(bin)
            cost[file] += kept.size
    gain = {file: (sizes[file] - alive[file]) / max(cost[file], 1) for file in bins}
    for file in sorted(gain, key=lambda file: (-gain[file], file)):
        yield from bins[file]
