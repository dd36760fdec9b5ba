"""Bins move between real applications while a third one starts from nothing, and all are killed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from stateshift.errors import PlanError
from stateshift.live.bins.controller import Controller
from stateshift.live.bins.move_request import Manner
from tests.acceptance.live_operators import BINS, visits
from tests.acceptance.living_bins import Bins, half, running
from tests.conftest import SEED

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

KILLS = 20
RATE, ROWS = 30, 200_000  # as long as it takes: the log ends after the last kill
MANNER = Manner(lead_seconds=4.0, timeout_seconds=120.0, wait_seconds=120.0)
THIRD = "south"


class Mover:
    """Moves of bins, and what became of them; nothing that is refused counts as one."""

    def __init__(self, bins: Bins, chance: random.Random) -> None:
        self.bins, self.chance = bins, chance
        self.became: Counter[str] = Counter()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.ended.is_set():
            numbers = self.chance.sample(range(BINS), self.chance.randrange(1, BINS))
            target = self.chance.choice(self.bins.names)
            strategy = self.chance.choice(("all-at-once", "batched(4)"))
            try:
                controller = Controller(self.bins.location)
                moved = controller.move(numbers, to=target, strategy=strategy, manner=MANNER)
                self.became[moved.state] += 1
            except PlanError:
                self.became["refused"] += 1
            time.sleep(1.0)

    def __enter__(self) -> Mover:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()


def test_a_third_that_starts_from_nothing_holds_up_nobody_and_twenty_kills_change_no_row(
    tmp_path: Path,
) -> None:
    chance = random.Random(SEED)
    bins = Bins(tmp_path, ("west", "east"), rate=RATE, rows=ROWS)
    with running(bins):
        bins.begin()
        bins.start(THIRD)
        bins.wait(lambda: _number(bins, THIRD) >= 0, f"{THIRD} does not join")
        moved = Controller(bins.location).move(half(), to="east", manner=MANNER)
        assert moved.state == "finished", moved.reason
        bins.names = (*bins.names, THIRD)
        with Mover(bins, chance) as mover:
            for _ in range(KILLS):
                time.sleep(chance.random() * 3.0)
                victim = chance.choice(bins.names)
                bins.kill(victim)
                number = _number(bins, victim)
                bins.start(victim)
                bins.wait(lambda: _number(bins, victim) > number, f"{victim} is not back")  # noqa: B023
        bins.end_the_log()
        bins.until_the_end()
    print(f"{KILLS} kills in {bins.rows:,} rows; moves {dict(mover.became)}")
    assert mover.became["finished"] >= KILLS // 4
    assert bins.outputs() == bins.alone()


def _number(bins: Bins, name: str) -> int:
    return bins.files.ledger(visits.name, name).number
