"""The past of a group's bins, as far as its files have it: the last moves, and the last commits.

    PastMove    a move as it was proposed, from where to where, and what became of it
    past_moves  those that are kept, oldest first; older ones are removed (`compacting_moves`)
    PartPast    the last commits of one worker's part in one operator; older ones are removed
    past_parts  those of all

Nothing is changed by looking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stateshift.live.bins.answers import ACKNOWLEDGED, REFUSED
from stateshift.live.bins.commits import Commit, Ledger
from stateshift.live.bins.files import (
    Answer,
    Files,
    GroupStart,
    Proposal,
    apply_proposal,
    wide_enough,
)
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Time


@dataclass(frozen=True, slots=True)
class BinMoves:
    """Bins that one proposal takes from one worker to another, at one time."""

    source: str
    target: str
    time: Time
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PastMove:
    """A move as it was proposed, and what became of it. One without `went` is a preparation: bins
    are copied ahead; or another number of bins, where the proposal says one.
    """

    proposal: Proposal
    decided: Decision | None
    answers: tuple[Answer, ...]
    went: tuple[BinMoves, ...]

    @property
    def acknowledged(self) -> int:
        """How many parts have acknowledged it."""
        return sum(answer.word == ACKNOWLEDGED for answer in self.answers)

    @property
    def refused(self) -> tuple[Answer, ...]:
        """The answers that refuse it."""
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
        went = tuple(_went(proposal, before, names))
        found.append(PastMove(proposal, decided, files.answers(proposal.number), went))
        if decided is not None and decided.outcome == "applied":
            configuration = apply_proposal(configuration, proposal)
    return tuple(found)


def _went(proposal: Proposal, at: dict[int, int], names: dict[int, str]) -> Iterator[BinMoves]:
    """Yield what a proposal takes from where to where; `at` has each bin's worker before it."""
    between: dict[tuple[Time, int, int], list[int]] = {}
    for time, bin, worker in sorted(proposal.updates):
        between.setdefault((time, at[bin], worker), []).append(bin)
        at[bin] = worker
    for (time, source, target), bins in sorted(between.items()):
        yield BinMoves(
            names.get(source, str(source)), names.get(target, str(target)), time, tuple(bins)
        )


def past_parts(files: Files) -> tuple[PartPast, ...]:
    """Return the last commits of all parts, by operator and worker."""
    runs = sorted(files.runs(), key=lambda each: (each.operator, each.worker))
    return tuple(
        PartPast(each.operator, each.worker, tuple(_commits(files, each.operator, each.worker)))
        for each in runs
    )


def _commits(files: Files, operator: str, worker: str) -> Iterator[CommitPast]:
    """Yield the commits that are kept, from the first one that lists all bins."""
    ledger = Ledger()
    for number in sorted(files.commit_numbers(operator, worker)):
        commit = files.committed(operator, worker, number)
        if commit is None or (ledger.last is None and commit.here is None):
            continue
        ledger = ledger.plus(commit)
        yield CommitPast(commit, len(ledger.here))
