"""What is there of a group, for whoever looks at it: its chains and changes, what workers have said
of each change, and what their tasks did of late. Nothing is changed by looking.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from stateshift.live import acts
from stateshift.live.bins.past import PartPast, PastMove, past_moves, past_parts
from stateshift.live.bins.steering import MoveCarrier, Steering, Throttle
from stateshift.live.bins.watch import Bins, Watch, open_bins
from stateshift.live.folder import KEPT_BATCHES, Folder, Seal, TaskMeasure, WorkerWord
from stateshift.live.group_state import GroupState, read_group
from stateshift.live.protocol.chains import KnownChange

LATE_BATCHES = 12  # measured ones, of which it is said how fast a query is of late


@dataclass(frozen=True, slots=True)
class ChangeWords:
    """A change, what workers have said of it, and whether it is signed."""

    known: KnownChange
    said: tuple[WorkerWord, ...]
    is_signed: bool


@dataclass(frozen=True, slots=True)
class BinsSurvey:
    """The bins of a group at a moment, how moves of them are steered, and their past where it was
    asked for.
    """

    bins: Bins
    carried: MoveCarrier | None
    is_paused: bool
    throttle: Throttle
    moves: tuple[PastMove, ...] = ()
    parts: tuple[PartPast, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSurvey:
    """A group at a moment. `told` are the changes asked for, `seals` those of the batches that were
    measured and of the ones after them, by query.
    """

    location: str
    at: float
    standing: GroupState
    told: tuple[ChangeWords, ...]
    measures: tuple[TaskMeasure, ...] = ()
    seals: Mapping[str, Mapping[int, Seal]] = field(default_factory=dict)
    bins: BinsSurvey | None = None


def look(location: str, is_whole: bool = False) -> GroupSurvey:
    """Return what runs now: with the last changes and measures, or with all that are kept."""
    folder = acts.open_group(location)
    now = read_group(folder)
    told = _told(folder, now.changes if is_whole else now.changes[-_last_of_interest(now) :])
    measures = folder.measures(KEPT_BATCHES if is_whole else LATE_BATCHES)
    return GroupSurvey(
        location=folder.location,
        at=time.time(),
        standing=now,
        told=told,
        measures=measures,
        seals=_seals(folder, measures),
        bins=look_at_bins(location, is_whole),
    )


def look_at_bins(location: str, is_whole: bool = False) -> BinsSurvey | None:
    """Return the bins of a group, with all of their past if that is wanted; None where it has
    none.
    """
    found = open_bins(location)
    if found is None:
        return None
    files, begun = found
    steering = Steering(files.storage)
    return BinsSurvey(
        bins=Watch(files, begun).look(),
        carried=steering.carried,
        is_paused=steering.is_paused,
        throttle=steering.throttled,
        moves=past_moves(files, begun) if is_whole else (),
        parts=past_parts(files) if is_whole else (),
    )


def moves_of_bins(location: str) -> tuple[PastMove, ...]:
    """Return the moves of a group's bins that are kept, oldest first; none where it has no bins."""
    found = open_bins(location)
    return () if found is None else past_moves(*found)


def history(location: str, chain: str | None = None) -> GroupSurvey:
    """Return all changes, or those of one chain, with what workers have said of them."""
    folder = acts.open_group(location)
    now = read_group(folder)
    changes = now.changes
    if chain is not None:
        now.declaration(chain)
        changes = tuple(known for known in changes if chain in known.change.chains)
    return GroupSurvey(folder.location, time.time(), now, _told(folder, changes))


def _told(folder: Folder, changes: tuple[KnownChange, ...]) -> tuple[ChangeWords, ...]:
    return tuple(_told_of(folder, known) for known in changes)


def _told_of(folder: Folder, known: KnownChange) -> ChangeWords:
    return ChangeWords(known, folder.said(known.number), folder.is_signed(known.number))


def _last_of_interest(now: GroupState) -> int:
    """Return how many of the last changes say what runs: from the newest that holds on."""
    for count, known in enumerate(reversed(now.changes), start=1):
        if known.holds:
            return count
    return len(now.changes)


def _seals(folder: Folder, measures: tuple[TaskMeasure, ...]) -> Mapping[str, Mapping[int, Seal]]:
    """Return when the batches that were measured began, and the ones after them."""
    wanted: dict[str, set[int]] = {}
    for measured in measures:
        wanted.setdefault(measured.query, set()).update((measured.batch, measured.batch + 1))
    return {query: _sealed(folder, query, batches) for query, batches in wanted.items()}


def _sealed(folder: Folder, query: str, batches: set[int]) -> Mapping[int, Seal]:
    found = {batch: folder.sealed(query, batch) for batch in sorted(batches)}
    return {batch: seal for batch, seal in found.items() if seal is not None}
