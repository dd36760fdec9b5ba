"""Random walks of a group's workers: they read, take, answer, die, and bins are moved."""

from __future__ import annotations

import random as randoms
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stateshift.live.bins.files import Files
from stateshift.live.bins.operators import BinOperator
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Update
from tests.live.bins.workers import TIES, Ground, Reader, Remembering

NAMES = ("west", "east", "south")
END = 400
STEPS_MAX = 5000
STEPS_OPEN = 500  # a proposal's timeout
COUNTS = (1, 2, 4, 8, 16, 32)


def _all_at(time: int, bins: Sequence[int], worker: int) -> list[Update]:
    """Several bins that are at a worker from a time on."""
    return [Update(time, bin, worker) for bin in bins]


@dataclass
class Walk:
    """A walk over a log of `end` rows; `look` sees the group after each step. One that is not
    forgetful decodes equal files once, which is three times as fast. Where it `resizes`, bins are
    split and merged, too. Where it `evicts`, a worker dies now and then for a while: it is evicted,
    and the others go on without its word. Where somebody `joins`, one worker more starts from nothing
    in the middle of it, and reads from the first row on.
    """

    operator: BinOperator
    seed: object
    kills: bool
    end: int = END
    names: Sequence[str] = NAMES
    homes: Sequence[str] = ("driver",)
    look: Callable[[Ground], None] | None = None
    is_forgetful: bool = True
    resizes: bool = False
    evicts: bool = False
    joins: str = ""
    steps: int = 0
    resized: int = 0
    evicted: int = 0
    opened: int = 0  # the step at which the last proposal was made

    def run(self) -> Ground:
        """Walk to the end of the log, and let everything arrive."""
        self.random = randoms.Random(repr(self.seed))
        files = Files if self.is_forgetful else Remembering
        self.ground = Ground(self.operator, self.names, homes=self.homes, kind=files)
        self.is_open = False
        for worker in self.ground.workers.values():
            worker.read(self.random.randrange(1, 5))
        while any(worker.read_to < self.end for worker in self.ground.workers.values()):
            self._evict_or_return()
            if self.joins and self.joins not in self.ground.workers and self._is_in_the_middle():
                self.ground.add(self.joins)
                self.names = (*self.names, self.joins)
            self._step(self.random.choice(self.ground.living))
            self.steps += 1
            assert self.steps < STEPS_MAX, "a walk comes to its end"
            if self.look is not None:
                self.look(self.ground)
        self._finish()
        return self.ground

    def _evict_or_return(self) -> None:
        """Let a worker die for a while, and somebody go on under its name."""
        gone = self.ground.gone
        if gone is not None and self.random.random() < 0.05:
            self.ground.go_on_as(gone)
        elif self.evicts and gone is None and not self.is_open and self.random.random() < 0.05:
            self.ground.evict(self.random.choice(self.names))
            self.evicted += 1

    def _is_in_the_middle(self) -> bool:
        return max(worker.read_to for worker in self.ground.workers.values()) > self.end // 2

    def _step(self, worker: Reader) -> None:
        match self.random.randrange(8):
            case 0 if not self.is_open and self._is_dealt():
                self._propose()
                self.is_open, self.opened = True, self.steps
            case 1 | 2:
                worker.between()
            case 3:
                worker.running.answer()
            case 4 if self.kills:
                worker.start()
            case _ if self._is_free(worker):
                until = worker.read_to + self.random.randrange(1, 40)
                worker.read(min(until, self.end))
        if self.is_open and (self.ground.decide() or self._is_given_up()):
            self.is_open = False

    def _propose(self) -> None:
        if self.resizes and self.ground.gone_has_settled() and self.random.random() < 0.4:
            furthest = max(worker.read_to for worker in self.ground.workers.values()) // TIES
            later = min(furthest + self.random.randrange(20), (self.end - 1) // TIES)
            since = self.random.choice([-1, furthest, later])
            self.ground.propose_bins(self.random.choice(COUNTS), since)
            self.resized += 1
        else:
            self.ground.propose(self._proposed(), self._ahead())

    def _is_dealt(self) -> bool:
        """Whether all workers count bins by one number: who moves bins looks first."""
        if not self.resizes:
            return True
        bins = self.ground.bins
        return all(worker.running.bins == bins for worker in self.ground.living)

    def _is_given_up(self) -> bool:
        """Abort now and then what not everybody can agree to yet; and a move whose time is over, for
        which a worker waits that came back and counts bins by another number.
        """
        number = self.ground.moves - 1
        proposal = self.ground.files.proposal(number)
        if proposal is None:
            return False
        if proposal.bins is None:
            if self.steps < self.opened + STEPS_OPEN:
                return False
        elif self.random.random() > 0.02:
            return False
        decided = Decision("aborted", 0.0, "test", "given up")
        self.ground.files.decide(number, decided)
        return True

    def _is_free(self, worker: Reader) -> bool:
        """Whether a batch would not wait for a decision that only this walk can make."""
        open_ = worker.running.moves.open
        waits = self.is_open and self.ground.files.proposal(self.ground.moves - 1).bins is None
        return not waits and (open_ is None or open_.bins is not None)

    def _proposed(self) -> list[Update]:
        """Some bins that go somewhere, ahead of what anybody has read."""
        random, last = self.random, len(self.names)
        time = max(worker.read_to for worker in self.ground.workers.values()) // TIES
        time += random.randrange(-2 if self.ground.gone is None else 1, 12)
        updates: list[Update] = []
        bins = self.ground.bins
        together = random.choice([1, min(2, bins), min(4, bins)]) if self.resizes else 1
        count = bins // together
        for first in random.sample(range(count), random.randrange(1, count + 1)):
            same = range(first * together, (first + 1) * together)
            updates += _all_at(time, same, random.randrange(last))
            if random.random() < 0.3:
                later = time + random.randrange(1, 6)
                updates += _all_at(later, same, random.randrange(last))
        return sorted(filter(self.ground.is_between_the_living, updates))

    def _ahead(self) -> tuple[tuple[int, int], ...]:
        """Some bins that somebody may read ahead."""
        count = self.ground.bins
        bins = self.random.sample(range(count), self.random.randrange(count))
        return tuple((bin, self.random.randrange(len(self.names))) for bin in bins)

    def _finish(self) -> None:
        if self.ground.gone is not None:
            self.ground.go_on_as(self.ground.gone)
        workers = self.ground.workers.values()
        if self.is_open:
            for worker in workers:
                worker.running.answer()
            self.ground.decide()
        for _ in range(4):
            for worker in workers:
                worker.read(self.end)
