"""A task at a place, and what it does with records, barriers and orders. A model; channels are
first in, first out.

    take(instance, source, item)     from the channel of a task that sends to it
    hear(instance, order)            from the coordinator, at any moment and in any order
    read(instance), start(instance)  only sources: the next record, the next checkpoint

The sending side aligns (T-8). At the checkpoint that a trigger names, a task

    buffers  whatever it would send to a task that moves, behind the barrier, first in and first out
             (T-7)
    ships    its state, once the barrier has come from everybody: it is paused, and nothing is on
             its way to it, because everybody who sends to it buffers. So no data moves but state.
    rewires  to the new place: the barrier is the last it gets from the old one

A task's states, and what may follow which (T-4):

    created ─▶ scheduled ─▶ deployed ─▶ running ─▶ finished
                                        │    ▲
                                        ▼    │
                                     pausing ─▶ paused

    paused ─▶ running                             taken back, as it was before
    each that is no end ─▶ failed
    each that is no end ─▶ canceling ─▶ canceled

`running`, `finished` and `failed` mean of a task what they mean of a run (journal.progress.State):
the same words. A run is never created, scheduled or deployed, since it needs no place; and where a
run is *rolled back*, a task is *running*: nothing of it is left to see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from tests.models.task_flows import feeders, targets
from tests.models.tasks import (
    Abort,
    Acknowledged,
    Complete,
    Deployed,
    Flow,
    Order,
    Refused,
    Restore,
    Role,
    Running,
    Shipped,
    Task,
    Trigger,
    Word,
)

TaskState = Literal[
    "created",
    "scheduled",
    "deployed",
    "running",
    "finished",
    "failed",
    "canceling",
    "canceled",
    "pausing",
    "paused",
]
_ENDING: frozenset[TaskState] = frozenset(("failed", "canceling"))
FOLLOWS: Mapping[TaskState, frozenset[TaskState]] = {
    "created": _ENDING | {"scheduled"},
    "scheduled": _ENDING | {"deployed"},
    "deployed": _ENDING | {"running"},
    "running": _ENDING | {"finished", "pausing"},
    "pausing": _ENDING | {"paused"},
    "paused": _ENDING | {"running"},
    "canceling": frozenset(("canceled", "failed")),
    "finished": frozenset(),
    "failed": frozenset(),
    "canceled": frozenset(),
}


class Record(NamedTuple):
    """The `number`-th that this sender has sent to this receiver; none is left out, and none
    comes twice.
    """

    key: int
    number: int


class Barrier(NamedTuple):
    """The end of what belongs to a checkpoint on a channel."""

    checkpoint: int


Item = Record | Barrier | Trigger


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task's state at a checkpoint: what it has read (a source), what it has of its senders and
    has sent, and what it has computed (here, the sum of the keys).
    """

    checkpoint: int = 0
    read: int = 0
    received: Mapping[Task, int] = field(default_factory=dict)
    sent: Mapping[Task, int] = field(default_factory=dict)
    total: int = 0


@dataclass(frozen=True, slots=True)
class Instance:
    """A task at a place: what it is in the middle of, and what it holds back."""

    flow: Flow
    task: Task
    place: str
    state: TaskState
    snapshot: Snapshot = field(default_factory=Snapshot)
    barriers: frozenset[Task] = frozenset()  # whose barrier of the next checkpoint has come
    order: Trigger | None = None
    # a task that moves -> what it shall get
    buffers: Mapping[Task, tuple[Item, ...]] = field(default_factory=dict)
    over: frozenset[str] = frozenset()  # migrations that were completed or aborted

    def may_take(self, source: Task) -> bool:
        return self.state == "running" and source not in self.barriers


class Done(NamedTuple):
    """An instance after an event; what is sent along which edges, and said to the coordinator."""

    instance: Instance
    sent: tuple[tuple[Task, Item], ...] = ()
    said: tuple[Word, ...] = ()


def roles(flow: Flow, trigger: Trigger, task: Task) -> tuple[Role, ...]:
    """Return a task's part in a migration. A task that moves may have to buffer for another one."""
    moving = trigger.migration.places.keys()
    parts: list[tuple[Role, bool]] = [
        ("buffers", bool(moving & {*targets(flow, task)})),
        ("ships", task in moving),
        ("rewires", bool(moving & {*feeders(flow, task)})),
    ]
    return tuple(role for role, plays in parts if plays)


def read(source: Instance) -> Done:
    """Read a source's next record; its key is how many it has read before."""
    count = source.snapshot.read
    return _processed(source, count, replace(source.snapshot, read=count + 1))


def start(source: Instance) -> Done:
    """Start a source's next checkpoint."""
    return _passed(source)


