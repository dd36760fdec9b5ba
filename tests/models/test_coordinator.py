"""A migration while a job runs: completed or taken back, in every order of events, and no record
lost or doubled.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import PlanError, SpecError
from stateshift.journal import State, StepFinished, decode_records, encode_record, fold
from stateshift.step.evidence import OtherEvidence
from tests.models.checkpoint_wait import Checkpoints, wait
from tests.models.coordinated_job import (
    Choice,
    Hear,
    Job,
    Start,
    Take,
    asked,
    choices,
    happened,
    job,
    said,
)
from tests.models.coordinator import STEPS, begin
from tests.models.task_flows import EXCHANGES, flow
from tests.models.task_instance import (
    FOLLOWS,
    Instance,
    Record,
    TaskState,
    Trigger,
    become,
    roles,
    routes,
    take,
)
from tests.models.tasks import (
    Deployment,
    Flow,
    GiveUp,
    Migration,
    Refused,
    Task,
    check,
)

WALKS = 200
RECORDS, CHECKPOINTS = 6, 3
ROOM = {"there": 9, "elsewhere": 9}


def diamond() -> Flow:
    """Two sources, all three patterns, two ways that meet again."""
    operators = {"source": 2, "map": 2, "left": 1, "right": 2, "sink": 1}
    edges = [
        ("source", "map", "forward"),
        ("map", "left", "broadcast"),
        ("map", "right"),
        ("left", "sink"),
        ("right", "sink"),
    ]
    return flow(operators, edges)


def _homes(of: Flow) -> dict[Task, str]:
    return dict.fromkeys(of.tasks, "here")


def _begun(of: Flow, *moving: Task, checkpoint: int = 2) -> Job:
    return asked(
        job(of, _homes(of)), Migration("m", dict.fromkeys(moving, "there")), ROOM, checkpoint
    )


Watch = Callable[[Job], None]


def _run(
    now: Job, chance: random.Random, watch: Watch | None = None, steps: int | None = None
) -> Job:
    """Until nothing can happen any more, or for so many steps."""
    done = 0
    while steps is None or done < steps:
        possible = list(choices(now, RECORDS, CHECKPOINTS))
        if not possible:
            break
        now, done = happened(now, chance.choice(possible), float(done)), done + 1
        if watch:
            watch(now)
    return now


def _undisturbed(of: Flow) -> Job:
    return _run(job(of, _homes(of)), random.Random(0))


def _wrong(end: Job, places: dict[Task, str]) -> Iterator[str]:
    """What is not as it would be had nobody asked for anything, but for the places."""
    alone = {task: one.snapshot for (task, _), one in _undisturbed(end.flow).instances.items()}
    for task, place in places.items():
        one = end.at(task)
        if one is None or one.place != place:
            yield f"{task} does not run at {place}"
        elif one.snapshot != alone[task]:
            yield f"{task} has {one.snapshot} instead of {alone[task]}"
        elif one.buffers or one.order:
            yield f"{task} still holds something back"
    yield from (f"{channel} holds {items}" for channel, items in end.channels.items() if items)
    for (task, place), one in end.instances.items():
        if place != places[task] and one.state != "canceled":
            yield f"{task} at {place} is {one.state}"


def _after(end: Job) -> dict[Task, str]:
    """Where every task belongs, by how its migration ended."""
    assert end.coordinator is not None
    moved = end.coordinator.migration.places if end.coordinator.state == "finished" else {}
    return {**_homes(end.flow), **moved}


def _pauses(now: Job) -> None:
    """T-8: once everybody knows, and until it is decided who goes on, nothing is on its way to a
    task that has shipped its state. (Before, a source may have begun the checkpoint without
    knowing: it refuses, and all is taken back.)
    """
    assert now.coordinator is not None
    if now.coordinator.step not in ("ship", "restart") or now.coordinator.state != "running":
        return
    for (task, _), one in now.instances.items():
        if one.state == "paused":
            assert not [
                items for (_, target), items in now.channels.items() if target == task and items
            ]


@pytest.mark.long
@pytest.mark.row("T-2")
@pytest.mark.row("T-5")
@pytest.mark.row("T-6")
@pytest.mark.row("T-8")
@pytest.mark.row("T-12")
def test_whatever_the_order_every_record_is_seen_once_and_the_tasks_are_where_they_belong(
    seed: int,
) -> None:
    print(f"seed: {seed}")
    chance, ends = random.Random(seed), Counter[str]()
    for number in range(WALKS):
        of = _a_flow(chance)
        moving = chance.sample(of.tasks, chance.randint(1, min(3, len(of.tasks))))
        end = _run(_begun(of, *moving), chance, _pauses)
        assert end.coordinator is not None
        assert list(_wrong(end, _after(end))) == [], f"walk {number} of seed {seed}: {of}, {moving}"
        ends[end.coordinator.state] += 1
    print(dict(ends))
    assert set(ends) == {"finished", "rolled-back"}, (
        "a trigger that comes behind its checkpoint is taken back"
    )
    assert min(ends.values()) > WALKS // 20


def _a_flow(chance: random.Random) -> Flow:
    """Operators in a row, edges leading on; an edge between as many tasks may be forward."""
    names = [f"o{n}" for n in range(chance.randint(2, 5))]
    counts = {name: chance.randint(1, 2) for name in names}
    edges = []
    for n, name in enumerate(names[1:], 1):
        for source in chance.sample(
            names[:n], chance.randint(0, min(2, n)) or int(n == len(names) - 1)
        ):
            patterns = EXCHANGES if counts[source] == counts[name] else EXCHANGES[1:]
            edges.append((source, name, chance.choice(patterns)))
    return flow(counts, edges)


def _straight_to(step: str, now: Job, chance: random.Random) -> Job | None:
    """Until that step is waited for; None where it was over as soon as it had begun."""
    while now.coordinator and now.coordinator.step != step:
        possible = [
            c
            for c in choices(now, RECORDS, CHECKPOINTS)
            if not isinstance(c, Start) or not _waits(now)
        ]
        if not possible:
            return None
        now = happened(now, chance.choice(possible))
    return now


def _waits(now: Job) -> bool:
    """Whether a trigger has not reached all sources: a checkpoint that begins now may be the
    named one.
    """
    return any(isinstance(order, Trigger) for _, order in now.orders)


@pytest.mark.long
@pytest.mark.row("T-3")
@pytest.mark.parametrize("step", STEPS)
def test_an_abort_from_every_step_leaves_everything_running_as_before(step: str, seed: int) -> None:
    print(f"seed: {seed}")
    chance, reached = random.Random(seed), 0
    while reached < 20:
        of = diamond()
        now: Job | None = _begun(of, *chance.sample(of.tasks, 2))
        if now and step != "allocate":  # which is done as soon as it is begun
            now = _straight_to(step, now, chance)
        if now is None:
            continue
        reached += 1
        end = _run(said(now, GiveUp("never mind")), chance)
        assert end.coordinator is not None
        assert end.coordinator.state == ("finished" if step == "resume" else "rolled-back")
        assert list(_wrong(end, _after(end))) == []


@pytest.mark.long
@pytest.mark.row("T-3")
def test_an_abort_or_a_refusal_at_any_moment_ends_in_one_of_two_states_and_loses_nothing(
    seed: int,
) -> None:
    print(f"seed: {seed}")
    chance, ends = random.Random(seed), Counter[str]()
    for number in range(WALKS):
        of = _a_flow(chance)
        moving = chance.sample(of.tasks, chance.randint(1, min(3, len(of.tasks))))
        now = _run(_begun(of, *moving), chance, steps=chance.randint(0, 60))
        word = (
            Refused(chance.choice(of.tasks), "no room")
            if chance.random() < 0.5
            else GiveUp("stop it")
        )
        end = _run(said(now, word), chance)
        assert end.coordinator is not None
        assert list(_wrong(end, _after(end))) == [], f"walk {number} of seed {seed}: {of}, {moving}"
        ends[end.coordinator.state] += 1
    print(dict(ends))
    assert ends.keys() == {"finished", "rolled-back"}


@pytest.mark.row("T-2")
def test_every_task_acknowledges_also_where_it_ignores(seed: int) -> None:
    print(f"seed: {seed}")
    now = _straight_to("restart", _begun(diamond(), Task("right", 1)), random.Random(seed))
    assert now is not None
    (evidence,) = [
        r.evidence for r in now.records if isinstance(r, StepFinished) and r.step == "trigger"
    ]
    assert isinstance(evidence, OtherEvidence)
    assert evidence.values["roles"] == {
        "source-0": [],
        "source-1": [],
        "map-0": ["buffers"],
        "map-1": ["buffers"],
        "left-0": [],
        "right-0": [],
        "right-1": ["ships"],
        "sink-0": ["rewires"],
    }


@pytest.mark.row("T-6")
@pytest.mark.row("T-12")
def test_who_has_a_part_follows_from_the_exchange_patterns() -> None:
    of = diamond()

    def parts(task: Task) -> dict[str, tuple[str, ...]]:
        trigger = Trigger(Migration("m", {task: "there"}), 1)
        return {str(one): part for one in of.tasks if (part := roles(of, trigger, one))}

    assert parts(Task("map", 0)) == {
        "source-0": ("buffers",),
        "map-0": ("ships",),
        "left-0": ("rewires",),
        "right-0": ("rewires",),
        "right-1": ("rewires",),
    }
    assert parts(Task("sink", 0)).keys() == {"left-0", "right-0", "right-1", "sink-0"}
    assert list(routes(of, Task("map", 1), key=3)) == [Task("left", 0), Task("right", 1)]
    assert list(routes(of, Task("source", 1), key=0)) == [Task("map", 1)]
    both = Trigger(Migration("m", {Task("source", 0): "x", Task("map", 0): "y"}), 1)
    assert roles(of, both, Task("source", 0)) == ("buffers", "ships")


def test_a_migration_of_one_task_of_a_row_step_by_step() -> None:
    """No chance in it: the one order in which nothing waits for anything."""
    of = flow(["a", "b", "c"], [("a", "b"), ("b", "c")])
    now = _begun(of, Task("b", 0), checkpoint=1)
    a, b, there = (
        now.instances[Task("a", 0), "here"],
        (Task("b", 0), "here"),
        (Task("b", 0), "there"),
    )
    assert a.state == "running"

    def settle(at: Job, *kinds: type[Choice]) -> Job:
        while possible := [c for c in choices(at, 0, 0) if not kinds or isinstance(c, kinds)]:
            at = happened(at, possible[0])
        return at

    now = settle(now)
    assert now.coordinator is not None and now.coordinator.step == "ship"
    now = happened(now, Start((Task("a", 0), "here")))
    now = happened(
        now, next(c for c in choices(now, 1, 1) if not isinstance(c, Take))
    )  # a record behind the barrier
    assert now.instances[Task("a", 0), "here"].buffers == {Task("b", 0): (Record(0, 0),)}
    now = settle(now, Take)
    assert (now.instances[b].state, now.instances[there].state) == ("paused", "created")
    while not any(type(order).__name__ == "Complete" for _, order in now.orders):
        now = happened(now, next(c for c in choices(now, 0, 0)))
    assert now.instances[there].state == "deployed"
    assert now.coordinator is not None and now.coordinator.decided
    now = settle(now)
    assert (now.instances[b].state, now.instances[there].state) == ("canceled", "running")
    assert now.instances[there].snapshot.received == {Task("a", 0): 1}
    assert now.coordinator is not None and now.coordinator.state == "finished"


@pytest.mark.row("T-2")
def test_what_happened_is_the_fold_of_a_journal_that_can_be_written_down(seed: int) -> None:
    print(f"seed: {seed}")
    chance = random.Random(seed)
    for _ in range(20):
        end = _run(_begun(diamond(), Task("right", 0)), chance)
        assert end.coordinator is not None
        assert fold(iter(end.records)) == end.coordinator.progress
        lines = b"".join(encode_record(record) for record in end.records)
        assert decode_records(lines) == (list(end.records), len(lines))
        assert end.coordinator.state in get_args(State)


# ---------------------------------------------------------------------------------------------- the checks bite


@pytest.mark.long
@pytest.mark.parametrize("fault", ["a record is lost", "a buffer is lost", "an order is lost"])
def test_a_job_that_loses_something_is_found_out(fault: str, seed: int) -> None:
    print(f"seed: {seed}")
    chance, found = random.Random(seed), 0
    for _ in range(40):
        now = _run(
            _begun(diamond(), Task("map", 0), checkpoint=3), chance, steps=chance.randint(0, 80)
        )
        try:
            found += bool(list(_wrong(_run(_broken(fault, now), chance), _after(now))))
        except AssertionError as error:  # first in, first out
            assert "each of them once" in str(error)
            found += 1
    assert found > 3


def _broken(fault: str, now: Job) -> Job:
    if fault == "a record is lost":
        return replace(
            now,
            channels={
                c: tuple(i for i in items if not isinstance(i, Record))
                for c, items in now.channels.items()
            },
        )
    if fault == "an order is lost":
        return replace(now, orders=now.orders[1:])
    empty = {
        address: replace(one, buffers=dict.fromkeys(one.buffers, ()))
        for address, one in now.instances.items()
    }
    return replace(now, instances=empty)


def test_a_record_out_of_its_order_is_noticed() -> None:
    of = flow(["a", "b"], [("a", "b")])
    b = Instance(of, Task("b", 0), "here", "running")
    with pytest.raises(AssertionError, match="first in, first out"):
        take(b, Task("a", 0), Record(0, 1))


# ---------------------------------------------------------------------------------------------- states, waits, input


@pytest.mark.row("T-4")
def test_a_task_becomes_what_may_follow_and_nothing_else() -> None:
    assert set(FOLLOWS) == set(get_args(TaskState))
    assert (
        become("created", "scheduled", "deployed", "running", "pausing", "paused", "running")
        == "running"
    )
    assert become("running", "finished") == "finished"
    assert become("paused", "canceling", "canceled") == "canceled"
    allowed = {(now, after) for now in FOLLOWS for after in FOLLOWS[now]}
    assert len(allowed) == 21
    for now in FOLLOWS:
        for after in FOLLOWS:
            if (now, after) not in allowed:
                with pytest.raises(AssertionError, match="does not become"):
                    become(now, after)


@given(
    interval=st.floats(0.1, 1000),
    takes=st.floats(0, 1),
    elapsed=st.floats(0, 1),
    trigger=st.floats(0, 1),
)
@settings(deadline=None)
def test_a_wait_is_estimated_and_never_longer_than_two_intervals(
    interval: float, takes: float, elapsed: float, trigger: float
) -> None:
    """Held against a clock: checkpoints begin every interval, and the one named is the first
    after the trigger.
    """
    trigger_seconds = interval * trigger * (1 - takes) * 0.99
    now = Checkpoints(interval, takes * interval * 0.99, began=7, elapsed=elapsed * interval)
    found = wait(now, trigger_seconds)
    begins = now.interval - now.elapsed + (found.checkpoint - 8) * interval
    assert begins >= trigger_seconds
    assert begins - interval < trigger_seconds or found.checkpoint == 8
    assert found.seconds == pytest.approx(begins + now.takes)
    assert found.seconds <= found.seconds_max == 2 * interval


def test_where_a_checkpoint_takes_longer_than_an_interval_no_bound_is_promised() -> None:
    with pytest.raises(PlanError, match="no bound can be given"):
        wait(Checkpoints(interval=10, takes=11, began=1, elapsed=0))
    with pytest.raises(SpecError) as refused:
        wait(Checkpoints(interval=0, takes=-1, began=1, elapsed=-2))
    assert [c.pointer for c in refused.value.complaints] == ["/takes", "/elapsed", "/interval"]


def test_a_dataflow_that_cannot_be_is_refused_with_all_of_it() -> None:
    with pytest.raises(SpecError) as refused:
        flow(
            {"a": 2, "b": 3, "c": 0},
            [("a", "b", "forward"), ("a", "x"), ("y", "z", "shuffle"), ("a",), ("a", "b")],
        )
    assert [(c.pointer, c.message) for c in refused.value.complaints] == [
        ("/operators/c", "0 tasks of 'c'"),
        ("/edges/0/2", "forward from 2 tasks to 3"),
        ("/edges/1/1", "there is no operator 'x'"),
        ("/edges/2/0", "there is no operator 'y'"),
        ("/edges/2/1", "there is no operator 'z'"),
        ("/edges/2/2", "no exchange pattern: 'shuffle'"),
        ("/edges/3", "an edge is a source, a target and perhaps an exchange"),
        ("/edges/4", "the edge from 'a' to 'b' stands twice"),
    ]
    with pytest.raises(SpecError, match="/operators/2: 'a' stands twice"):
        flow(["a", "b", "a"], [])
    with pytest.raises(SpecError, match=r"in a circle: (b → c → b|c → b → c)"):
        flow(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "b")])


@pytest.mark.row("T-5")
def test_a_migration_that_cannot_be_is_refused_before_anything_is_triggered() -> None:
    of = flow(["a", "b"], [("a", "b")])
    wrong = Migration("m", {Task("b", 0): "here", Task("b", 5): "there", Task("a", 0): "nowhere"})
    with pytest.raises(SpecError) as refused:
        begin(Deployment(of, _homes(of), {"here": 1, "there": 1}), wrong, 1, 0.0)
    assert [c.pointer for c in refused.value.complaints] == [
        "/places/b-0",
        "/places/b-5",
        "/places/a-0",
    ]
    with pytest.raises(SpecError, match="no task that moves"):
        check(Migration("m", {}), Deployment(of, _homes(of), ROOM))
    both = Migration("m", dict.fromkeys(of.tasks, "there"))
    with pytest.raises(PlanError, match="there has free slots for 1 of 2"):
        begin(Deployment(of, _homes(of), {"there": 1}), both, 1, 0.0)


def test_an_order_that_comes_too_late_changes_nothing() -> None:
    """The abort overtakes the trigger: who hears of it first must not take it up afterwards."""
    of = flow(["a"], [])
    now = said(_begun(of, Task("a", 0)), GiveUp("no"))
    assert len(now.orders) == 3
    late = happened(happened(now, Hear(1)), Hear(0))
    assert late.instances[Task("a", 0), "here"].order is None
