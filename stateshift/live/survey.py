"""A group, for whoever looks at it: its chains and changes, the words of workers about each change,
and the latest work of their tasks; its bins, and their past as far as files have it. Nothing is
changed by looking.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stateshift.live import acts
from stateshift.live.bins.commits import Commit, Ledger
from stateshift.live.bins.files import (
    ACKNOWLEDGED,
    REFUSED,
    Answer,
    Files,
    GroupStart,
    Proposal,
    apply_proposal,
    wide_enough,
)
from stateshift.live.bins.steering import MoveCarrier, Steering, Throttle
from stateshift.live.bins.watch import Bins, Watch, open_bins
from stateshift.live.folder import KEPT_BATCHES, Folder, Seal, TaskMeasure, WorkerWord
from stateshift.live.proposals import GroupState, read_group
from stateshift.live.protocol.chains import Decision, KnownChange
from stateshift.live.protocol.configuration import Time

LATE_BATCHES = 12  # measured ones, by which the speed of a query is told


@dataclass(frozen=True, slots=True)
class ChangeWords:
    """A change, the words of workers about it, and whether it is signed."""

    known: KnownChange
    said: tuple[WorkerWord, ...]
    is_signed: bool


@dataclass(frozen=True, slots=True)
class BinMoves:
    """Bins that one proposal takes from one worker to another, at one time."""

    source: str
    target: str
    time: Time
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PastMove:
    """A move and its end; without `went`, bins are copied ahead, or are another number."""

    proposal: Proposal
    decided: Decision | None
    answers: tuple[Answer, ...]
    went: tuple[BinMoves, ...]

    @property
    def acknowledged(self) -> int:
        return sum(answer.word == ACKNOWLEDGED for answer in self.answers)

    @property
    def refused(self) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers if answer.word == REFUSED)


@dataclass(frozen=True, slots=True)
class CommitPast:
    """A commit, and how many bins the part has after it."""

    commit: Commit
    bins: int


@dataclass(frozen=True, slots=True)
class PartPast:
    """The last commits of one worker's part in one operator."""

    operator: str
    worker: str
    commits: tuple[CommitPast, ...]


@dataclass(frozen=True, slots=True)
class BinsSurvey:
    """The bins of a group, the steering of their moves, and their past if it was asked for."""

    bins: Bins
    carried: MoveCarrier | None
    is_paused: bool
    throttle: Throttle
    moves: tuple[PastMove, ...] = ()
    parts: tuple[PartPast, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSurvey:
    """A group at a moment; `seals` are of the measured batches and the next ones, by query."""

    location: str
    at: float
    standing: GroupState
    told: tuple[ChangeWords, ...]
    measures: tuple[TaskMeasure, ...] = ()
    seals: Mapping[str, Mapping[int, Seal]] = field(default_factory=dict)
    bins: BinsSurvey | None = None


def look(location: str, is_whole: bool = False) -> GroupSurvey:
    """Return the group now: with the last changes and measures, or with all that are kept."""
    folder = acts.open_group(location)
    now = read_group(folder)
    holding = [place for place, known in enumerate(now.changes) if known.holds]
    first = 0 if is_whole or not holding else holding[-1]  # the newest that holds says what runs
    told = _with_words(folder, now.changes[first:])
    measures = folder.measures(KEPT_BATCHES if is_whole else LATE_BATCHES)
    batches: dict[str, set[int]] = {}  # those measured, and the ones after them
    for measured in measures:
        batches.setdefault(measured.query, set()).update((measured.batch, measured.batch + 1))
    seals: dict[str, dict[int, Seal]] = {query: {} for query in batches}
    for query, numbers in batches.items():
        for number in sorted(numbers):
            seal = folder.sealed(query, number)
            if seal is not None:
                seals[query][number] = seal
    return GroupSurvey(
        location=folder.location,
        at=time.time(),
        standing=now,
        told=told,
        measures=measures,
        seals=seals,
        bins=look_at_bins(location, is_whole),
    )


def look_at_bins(location: str, is_whole: bool = False) -> BinsSurvey | None:
    """Return the bins of a group, and all of their past if wanted; None where it has none."""
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
    """Return all changes, or those of one chain, with the words of workers about them."""
    folder = acts.open_group(location)
    now = read_group(folder)
    changes = now.changes
    if chain is not None:
        now.declaration(chain)
        changes = tuple(known for known in changes if chain in known.change.chains)
    return GroupSurvey(folder.location, time.time(), now, _with_words(folder, changes))


def _with_words(folder: Folder, changes: Sequence[KnownChange]) -> tuple[ChangeWords, ...]:
    return tuple(
        ChangeWords(known, folder.said(known.number), folder.is_signed(known.number))
        for known in changes
    )


def past_moves(files: Files, begun: GroupStart) -> tuple[PastMove, ...]:
    """Return the moves of a group that are kept, oldest first."""
    names = {joined.number: joined.name for joined in files.joined()}
    kept = files.moves_kept(begun, len(names))
    configuration = kept.configuration
    found: list[PastMove] = []
    while (proposal := files.proposal(kept.first + len(found))) is not None:
        decided = files.decided(proposal.number)
        configuration = wide_enough(configuration, proposal.updates)
        before = dict(enumerate(configuration.at(configuration.last)))
        between: dict[tuple[Time, int, int], list[int]] = {}
        for at_time, bin, worker in sorted(proposal.updates):
            between.setdefault((at_time, before[bin], worker), []).append(bin)
            before[bin] = worker
        moves = []
        for (at_time, source, target), bins in sorted(between.items()):
            ends = names.get(source, str(source)), names.get(target, str(target))
            moves.append(BinMoves(*ends, at_time, tuple(bins)))
        went = tuple(moves)
        found.append(PastMove(proposal, decided, files.answers(proposal.number), went))
        if decided is not None and decided.outcome == "applied":
            configuration = apply_proposal(configuration, proposal)
    return tuple(found)


def past_parts(files: Files) -> tuple[PartPast, ...]:
    """Return the last commits of all parts, by operator and worker."""
    parts = []
    for runs in sorted(files.runs(), key=lambda each: (each.operator, each.worker)):
        ledger = Ledger()
        found: list[CommitPast] = []  # from the first kept one that lists all bins
        for number in sorted(files.commit_numbers(runs.operator, runs.worker)):
            commit = files.committed(runs.operator, runs.worker, number)
            if commit is None or (ledger.last is None and commit.here is None):
                continue
            ledger = ledger.plus(commit)
            found.append(CommitPast(commit, len(ledger.here)))
        parts.append(PartPast(runs.operator, runs.worker, tuple(found)))
    return tuple(parts)
