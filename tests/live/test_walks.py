"""Random walks: three queries, their tasks and processes, controllers that die; no row is torn."""

from __future__ import annotations

import random as randoms

import pytest

from stateshift.errors import PlanError
from stateshift.live import proposals
from stateshift.live.proposals import read_group
from stateshift.live.scheduling import Scheduler
from tests.conftest import SEED
from tests.contracts.faulty import Killed
from tests.live.ground import Ground, change
from tests.live.jobs import Jobs

CHAINS = ("a", "m", "b")
WALKS = 60


def walk(seed: str, scheduler: Scheduler | None, with_messages: bool = False) -> Jobs:
    """Change random chains of the jobs while these do anything; controllers die now and then."""
    random = randoms.Random(seed)
    jobs = Jobs(Ground())
    jobs.drain()
    for _ in range(5):
        names = random.sample(CHAINS, random.randint(1, 3))
        if with_messages and len(names) == 1:
            number = len(list(jobs.ground.folder.changes())) + 1
            what = jobs.changing(number, {names[0]: "message"})
        else:
            what = jobs.asked(sorted(names), scheduler)
        dies = random.random() < 0.2

        def work(dies: bool = dies) -> None:
            jobs.wander(random, random.randint(5, 40))
            if dies and random.random() < 0.2:
                raise Killed

        try:
            change(jobs.ground.folder, what, work)
        except Killed:
            abort(jobs)
        jobs.wander(random, random.randint(0, 40))
    jobs.drain()
    return jobs


def abort(jobs: Jobs) -> None:
    """Do what is done about a controller that died."""
    folder = jobs.ground.folder
    try:
        proposals.abort(folder, read_group(folder))
    except PlanError as error:
        assert error.fact == "nothing is under way"


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", range(WALKS))
def test_no_row_meets_an_old_and_a_new_function_of_one_change(number: int) -> None:
    jobs = walk(f"{SEED}:{number}", None)
    jobs.check()
    jobs.check_seals()


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", range(WALKS))
def test_nor_does_it_where_single_chains_change_by_message(number: int) -> None:
    walk(f"{SEED}:{number}", None, with_messages=True).check(with_messages=True)


def test_naive_changes_do_tear_rows() -> None:
    assert any(walk(f"naive:{number}", "naive").torn_rows() for number in range(10))


def test_walks_change_something() -> None:
    jobs = walk("a walk", None)
    applied = [known.number for known in jobs.ground.folder.changes() if known.applied]
    assert len(applied) >= 3
    assert len(jobs.b.log) > 50
    assert len({(row["k"], row["l"], row["j"]) for row in jobs.b.log}) > 2
