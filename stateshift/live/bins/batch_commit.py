"""The commit of a batch: what has come of every bin that the batch touched. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from stateshift.live.bins.bin_run import Came, Done, Work
from stateshift.live.bins.commits import Commit, Counts, Held, Taken

BUSY = 2.0  # times the mean of the bins of a batch that have folded rows


def filled(commit: Commit, works: Sequence[Work], came: Came, size: int) -> Commit:
    """Return a commit with what has come of every bin; `size` is the rows of the batch."""
    done = came.done
    late = sum(one.late for one in done)
    after = {work.bin: work.after for work in works}
    held = []
    for one in done:
        position = after[one.bin]
        if one.held or position.place == "awaited":
            held.append(Held(one.bin, position.since, one.held))
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
            held=sum(one.rows_held for one in done),
            late=late,
        ),
        busy=_busy(done),
    )


def _busy(done: Sequence[Done]) -> dict[str, int]:
    """Return the rows of the bins that have folded many more than the others."""
    folding = [one for one in done if one.folded]
    least = BUSY * sum(one.folded for one in folding) / max(1, len(folding))
    return {str(one.bin): one.folded for one in folding if one.folded >= least}


def _taken(works: Sequence[Work]) -> Iterator[Taken]:
    for work in works:
        for since, arrived in work.taken.items():
            yield Taken(work.bin, since, arrived.source, arrived.kept)
