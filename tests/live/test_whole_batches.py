"""A change that takes itself back at an error: a batch is put out by it as a whole, or without it as
a whole, whichever of its tasks fails, is run again, or begins late.
"""

from __future__ import annotations

import random as randoms
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest

from stateshift.errors import PlanError
from stateshift.live import code
from stateshift.live.member import Member
from stateshift.live.protocol.chains import Decision, Reversal, Version, When
from tests.conftest import SEED
from tests.live.ground import (
    Ground,
    Slot,
    asked,
    giving,
    numbers,
    propose,
    rows,
    run,
    running,
    task,
)

APPLIED = Decision("applied", 1.0, "me")
TORN = "has failed and was taken back"
TASKS, PARTS = 4, 3


@pytest.fixture
def ground() -> Ground:
    return Ground()


def failing_at(value: int, k: int) -> code.Function:
    """Return a function that gives rows a number, and raises an error for one of them."""
    give = giving(k)

    def fail(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        if value in batch["v"].to_pylist():
            raise ValueError("no model")
        return give(batch)

    return fail


def apply(ground: Ground, number: int, function: code.Function, **more: Any) -> None:
    propose(
        ground.folder, asked({"score": function}, on_error=more.pop("on_error", "revert"), **more)
    )
    ground.folder.decide(number, APPLIED)


# ------------------------------------------------------------------------------------ one batch


def test_a_task_that_has_put_out_rows_fails_and_the_next_run_puts_out_none_of_them(
    ground: Ground,
) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, 1, failing_at(5, 1))
    with pytest.raises(PlanError, match=TORN):
        run(chain, member, 0, rows(1, 2), rows(3, 4), rows(5, 6))
    assert numbers(run(chain, member, 0, rows(1, 2), rows(5, 6), run_id="again")) == [0] * 4


def test_tasks_that_are_tried_again_in_a_torn_run_fail_also_after_a_later_change(
    ground: Ground,
) -> None:
    chain, member, other = ground.chain(), ground.member(), ground.member()
    apply(ground, 1, failing_at(5, 1))
    assert numbers(run(chain, member, 0, rows(1), partition=0)) == [1]
    for _ in range(3):
        with pytest.raises(PlanError, match=TORN):
            run(chain, other, 0, rows(5), partition=1)
    apply(ground, 2, giving(2), on_error="fail")
    with pytest.raises(PlanError, match=TORN):
        run(chain, other, 0, rows(5), partition=1)
    for partition, value in enumerate((1, 5)):
        out = run(chain, other, 0, rows(value), partition=partition, run_id="again")
        assert numbers(out) == [0]
    assert numbers(run(chain, other, 1, rows(1), run_id="again")) == [2]


def test_a_change_that_fails_before_it_has_put_out_rows_fails_no_batch(ground: Ground) -> None:
    chain, member, other = ground.chain(), ground.member(), ground.member()
    apply(ground, 1, failing_at(1, 1))
    late = running(chain, other, 0, rows(2), rows(3), partition=1)
    assert numbers(run(chain, member, 0, rows(1), rows(2), partition=0)) == [0, 0]
    assert numbers(list(late)) == [0, 0]
    assert numbers(run(chain, ground.member(), 0, rows(4), partition=2)) == [0]


def test_a_task_that_has_computed_rows_by_a_change_puts_out_others_if_it_is_taken_back(
    ground: Ground,
) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, 1, giving(1))
    begun = task(chain, member, Slot())
    begun._begin()
    ground.folder.revert(1, Reversal("score", "q", "run", 0, "ValueError", 1.0))
    assert ground.folder.claim("q", 0, "run", 1, False) is False
    assert begun.version == 1, "it has not heard of it"
    assert numbers([begun._apply(rows(1))]) == [0]


def test_a_batch_of_another_query_keeps_what_it_has_put_out_rows_by(ground: Ground) -> None:
    chain, member, other = ground.chain(), ground.member(), ground.member()
    apply(ground, 1, failing_at(5, 1))
    begun = running(chain, member, 7, rows(1), rows(2), query="b", partition=0)
    assert numbers([next(begun)]) == [1]
    with pytest.raises(PlanError, match=TORN):
        run(chain, other, 0, rows(1), rows(5), query="a")
    assert numbers(run(chain, other, 7, rows(3), query="b", partition=1)) == [1]
    assert numbers(list(begun)) == [1]
    assert numbers(run(chain, member, 8, rows(1), query="b")) == [0]


@pytest.mark.parametrize("when", ["batch", "message"])
def test_after_a_kill_behind_the_reversal_the_batch_is_whole(ground: Ground, when: When) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, 1, failing_at(5, 1), when=when)
    begun = running(chain, member, 0, rows(1), rows(2), partition=0)
    assert numbers([next(begun)]) == [1]
    ground.folder.revert(1, Reversal("score", "q", "run", 0, "ValueError", 1.0))  # and dies
    assert numbers(list(begun)) == [1]
    with pytest.raises(PlanError, match=TORN):
        run(chain, ground.member(), 0, rows(5), partition=1)
    for partition in (0, 1):
        again = run(chain, ground.member(), 0, rows(5), partition=partition, run_id="again")
        assert numbers(again) == [0]


def test_outside_of_a_stream_a_change_that_fails_is_taken_back_for_the_next_run(
    ground: Ground,
) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, 1, failing_at(5, 1))
    with pytest.raises(PlanError, match=TORN):
        run(chain, member, -1, rows(1), rows(5))
    assert numbers(run(chain, member, -1, rows(1), rows(5))) == [0, 0]


