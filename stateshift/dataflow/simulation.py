"""The time that a schedule takes: tuples, queues, costs, control messages and markers, event by
event.

    Load      the tuples that sources read, their cost at each operator before and after the change,
              the shares of keys on workers, the time of a control message and of the request
    simulate  -> Run: the time at which each worker was through, the queues, and the time of tuples
              to the sinks

A worker takes one item at a time, in the order of arrival, but for channels that wait for markers.
A control message overtakes the queue, not the tuple that is being processed. Sending takes no time.
A one-to-one operator chooses one of its edges by chance, a one-to-many operator sends one tuple
along each. Blocking operators would send once their input has ended: that is not simulated.

The *delay* of a reconfiguration is the time from the request until no target uses its old function
any more (F-3). The same load and chance give the same run.

The wiring of a schedule has its workers, the channels between them, and the way of the markers:

    worker   one of an operator's workers, by number
    channel  from one worker to another, first in, first out; of one edge
    outs     for each worker and each of its edges, the channels between which a tuple's key decides

A forward edge between operators of as many workers leads from each to its twin; any other leads
from all to all. The model checks, and the simulator measures, the same wiring.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple, Protocol

from stateshift.dataflow.schedulers import Schedule
from stateshift.specification.dataflow.operators import DataflowOperator, Edge


@dataclass(frozen=True, slots=True)
class Channel:
    """A queue from one worker to another, first in, first out."""

    edge: Edge
    sender: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Wiring:
    """`awaited`: channels whose markers a worker waits for; `marking`: those it marks. `heads` get
    a control message, `changing` a new function, `tagging` name the version.
    """

    workers: tuple[tuple[DataflowOperator, int], ...]
    channels: tuple[Channel, ...]
    outs: tuple[tuple[tuple[int, ...], ...], ...]
    awaited: tuple[tuple[int, ...], ...]
    marking: tuple[tuple[int, ...], ...]
    heads: tuple[int, ...]
    changing: frozenset[int]
    tagging: tuple[int, ...]

    def of(self, name: str) -> tuple[int, ...]:
        """Return the numbers of an operator's workers."""
        numbers = range(len(self.workers))
        return tuple(number for number in numbers if self.workers[number][0].name == name)


def wire(schedule: Schedule) -> Wiring:
    """Return the workers of a schedule, and the channels between them."""
    dataflow = schedule.dataflow
    workers: list[tuple[DataflowOperator, int]] = []
    numbers: dict[str, list[int]] = {}
    for operator in dataflow.operators:
        first = len(workers)
        workers += [(operator, i) for i in range(operator.workers)]
        numbers[operator.name] = list(range(first, len(workers)))
    channels: list[Channel] = []
    outs: list[list[tuple[int, ...]]] = [[] for _ in workers]
    for edge in dataflow.edges:
        senders, receivers = numbers[edge.upstream], numbers[edge.downstream]
        has_twins = edge.way == "forward" and len(senders) == len(receivers)
        for place, sender in enumerate(senders):
            first = len(channels)
            sent_to = [receivers[place]] if has_twins else receivers
            channels += [Channel(edge, sender, receiver) for receiver in sent_to]
            outs[sender].append(tuple(range(first, len(channels))))
    with_markers = schedule.edges
    awaited: list[list[int]] = [[] for _ in workers]
    marking: list[list[int]] = [[] for _ in workers]
    for number, channel in enumerate(channels):
        if channel.edge.ends in with_markers:
            marking[channel.sender].append(number)
            awaited[channel.receiver].append(number)
    return Wiring(
        workers=tuple(workers),
        channels=tuple(channels),
        outs=tuple(map(tuple, outs)),
        awaited=tuple(map(tuple, awaited)),
        marking=tuple(map(tuple, marking)),
        heads=_workers_of(schedule.heads, numbers),
        changing=frozenset(_workers_of(schedule.targets, numbers)),
        tagging=_workers_of(schedule.tagging, numbers),
    )


def _workers_of(names: Iterable[str], numbers: Mapping[str, list[int]]) -> tuple[int, ...]:
    return tuple(chain.from_iterable(numbers[name] for name in names))


