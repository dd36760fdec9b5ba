"""The commit of a batch: what has come of every bin that the batch touched. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from stateshift.live.bins.bin_run import BatchResult, BinResult, BinWork
from stateshift.live.bins.commits import Commit, Counts, HeldRows, TakenBin
from stateshift.live.bins.times import Moment

HELD_COMMITS = 8  # after which rows that are held are written anew, with those that came since
BUSY = 2.0  # times the mean of the bins of a batch that have folded rows


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """Rows of a bin that are ahead of the frontier, as they were written for a commit: nothing
    happens to them before the frontier has passed the first one.
    """

    held: HeldRows
    first: Moment
    rows: int
    commit: int

    def is_left(self, frontier: Moment | None, number: int) -> bool:
        """Whether a commit can leave them as they are."""
        is_ahead = frontier is None or frontier <= self.first
        return is_ahead and number < self.commit + HELD_COMMITS


def waiting_after(
    commit: Commit, came: BatchResult, left: Iterable[WaitingRows]
) -> dict[int, WaitingRows]:
    """Return the rows that are ahead of the frontier after a commit, of the bins of which that is
    known.
    """
    waiting = {one.held.bin: one for one in left}
    held = {one.bin: one for one in commit.held}
    for done in came.done:
        one = held.get(done.bin)
        if done.held_first is not None and one is not None and one.since is None:
            waiting[done.bin] = WaitingRows(one, done.held_first, done.rows_held, commit.number)
    return waiting


def fill_commit(
    commit: Commit,
    works: Sequence[BinWork],
    came: BatchResult,
    size: int,
    left: Collection[WaitingRows],
) -> Commit:
    """Return a commit with what has come of every bin; `size` is the rows of the batch, `left` the
    rows of bins that nothing happens to.
    """
    done = came.done
    late = sum(one.late for one in done)
    after = {work.bin: work.after for work in works}
    held = [one.held for one in left]
    for one in done:
        position = after[one.bin]
        if one.held or position.place == "awaited":
            held.append(HeldRows(one.bin, position.since, one.held))
    return replace(
        commit,
        changed=tuple(one.changed for one in done if one.changed is not None),
        given=tuple(chain.from_iterable(one.given for one in done)),
        taken=tuple(_taken(works)),
        held=tuple(held),
        counts=Counts(
            came=size - late,
            folded=sum(one.folded for one in done),
            put_out=came.put_out,
            held=sum(one.rows_held for one in done) + sum(one.rows for one in left),
            late=late,
        ),
        busy=_busy(done),
    )


def _busy(done: Sequence[BinResult]) -> dict[str, int]:
    """Return the rows of the bins that have folded many more than the others."""
    folding = [one for one in done if one.folded]
    least = BUSY * sum(one.folded for one in folding) / max(1, len(folding))
    return {str(one.bin): one.folded for one in folding if one.folded >= least}


def _taken(works: Sequence[BinWork]) -> Iterator[TakenBin]:
    for work in works:
        for since, arrived in work.taken.items():
            yield TakenBin(work.bin, since, arrived.source, arrived.kept)
