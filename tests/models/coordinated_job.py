"""A job and the coordinator of its migration, as one value: every order of events can be tried.

Job
  instances  task at place -> what it is
  channels   (from task, to task) -> items, first in, first out. A channel is the tasks', wherever
             they are: what the old place of a task has sent ends with the barrier, and only then
             the new one's is read
  orders     from the coordinator, and
  words      to it: overtaking each other as they like

job(flow, places)                      runs
asked(job, migration, …)               its migration is begun
choices(job, …), happened(job, choice) what can happen next; it happens
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from stateshift.journal import Record as Journaled
from tests.models.coordinator import Address, Coordinator, Outcome, Sent, advance, begin
from tests.models.task_instance import Done, Instance, Item, hear, read, start, take
from tests.models.tasks import Deployment, Flow, Migration, Task, Word


class Read(NamedTuple):
    """A source reads its next record."""

    source: Address


class Start(NamedTuple):
    """A source begins its next checkpoint."""

    source: Address


class Take(NamedTuple):
    """A task takes the first item of a channel."""

    channel: tuple[Task, Task]


class Hear(NamedTuple):
    """A task hears one of the orders under way."""

    order: int


class Tell(NamedTuple):
    """The coordinator hears one of the words under way."""

    word: int


Choice = Read | Start | Take | Hear | Tell


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that runs or is under way, the coordinator and its records included."""

    flow: Flow
    instances: Mapping[Address, Instance]
    channels: Mapping[tuple[Task, Task], tuple[Item, ...]]
    orders: tuple[Sent, ...] = ()
    words: tuple[Word, ...] = ()
    coordinator: Coordinator | None = None
    records: tuple[Journaled, ...] = ()

    def at(self, task: Task) -> Instance | None:
        """Return the instance that runs a task, if one does."""
        of_task = [one for (name, _), one in self.instances.items() if name == task]
        running = (instance for instance in of_task if instance.state == "running")
        return next(running, None)


def job(flow: Flow, places: Mapping[Task, str]) -> Job:
    """Return a job whose tasks all run, with no migration asked for."""
    instances = {
        (task, place): Instance(flow, task, place, "running") for task, place in places.items()
    }
    return Job(flow, instances, {})


def asked(
    before: Job, migration: Migration, free: Mapping[str, int], checkpoint: int, now: float = 0.0
) -> Job:
    """Allocate places: a new instance of every task that moves is created there."""
    running = {
        task: place for (task, place), one in before.instances.items() if one.state == "running"
    }
    outcome = begin(Deployment(before.flow, running, free), migration, checkpoint, now)
    new = {
        (task, place): Instance(before.flow, task, place, "created")
        for task, place in migration.places.items()
    }
    return _with(replace(before, instances={**before.instances, **new}), outcome)


def said(before: Job, word: Word, now: float = 0.0) -> Job:
    """Have the coordinator hear a word."""
    assert before.coordinator is not None, "asked before"
    return _with(before, advance(before.coordinator, word, now))


def choices(now: Job, records: int, checkpoints: int) -> Iterator[Choice]:
    """Yield what can happen next, in a fixed order; a source has so many records, and begins so
    many checkpoints.
    """
    for source in _running_sources(now):
        snapshot = now.instances[source].snapshot
        if snapshot.read < records:
            yield Read(source)
        if snapshot.checkpoint < checkpoints:
            yield Start(source)
    yield from _takings(now)
    yield from map(Hear, range(len(now.orders)))
    yield from map(Tell, range(len(now.words)))


def _running_sources(now: Job) -> Iterator[Address]:
    for address, instance in now.instances.items():
        if instance.state == "running" and address[0] in now.flow.sources:
            yield address


def _takings(now: Job) -> Iterator[Take]:
    """Yield the channels that have an item whose receiver may take it."""
    for (source, target), items in now.channels.items():
        receiver = now.at(target)
        if items and receiver is not None and receiver.may_take(source):
            yield Take((source, target))


def happened(before: Job, choice: Choice, now: float = 0.0) -> Job:
    """Return the job after one of its choices."""
    match choice:
        case Read(source):
            return _done(before, source, read(before.instances[source]))
        case Start(source):
            return _done(before, source, start(before.instances[source]))
        case Take((source, target)):
            first, *rest = before.channels[source, target]
            instance = before.at(target)
            assert instance is not None, "somebody runs it"
            left = replace(before, channels={**before.channels, (source, target): tuple(rest)})
            return _done(left, (target, instance.place), take(instance, source, first))
        case Hear(n):
            address, order = before.orders[n]
            left = replace(before, orders=(*before.orders[:n], *before.orders[n + 1 :]))
            return _done(left, address, hear(before.instances[address], order))
        case Tell(n):
            words = (*before.words[:n], *before.words[n + 1 :])
            return said(replace(before, words=words), before.words[n], now)


def _done(before: Job, address: Address, done: Done) -> Job:
    channels = dict(before.channels)
    for target, item in done.sent:
        channels[address[0], target] = (*channels.get((address[0], target), ()), item)
    instances = {**before.instances, address: done.instance}
    return replace(
        before, instances=instances, channels=channels, words=(*before.words, *done.said)
    )


def _with(before: Job, outcome: Outcome) -> Job:
    coordinator, records, orders = outcome
    return replace(
        before,
        coordinator=coordinator,
        records=before.records + records,
        orders=before.orders + orders,
    )
