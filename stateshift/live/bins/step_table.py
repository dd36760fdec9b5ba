"""One proposal, carried by the protocol's own coordinator (`protocol.coordinator`).

    tasks    a worker's part in an operator; and bins of it that go from one worker to another
    words    Acknowledged  the worker's answer
             Shipped       the giver's commits name the bins, as they are at the time
             Deployed      the taker's commits name them
             Running       the part has passed the time, and awaits nothing of it; or has
                           redistributed its bins, where that is proposed
    decided  when all have acknowledged: from there on nobody takes it back

The table knows no files: its caller hands over answers and commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stateshift.live.bins.files import ACKNOWLEDGED, Answer, Proposal
from stateshift.live.bins.watch import BinAt, Bins
from stateshift.live.protocol import coordinator as table
from stateshift.live.protocol.configuration import Update
from stateshift.live.protocol.task_flow import (
    Acknowledged,
    Deployed,
    Deployment,
    Flow,
    Migration,
    Modification,
    Refused,
    Replacement,
    Role,
    Running,
    Shipped,
    Task,
    Word,
    number_tasks,
)

PartKey = tuple[str, str]  # operator, worker


@dataclass(frozen=True, slots=True)
class Crossing:
    """Bins of an operator that go from one worker to another."""

    task: Task
    source: PartKey
    target: PartKey
    bins: frozenset[BinAt]


class StepTable:
    """The coordinator of one proposal."""

    def __init__(self, bins: Bins, proposal: Proposal) -> None:
        runs = [part.runs for part in bins.running]
        self.parts = number_tasks(((one.operator, one.worker), one.operator) for one in runs)
        self.proposal = proposal
        self.last = max((update.time for update in proposal.updates), default=-1)
        self.crossings = tuple(_crossings(bins, proposal.updates))
        tasks = (*self.parts.values(), *(each.task for each in self.crossings))
        flow = Flow(Counter(task.operator for task in tasks), ())
        running = {task: worker for (_, worker), task in self.parts.items()}
        running.update({each.task: each.source[1] for each in self.crossings})
        free = dict.fromkeys(bins.names, len(self.crossings))
        places = Deployment(flow, running, free)
        name = f"move {proposal.number}"
        operators = sorted({task.operator for task in self.parts.values()})
        asked: Modification = Replacement(name, tuple(operators))
        if self.crossings:
            asked = Migration(name, {each.task: each.target[1] for each in self.crossings})
        self.state, _, _ = table.begin(places, asked, proposal.number, proposal.at)
        self._said: set[Word] = set()

    @property
    def is_acknowledged(self) -> bool:
        return self.state.state == "running" and self.state.step not in ("allocate", "trigger")

    @property
    def is_refused(self) -> bool:
        """Whether it is aborted."""
        return self.state.state in ("rolling-back", "rolled-back")

    @property
    def is_complete(self) -> bool:
        """Whether everything has come, and nobody waits."""
        return self.state.state == "finished"

    @property
    def acknowledged(self) -> int:
        return sum(task in self.state.acknowledged for task in self.parts.values())

    def silent(self, answers: Sequence[Answer]) -> list[PartKey]:
        """Return the parts that have not answered."""
        heard = {(answer.operator, answer.worker) for answer in answers}
        return sorted(self.parts.keys() - heard)

    def hear(self, answers: Sequence[Answer], now: float) -> None:
        for answer in answers:
            key = (answer.operator, answer.worker)
            if key in self.parts:
                for word in self._words(key, answer):
                    self._take(word, now)

    def _words(self, key: PartKey, answer: Answer) -> Iterator[Word]:
        if answer.word != ACKNOWLEDGED:
            yield Refused(self.parts[key], answer.reason)
            return
        roles: list[Role] = ["rewires"]
        for crossing in self.crossings:
            if crossing.source == key:
                roles.append("ships")
                yield Acknowledged(crossing.task, ("ships",))
            elif crossing.target == key:
                roles.append("buffers")
        yield Acknowledged(self.parts[key], tuple(dict.fromkeys(roles)))

    def watch(self, bins: Bins, now: float) -> None:
        """Take the commits after a step was decided."""
        parts = {(part.runs.operator, part.runs.worker): part for part in bins.parts}
        for crossing in self.crossings:
            giver, taker = parts.get(crossing.source), parts.get(crossing.target)
            if giver is None or crossing.bins <= giver.given:  # a giver with nothing left may go
                self._take(Shipped(crossing.task, self.last), now)
            if taker is None or crossing.bins <= taker.taken:  # one that has given all on, too
                self._take(Deployed(crossing.task), now)
                if taker is None or bins.passed_by(taker) > self.last:
                    self._take(Running(crossing.task), now)
        for key, task in self.parts.items():
            part = parts.get(key)
            is_done = part is None or part.is_evicted
            if part is not None and not is_done:
                if self.proposal.bins is None:
                    is_done = bins.passed_by(part) > self.last
                else:
                    is_done = part.ledger.last is None or part.moves_known > self.proposal.number
            if is_done:
                self._take(Running(task), now)

    def give_up(self, reason: str, now: float) -> None:
        """Take an abort to its end: nobody has held anything back, everybody runs on as before."""
        self.state = table.give_up(self.state, reason, now)

    def _take(self, word: Word, now: float) -> None:
        if word not in self._said:
            self._said.add(word)
            self.state, _, _ = table.advance(self.state, word, now)


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
                name = f"{operator} from {giver[1]} to {taker[1]}"
                yield Crossing(Task(name, 0), giver, taker, frozenset(moved))
