"""A worker or a controller that is killed at any of its effects: who comes after it goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from stateshift.errors import StateshiftError
from stateshift.live import code, proposals
from stateshift.live.folder import Folder
from stateshift.live.proposals import ChangeRequest, read_group
from stateshift.live.protocol.chains import Link, NewChain, When
from tests.contracts.faulty import Killed
from tests.kill.moments import Doomed, Moment, Moments
from tests.live.ground import GROUP, Ground, change, raising
from tests.live.jobs import Jobs

EFFECTS_OF_A_WORKER, EFFECTS_OF_A_CONTROLLER = 50, 8
SECONDS = 0.3  # until what a dead controller has proposed is aborted


def die(moment: Moment) -> None:
    """End the process that had this effect."""
    raise Killed(moment)


WHENS: Mapping[str, Mapping[str, When]] = {
    "by batch and column": {"a": "batch", "b": "column"},
    "by message": {"a": "message"},
    "that fails": {"a": "batch"},
}


def asked(jobs: Jobs, how: str, seconds: float) -> ChangeRequest:
    """Return the first change, in one of its kinds."""
    if how != "that fails":
        return jobs.changing(1, WHENS[how], timeout_seconds=seconds)
    package = code.package(raising())
    new = NewChain((Link(package.digest, package.name),))
    return ChangeRequest("replace", {"a": new}, "epoch", (package,), "revert", seconds)


def killed_at(number: int, who: str, how: str) -> tuple[Jobs, Moments]:
    """Change a chain, and kill a worker or the controller at one of its effects."""
    ground = Ground()
    jobs = Jobs(ground)
    jobs.drain()
    moments = Moments(number, die)
    doomed = Doomed(ground.disk.open(GROUP), moments)
    folder = ground.folder
    if who == "worker":
        jobs.storage_of = lambda chain: doomed if chain == "a" else None
        jobs.a.restart()
    else:
        folder = Folder(doomed)
    seconds = SECONDS if who == "controller" and number > 0 else 60.0
    try:
        change(folder, asked(jobs, how, seconds), jobs.work)
    except Killed:
        assert who == "controller"
    return jobs, moments


def go_on(jobs: Jobs) -> None:
    """Let fresh workers and a fresh controller take over."""
    for query in jobs.queries:
        query.restart()
    jobs.drain()
    folder = jobs.ground.folder
    known = folder.change(1)
    if known is not None and known.decided is None:
        time.sleep(max(0.0, known.change.expires - time.time()))
    number = len(list(folder.changes())) + 1
    carried = change(folder, jobs.changing(number, WHENS["by batch and column"]), jobs.work)
    assert carried.state == "finished"
    assert carried.change.number == number
    jobs.drain()
    jobs.drain()
    assert {(row["k"], row["j"]) for row in jobs.b.log[-4:]} == {(number, number)}
    assert all(known.decided is not None for known in folder.changes())


@pytest.mark.sample(5)
@pytest.mark.parametrize("how", WHENS)
@pytest.mark.parametrize("number", range(1, EFFECTS_OF_A_WORKER + 1))
def test_a_worker_that_is_killed_anywhere_leaves_one_version_a_batch(number: int, how: str) -> None:
    jobs, _ = killed_at(number, "worker", how)
    go_on(jobs)
    jobs.check(with_messages=how == "by message")
    if how != "by message":
        jobs.check_seals()


@pytest.mark.sample(5)
@pytest.mark.parametrize("how", WHENS)
@pytest.mark.parametrize("number", range(1, EFFECTS_OF_A_CONTROLLER + 1))
def test_a_controller_that_is_killed_anywhere_leaves_nothing_half_applied(
    number: int, how: str
) -> None:
    jobs, _ = killed_at(number, "controller", how)
    go_on(jobs)
    jobs.check(with_messages=how == "by message")
    if how != "by message":
        jobs.check_seals()


@pytest.mark.long
def test_every_effect_is_among_those_at_which_they_are_killed() -> None:
    """Else the numbers above are too small."""
    for how in WHENS:
        for who, effects in (
            ("worker", EFFECTS_OF_A_WORKER),
            ("controller", EFFECTS_OF_A_CONTROLLER),
        ):
            _, moments = killed_at(-1, who, how)
            kinds = {_kind(moment.label) for moment in moments.seen}
            assert kinds == {_kind(moment.label) for moment in moments.seen[:effects]}


def _kind(label: str) -> str:
    """Return an effect without the number of a batch."""
    return "".join(letter for letter in label if not letter.isdigit())


def proposed(seconds: float) -> Jobs:
    """Propose a change, and decide nothing."""
    ground = Ground()
    jobs = Jobs(ground)
    jobs.drain()
    what = jobs.changing(1, {"a": "batch"}, timeout_seconds=seconds)
    proposals.propose(ground.folder, read_group(ground.folder), what)
    return jobs


def test_what_a_dead_controller_has_proposed_is_aborted_in_its_time() -> None:
    jobs = proposed(60.0)
    with pytest.raises(StateshiftError, match="is under way"):
        change(jobs.ground.folder, jobs.changing(2, {"a": "batch"}))
    jobs = proposed(0.0)
    folder = jobs.ground.folder
    jobs.drain()
    decided = folder.decided(1)
    assert decided is not None and decided.outcome == "aborted"
    assert change(folder, jobs.changing(2, {"a": "batch"}), jobs.work).state == "finished"
