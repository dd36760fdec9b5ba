"""How long a schedule takes: tuples, queues, costs, control messages and markers, event by event.

    Load      how many tuples sources read, what one costs at each operator before and after the
              change, how unevenly keys fall on workers, how long a control message takes, when the
              change is requested
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from stateshift.dataflow.schedulers import Schedule
from stateshift.dataflow.wiring import Wiring, wired
from stateshift.specification.dataflow.operators import Operator


class Chance(Protocol):
    """The one method of `random.Random` that is needed."""

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
        of_targets = [seconds for at, seconds in self.through.items() if at[0] in self.targets]
        return max(of_targets)


class Item(NamedTuple):
    """A tuple on its way: `born` is in seconds, `source` numbers its source tuple, and a `version`
    other than 0 marks it for the new functions.
    """

    born: float
    source: int
    version: int


@dataclass(slots=True)
class _Worker:
    queue: deque[tuple[int, Item | None]] = field(default_factory=deque)
    held: list[tuple[int, Item | None]] = field(default_factory=list)
    heard: set[int] = field(default_factory=set)
    busy: Item | None = None
    has_message: bool = False  # a control message waits for the tuple at hand
    passed: bool = False
    tagging: int = 0

    def holds_back(self, channel: int) -> bool:
        """Whether what comes along a channel waits for the markers of the others."""
        return channel in self.heard and not self.passed


def _cost_of_each(wiring: Wiring, costs: Mapping[str, float]) -> list[float]:
    """Return what a tuple costs at each worker."""
    return [costs.get(operator.name, 0.0) for operator, _ in wiring.workers]


ARRIVES, DONE, CONTROLLED, REQUESTED = range(4)


class _Simulation:
    """The world between two events."""

    def __init__(self, schedule: Schedule, load: Load, chance: Chance) -> None:
        self.wiring: Wiring = wired(schedule)
        self.load, self.chance, self.versions = load, chance, bool(schedule.tagging)
        self.workers = [_Worker() for _ in self.wiring.workers]
        self.costs = _cost_of_each(self.wiring, load.costs)
        self.costs_after = _cost_of_each(self.wiring, {**load.costs, **load.costs_after})
        self.events: list[tuple[float, int, int, int]] = []
        self.count = self.sources = self.processed = self.old = 0
        self.now = self.backlog = 0.0
        self.let_by: set[tuple[str, int]] = set()
        self.through: dict[int, float] = {}
        self.latencies: list[tuple[float, float]] = []

    def run(self, *, until_changed: bool) -> None:
        self._begin()
        handlers = (self._arrives, self._finish, self._hear_control, self._requested)
        while self.events:
            self.now, _, kind, worker = heapq.heappop(self.events)
            handlers[kind](worker)
            if until_changed and self._is_over():
                return

    def _begin(self) -> None:
        for name in self.load.rates:
            for worker in self.wiring.of(name):
                self._next_arrival(worker)
        self._at(self.load.request_seconds, REQUESTED, 0)

    def _arrives(self, worker: int) -> None:
        self.sources += 1
        self._put(worker, -1, Item(self.now, self.sources, self.workers[worker].tagging))
        self._next_arrival(worker)

    def _requested(self, _: int) -> None:
        self.backlog = max(map(self._backlog, range(len(self.workers))), default=0.0)
        for head in self.wiring.heads:
            self._at(self.now + self.load.control_seconds, CONTROLLED, head)

    # -- time and chance

    def _at(self, when: float, kind: int, worker: int) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, kind, worker))

    def _next_arrival(self, worker: int) -> None:
        """Let a tuple arrive at a random moment, as many a second as the rate of now says."""
        operator, _ = self.wiring.workers[worker]
        rate = self._rate(operator.name)
        if rate <= 0:
            return
        when = self.now - math.log(1.0 - self.chance.random()) * operator.workers / rate
        if when < self.load.seconds:
            self._at(when, ARRIVES, worker)

    def _rate(self, name: str) -> float:
        for since, rate in reversed(self.load.rates[name]):
            if since <= self.now:
                return rate
        return 0.0

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
            self._take(number, *worker.queue.popleft())

    def _take(self, number: int, channel: int, item: Item | None) -> None:
        worker = self.workers[number]
        if worker.holds_back(channel):
            worker.held.append((channel, item))
        elif item is None:
            self._hear_marker(number, channel)
        else:
            worker.busy = item
            self._at(self.now + self._cost(number, item), DONE, number)

    def _cost(self, number: int, item: Item) -> float:
        if number not in self.wiring.changing:
            return self.costs[number]
        is_new = item.version if self.versions else self.workers[number].passed
        return self.costs_after[number] if is_new else self.costs[number]

    def _finish(self, number: int) -> None:
        worker = self.workers[number]
        item, worker.busy = worker.busy, None
        assert item is not None, "finished nothing"
        self.processed += 1
        self._send(number, item)
        if not item.version:
            self._old_is_done(number)
        if worker.has_message:
            worker.has_message = False
            self._pass(number)
        if worker.busy is None:
            self._work(number)

    def _old_is_done(self, number: int) -> None:
        """Count a tuple of the old version less; a target is through with the last one it meets."""
        self.old -= 1
        is_changing = self.versions and number in self.wiring.changing
        if is_changing and self.workers[number].passed:
            self.through[number] = self.now

    def _send(self, number: int, item: Item) -> None:
        operator, _ = self.wiring.workers[number]
        if not self.wiring.outs[number] or operator.kind == "blocking":
            self.latencies.append((self.now, self.now - item.born))
            return
        for channel in self._channels_taken(number, item):
            self._put(self.wiring.channels[channel].receiver, channel, item)

    def _channels_taken(self, number: int, item: Item) -> Iterator[int]:
        """Yield the channels along which a worker sends what it makes of a tuple."""
        operator, _ = self.wiring.workers[number]
        if operator.unique and self._was_let_by(operator.name, item.source):
            return
        for edge in self._edges_taken(operator, self.wiring.outs[number]):
            yield from self._chosen(edge)

    def _edges_taken(
        self, operator: Operator, edges: tuple[tuple[int, ...], ...]
    ) -> tuple[tuple[int, ...], ...]:
        takes_one = operator.unique or operator.kind == "one-to-one"
        if len(edges) == 1 or not takes_one:
            return edges
        return (edges[int(self.chance.random() * len(edges))],)

    def _was_let_by(self, name: str, source: int) -> bool:
        """Whether a unique operator has let a tuple of this source tuple by; it has from now on."""
        passage = (name, source)
        if passage in self.let_by:
            return True
        self.let_by.add(passage)
        return False

    def _chosen(self, channels: tuple[int, ...]) -> tuple[int, ...]:
        """Return the channels of an edge that a tuple takes: all of a broadcast, else one."""
        edge = self.wiring.channels[channels[0]].edge
        if len(channels) == 1 or edge.way == "broadcast":
            return channels
        shares = self.load.shares.get(edge.downstream)
        drawn = self.chance.random()
        if shares is None:
            return (channels[int(drawn * len(channels))],)
        return (_channel_at(drawn, channels, shares),)

    # -- control

    def _hear_control(self, number: int) -> None:
        worker = self.workers[number]
        if self.versions and number in self.wiring.tagging and self._installed():
            worker.tagging = 1
        if number in self.wiring.heads and not worker.passed:
            self._pass_soon(number)

    def _pass_soon(self, number: int) -> None:
        """Pass at once, or when the tuple at hand is done."""
        worker = self.workers[number]
        if worker.busy is None:
            self._pass(number)
        else:
            worker.has_message = True

    def _hear_marker(self, number: int, channel: int) -> None:
        worker = self.workers[number]
        worker.heard.add(channel)
        if len(worker.heard) == len(self.wiring.awaited[number]):
            self._pass(number)

    def _pass(self, number: int) -> None:
        """Take the new function from here on, send markers on, and first do what was held back."""
        worker = self.workers[number]
        worker.passed = True
        self.through[number] = self.now
        worker.queue.extendleft(reversed(worker.held))
        worker.held.clear()
        for channel in self.wiring.marking[number]:
            self._put(self.wiring.channels[channel].receiver, channel, None)
        if self.versions:
            self._ask_sources()
        if worker.busy is None:
            self._work(number)

    def _ask_sources(self) -> None:
        """Send sources their message once the last target has said that it is ready."""
        if not self._installed():
            return
        when = self.now + 2 * self.load.control_seconds
        for source in self.wiring.tagging:
            self._at(when, CONTROLLED, source)

    def _installed(self) -> bool:
        return all(self.workers[number].passed for number in self.wiring.changing)

    def _is_over(self) -> bool:
        return self.now > self.load.request_seconds and self.changed()

    def changed(self) -> bool:
        """Whether no target uses its old function any more, nor will."""
        if not self._installed():
            return False
        if not self.versions:
            return True
        return not self.old and all(self.workers[one].tagging for one in self.wiring.tagging)

    def _backlog(self, number: int) -> float:
        return len(self.workers[number].queue) * self.costs[number]


def _channel_at(drawn: float, channels: Sequence[int], shares: Sequence[float]) -> int:
    """Return the channel in whose share of the keys a number from 0 to 1 lies."""
    left = drawn
    for channel, share in zip(channels, shares, strict=True):
        left -= share
        if left < 0:
            return channel
    return channels[-1]


def simulate(schedule: Schedule, load: Load, chance: Chance, *, until_changed: bool = False) -> Run:
    """Return what happens, to the last tuple, or until the change is done."""
    world = _Simulation(schedule, load, chance)
    world.run(until_changed=until_changed)
    assert world.changed(), "a target is still to change when nothing is under way any more"
    through = {}
    for number, when in world.through.items():
        operator, i = world.wiring.workers[number]
        through[operator.name, i] = when - load.request_seconds
    return Run(
        through=through,
        targets=schedule.targets,
        latencies=tuple(world.latencies),
        backlog_seconds=world.backlog,
        processed=world.processed,
    )
