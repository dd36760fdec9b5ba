"""Random walks of a group's workers: they read, take, answer, die, and bins are moved."""

from __future__ import annotations

import random as randoms
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stateshift.live.bins.files import Files
from stateshift.live.bins.operators import Operator
from stateshift.live.protocol.configuration import Update
from tests.live.bins.workers import BINS, TIES, Ground, Reader, Remembering

NAMES = ("west", "east", "south")
END = 400


@dataclass
class Walk:
    """A walk over a log of `end` rows; `look` sees the group after each step. One that is not
    forgetful decodes equal files once, which is three times as fast.
    """

    operator: Operator
    seed: object
    kills: bool
    end: int = END
    names: Sequence[str] = NAMES
    homes: Sequence[str] = ("driver",)
    look: Callable[[Ground], None] | None = None
    is_forgetful: bool = True
    steps: int = 0

    def run(self) -> Ground:
        """Walk to the end of the log, and let everything arrive."""
        self.random = randoms.Random(repr(self.seed))
        files = Files if self.is_forgetful else Remembering
        self.ground = Ground(self.operator, self.names, homes=self.homes, kind=files)
        self.is_open = False
        for worker in self.ground.workers.values():
            worker.read(self.random.randrange(1, 5))
        while any(worker.read_to < self.end for worker in self.ground.workers.values()):
            self._step(self.ground.workers[self.random.choice(self.names)])
            self.steps += 1
            if self.look is not None:
                self.look(self.ground)
        self._finish()
        return self.ground

    def _step(self, worker: Reader) -> None:
        match self.random.randrange(8):
            case 0 if not self.is_open:
                self.ground.propose(self._proposed(), self._ahead())
                self.is_open = True
            case 1 | 2:
                worker.between()
            case 3:
                worker.running.answer()
            case 4 if self.kills:
                worker.start()
            case _ if self._is_free(worker):
                until = worker.read_to + self.random.randrange(1, 40)
                worker.read(min(until, self.end))
        if self.is_open and self.ground.decide():
            self.is_open = False

    def _is_free(self, worker: Reader) -> bool:
        """Whether a batch would not wait for a decision that only this walk can make."""
        return not self.is_open and worker.running.moves.open is None

    def _proposed(self) -> list[Update]:
        """Some bins that go somewhere, ahead of what anybody has read."""
        random, last = self.random, len(self.names)
        time = max(worker.read_to for worker in self.ground.workers.values()) // TIES
        time += random.randrange(-2, 12)
        updates = []
        for bin in random.sample(range(BINS), random.randrange(1, BINS)):
            updates.append(Update(time, bin, random.randrange(last)))
            if random.random() < 0.3:
                later = time + random.randrange(1, 6)
                updates.append(Update(later, bin, random.randrange(last)))
        return sorted(updates)

    def _ahead(self) -> tuple[tuple[int, int], ...]:
        """Some bins that somebody may read ahead."""
        bins = self.random.sample(range(BINS), self.random.randrange(BINS))
        return tuple((bin, self.random.randrange(len(self.names))) for bin in bins)

    def _finish(self) -> None:
        workers = self.ground.workers.values()
        if self.is_open:
            for worker in workers:
                worker.running.answer()
            self.ground.decide()
        for _ in range(4):
            for worker in workers:
                worker.read(self.end)
