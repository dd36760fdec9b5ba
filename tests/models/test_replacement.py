"""The coordinator's table where functions are replaced: nothing moves, everybody answers."""

from __future__ import annotations

from itertools import permutations

import pytest

from stateshift.errors import SpecError
from tests.models.coordinator import Coordinator, advance, begin, steps_of
from tests.models.task_flows import flow
from tests.models.tasks import (
    Abort,
    Acknowledged,
    Complete,
    Deployment,
    Flow,
    GiveUp,
    Refused,
    Replacement,
    Running,
    Task,
    Word,
)

FLOW = flow({"score@q": 2, "rules@q": 1}, [])
SCORE = Replacement("change 1", ("score@q",))


def begun(of: Flow = FLOW, asked: Replacement = SCORE) -> Coordinator:
    return begin(Deployment(of, dict.fromkeys(of.tasks, "g"), {}), asked, 1, 0.0)[0]


def after(words: list[Word]) -> tuple[Coordinator, list[type]]:
    """Return the coordinator after words, and the kinds of orders that it gave."""
    coordinator, kinds = begun(), []
    for word in words:
        coordinator, _, orders = advance(coordinator, word, 1.0)
        kinds += [type(order) for _, order in orders]
    return coordinator, kinds


ACKNOWLEDGED: list[Word] = [Acknowledged(task, ("replaces",)) for task in FLOW.tasks]
RUNNING: list[Word] = [Running(task) for task in FLOW.tasks]


@pytest.mark.row("T-2", on="model")
def test_it_is_decided_when_everybody_has_answered_also_who_ignores_it() -> None:
    for order in permutations(ACKNOWLEDGED):
        coordinator, kinds = after(list(order[:-1]))
        assert kinds == [] and coordinator.state == "running"
        coordinator, kinds = after(list(order))
        assert set(kinds) == {Complete} and coordinator.decided


def test_it_is_completed_when_everybody_runs_it_in_whatever_order() -> None:
    for order in permutations([*ACKNOWLEDGED, *RUNNING], 6):
        coordinator, _ = after(list(order))
        assert coordinator.state == "finished"


@pytest.mark.row("T-3", on="model")
@pytest.mark.parametrize("word", [Refused(FLOW.tasks[0], "no module"), GiveUp("late")])
def test_whoever_refuses_aborts_it_and_everybody_is_told(word: Word) -> None:
    coordinator, kinds = after([*ACKNOWLEDGED[:2], word])
    assert set(kinds) == {Abort} and coordinator.state == "rolling-back"
    coordinator, _ = after([*ACKNOWLEDGED[:2], word, *RUNNING])
    assert coordinator.state == "rolled-back"


def test_what_is_decided_is_not_aborted_any_more() -> None:
    coordinator, kinds = after([*ACKNOWLEDGED, GiveUp("late")])
    assert coordinator.state == "running" and Abort not in kinds


def test_nothing_is_shipped_where_nothing_moves() -> None:
    assert steps_of(SCORE) == ("allocate", "trigger", "resume")
    coordinator, _ = after([*ACKNOWLEDGED, *RUNNING])
    assert tuple(coordinator.progress.plans[0].steps) == steps_of(SCORE)


def test_an_operator_that_nobody_runs_is_refused() -> None:
    with pytest.raises(SpecError, match="no operator 'other@q'"):
        begun(asked=Replacement("change 1", ("other@q",)))


def test_a_task_of_no_chain_answers_for_itself_alone() -> None:
    coordinator, _ = after([Acknowledged(Task("score@q", 0), ())] * 3)
    assert coordinator.step == "trigger"