class Chance(Protocol):
    """The one method of `random.Random` that is needed."""

    def random(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Load:
    """`rates` are steps of (from this second on, tuples a second). Keys are even."""

    rates: Mapping[str, tuple[tuple[float, float], ...]]
    costs: Mapping[str, float]
    request_seconds: float
    seconds: float
    costs_after: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    control_seconds: float = 0.002


@dataclass(frozen=True, slots=True)
class Run:
    """`through`: seconds until a worker was through. `latencies`: (when, how long) of each tuple.
    `backlog_seconds`: the slowest worker's queue at the request.
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
    """A tuple: `born` in seconds, `source` its source tuple, `version` not 0 for new functions."""

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


def _cost_of_each(wiring: Wiring, costs: Mapping[str, float]) -> list[float]:
    """Return the cost of a tuple at each worker."""
    return [costs.get(operator.name, 0.0) for operator, _ in wiring.workers]


Kind = Literal["arrives", "done", "controlled", "requested"]


class _Simulation:
    """The world between two events."""

    def __init__(self, schedule: Schedule, load: Load, chance: Chance) -> None:
        self.wiring: Wiring = wire(schedule)
        self.load, self.chance, self.versions = load, chance, bool(schedule.tagging)
        self.workers = [_Worker() for _ in self.wiring.workers]
        self.costs = _cost_of_each(self.wiring, load.costs)
        self.costs_after = _cost_of_each(self.wiring, {**load.costs, **load.costs_after})
        self.events: list[tuple[float, int, Kind, int]] = []
        self.count = self.sources = self.processed = self.old = 0
        self.now = self.backlog = 0.0
        self.let_by: set[tuple[str, int]] = set()  # unique operators, each with a source tuple
        self.through: dict[int, float] = {}
        self.latencies: list[tuple[float, float]] = []

    def run(self, *, until_changed: bool) -> None:
        for name in self.load.rates:
            for worker in self.wiring.of(name):
                self._next_arrival(worker)
        self._at(self.load.request_seconds, "requested", 0)
        while self.events:
            self.now, _, kind, worker = heapq.heappop(self.events)
            match kind:
                case "arrives":
                    self.sources += 1
                    item = Item(self.now, self.sources, self.workers[worker].tagging)
                    self._put(worker, -1, item)
                    self._next_arrival(worker)
                case "done":
                    self._finish(worker)
                case "controlled":
                    self._hear_control(worker)
                case "requested":
                    self._request()
            if until_changed and self.now > self.load.request_seconds and self.changed():
                return

    def _request(self) -> None:
        queues = [len(worker.queue) for worker in self.workers]
        backlogs = [count * cost for count, cost in zip(queues, self.costs, strict=True)]
        self.backlog = max(backlogs, default=0.0)
        for head in self.wiring.heads:
            self._at(self.now + self.load.control_seconds, "controlled", head)

    # -- time and chance

    def _at(self, when: float, kind: Kind, worker: int) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, kind, worker))

    def _next_arrival(self, worker: int) -> None:
        """Let a tuple arrive at a random moment, as many a second as the rate of now says."""
        operator, _ = self.wiring.workers[worker]
        rate = 0.0
        for since, tuples in self.load.rates[operator.name]:
            if since <= self.now:
                rate = tuples
        if rate <= 0:
            return
        when = self.now - math.log(1.0 - self.chance.random()) * operator.workers / rate
        if when < self.load.seconds:
            self._at(when, "arrives", worker)

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
                worker.heard.add(channel)
                if len(worker.heard) == len(self.wiring.awaited[number]):
                    self._pass(number)
            else:
                worker.busy = item
                is_new = item.version if self.versions else worker.passed
                costs = self.costs
                if is_new and number in self.wiring.changing:
                    costs = self.costs_after
                self._at(self.now + costs[number], "done", number)

    def _finish(self, number: int) -> None:
        worker = self.workers[number]
        item, worker.busy = worker.busy, None
        assert item is not None, "finished nothing"
        self.processed += 1
        self._send(number, item)
        if not item.version:
            self.old -= 1
            # A target is through with the last tuple of the old version that it meets.
            if self.versions and number in self.wiring.changing and worker.passed:
                self.through[number] = self.now
        if worker.has_message:
            worker.has_message = False
            self._pass(number)
        if worker.busy is None:
            self._work(number)

    def _send(self, number: int, item: Item) -> None:
        """Send the outputs of a worker for one tuple along the channels that they take."""
        operator, _ = self.wiring.workers[number]
        edges = self.wiring.outs[number]
        if not edges or operator.kind == "blocking":
            self.latencies.append((self.now, self.now - item.born))
            return
        if operator.unique:
            passage = (operator.name, item.source)
            if passage in self.let_by:
                return
            self.let_by.add(passage)
        takes_one = operator.unique or operator.kind == "one-to-one"
        if takes_one and len(edges) > 1:
            edges = (edges[int(self.chance.random() * len(edges))],)
        for edge in edges:
            for channel in self._chosen(edge):
                self._put(self.wiring.channels[channel].receiver, channel, item)

    def _chosen(self, channels: tuple[int, ...]) -> tuple[int, ...]:
        """Return the channels of an edge that a tuple takes: all of a broadcast, else one."""
        edge = self.wiring.channels[channels[0]].edge
        if len(channels) == 1 or edge.way == "broadcast":
            return channels
        shares = self.load.shares.get(edge.downstream)
        drawn = self.chance.random()
        if shares is None:
            return (channels[int(drawn * len(channels))],)
        for channel, share in zip(channels, shares, strict=True):
            drawn -= share
            if drawn < 0:
                return (channel,)
        return channels[-1:]

    # -- control

    def _hear_control(self, number: int) -> None:
        worker = self.workers[number]
        if self.versions and number in self.wiring.tagging and self._installed():
            worker.tagging = 1
        if number not in self.wiring.heads or worker.passed:
            return
        if worker.busy is None:
            self._pass(number)
        else:
            worker.has_message = True

    def _pass(self, number: int) -> None:
        """Take the new function from here on, send markers on, and first do what was held back."""
        worker = self.workers[number]
        worker.passed = True
        self.through[number] = self.now
        worker.queue.extendleft(reversed(worker.held))
        worker.held.clear()
        for channel in self.wiring.marking[number]:
            self._put(self.wiring.channels[channel].receiver, channel, None)
        if self.versions and self._installed():
            # The last target has said that it is ready: the sources get their message.
            for source in self.wiring.tagging:
                self._at(self.now + 2 * self.load.control_seconds, "controlled", source)
        if worker.busy is None:
            self._work(number)

    def _installed(self) -> bool:
        return all(self.workers[number].passed for number in self.wiring.changing)

    def changed(self) -> bool:
        """Whether no target uses its old function any more, nor will."""
        if not self._installed():
            return False
        if not self.versions:
            return True
        return not self.old and all(self.workers[one].tagging for one in self.wiring.tagging)


def simulate(schedule: Schedule, load: Load, chance: Chance, *, until_changed: bool = False) -> Run:
    """Return the run of a schedule, to the last tuple, or until the change is done."""
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
