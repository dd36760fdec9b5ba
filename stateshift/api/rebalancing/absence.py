"""Jobs that run nowhere: which of them have ended, so that a decision is made without them. Pure.

    finished or canceled, as its cluster says    it has ended
    failed, or its cluster does not know it      it may come back, and is waited for; a day without
                                                 a trace of it counts as an end

One that has ended stays so until it runs again: its cluster forgets it after a while.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from stateshift.api.rebalancing.folder import Absence
from stateshift.api.rebalancing.whereabouts import Whereabouts

# For so long a job may be without a trace before it counts as ended.
ABSENT_SECONDS_MAX = 86400.0
# The words of a cluster for an end that somebody wanted.
WANTED_ENDS = ("finished", "canceled")


def absence_of(where: Mapping[str, Whereabouts], before: Absence, now: float) -> Absence:
    """Return the jobs that run nowhere now. `before` is what the last run has found."""
    since: dict[str, float] = {}
    ended: dict[str, str] = {}
    for name, each in where.items():
        if not each.is_absent:
            continue
        since[name] = min(now, before.since.get(name, now))
        why = before.ended.get(name, "")
        if each.ended in WANTED_ENDS:
            why = f"it has ended on {each.place.cluster} ({each.ended})"
        elif now - since[name] >= ABSENT_SECONDS_MAX:
            why = "it has not run anywhere for a day"
        if why:
            ended[name] = why
    return Absence(since, ended)


def notes_on(absence: Absence, before: Absence, in_spec: Collection[str]) -> Iterator[str]:
    """Yield the jobs that are left out: each time if the spec names it, once if by a pattern."""
    for name, why in absence.ended.items():
        if name in in_spec or name not in before.ended:
            yield f"{name}: {why}, and is left out until it runs again"
