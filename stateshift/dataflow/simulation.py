"""How long a schedule takes: tuples, queues, costs, control messages and markers, event by event.

    Load      how many tuples sources read, what one costs at each operator before and after the
              change, how unevenly
              keys fall on workers, how long a control message takes, when the change is asked for
    simulate  -> Run: when each worker was through, what was queued, and how long tuples took to the
              sinks

A worker takes one item at a time, in the order of arrival, but for channels that wait for markers.
A control message overtakes what is queued, not the tuple that is being processed. Sending takes no
time. A one-to-one operator chooses one of its edges by chance, a one-to-many operator sends one
tuple along each; what blocking operators would send once their input has ended, is not simulated.

The *delay* of a reconfiguration is the time from the request until no target uses its old function
any more (F-3). The same load and chance give the same run.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from stateshift.dataflow.schedulers import Schedule
from stateshift.dataflow.wiring import Wiring, wired


class Chance(Protocol):
    """What of `random.Random` is needed."""

    def random(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Load:
    """`rates` are steps: (from this second on, tuples a second). What is not named costs
    nothing, and keys are even.
    """

    rates: Mapping[str, tuple[tuple[float, float], ...]]
    costs: Mapping[str, float]
    request_seconds: float
    seconds: float
    costs_after: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    control_seconds: float = 0.002


@dataclass(frozen=True, slots=True)
class Run:
    """`through`: seconds from the request until a worker that had to do with it was through.
    `latencies`: (when, how long) of each tuple that came to an end. `backlog_seconds`: the work
    queued at the slowest worker at the request.
    """

    through: Mapping[tuple[str, int], float]
    targets: tuple[str, ...]
    latencies: tuple[tuple[float, float], ...]
    backlog_seconds: float
    processed: int

    @property
    def delay_seconds(self) -> float:
        return max(after for (name, _), after in self.through.items() if name in self.targets)


class Item(NamedTuple):
    born: float
    source: int
    version: int


@dataclass(slots=True)
class _Worker:
    queue: deque[tuple[int, Item | None]] = field(default_factory=deque)
    held: list[tuple[int, Item | None]] = field(default_factory=list)
    heard: set[int] = field(default_factory=set)
    busy: Item | None = None
    told: bool = False
    passed: bool = False
    tagging: int = 0


ARRIVES, DONE, TOLD, ASKED = range(4)


class _Simulation:
    """The world between two events."""

    def __init__(self, schedule: Schedule, load: Load, chance: Chance) -> None:
        self.wiring: Wiring = wired(schedule)
        self.load, self.chance, self.versions = load, chance, bool(schedule.tagging)
        self.workers = [_Worker() for _ in self.wiring.workers]
        names = [operator.name for operator, _ in self.wiring.workers]
        self.costs = [load.costs.get(name, 0.0) for name in names]
        self.costs_after = [load.costs_after.get(name, load.costs.get(name, 0.0)) for name in names]
        self.events: list[tuple[float, int, int, int]] = []
        self.count = self.sources = self.processed = self.old = 0
        self.now = self.backlog = 0.0
        self.let_by: set[tuple[str, int]] = set()
        self.through: dict[int, float] = {}
        self.latencies: list[tuple[float, float]] = []

    def run(self, *, until_changed: bool) -> None:
        for name in self.load.rates:
            for worker in self.wiring.of(name):
                self._next_arrival(worker)
        self._at(self.load.request_seconds, ASKED, 0)
        happens = (self._arrives, self._finish, self._hear_control, self._asked)
        while self.events:
            self.now, _, kind, worker = heapq.heappop(self.events)
            happens[kind](worker)
            if until_changed and self.now > self.load.request_seconds and self.changed():
                return

    def _arrives(self, worker: int) -> None:
        self.sources += 1
        self._put(worker, -1, Item(self.now, self.sources, self.workers[worker].tagging))
        self._next_arrival(worker)

    def _asked(self, _: int) -> None:
        self.backlog = max(map(self._backlog, range(len(self.workers))), default=0.0)
        for told in self.wiring.told:
            self._at(self.now + self.load.control_seconds, TOLD, told)

    # -- time and chance

    def _at(self, when: float, kind: int, worker: int) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, kind, worker))

    def _next_arrival(self, worker: int) -> None:
        """At random moments, as many a second as the rate of the moment says."""
        operator, _ = self.wiring.workers[worker]
        rate = next(
            (rate for since, rate in reversed(self.load.rates[operator.name]) if since <= self.now),
            0.0,
        )
        if rate > 0:
            when = self.now - math.log(1.0 - self.chance.random()) * operator.workers / rate
            if when < self.load.seconds:
                self._at(when, ARRIVES, worker)

    # -- data

    def _put(self, worker: int, channel: int, item: Item | None) -> None:
        if item is not None and not item.version:
            self.old += 1
        self.workers[worker].queue.append((channel, item))
        if self.workers[worker].busy is None:
            self._work(worker)

    def _work(self, number: int) -> None:
        """Take items until one is data: that one takes time."""
        worker = self.workers[number]
        while worker.queue and worker.busy is None:
            channel, item = worker.queue.popleft()
            if channel in worker.heard and not worker.passed:
                worker.held.append((channel, item))
            elif item is None:
                self._hear_marker(number, channel)
            else:
                worker.busy = item
                self._at(self.now + self._cost(number, item), DONE, number)

    def _cost(self, number: int, item: Item) -> float:
        new = item.version if self.versions else self.workers[number].passed
        return (self.costs_after if new and number in self.wiring.changing else self.costs)[number]

    def _finish(self, number: int) -> None:
        worker = self.workers[number]
        item, worker.busy = worker.busy, None
        assert item is not None, "finished nothing"
        self.processed += 1
        self._send(number, item)
        if not item.version:
            self.old -= 1
            if self.versions and number in self.wiring.changing and worker.passed:
                self.through[number] = self.now
        if worker.told:
            worker.told = False
            self._pass(number)
        if worker.busy is None:
            self._work(number)

    def _send(self, number: int, item: Item) -> None:
        (operator, _), edges = self.wiring.workers[number], self.wiring.outs[number]
        if not edges or operator.kind == "blocking":
            self.latencies.append((self.now, self.now - item.born))
            return
        if operator.unique:
            if (operator.name, item.source) in self.let_by:
                return
            self.let_by.add((operator.name, item.source))
        if operator.kind == "one-to-one" or operator.unique:
            edges = (edges[int(self.chance.random() * len(edges))],) if len(edges) > 1 else edges
        for edge in edges:
            for channel in self._chosen(edge):
                self._put(self.wiring.channels[channel].receiver, channel, item)

    def _chosen(self, edge: tuple[int, ...]) -> tuple[int, ...]:
        if len(edge) == 1 or self.wiring.channels[edge[0]].edge.way == "broadcast":
            return edge
        share, left = (
            self.load.shares.get(self.wiring.channels[edge[0]].edge.downstream),
            self.chance.random(),
        )
        if share is None:
            return (edge[int(left * len(edge))],)
        for channel, part in zip(edge, share, strict=True):
            left -= part
            if left < 0:
                return (channel,)
        return edge[-1:]

    # -- control

    def _hear_control(self, number: int) -> None:
        worker = self.workers[number]
        if self.versions and number in self.wiring.tagging and self._installed():
            worker.tagging = 1
        if worker.passed or number not in self.wiring.told:
            return
        if worker.busy is None:
            self._pass(number)
        else:
            worker.told = True  # the tuple at hand first

    def _hear_marker(self, number: int, channel: int) -> None:
        worker = self.workers[number]
        worker.heard.add(channel)
        if len(worker.heard) == len(self.wiring.awaited[number]):
            self._pass(number)

    def _pass(self, number: int) -> None:
        """Through: the new function from here on, markers to whom it concerns, and what was held
        back first.
        """
        worker = self.workers[number]
        worker.passed = True
        self.through[number] = self.now
        worker.queue.extendleft(reversed(worker.held))
        worker.held.clear()
        for channel in self.wiring.marking[number]:
            self._put(self.wiring.channels[channel].receiver, channel, None)
        if self.versions and self._installed():
            for (
                source
            ) in self.wiring.tagging:  # told once the last target has said that it is ready
                self._at(self.now + 2 * self.load.control_seconds, TOLD, source)
        if worker.busy is None:
            self._work(number)

    def _installed(self) -> bool:
        return all(self.workers[number].passed for number in self.wiring.changing)

    def changed(self) -> bool:
        if not self._installed():
            return False
        return not self.versions or (
            not self.old and all(self.workers[one].tagging for one in self.wiring.tagging)
        )

    def _backlog(self, number: int) -> float:
        return len(self.workers[number].queue) * self.costs[number]


def simulate(schedule: Schedule, load: Load, chance: Chance, *, until_changed: bool = False) -> Run:
    """Everything that happens, to the last tuple, or until the change is done."""
    world = _Simulation(schedule, load, chance)
    world.run(until_changed=until_changed)
    assert world.changed(), "a target is still to change when nothing is under way any more"
    places = ((world.wiring.workers[number], when) for number, when in world.through.items())
    return Run(
        through={(operator.name, i): when - load.request_seconds for (operator, i), when in places},
        targets=schedule.targets,
        latencies=tuple(world.latencies),
        backlog_seconds=world.backlog,
        processed=world.processed,
    )
