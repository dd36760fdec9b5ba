"""A group in a local directory whose workers are played: they read as long as a command waits. No
Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stateshift.live.bins.watch import Watch
from stateshift.live.folder import Folder
from stateshift.storage.opening import open_storage
from tests.live.bins.workers import Ground, count_and_ask

ROWS_A_BATCH = 30
AHEAD = 3  # batches that are read while nothing is asked for


class PlayedBins:
    """Two workers of one operator, `west` with all bins and `east` with none."""

    def __init__(self, base: Path, names: tuple[str, ...] = ("west", "east")) -> None:
        self.location = str(base / "orders")
        storage = open_storage(self.location)
        Folder(storage).ensure()
        self.ground = Ground(count_and_ask, names, storage=storage)
        for worker in self.ground.workers.values():
            worker.read(ROWS_A_BATCH)
            worker.read(2 * ROWS_A_BATCH)
        begun = self.ground.files.begun()
        assert begun is not None
        self.watch = Watch(self.ground.files, begun)
        self.batches = self.decided = 0

    def work(self) -> None:
        """Let each worker do what its thread and its next batch would. They do not run away from
        a controller that is too slow to propose anything: they wait for it.
        """
        number = self.watch.look().moves.decided
        self.batches = self.batches + 1 if number == self.decided else 0
        self.decided = number
        reads_on = self.batches < AHEAD or self.is_waited_for()
        for worker in self.ground.workers.values():
            worker.running.answer()
            worker.between()
            number = worker.running.moves.decided
            if reads_on and self.ground.files.proposal(number) is None:
                worker.read(worker.read_to + ROWS_A_BATCH)

    def answer(self) -> None:
        """Let each worker answer what is proposed, as its thread does while a batch is at work: one
        that waits for a decision in its batch would wait for the other's answer for ever.
        """
        for worker in self.ground.workers.values():
            worker.running.answer()

    def is_waited_for(self) -> bool:
        """Whether the workers have not done yet what was decided."""
        bins = self.watch.look()
        return bins.passed <= bins.moves.configuration.last or bool(bins.not_dealt)

    @contextmanager
    def running(self, once: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Let the workers work meanwhile, from when this is so."""
        ends = threading.Event()

        def run(act: Callable[[], None]) -> None:
            while not ends.wait(0.02):
                if once():
                    act()

        threads = [threading.Thread(target=run, args=(act,)) for act in (self.work, self.answer)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ends.set()
            for thread in threads:
                thread.join()

    def at(self, name: str) -> list[int]:
        """Return the bins of a worker."""
        return sorted(self.ground.workers[name].running.ledger.here)