def test_batches_after_a_reversal_cost_nothing_more(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, 1, failing_at(1, 1))
    run(chain, member, 0, rows(1))
    run(chain, member, 1, rows(1))
    claims = [file.path for file in ground.folder.storage.list("runs")]
    assert claims == ["runs/q/0/1@run.json"]


# ------------------------------------------------------------------------------------ a way on


def test_a_batch_that_a_function_fails_is_run_by_what_was_put_in_its_place(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, 1, failing_at(5, 1), on_error="fail")
    with pytest.raises(ValueError, match="no model"):
        run(chain, member, 0, rows(1), rows(5))
    with pytest.raises(ValueError, match="no model"):
        run(chain, member, 0, rows(1), rows(5), run_id="again")
    apply(ground, 2, giving(2), on_error="fail")
    with pytest.raises(ValueError, match="no model"):
        run(chain, member, 0, rows(5), run_id="again")  # a task of the same run
    for partition in (0, 1):
        mended = run(chain, ground.member(), 0, rows(5), partition=partition, run_id="third")
        assert numbers(mended) == [2]


def test_a_batch_that_died_otherwise_is_run_again_by_its_seal(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, 1, giving(1))
    begun = running(chain, member, 0, rows(1), rows(2))
    next(begun)
    apply(ground, 2, giving(2))
    assert numbers(run(chain, ground.member(), 0, rows(1), run_id="again")) == [1]


# ------------------------------------------------------------------------------------ walks


class Walk:
    """Queries of one chain whose tasks, processes and runs die at any time, while changes fail."""

    def __init__(self, seed: str) -> None:
        self.random = randoms.Random(seed)
        self.ground = Ground()
        self.chain = self.ground.chain()
        self.members: list[Member] = [self.ground.member() for _ in range(3)]
        self.queries = ["a", "b"]
        self.batch = dict.fromkeys(self.queries, 0)
        self.runs = dict.fromkeys(self.queries, 0)
        self.tries = dict.fromkeys(self.queries, 0)
        self.tasks: dict[tuple[str, int], Iterator[Any]] = {}
        self.out: dict[tuple[str, int], list[int]] = {}
        self.done: set[tuple[str, int]] = set()
        self.committed: list[set[int]] = []
        self.torn = 0

    def step(self) -> None:
        query = self.random.choice(self.queries)
        place = (query, self.random.randrange(TASKS))
        match self.random.random():
            case chance if chance < 0.02:
                self.restart(query)
            case chance if chance < 0.06:
                self.tasks.pop(place, None)  # a task is lost, also one that had ended
                self.done.discard(place)
            case chance if chance < 0.09:
                self.members[self.random.randrange(3)] = self.ground.member()
            case _:
                self.advance(place)
        if all((query, number) in self.done for number in range(TASKS)):
            self.commit(query)

    def advance(self, place: tuple[str, int]) -> None:
        if place in self.done:
            return
        query, partition = place
        if place not in self.tasks:
            first = partition * PARTS
            parts = [rows(first + number) for number in range(PARTS)]
            member = self.random.choice(self.members)
            run_id = str(self.runs[query])
            slot = {"query": query, "partition": partition, "run_id": run_id}
            self.tasks[place] = running(self.chain, member, self.batch[query], *parts, **slot)
            self.out[place] = []
        try:
            batch = next(self.tasks[place], None)
        except (PlanError, ValueError):
            self.fail(place)
            return
        if batch is None:
            self.done.add(place)
        else:
            self.out[place] += numbers([batch])

    def fail(self, place: tuple[str, int]) -> None:
        """Try the task again; after four times the query is started again, as somebody does."""
        query = place[0]
        self.torn += 1
        del self.tasks[place]
        self.tries[query] += 1
        if self.tries[query] == 4:
            self.restart(query)

    def restart(self, query: str) -> None:
        self.runs[query] += 1
        self.tries[query] = 0
        for partition in range(TASKS):
            self.tasks.pop((query, partition), None)
            self.done.discard((query, partition))

    def commit(self, query: str) -> None:
        out: list[int] = []
        for partition in range(TASKS):
            out += self.out[query, partition]
        assert len(out) == TASKS * PARTS
        self.committed.append(set(out))
        self.batch[query] += 1
        self.runs[query] += self.random.random() < 0.3  # whoever numbers runs by query, or by batch
        self.restart(query)

    def change(self, number: Version) -> None:
        value = self.random.randrange(-3, TASKS * PARTS)
        propose(self.ground.folder, asked({"score": failing_at(value, number)}, on_error="revert"))
        if self.ground.folder.keep(number - 1) is None or number == 1:
            self.ground.folder.decide(number, APPLIED)
        else:
            self.ground.folder.decide(number, Decision("aborted", 1.0, "me"))


@pytest.mark.sample(10)
@pytest.mark.parametrize("number", range(200))
def test_no_batch_is_put_out_by_two_versions(number: int) -> None:
    walk = Walk(f"{SEED}:whole:{number}")
    for version in range(1, 8):
        walk.change(version)
        for _ in range(walk.random.randrange(20, 120)):
            walk.step()
    assert walk.committed
    assert [ks for ks in walk.committed if len(ks) > 1] == []


def test_walks_tear_runs_and_go_on() -> None:
    walks = [Walk(f"torn:{number}") for number in range(5)]
    for walk in walks:
        walk.change(1)
        for _ in range(1000):
            walk.step()
    assert sum(walk.torn for walk in walks) > 0
    assert all(len(walk.committed) > 3 for walk in walks)