def take(before: Instance, source: Task, item: Item) -> Done:
    """Take an item from the channel of a task that sends to this one."""
    assert before.may_take(source), "it is paused, or waits for the barrier of others"
    match item:
        case Record(key, number):
            received = before.snapshot.received
            in_order = number == received.get(source, 0)
            assert in_order, "first in, first out, and each of them once"
            snapshot = replace(before.snapshot, received={**received, source: number + 1})
            return _processed(before, key, snapshot)
        case Barrier():
            after = replace(before, barriers=before.barriers | {source})
            if after.barriers >= {*feeders(before.flow, before.task)}:
                return _passed(after)
            return Done(after)
        case Trigger():
            return _instructed(before, item)


def hear(before: Instance, order: Order) -> Done:
    """Follow an order of the coordinator; one that comes too late changes nothing."""
    match order:
        case Trigger():
            if order.checkpoint <= before.snapshot.checkpoint:
                refused = Refused(before.task, f"checkpoint {order.checkpoint} has begun")
                return Done(before, said=(refused,))
            return _instructed(before, order)
        case Restore(name, snapshot):
            if before.state != "created":
                return Done(before)  # the abort was here first
            state = become(before.state, "scheduled", "deployed")
            after = replace(before, state=state, snapshot=snapshot)
            return Done(after, said=(Deployed(before.task),))
        case Complete(name) if before.state == "deployed":
            state = become(before.state, "running")
            after = replace(before, state=state, over=before.over | {name})
            return Done(after, said=(Running(before.task),))
        case Complete(name) if before.state == "paused":
            state = become(before.state, "canceling", "canceled")
            return Done(replace(before, state=state, buffers={}))
        case Abort(name) if before.state in ("created", "deployed"):
            return Done(replace(before, state=become(before.state, "canceling", "canceled")))
        case Abort(name) | Complete(name):
            state = become(before.state, "running") if before.state == "paused" else before.state
            return _released(replace(before, state=state, over=before.over | {name}))


def _processed(before: Instance, key: int, snapshot: Snapshot) -> Done:
    after = replace(before, snapshot=replace(snapshot, total=snapshot.total + key))
    items: list[tuple[Task, Item]] = []
    for target in routes(before.flow, before.task, key):
        number = after.snapshot.sent.get(target, 0)
        after = replace(
            after,
            snapshot=replace(after.snapshot, sent={**after.snapshot.sent, target: number + 1}),
        )
        items.append((target, Record(key, number)))
    return _sent(after, items)


def _instructed(before: Instance, trigger: Trigger) -> Done:
    """Pass a trigger on with the data, the first time, and acknowledge it; what is over already
    concerns nobody any more.
    """
    name = trigger.migration.name
    if before.order is not None or name in before.over:
        return Done(before)
    receivers = targets(before.flow, before.task)
    done = _sent(replace(before, order=trigger), [(target, trigger) for target in receivers])
    part = roles(before.flow, trigger, before.task)
    return done._replace(said=(Acknowledged(before.task, part),))


def _passed(before: Instance) -> Done:
    """Pass a checkpoint on; if it is the one that was named, do the task's part."""
    checkpoint = before.snapshot.checkpoint + 1
    snapshot = replace(before.snapshot, checkpoint=checkpoint)
    receivers = targets(before.flow, before.task)
    after = replace(before, snapshot=snapshot, barriers=frozenset())
    done = _sent(after, [(target, Barrier(checkpoint)) for target in receivers])
    if before.order is None or before.order.checkpoint != checkpoint:
        return done
    moving = before.order.migration.places.keys()
    held = {target: () for target in receivers if target in moving}
    after = replace(done.instance, buffers={**done.instance.buffers, **held})
    if before.task not in moving:
        return done._replace(instance=after)
    paused = replace(after, state=become(after.state, "pausing", "paused"))
    return done._replace(instance=paused, said=(Shipped(before.task, after.snapshot),))


def _released(before: Instance) -> Done:
    """Send what was buffered in the order in which it came, and hold nothing back any more."""
    sent: list[tuple[Task, Item]] = []
    for target, items in before.buffers.items():
        sent += [(target, item) for item in items]
    after = replace(before, buffers={}, order=None)
    return Done(after, tuple(sent), (Running(before.task),))


def _sent(after: Instance, items: list[tuple[Task, Item]]) -> Done:
    """Send items along the edges, but buffer what is for a task that moves."""
    buffers = {**after.buffers}
    for target, item in items:
        if target in buffers:
            buffers[target] = (*buffers[target], item)
    sent = tuple((target, item) for target, item in items if target not in buffers)
    return Done(replace(after, buffers=buffers), sent)


def routes(flow: Flow, task: Task, key: int) -> Iterator[Task]:
    """Yield where a record of a key goes from a task: along each edge, to those its exchange
    pattern says.
    """
    for edge in flow.edges:
        if edge.source != task.operator:
            continue
        count = flow.operators[edge.target]
        match edge.exchange:
            case "forward":
                yield Task(edge.target, task.number)
            case "partitioned":
                yield Task(edge.target, key % count)
            case _:
                yield from (Task(edge.target, number) for number in range(count))


def become(now: TaskState, *states: TaskState) -> TaskState:
    """The last of states that follow one another."""
    for after in states:
        assert after in FOLLOWS[now], f"a task that is {now} does not become {after}"
        now = after
    return now
