"""Machines of a group whose clocks differ: no batch waits for as long as they do."""

from __future__ import annotations

import time

import pytest

from stateshift.errors import PlanError
from stateshift.live.bins.files import Files, Proposal
from stateshift.live.bins.migration import TELL_SECONDS, Carrier
from stateshift.live.bins.move_request import Manner
from stateshift.live.bins.steering import MoveCarrier, Steering
from stateshift.live.bins.watch import Watch
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Update
from tests.live.bins.workers import TIES, Ground, alone, count_and_ask

DAY = 86_400.0


def test_a_batch_does_not_wait_for_the_clock_of_a_controller_that_is_dead():
    ground = Ground(count_and_ask, ["west", "east"])
    for worker in ground.workers.values():
        worker.read(9)
    time_ahead = 60 // TIES
    proposal = Proposal(0, (Update(time_ahead, 2, 1),), time.time() + DAY, timeout_seconds=0.2)
    ground.files.propose(proposal)
    for worker in ground.workers.values():
        worker.running.answer()
    for worker in ground.workers.values():
        worker.read(120)  # passes the time of what nobody will decide
    decided = ground.files.decided(0)
    assert decided is not None and decided.outcome == "aborted"
    assert decided.reason == "nobody has decided within 0.2 s"
    assert ground.put_out() == alone(count_and_ask, 120)


@pytest.mark.parametrize("ahead", [-DAY, DAY])
@pytest.mark.parametrize("lives", [True, False])
def test_whoever_carries_moves_by_another_clock_is_not_taken_for_dead(ahead, lives):
    ground = Ground(count_and_ask, ["west", "east"])
    for worker in ground.workers.values():
        worker.read(30)
    begun = ground.files.begun()
    assert begun is not None
    steering = Steering(ground.storage)
    steering.carry(MoveCarrier("other:1", time.time() + ahead, 5, 2, "moving"))
    waited = 0.0

    def wait(seconds):
        nonlocal waited
        waited += seconds
        if lives and waited > TELL_SECONDS:
            steering.carry(MoveCarrier("other:1", time.time() + ahead, 5, 3, "moving"))

    carrier = Carrier(Watch(ground.files, begun), (), Manner(), wait=wait)
    if lives:
        with pytest.raises(PlanError, match="bins are moved by other:1: 2 of 5 steps have begun"):
            carrier.carry()
        assert steering.carried is not None, "it goes on"
    else:
        assert carrier.carry().state == "finished"


class DecidedLater(Files):
    """Files of a group whose controller decides while a worker waits for it."""

    looks = 0

    def decided(self, number):
        self.looks += 1
        if self.looks == 4:  # twice before its batch, then while the batch waits
            self.decide(number, Decision("applied", time.time(), "controller"))
        return super().decided(number)


def test_a_worker_whose_clock_is_ahead_waits_for_the_decision_all_the_same():
    ground = Ground(count_and_ask, ["west"])
    west = ground.workers["west"]
    west.read(9)
    proposal = Proposal(0, (Update(60 // TIES, 2, 0),), time.time() - DAY, timeout_seconds=3600.0)
    ground.files.propose(proposal)
    west.running.files = west.running.proposals.files = DecidedLater(ground.storage)
    west.read(120)
    decided = ground.files.decided(0)
    assert decided is not None and decided.outcome == "applied"
