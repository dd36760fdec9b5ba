"""The moves of a group, kept bounded: the first ones are folded into one file, and their own files
are removed.

    compact(files, begun, look)   now and then, by whoever has carried moves

Nobody may read a file that is removed. Whoever starts reads the folded moves, and then those after
it one by one; whoever runs reads on from the last one that it knows. A move is removed once a base
after it was there for a while (the one before the newest), and every running part has committed
that it knows it. While somebody starts, nothing is applied without its answer.
`KEPT` moves are kept in any case, for `live history`.

Times that no part needs any more are left out of the folded moves: those before the frontier
of the slowest one, and before what it awaits; of an evicted one, too, since somebody goes on there.
A part that starts later needs the moves of what was given to it: they are left out once it has
taken that. And all parts of an operator begin with the same, so while one of them has committed
nothing, no more is left out than before.

An imported part has its bins where they were before any move. While one of them was not started,
nothing is left out; and nobody imports once something is.

A part may begin while somebody compacts. Compactions are numbered, and each is a file that is
created if absent: whoever compacts reads the newest number, looks, creates the next one, and only
then writes. A part without commits says that it runs, and then creates the next number itself: of a
compaction that has not seen it, the number is not the next one any more.
"""

from __future__ import annotations

from collections.abc import Callable

from stateshift.live.bins.compactions import Compaction, MovesBase, MovesKept
from stateshift.live.bins.files import Files, GroupStart, apply_proposal
from stateshift.live.bins.watch import Bins
from stateshift.live.protocol.configuration import BEGIN, Time, initial_configuration, retire

EVERY = 32  # moves
KEPT = 64  # moves


def compact(files: Files, begun: GroupStart, look: Callable[[], Bins]) -> None:
    """Fold the moves so far, and remove the files that nobody needs, if they are many."""
    number, newest = files.newest_compaction()
    base, bins = files.moves_base(), look()
    moves = bins.moves
    before = 0 if base is None else base.decided
    if moves.decided < before + EVERY:
        return
    begin = BEGIN if base is None else base.configuration.since
    since = max(begin, newest.since)
    if not files.imported():
        since = max(since, _first_needed(bins) - 1)
    if not files.compacted(number + 1, Compaction(since)):
        return  # somebody has begun, or compacts: the next one tries again
    files.keep_moves(MovesBase(moves.decided, retire(moves.configuration, since), moves.ahead))
    files.forget_compactions(number + 1)
    known = [part.moves_known for part in bins.running]
    first = min(before, moves.decided - KEPT, *known)
    kept = files.moves_kept(begun, len(bins.workers))
    if first > kept.first:
        configuration = kept.configuration
        for earlier in range(kept.first, first):
            proposal, decided = files.proposal(earlier), files.decided(earlier)
            if proposal is not None and decided is not None and decided.outcome == "applied":
                configuration = apply_proposal(configuration, proposal)
        assigned = configuration.at(configuration.last)
        configuration = initial_configuration(assigned, configuration.workers)
        files.forget_moves(MovesKept(first, configuration))


def _first_needed(bins: Bins) -> Time:
    """Return the first time that any part can ask for, also one that starts later."""
    needed: list[Time] = []
    for part in bins.parts:
        same = [other for other in bins.parts if other.runs.operator == part.runs.operator]
        ledger = part.ledger.claimed({other.number: other.ledger for other in same})
        needed += [part.passed, *(given.time for given in ledger.unclaimed)]
    return min(needed, default=0) - 1
