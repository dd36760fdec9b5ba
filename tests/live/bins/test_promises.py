"""What workers of bins have applied, held against the promises of the model (M-8).

--full takes a million steps at random, or as many as STATESHIFT_LIVE_STEPS says; any other run 20,000
of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from stateshift import live
from stateshift.live.bins.files import wide_enough
from stateshift.live.protocol.applying import Folded
from stateshift.live.protocol.configuration import Configuration, apply_updates, resize
from tests.conftest import SEED
from tests.live.bins.walking import COUNTS, END, Walk
from tests.live.bins.workers import BINS, LATER, TIES, Ground, hash_of, key_of
from tests.models.bin_messages import Applied, Logic, Record
from tests.models.promises import incomplete, incorrect, misplaced

STEPS = int(os.environ.get("STATESHIFT_LIVE_STEPS", "1000000"))
STEPS_AT_ONCE = 2000
LOOK_EVERY = 50
LAST = (END - 1) // TIES


@live.operator(
    form="unary",
    bins=BINS,
    key="key",
    time="at",
    out="time long, key long, n long, values string",
    values="number",
)
def told(time, key, state, rows, notified):
    """Count a key's rows, see every fifth again, and say what was seen when."""
    values = sorted((*rows, *notified))
    n = (state or 0) + len(values)
    later = [(time + LATER, -number - 1) for number in values if number >= 0 and number % 5 == 0]
    return Folded(n, ((time, key, n, json.dumps(values)),), tuple(later))


LOGIC = Logic(hash_of, lambda time, key, state, values: told(time, key, state, values, ()))


@cache
def records() -> tuple[Record, ...]:
    """The log as the model knows it."""
    return tuple(Record(number // TIES, key_of(number), number) for number in range(END))


def applied(ground: Ground) -> list[Applied]:
    """Return what the workers have applied, by their commits, in the order of time: that a key was
    folded in this order is what its counts say.
    """
    return sorted(_applied(ground), key=lambda one: one.time)


def _applied(ground: Ground) -> Iterator[Applied]:
    for number, name in enumerate(ground.workers):
        for time, key, n, values in ground.put_out_by(name):
            seen: list[Any] = json.loads(str(values))
            yield Applied(number, time, key, tuple(seen), ((time, key, n, values),))


def configuration(ground: Ground) -> Configuration:
    """Where bins were at all times, by the moves that were decided; cut as small as they ever may
    be, so that it does not matter how many there were when.
    """
    begun = ground.files.begun()
    assert begun is not None
    known = ground.files.configuration(begun, len(ground.workers))
    known, bins = resize(known, max(COUNTS)), begun.bins
    for number in range(ground.moves):
        decided, move = ground.files.decided(number), ground.files.proposal(number)
        if decided is not None and decided.outcome == "applied":
            bins = move.bins or bins
            known = apply_updates(wide_enough(known, move.updates), move.updates, bins)
    return known


def frontiers(ground: Ground) -> list[int]:
    """How far each worker's outputs have come."""
    found = []
    for worker in ground.workers.values():
        ledger = worker.running.ledger
        awaited = [held.since for held in ledger.held.values() if held.since is not None]
        found.append(min([ledger.last.frontier[0], *awaited]))
    return found


def broken(ground: Ground) -> list[str]:
    """Return the promises that are broken so far."""
    done = applied(ground)
    until = min(frontiers(ground))
    before = [one for one in done if one.time < until]
    return [
        *incorrect(before, LOGIC, records(), until=until),
        *misplaced(done, LOGIC, configuration(ground)),
    ]


@pytest.mark.long
@pytest.mark.row("M-8", on="model")
@pytest.mark.sample(10)
@pytest.mark.parametrize("part", range(-(-STEPS // STEPS_AT_ONCE)))
def test_promises_hold_at_every_step(part: int) -> None:
    walk_on(part, resizes=False)


@pytest.mark.long
@pytest.mark.row("M-24", on="model")
@pytest.mark.sample(5)
@pytest.mark.parametrize("part", range(-(-STEPS // STEPS_AT_ONCE // 4)))
def test_promises_hold_at_every_step_while_bins_are_split_and_merged(part: int) -> None:
    walk_on(part, resizes=True)


def walk_on(part: int, resizes: bool) -> int:
    """Walk so many steps, and hold what was applied against the promises; return how many."""
    steps, number = 0, 0
    while steps < STEPS_AT_ONCE:
        seed, kills = (SEED, part, number), number % 2 == 1
        walk = Walk(told, seed, kills, is_forgetful=False, resizes=resizes)
        seen = []

        def look(ground: Ground, walk: Walk = walk, seen: list[str] = seen) -> None:
            if walk.steps % LOOK_EVERY == 0:
                seen += broken(ground)

        walk.look = look
        ground = walk.run()
        assert not seen, (part, number)
        assert not broken(ground), (part, number)
        assert not list(incomplete(frontiers(ground), LAST)), (part, number)
        steps, number = steps + walk.steps, number + 1
    return steps


def test_a_broken_promise_is_seen() -> None:
    """Else the walks above would show nothing."""
    ground = Walk(told, "a walk", kills=False).run()
    done = applied(ground)
    until, where = min(frontiers(ground)), configuration(ground)
    missing = [one for one in done[1:] if one.time < until]
    assert len(list(incorrect(missing, LOGIC, records(), until=until))) == 1
    elsewhere = [one._replace(worker=(one.worker + 1) % 3) for one in done]
    assert len(list(misplaced(elsewhere, LOGIC, where))) == len(done)
    assert len({one.worker for one in done}) == 3
