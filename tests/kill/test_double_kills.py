"""Two hundred migrations that are killed twice: at random, with several steps at once, forward and
back.

The first kill falls into `apply`; what is killed next is its resume, or its rollback; what comes
last is not killed. Each has a number, which is all it depends on (but for the order in which
threads happen to run): STATESHIFT_DOUBLE_KILL=17 repeats one.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.kill import judging, process
from tests.kill.process import Outcome
from tests.kill.scenario import Scenario, Tree, scenario, tree

DOUBLES = 200
PER_TEST = 25
PER_TEST_OF = {"full": PER_TEST, "default": 12, "quick": 5}
ONLY = os.environ.get("STATESHIFT_DOUBLE_KILL")


@pytest.fixture(scope="module")
def place() -> Iterator[Scenario]:
    with scenario("full", parallel=4) as found:
        yield found


@pytest.fixture(scope="module")
def undisturbed(place: Scenario) -> tuple[int, Tree]:
    run = process.apply(place)
    expected = tree(place.root)
    assert judging.moved(place, run, expected) == []
    return len(run.seen), expected


def doubly_killed(place: Scenario, moments: int, seed: int) -> tuple[list[Outcome], random.Random]:
    """Kill twice. What ends before it is to be killed is tried again, with the next numbers that
    chance gives.
    """
    chance = random.Random(seed)
    while True:
        place.restore()
        back = chance.random() < 0.4
        first = process.apply(place, chance.randint(1, moments))
        second = process.rollback if back else process.resume
        # Most of what is left to do comes early: not everything is done again.
        outcomes = [
            first,
            second(place, min(chance.randint(1, moments), chance.randint(1, moments))),
        ]
        if all(outcome.killed for outcome in outcomes):
            return outcomes, chance


@pytest.mark.sample(1)
@pytest.mark.parametrize("start", range(0, DOUBLES, PER_TEST))
def test_a_run_killed_twice_ends_like_one_that_was_not(
    how: str, place: Scenario, undisturbed: tuple[int, Tree], seed: int, start: int
) -> None:
    moments, expected = undisturbed
    numbers = [int(ONLY)] if ONLY else [seed * DOUBLES + start + n for n in range(PER_TEST_OF[how])]
    wrong, ends = [], Counter[str]()
    for number in numbers:
        killed, chance = doubly_killed(place, moments, number)
        last = process.rollback if chance.random() < 0.3 else process.resume
        ended = last(place)
        state = (
            ended.report.state
            if ended.report
            else "nothing was begun"
            if ended.error is None
            else "error"
        )
        ends[state] += 1
        judge = (
            judging.moved(place, ended, expected)
            if state == "finished"
            else judging.as_before(place, ended)
        )
        if judge:
            wrong.append(
                f"{number}: {', then '.join(map(str, [*killed, ended]))}: {'; '.join(judge)}"
            )
    print(dict(ends))
    assert not wrong, (
        f"{len(wrong)} of {len(numbers)} (STATESHIFT_DOUBLE_KILL=… repeats one)\n"
        + "\n".join(wrong)
    )
