"""One proposal, as its carrier follows it: the answers of workers, and the bins on their way.

    acknowledged  by every part of a worker in an operator: then it is applied, and nobody takes it
                  back
    refused       by one of them: then it is aborted
    complete      the giver's commits name the bins, the taker's name them too, and every part has
                  passed the time and awaits nothing of it; or has redistributed its bins, where
                  that is proposed

The table knows no files: its caller hands over answers and commits. What it has seen once holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stateshift.live.bins.files import ACKNOWLEDGED, Answer, Proposal
from stateshift.live.bins.watch import BinAt, Bins, WorkerPart
from stateshift.live.protocol.configuration import Update

PartKey = tuple[str, str]  # operator, worker


@dataclass(frozen=True, slots=True)
class Crossing:
    """Bins of an operator that go from one worker to another."""

    source: PartKey
    target: PartKey
    bins: frozenset[BinAt]


class StepTable:
    """The answers to one proposal, and what has come of it."""

    def __init__(self, bins: Bins, proposal: Proposal) -> None:
        self.parts = {(part.runs.operator, part.runs.worker) for part in bins.running}
        self.proposal = proposal
        self.last = max((update.time for update in proposal.updates), default=-1)
        self.crossings = tuple(_crossings(bins, proposal.updates))
        self.is_refused = False
        self._heard: set[PartKey] = set()
        self._done: set[PartKey | Crossing] = set()

    @property
    def is_acknowledged(self) -> bool:
        if self.is_refused or not self.parts:
            return False
        givers = {crossing.source for crossing in self.crossings}
        return self._heard >= self.parts | givers

    @property
    def is_complete(self) -> bool:
        """Whether everything has come, and nobody waits."""
        return self.is_acknowledged and self._done >= {*self.parts, *self.crossings}

    @property
    def acknowledged(self) -> int:
        return len(self._heard)

    def silent(self, answers: Sequence[Answer]) -> list[PartKey]:
        """Return the parts that have not answered."""
        return sorted(self.parts - {(answer.operator, answer.worker) for answer in answers})

    def hear(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            key = (answer.operator, answer.worker)
            if key not in self.parts:
                continue
            if answer.word == ACKNOWLEDGED:
                self._heard.add(key)
            elif not self.is_acknowledged:
                self.is_refused = True

    def watch(self, bins: Bins) -> None:
        """Take the commits after a step was decided. A part that is gone has nothing left."""
        parts = {(part.runs.operator, part.runs.worker): part for part in bins.parts}
        for crossing in self.crossings:
            giver, taker = parts.get(crossing.source), parts.get(crossing.target)
            is_given = giver is None or crossing.bins <= giver.given
            is_taken = taker is None or crossing.bins <= taker.taken
            if is_given and is_taken and (taker is None or bins.passed_by(taker) > self.last):
                self._done.add(crossing)
        for key in self.parts:
            part = parts.get(key)
            if part is None or part.is_evicted or self._is_past(bins, part):
                self._done.add(key)

    def _is_past(self, bins: Bins, part: WorkerPart) -> bool:
        if self.proposal.bins is None:
            return bins.passed_by(part) > self.last
        return part.ledger.last is None or part.moves_known > self.proposal.number


def _crossings(bins: Bins, updates: Sequence[Update]) -> Iterator[Crossing]:
    """Yield the crossings of updates, of each operator that both ends run."""
    between: dict[tuple[int, int], set[BinAt]] = {}
    at = dict(enumerate(bins.assigned))
    for time, bin, worker in sorted(updates):
        if at[bin] != worker:
            between.setdefault((at[bin], worker), set()).add((bin, time))
        at[bin] = worker
    for (source, target), moved in sorted(between.items()):
        runs = {part.runs.operator for part in bins.parts_of(source)}
        for part in bins.parts_of(target):
            operator = part.runs.operator
            if operator in runs:
                giver, taker = (operator, bins.names[source]), (operator, part.runs.worker)
                yield Crossing(giver, taker, frozenset(moved))
