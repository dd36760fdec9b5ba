"""When a step is sent: after the one before is complete, after its gap, and not before its time."""

from __future__ import annotations

import pytest

from stateshift.dataflow.move_steps import BinMove, Step
from stateshift.errors import SpecError
from stateshift.live.protocol.rollout import Rollout, advance, updates_ahead

STEPS: tuple[Step, ...] = ((BinMove(0, 0, 1),), (BinMove(1, 0, 1), BinMove(2, 1, 0)))


@pytest.mark.row("M-5")
def test_a_step_waits_until_the_one_before_is_complete() -> None:
    rollout, first = advance(Rollout(STEPS), 10, frontier=10)
    assert first == ((10, 0, 1),)
    for frontier in (9, 10):
        rollout, none = advance(rollout, 20, frontier)
        assert none == ()
    rollout, second = advance(rollout, 30, frontier=11)
    assert second == ((30, 1, 1), (30, 2, 0))
    assert not rollout.finished
    rollout, none = advance(rollout, 40, frontier=31)
    assert rollout.finished
    assert none == ()


@pytest.mark.row("M-4")
def test_with_a_gap_a_step_waits_that_much_longer() -> None:
    rollout, _ = advance(Rollout(STEPS, gap=5), 10, 10)
    rollout, none = advance(rollout, 30, 11)
    assert none == ()
    assert advance(rollout, 34, 40)[1] == ()
    assert advance(rollout, 35, 40)[1] != ()


def test_nothing_is_sent_before_its_time() -> None:
    rollout = Rollout(STEPS, earliest=100)
    assert advance(rollout, 99, 99) == (rollout, ())
    assert advance(rollout, 100, 99)[1] == ((100, 0, 1),)


def test_two_steps_never_have_one_time() -> None:
    rollout, _ = advance(Rollout(STEPS), 10, 10)
    rollout, none = advance(rollout, 10, 11)
    assert none == ()
    assert advance(rollout, 11, 11)[1]


def test_steps_can_be_prepared_for_times_to_come() -> None:
    assert updates_ahead(STEPS, 100, 50) == ((100, 0, 1), (150, 1, 1), (150, 2, 0))
    with pytest.raises(SpecError, match="/every"):
        updates_ahead(STEPS, 100, 0)


def test_time_does_not_run_backwards() -> None:
    rollout, _ = advance(Rollout(STEPS), 10, 10)
    with pytest.raises(SpecError, match="/now: time runs backwards, from 10 to 9"):
        advance(rollout, 9, 10)
