"""Bins that a controller moves between workers that read meanwhile: every refusal, every strategy,
and a controller that dies anywhere.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stateshift.errors import Incompatible, PlanError, SpecError, StateshiftError, StorageError
from stateshift.live.bins.commits import Commit, Ledger
from stateshift.live.bins.compactions import MovesBase
from stateshift.live.bins.controller import Controller
from stateshift.live.bins.files import Files, Proposal
from stateshift.live.bins.migration import EVERY, Carrier, MoveProgress
from stateshift.live.bins.move_request import (
    Manner,
    TimedStep,
    check,
    moves_even,
    moves_to,
    steps_of,
    steps_planned,
)
from stateshift.live.bins.parts import Membership, OperatorStart
from stateshift.live.bins.steering import MoveCarrier, Steering, Throttle
from stateshift.live.bins.watch import Bins, Watch, WorkerPart
from stateshift.live.folder import Folder
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import BEGIN, Update
from stateshift.storage.opening import open_patiently
from tests.kill.moments import Doomed, Moment, Moments
from tests.live.bins.workers import BINS, Ground, Reader, alone, count_and_ask

NAMES = ("west", "east")
END = 900
QUICK = Manner(lead_seconds=0.0)


class Scene:
    """A group whose workers work whenever the controller waits."""

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self.ground = Ground(count_and_ask, names)
        self.told: list[MoveProgress] = []
        for worker in self.ground.workers.values():
            worker.read(30)
        self.seen = self.watch()

    def watch(self, files: Files | None = None) -> Watch:
        begun = self.ground.files.begun()
        assert begun is not None
        return Watch(files or self.ground.files, begun)

    def bins(self) -> Bins:
        return self.watch().look()

    def work(self, seconds: float = 0.0) -> None:
        """Let each worker do what its thread and its next batch would."""
        for worker in self.ground.workers.values():
            worker.running.answer()
            worker.between()
        for worker in self.ground.workers.values():
            if self.seen.look().moves.open is None:
                worker.read(min(worker.read_to + 12, END))

    def carry(self, steps, manner=QUICK, files: Files | None = None, wait=None) -> MoveProgress:
        watch = self.watch(files)
        check(watch.look(), steps, manner)
        self.carrier = Carrier(watch, steps, manner, self.told.append, wait or self.work)
        return self.carrier.carry()

    def move(self, worker: str, numbers, manner=QUICK, **more) -> MoveProgress:
        return self.carry(steps_of(moves_to(self.bins(), worker, numbers), manner), manner, **more)

    def overdue(self, proposal: Proposal) -> None:
        """Let a worker find that nobody has decided in time."""
        decided = Decision("aborted", time.time(), "west", "nobody has decided")
        self.ground.files.decide(proposal.number, decided)

    def at(self, worker: str) -> list[int]:
        return sorted(self.ground.workers[worker].running.ledger.here)

    def is_as_one_alone(self) -> bool:
        for _ in range(3):
            for worker in self.ground.workers.values():
                worker.read(END)
        return self.ground.put_out() == alone(count_and_ask, END, self.ground.keys)


def test_whoever_starts_from_nothing_holds_up_no_move_of_others():
    scene = Scene()
    scene.move("east", [1, 2])
    third = scene.ground.add("south")
    third.read = lambda until: None  # it reads nothing for now
    moved = scene.move("east", range(8), replace(QUICK, strategy="batched(2)"))
    assert (moved.state, moved.bins_moved) == ("finished", 6)
    assert third.running.ledger.last.seen == {} and third.running.frontier is not None
    del third.read
    assert scene.move("south", [0, 3]).state == "finished"  # once it has come so far itself
    assert scene.at("south") == [0, 3]
    assert scene.is_as_one_alone()


def test_whoever_is_behind_is_waited_for_only_where_its_bins_move():
    scene = Scene(("west", "east", "south"))
    scene.move("south", [7])
    slow = scene.ground.workers["south"]
    slow.read = lambda until: None
    moved = scene.move("east", [1, 2, 3], replace(QUICK, strategy="fluid"))
    assert (moved.state, moved.bins_moved) == ("finished", 3)
    for steps in (scene.move("east", [7], replace(QUICK, wait_seconds=0.0)), scene.carry(())):
        assert steps.state == "applied" and "south" in steps.reason
    del slow.read
    assert scene.carry(()).state == "finished"
    assert scene.is_as_one_alone()


@pytest.mark.parametrize(
    ("strategy", "steps"),
    [("all-at-once", 1), ("fluid", 5), ("batched(2)", 3), ("optimised", 5), ("warm", 1)],
)
def test_bins_are_where_they_shall_be_whatever_the_strategy(strategy, steps):
    scene = Scene()
    moved = scene.move("east", [1, 2, 3, 5, 7], replace(QUICK, strategy=strategy))
    assert (moved.state, moved.steps, moved.bins_moved) == ("finished", steps, 5)
    assert scene.at("east") == [1, 2, 3, 5, 7]
    assert scene.is_as_one_alone()


def test_the_table_of_a_step_is_complete_once_all_have_come():
    scene = Scene()
    scene.move("east", [0, 1])
    table = scene.carrier.table
    assert table is not None and table.is_complete
    (crossing,) = table.crossings
    assert crossing.source == ("count_and_ask", "west")
    assert crossing.target == ("count_and_ask", "east")
    assert table.acknowledged == len(NAMES)


def test_a_worker_that_starts_while_a_step_is_proposed_is_asked_too():
    scene = Scene()
    starts = iter([True])

    def work(seconds: float) -> None:
        if next(starts, False):
            scene.ground.files.join(Membership(-1, "south", 0.0))
            scene.ground.files.run(
                OperatorStart("count_and_ask", "south", "fold", (), (), "", "", "", 0.0)
            )
            scene.ground.workers["south"] = Reader(scene.ground, "south")
        scene.work()

    moved = scene.move("east", [0], wait=work)
    assert moved.state == "aborted" and moved.reason == "south has read no rows yet"


def test_a_step_is_ahead_of_whoever_is_furthest_by_how_fast_it_is():
    def commit(number: int, at: float, frontier: int) -> Commit:
        return Commit(number, number, "", at, at, (frontier,), {}, 0)

    recent = (commit(0, 10.0, 100), commit(1, 11.0, 150), commit(2, 12.0, 300))
    ledger = Ledger(last=recent[-1])
    runs = OperatorStart("count_and_ask", "west", "fold", (), (), "", "", "", 0.0)
    part = WorkerPart(runs, 0, ledger, recent)
    assert part.rate == 100.0
    assert part.expected(2.0, now=12.0) == 500.0
    assert part.expected(2.0, now=12.5) == 550.0  # a batch is at work
    assert part.expected(2.0, now=1000.0) == 700.0  # it is idle: two batches at most


def test_steps_that_are_prepared_are_one_proposal():
    scene = Scene()
    manner = replace(QUICK, strategy="fluid", prepared=True)
    moved = scene.move("east", [0, 1, 2], manner)
    assert (moved.state, moved.steps, moved.complete) == ("finished", 3, 3)
    proposal = scene.ground.files.proposal(0)
    assert proposal is not None and len({update.time for update in proposal.updates}) == 3
    assert scene.ground.files.proposal(1) is None
    assert scene.is_as_one_alone()


def test_a_step_begins_once_the_one_before_is_complete():
    scene = Scene()
    scene.move("east", [0, 1, 2], replace(QUICK, strategy="fluid"))
    begun = [(each.begun, each.complete) for each in scene.told]
    assert all(begun - complete <= 1 for begun, complete in begun)


def test_what_is_copied_ahead_was_read_before_anything_moves():
    scene = Scene()
    scene.move("east", [0, 1], replace(QUICK, strategy="warm"))
    first, second = scene.ground.files.proposal(0), scene.ground.files.proposal(1)
    assert first is not None and first.updates == () and len(first.ahead) == 2
    assert second is not None and len(second.updates) == 2
    assert ("east" in {worker for _, worker in scene.ground.files.prepared()}) is True


def test_a_worker_that_has_come_too_far_gets_a_later_time():
    scene = Scene()
    ahead = iter([True])

    def race(seconds: float) -> None:
        if next(ahead, False):
            worker = scene.ground.workers["west"]
            worker.running.proposals.planned = (100, 0)  # as if a long batch were at work
            worker.running.answer()
            worker.running.proposals.planned = worker.running.frontier
        scene.work()

    moved = scene.move("east", [0], wait=race)
    assert moved.state == "finished"
    assert [scene.ground.files.decided(number).outcome for number in (0, 1)] == [
        "aborted",
        "applied",
    ]
    assert moved.time is not None and moved.time > 100


def test_asked_again_only_what_is_left_moves():
    scene = Scene()
    scene.move("east", [0, 1])
    assert [move.bin for move in moves_to(scene.bins(), "east", [0, 1, 2])] == [2]
    assert scene.move("east", [0, 1]).state == "finished"
    assert scene.ground.files.proposal(1) is None


class NoRoom(Files):
    """A folder in which what the moves come to cannot be written."""

    def keep_moves(self, base: MovesBase) -> None:
        raise StorageError("no room", location=self.location)


def test_bins_move_though_the_files_of_earlier_moves_cannot_be_removed(caplog):
    scene = Scene()
    scene.ground.move_nothing(EVERY)
    moved = scene.move("east", [0], files=NoRoom(scene.ground.storage))
    assert (moved.state, scene.at("east")) == ("finished", [0])
    assert "the files of earlier moves stay: no room" in caplog.text


def test_what_a_part_begins_with_that_starts_while_bins_move_is_not_left_out():
    scene = Scene()
    scene.ground.move_nothing(EVERY - 1)
    started: list[Ground] = []

    def work(seconds: float) -> None:
        scene.work()
        if not started and scene.bins().moves.decided == EVERY:
            again = replace(count_and_ask, name="again")
            started.append(Ground(again, ["west"], storage=scene.ground.storage))

    scene.move("east", [0], wait=work)
    base = scene.ground.files.moves_base()
    assert started and base is not None and base.configuration.since == BEGIN


def test_moves_even_out_and_stay_within_the_share():
    scene = Scene()
    all_of_it = moves_even(scene.bins(), 1.0)
    assert {move.target for move in all_of_it} == {1}
    assert 2 <= len(all_of_it) <= BINS // 2 + 1
    weights = scene.bins().weights()
    quarter = moves_even(scene.bins(), 0.25)
    assert 0 < sum(weights[move.bin] for move in quarter) <= 0.25 * sum(weights) + BINS


# ------------------------------------------------------------------------------------ plan files


def test_a_plan_file_is_carried_out_from_the_time_that_is_named():
    scene = Scene()
    plan = "M 0 0 0 0 0 0 0 0 0\nD 10 1 1\nD 20 2 1 3 1\n"
    steps = steps_planned(scene.bins(), plan, at=40)
    assert [step.earliest for step in steps] == [40, 50]
    assert scene.carry(steps).state == "finished"
    assert scene.at("east") == [1, 2, 3]
    times = [scene.ground.files.proposal(number).earliest for number in (0, 1)]
    assert times[0] >= 40 and times[1] >= 50


def test_of_a_plan_that_was_begun_the_rest_is_carried_out():
    scene = Scene()
    plan = "M 0 0 0 0 0 0 0 0 0\nD 100 1 1\nD 200 2 1 3 1\n"
    scene.move("east", [1])
    assert [len(step.moves) for step in steps_planned(scene.bins(), plan)] == [2]


def test_a_plan_that_begins_elsewhere_is_refused():
    scene = Scene()
    with pytest.raises(PlanError, match="bin 0 is at west, the plan has it at east"):
        steps_planned(scene.bins(), "M 0 1 0 0 0 0 0 0 0\nD 5 1 1\n")
    with pytest.raises(SpecError, match="4 bins, but the group has 8"):
        steps_planned(scene.bins(), "M 0 0 0 0 0\nD 5 1 1\n")


# ------------------------------------------------------------------------------------ refusals


def refused(
    scene: Scene, kind: type[StateshiftError], words: str, *, worker="east", bins=(0,), **how
):
    manner = replace(QUICK, **how)
    before = scene.ground.files.proposal(0)
    with pytest.raises(kind, match=words):
        scene.move(worker, bins, manner)
    assert scene.ground.files.proposal(0) == before


def test_an_unknown_worker_is_refused():
    refused(Scene(), PlanError, "no worker 'south'", worker="south")


def test_bins_that_are_not_there_and_bins_named_twice_are_refused():
    refused(Scene(), SpecError, "no bin 8 among 8", bins=(8,))
    refused(Scene(), SpecError, "bin 3 moves 2 times at one time", bins=(3, 3))


def test_a_time_that_is_past_is_refused():
    refused(Scene(), PlanError, "time 3 is past", at=3)


def test_a_strategy_that_is_none_is_refused():
    refused(Scene(), SpecError, "no strategy", strategy="slowly")


def test_a_worker_that_has_read_nothing_is_refused():
    scene = Scene()
    files = scene.ground.files
    files.join(Membership(-1, "south", 0.0))
    refused(scene, PlanError, "worker south has not started yet", worker="south")
    files.run(OperatorStart("count_and_ask", "south", "fold", (), (), "", "", "", 0.0))
    refused(scene, PlanError, "worker south has read no rows yet", worker="south")


@pytest.mark.parametrize("what", ["code", "python"])
def test_workers_of_other_code_are_refused_unless_told_otherwise(what):
    scene = Scene()
    runs = OperatorStart("count_and_ask", "east", "fold", (), (), "", "", "", 0.0)
    scene.ground.files.run(replace(runs, **{what: "other"}))
    refused(scene, Incompatible, "other at west|at west, and|has (code|Python)")
    assert scene.move("east", [0], replace(QUICK, any_code=True)).state == "finished"


def test_a_second_move_is_refused_while_one_is_under_way():
    scene = Scene()
    scene.ground.propose([Update(1000, 0, 1)])
    refused(scene, PlanError, "move 0 is under way", bins=(1,))


def test_a_second_controller_is_refused_while_the_first_one_lives():
    scene = Scene()
    steering = Steering(scene.ground.storage)
    steering.carry(MoveCarrier("other:1", time.time(), 5, 2, "moving"))
    refused(scene, PlanError, "bins are moved by other:1: 2 of 5 steps have begun")
    steering.carry(MoveCarrier("other:1", time.time() - 60, 5, 2, "moving"))
    assert scene.move("east", [0]).state == "finished"


def test_a_step_that_moves_a_bin_twice_is_refused():
    scene = Scene()
    (move,) = moves_to(scene.bins(), "east", [0])
    with pytest.raises(SpecError, match="moves 2 times"):
        check(scene.bins(), (TimedStep((move, move)),), QUICK)


# ------------------------------------------------------------------------------------ troubles


def test_what_nobody_answers_is_aborted_and_says_who_is_silent():
    scene = Scene()
    manner = replace(QUICK, timeout_seconds=0.0)
    moved = scene.move("east", [0], manner, wait=lambda seconds: None)
    assert moved.state == "aborted"
    assert moved.reason == (
        "count_and_ask at east, count_and_ask at west did not answer within 0 s"
    )
    assert scene.is_as_one_alone()


def test_what_is_decided_and_not_complete_in_time_is_said_to_be_applied():
    scene = Scene()

    def answer_only(seconds: float) -> None:
        for worker in scene.ground.workers.values():
            worker.running.answer()

    manner = replace(QUICK, wait_seconds=0.0)
    moved = scene.move("east", [0], manner, wait=answer_only)
    assert moved.state == "applied"
    assert moved.reason == (
        "count_and_ask at east (stands at 9), count_and_ask at west (stands at 9) did not pass 10 "
        "within 0 s: moves are made as rows come that are later"
    )
    assert scene.is_as_one_alone()
    assert scene.at("east") == [0]


def test_a_pause_holds_the_next_step_back():
    scene = Scene()
    steering = Steering(scene.ground.storage)
    steering.pause()
    waited = []

    def work(seconds: float) -> None:
        scene.work()
        waited.append(scene.told[-1].state)
        if len(waited) == 5:
            steering.resume()

    moved = scene.move("east", [0], wait=work)
    assert waited[:5] == ["paused"] * 5 and moved.state == "finished"


@pytest.mark.parametrize(
    ("bins", "gap_seconds"),
    [(0, None), (-1, None), (None, -1.0), (None, float("nan")), (None, float("inf"))],
)
def test_a_throttle_under_which_nothing_would_move_is_refused(tmp_path, bins, gap_seconds):
    storage = open_patiently(f"file://{tmp_path}")
    Folder(storage).ensure()
    Ground(count_and_ask, ["west"], storage=storage)
    controller = Controller(str(tmp_path))
    with pytest.raises(SpecError, match=r"one bin at least|a length from 0 on"):
        controller.throttle(bins, gap_seconds)
    assert controller.steering.throttled == Throttle()


def test_a_throttle_makes_smaller_steps():
    scene = Scene()
    Steering(scene.ground.storage).throttle(Throttle(bins=2))
    moved = scene.move("east", [0, 1, 2, 3, 4])
    assert (moved.state, moved.steps) == ("finished", 3)


def test_whoever_is_told_to_stop_ends_before_the_next_step():
    scene = Scene()

    def work(seconds: float) -> None:
        scene.work()
        if scene.told[-1].complete == 1:
            Steering(scene.ground.storage).stop()

    moved = scene.move("east", [0, 1, 2], replace(QUICK, strategy="fluid"), wait=work)
    assert moved.state == "aborted" and moved.reason == "stateshift live abort"
    assert moved.begun < 3
    assert scene.is_as_one_alone()
    assert Steering(scene.ground.storage).carried is None


# ------------------------------------------------------------------------------------ death


class Killed(Exception):
    """The controller is dead."""


class UntilDeath(Moments):
    """A process that is dead from a moment on."""

    def reach(self, label: str) -> None:
        self.seen.append(Moment(label, 1))
        if len(self.seen) >= self.at:
            raise Killed(label)


def killed_at(number: int) -> tuple[Scene, Moments]:
    scene = Scene()
    moments = UntilDeath(number)
    doomed = Files(Doomed(scene.ground.storage, moments))
    manner = replace(QUICK, strategy="batched(2)", timeout_seconds=2.0)
    with contextlib.suppress(Killed):
        scene.move("east", [0, 1, 2], manner, files=doomed)
    return scene, moments


@pytest.mark.long
def test_a_controller_that_dies_at_any_effect_loses_nothing():
    whole = len(killed_at(10_000)[1].seen)
    assert whole > 10
    for number in range(1, whole + 1):
        scene, moments = killed_at(number)
        proposal = scene.bins().moves.open
        if proposal is not None:
            scene.overdue(proposal)
        moved = scene.move("east", [0, 1, 2], replace(QUICK, strategy="batched(2)"))
        assert moved.state == "finished", moments.seen[-1]
        assert scene.at("east") == [0, 1, 2], moments.seen[-1]
        assert scene.is_as_one_alone(), moments.seen[-1]


def test_what_a_dead_controller_has_proposed_is_aborted_once_it_is_overdue():
    scene = Scene()
    scene.ground.files.propose(Proposal(0, (Update(1000, 0, 1),), time.time() - 60, 30.0))
    assert scene.move("east", [0]).state == "finished"
    decided = scene.ground.files.decided(0)
    assert decided is not None and decided.outcome == "aborted"


def test_what_a_process_has_proposed_that_has_ended_is_aborted_at_once():
    scene = Scene()
    ended = subprocess.Popen(["true"])
    ended.wait()
    by = f"{socket.gethostname()}:{ended.pid}"
    scene.ground.files.propose(Proposal(0, (Update(1000, 0, 1),), time.time(), 300.0, by=by))
    Steering(scene.ground.storage).carry(MoveCarrier(by, time.time(), 3, 1, "moving"))
    assert scene.move("east", [0]).state == "finished"
    decided = scene.ground.files.decided(0)
    assert decided is not None and decided.reason == f"{by}, which has proposed it, has ended"


def test_what_a_process_of_another_machine_has_proposed_is_waited_for():
    scene = Scene()
    by = "another-machine:1"
    scene.ground.files.propose(Proposal(0, (Update(1000, 0, 1),), time.time(), 300.0, by=by))
    with pytest.raises(PlanError, match="move 0 is under way"):
        scene.move("east", [0])
