"""The protocol keeps its promises in whatever order things happen; and a network that breaks its
own is found out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateshift.dataflow.move_steps import AllAtOnce, Batched, Fluid, Optimised, Strategy, in_steps
from stateshift.errors import SpecError
from stateshift.live.protocol.applying import Folded
from stateshift.live.protocol.configuration import Update, initial_configuration, moves_between
from stateshift.live.protocol.rollout import Rollout, advance, updates_ahead
from tests.models.bin_messages import (
    END,
    START,
    Applied,
    Control,
    Data,
    Logic,
    Message,
    Moved,
    Progress,
    Record,
    Resize,
    Routed,
)
from tests.models.network import Network, deliver, drained, feed, network
from tests.models.promises import alone, incomplete, incorrect, misplaced
from tests.models.walking import KEYS, LAST, LOGIC, Job, a_job, deliver_any, walk, with_channel

WALKS = 400


def _broken(job: Job, end: Network) -> Iterator[str]:
    yield from incorrect(end.applied, LOGIC, job.records, job.states, until=LAST)
    yield from misplaced(end.applied, LOGIC, job.whole)
    yield from incomplete(end.frontiers, LAST)


def _behind_its_progress(messages: tuple[Message, ...]) -> Iterator[Message]:
    told = START
    for message in messages:
        match message:
            case Progress():
                told = message
            case Routed(record) if record.time < told.data:
                yield message
            case Moved() if message.time < told.state:
                yield message


class Watch:
    """What holds at every moment of a walk."""

    def __init__(self) -> None:
        self.seen = Counter[str]()
        self.before: tuple[int, ...] = ()
        self.bins: tuple[int, ...] = ()
        self.count = 0

    def __call__(self, now: Network) -> None:
        assert all(a <= b for a, b in zip(self.before, now.frontiers, strict=False)), (
            "a frontier went back"
        )
        for one in now.applied[self.count :]:
            assert one.time < now.frontiers[one.worker]
        owners = Counter(key for worker in now.workers for key in worker.s.states)
        assert max(owners.values(), default=1) == 1, "a key's state is in two places"
        for messages in now.channels.values():
            assert not list(_behind_its_progress(messages)), (
                "a channel promised that this would not come"
            )
            self.seen["states on their way"] += sum(
                isinstance(m, Moved) and bool(m.states) for m in messages
            )
            self.seen["pending on their way"] += sum(
                isinstance(m, Moved) and bool(m.pending) for m in messages
            )
        bins = tuple(worker.f.configuration.bins for worker in now.workers)
        self.seen["bins split"] += sum(a < b for a, b in zip(self.bins, bins, strict=False))
        self.seen["bins merged"] += sum(a > b for a, b in zip(self.bins, bins, strict=False))
        self.bins = bins
        self.seen["buffered"] += sum(len(worker.f.buffered) for worker in now.workers)
        self.before, self.count = now.frontiers, len(now.applied)


@pytest.mark.long
@pytest.mark.row("M-6")
@pytest.mark.row("M-7")
@pytest.mark.row("M-8")
@pytest.mark.row("M-24")
def test_a_migration_is_correct_in_place_and_complete_in_every_order(seed: int) -> None:
    print(f"seed: {seed}")
    chance, watched = random.Random(seed), Watch()
    for number in range(WALKS):
        job, watched.before, watched.bins, watched.count = a_job(chance), (), (), 0
        end = walk(job, chance, watched)
        assert list(_broken(job, end)) == [], f"walk {number} of seed {seed}"
        watched.seen["applied"] += len(end.applied)
    print(dict(watched.seen))
    wanted = {
        "applied": 10 * WALKS,
        "states on their way": WALKS,
        "pending on their way": WALKS // 10,
        "buffered": WALKS,
        "bins split": WALKS,
        "bins merged": WALKS // 10,
    }
    assert not {
        what: watched.seen[what] for what, least in wanted.items() if watched.seen[what] < least
    }


@pytest.mark.row("M-8")
@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_where_the_protocol_breaks_the_shortest_way_there_is_told(chance: random.Random) -> None:
    """The same, with hypothesis drawing every choice: a failure comes out small."""
    job = a_job(chance)
    assert list(_broken(job, walk(job, chance))) == []


# ---------------------------------------------------------------------------------------------- the checks bite


def _out_of_order(found: Network, chance: random.Random) -> Network:
    channel = chance.choice(found.busy)
    messages = list(found.channels[channel])
    chance.shuffle(messages)
    return deliver(with_channel(found, channel, tuple(messages)), channel)


def _lost_state(found: Network, chance: random.Random) -> Network:
    channel = chance.choice(found.busy)
    left = tuple(m for m in found.channels[channel] if not isinstance(m, Moved))
    lost = with_channel(found, channel, left)
    return deliver(lost, channel) if left else lost


def _told_twice(found: Network, chance: random.Random) -> Network:
    channel = chance.choice(found.busy)
    first, *rest = found.channels[channel]
    twice = isinstance(first, Routed) and chance.random() < 0.5
    return deliver(
        with_channel(found, channel, (first, first, *rest) if twice else (first, *rest)), channel
    )


@pytest.mark.long
@pytest.mark.parametrize("fault", [_out_of_order, _lost_state, _told_twice])
def test_a_network_that_breaks_its_promise_is_found_out(
    fault: Callable[[Network, random.Random], Network], seed: int
) -> None:
    print(f"seed: {seed}")
    chance = random.Random(seed)
    found = 0
    for _ in range(100):
        job = a_job(chance)
        found += any(_broken(job, walk(job, chance, arrive=fault)))
    assert found > 20


def test_a_worker_that_is_not_told_of_an_update_is_found_out(seed: int) -> None:
    print(f"seed: {seed}")
    chance = random.Random(seed)
    configuration = initial_configuration([0, 1], 2)
    found = network(configuration, LOGIC)
    records = tuple(Record(time, key, 2) for time in (3, 7) for key in KEYS)
    found = feed(feed(found, 0, Data(records, END)), 1, Data((), END))
    found = feed(feed(found, 0, Control((), END, 2)), 1, Control((Update(5, 0, 1),), END, 2))
    while found.busy:
        found = deliver_any(found, chance)
    whole = list(misplaced(found.applied, LOGIC, initial_configuration([1, 1], 2)))
    assert any("at worker 0 instead of 1" in line for line in whole)


def test_each_promise_says_what_is_wrong() -> None:
    right = alone(LOGIC, [Record(1, 5, 2), Record(2, 5, 4)])
    assert right == (Applied(0, 1, 5, (2,), (2, 1)), Applied(0, 2, 5, (4,), (6, 1)))
    (line,) = incorrect(right[:1], LOGIC, [Record(1, 5, 2), Record(2, 5, 4)])
    assert line == "key 5: nothing more instead of [4] at time 2 with outputs [6, 1]"
    (line,) = misplaced(right[:1], LOGIC, initial_configuration([1], 2))
    assert line == "key 5 at time 1: at worker 0 instead of 1"
    assert list(incomplete((4, 7), 5)) == ["worker 0: outputs wait at 4, inputs are at 5"]


# ---------------------------------------------------------------------------------------------- the worked example


LETTERS = {"a": 0, "b": 1, "c": 2, "d": 3}
COUNT = Logic(
    lambda key: LETTERS[key] << 62,
    lambda time, key, state, values: Folded(
        (state or 0) + sum(values), ((state or 0) + sum(values),)
    ),
)


@pytest.mark.row("M-9")
def test_the_papers_worked_example() -> None:
    """Megaphone, figure 4 and section 3.5: a and b counted by S0, c and d by S1, and b moves to
    S1 at 45.
    """
    now = network(initial_configuration([0, 0, 1, 1], 2), COUNT, {"a": 7, "b": 14, "c": 3, "d": 9})

    # (a) The control frontier has only reached 42: both records are buffered.
    now = feed(now, 0, Data((Record(44, "a", 3),), 44))
    now = feed(now, 1, Data((Record(43, "c", 5),), 43))
    for worker in (0, 1):
        now = drained(feed(now, worker, Control((), 42, 4)))
    assert [list(worker.f.buffered) for worker in now.workers] == [[(44, "a", 3)], [(43, "c", 5)]]
    assert now.frontiers == (42, 42)
    assert now.applied == ()

    # (b) The control inputs come to 45: the records are forwarded and applied, and the update of b
    # is known.
    now = feed(now, 0, Data((Record(46, "c", 8),), 50))
    now = feed(now, 1, Data((Record(45, "b", 5),), 50))
    for worker in (0, 1):
        now = drained(feed(now, worker, Control((Update(45, 1, 1),), 45, 4)))
    assert [dict(worker.s.states) for worker in now.workers] == [
        {"a": 10, "b": 14},
        {"c": 8, "d": 9},
    ]
    assert [list(worker.f.buffered) for worker in now.workers] == [[(46, "c", 8)], [(45, "b", 5)]]
    assert now.frontiers == (45, 45)

    # Beyond 45, F0 moves b as S0's frontier is 45, and F1 routes its record of b to S1 and not to
    # S0.
    for worker in (0, 1):
        now = feed(now, worker, Control((), 55, 4))
    assert [m for m in now.channels[0, 1] if isinstance(m, Moved)] == [Moved(45, {"b": 14}, ())]
    assert [m.record for m in now.channels[1, 1] if isinstance(m, Routed)] == [(45, "b", 5)]
    assert not [m for m in now.channels[1, 0] if isinstance(m, Routed)]

    # (c) The control frontier is 55, but F1 may still send what is of 53: outputs wait there.
    now = drained(feed(now, 0, Data((Record(55, "a", 6),), 56)))
    now = drained(feed(now, 1, Data((), 53)))
    assert [dict(worker.s.states) for worker in now.workers] == [
        {"a": 10},
        {"b": 19, "c": 16, "d": 9},
    ]
    assert [worker.f.configuration.at(54) for worker in now.workers] == [(0, 1, 1, 1)] * 2
    assert [list(worker.f.buffered) for worker in now.workers] == [[(55, "a", 6)], []]
    assert now.frontiers == (53, 53)

    # Past 55 F0 can route its record, and no S applies it before F1's data has come as far.
    now = drained(feed(feed(now, 0, Control((), 60, 4)), 1, Control((), 60, 4)))
    assert [worker.f.buffered for worker in now.workers] == [(), ()]
    assert now.workers[0].s.states == {"a": 10}
    now = drained(feed(now, 1, Data((), 56)))
    assert now.workers[0].s.states == {"a": 16}
    assert sorted((one.time, one.key, one.worker) for one in now.applied) == [
        (43, "c", 1),
        (44, "a", 0),
        (45, "b", 1),
        (46, "c", 1),
        (55, "a", 0),
    ]


def test_what_no_time_can_need_any_more_is_let_go_of() -> None:
    now = network(initial_configuration([0, 0], 2), LOGIC)
    for time in range(1, 200):
        for worker in (0, 1):
            now = feed(now, worker, Data((), time))
            now = drained(
                feed(now, worker, Control((Update(time, time % 2, time // 2 % 2),), time + 1, 2))
            )
    assert all(sum(map(len, worker.f.configuration.history)) <= 6 for worker in now.workers)


# ---------------------------------------------------------------------------------------------- steps, one by one


def _rolled(
    strategy: Strategy, chance: random.Random
) -> tuple[Network, list[int], list[Record], int]:
    """A job of 16 bins of which half move, its controller asking after every delivery; and how many
    keys' states were on their way at each moment.
    """
    before, after = [bin % 4 for bin in range(16)], [(bin + bin // 8) % 4 for bin in range(16)]
    keys = list(range(64))
    logic = Logic(
        lambda key: int(key) << 58,
        lambda t, k, s, v: Folded((s or 0) + sum(v), ((s or 0) + sum(v),)),
    )
    now = network(initial_configuration(before, 4), logic, dict.fromkeys(keys, 1))
    rollout = Rollout(in_steps(strategy, moves_between(before, after)))
    on_way, records, time = [0], [], 0
    while not rollout.finished:
        time += 1
        rollout, updates = advance(rollout, time, min(now.frontiers))
        for number in range(4):
            record = Record(time, chance.choice(keys), 1)
            records.append(record)
            now = feed(
                feed(now, number, Data((record,), time)), number, Control(updates, time + 1, 16)
            )
        for _ in range(chance.randint(0, 120)):
            now = deliver_any(now, chance) if now.busy else now
            moving = [
                m for messages in now.channels.values() for m in messages if isinstance(m, Moved)
            ]
            on_way.append(sum(len(m.states) for m in moving))
    for number in range(4):
        now = feed(feed(now, number, Data((), END)), number, Control((), END, 16))
    return drained(now), on_way, records, len(rollout.steps)


@pytest.mark.row("M-5")
@pytest.mark.parametrize(
    ("strategy", "most"),
    [(AllAtOnce(), 32), (Fluid(), 4), (Batched(2), 8), (Optimised(), 16)],
    ids=str,
)
def test_no_more_state_is_on_its_way_than_that_of_one_step(
    strategy: Strategy, most: int, seed: int
) -> None:
    print(f"seed: {seed}")
    now, on_way, records, _ = _rolled(strategy, random.Random(seed))
    assert 0 < max(on_way) <= most
    assert list(incorrect(now.applied, now.logic, records, dict.fromkeys(range(64), 1))) == []
    assert now.workers[0].f.configuration.at(END) == tuple(
        (bin + bin // 8) % 4 for bin in range(16)
    )


def test_a_move_can_be_prepared_long_before_its_time(seed: int) -> None:
    """The control input is closed before the first record: nobody has to be asked when the time
    comes.
    """
    print(f"seed: {seed}")
    chance = random.Random(seed)
    now = network(initial_configuration([0, 0], 2), LOGIC, {1: 5})
    for number in (0, 1):
        now = feed(now, number, Control((Update(20, 0, 1), Update(20, 1, 1)), END, 2))
    records = [Record(time, 1, 2) for time in (10, 19, 20, 25)]
    for record in records:
        now = feed(feed(now, 0, Data((record,), record.time)), 1, Data((), record.time))
        for _ in range(chance.randint(0, 5)):
            now = deliver_any(now, chance) if now.busy else now
    now = drained(feed(feed(now, 0, Data((), END)), 1, Data((), END)))
    mine = [one for one in now.applied if one.values == (2,)]
    assert [(one.time, one.worker) for one in mine] == [(10, 0), (19, 0), (20, 1), (25, 1)]


def test_inputs_whose_time_runs_backwards_are_refused_with_all_of_it() -> None:
    now = feed(network(initial_configuration([0, 0], 2), LOGIC), 0, Data((), 10))
    with pytest.raises(SpecError) as refused:
        feed(now, 0, Data((Record(9, 1, 1), Record(10, 1, 1), Record(3, 1, 1)), 8))
    assert [c.pointer for c in refused.value.complaints] == ["/0/time", "/2/time", "/frontier"]
    now = feed(now, 0, Control((), 10, 2))
    with pytest.raises(SpecError) as refused:
        feed(now, 0, Control((Update(9, 0, 1), Update(11, 7, 9)), 5, 2))
    assert [c.pointer for c in refused.value.complaints] == [
        "/0/time",
        "/1/bin",
        "/1/worker",
        "/frontier",
    ]
    with pytest.raises(SpecError, match="/bins: 3 bins are no power of two"):
        feed(now, 0, Resize(3))


@pytest.mark.row("M-5")
def test_of_steps_that_were_prepared_none_begins_at_a_worker_before_it_has_what_the_last_one_gives_it(
    seed: int,
) -> None:
    print(f"seed: {seed}")
    chance = random.Random(seed)
    for _ in range(40):
        job = a_job(chance)
        workers, bins = job.begin.workers, job.begin.bins
        after = [chance.randrange(workers) for _ in range(bins)]
        steps = in_steps(Fluid(), moves_between(job.begin.at(0), after))
        if steps:
            begun = Control(updates_ahead(steps, 3, 2), END, bins)
            walk(replace(job, control=(begun,)), chance, _in_turn)


def _in_turn(now: Network) -> None:
    for (_, target), messages in now.channels.items():
        owed = [m.time for m in messages if isinstance(m, Moved)]
        given = [
            m.time
            for (source, _), sent in now.channels.items()
            if source == target
            for m in sent
            if isinstance(m, Moved)
        ]
        assert not owed or not given or max(given) <= min(owed)
