"""What a run has come to, as the views get it."""

from __future__ import annotations

from stateshift.advise.rebalance.outcome import Carried, Rebalance


def test_a_run_that_found_another_at_work_has_decided_nothing() -> None:
    outcome = Rebalance(None, busy="process 7")
    assert outcome.carried == ()
    assert outcome.inputs is None


def test_a_planned_move_has_no_downtime_yet() -> None:
    move = Carried(1, ("orders",), "west", "east", "planned")
    assert move.downtime_seconds is None
