"""A worker that never comes back: its name is taken from it, so that somebody else can go on.

An eviction is a commit of nothing, created in the place of the worker's next one. If the worker
lives after all, its next commit fails, and it ends. Whoever starts under its name from then on, on
whatever cluster, goes on from its last commit: rows that are folded already are left out, so it
reads from the frontier or from anywhere before. Bins do not go to others by an eviction alone:
they have read past the rows that are still to be folded. They get them by a move, once the heir has
caught up.

A worker that has never committed has nothing that could be gone on from: it is said to be evicted,
and its first commit is refused as long as nobody has started under its name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from stateshift.errors import PlanError
from stateshift.live.bins.commits import Commit, Counts
from stateshift.live.bins.files import Files
from stateshift.live.bins.times import Moment

TRIES = 20  # as often a worker that lives may commit in between


@dataclass(frozen=True, slots=True)
class Eviction:
    """The place where whoever goes on under the name has to begin."""

    operator: str
    worker: str
    commit: int
    frontier: Moment | None
    bins: int
    at: float | None  # when it committed last by itself


def evict_everywhere(
    files: Files, worker: str, say: Callable[[str], None] = lambda words: None
) -> tuple[Eviction, ...]:
    """Take a worker's name from it, in every operator that it runs; say what is waited for."""
    evicted = []
    all_runs = [runs for runs in files.runs() if runs.worker == worker]
    for number, runs in enumerate(all_runs, start=1):
        say(f"{number} of {len(all_runs)}: read what {worker} of {runs.operator} has committed")
        evicted.append(evict(files, runs.operator, worker, say))
        files.evict_start(runs)
    return tuple(evicted)


def evict(
    files: Files, operator: str, worker: str, say: Callable[[str], None] = lambda words: None
) -> Eviction:
    """Take a worker's name from it.

    Raises:
        PlanError: there is no such worker, or it commits faster.
    """
    names = [one.name for one in files.joined()]
    if worker not in names:
        hint = f"the group has {', '.join(names) or 'none'}"
        raise PlanError(f"there is no worker {worker}", hint=hint)
    for tried in range(1, TRIES + 1):
        ledger = files.ledger(operator, worker)
        last = ledger.last
        if last is None:  # nothing has to be taken from it: its first commit is refused (`running`)
            return Eviction(operator, worker, 0, None, 0, None)
        try:
            files.commit(operator, worker, _nothing_after(last))
        except PlanError:
            say(f"{worker} of {operator} has just committed: tried {tried} of {TRIES} times")
            continue
        return Eviction(
            operator=operator,
            worker=worker,
            commit=last.number + 1,
            frontier=last.frontier,
            bins=len(ledger.here),
            at=last.at,
        )
    raise PlanError(
        f"worker {worker} of {operator} lives: it commits all the time",
        hint="stop its application, or move its bins away while it runs: stateshift live move",
    )


def _nothing_after(last: Commit) -> Commit:
    """Return a commit that changes nothing. Its batch is the last one's, so that nobody takes that
    for one that is still to be done.
    """
    return replace(
        last,
        number=last.number + 1,
        began=time.time(),
        at=time.time(),
        changed=(),
        given=(),
        taken=(),
        here=None,
        unclaimed=(),
        undelivered=(),
        outputs=(),
        counts=Counts(held=last.counts.held),
    )
