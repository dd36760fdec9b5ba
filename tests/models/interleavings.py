"""The protocol as a machine of states and steps, small enough that all interleavings of a small
dataflow can be seen.

    State  what is in the channels; who has its message, has heard which markers, and has changed;
           what is still to come; and for each source tuple whether a target has met it before its
           change, after it, or both
    steps  what may happen next, each with the operations it is recorded as:
             a head's control message arrives (it overtakes all data)
             a source tuple arrives at a source, or a blocking operator sends one
             a worker takes the first item of a channel that is not waiting for other markers
             a source begins to ask for the new version, once all targets have it (multi-version)

    explore  all that can happen to some source tuples, or until one of them is met both before and
             after
    walk     one thing that can happen, chosen by chance

An operator does the most its kind allows: a one-to-one operator chooses an edge, a one-to-many
operator uses all of them, twice where nothing forbids it. To send less is never worse: what was not
sent meets nobody. Where nothing leads to a target, nothing is modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations_with_replacement, compress, product
from typing import NamedTuple, Protocol, TypeVar

from stateshift.dataflow.components import Component
from stateshift.dataflow.schedulers import Schedule
from stateshift.dataflow.simulation import Wiring, wire
from stateshift.specification.dataflow.graph import graph_of, reachable
from stateshift.specification.dataflow.operators import Dataflow
from tests.models.history import Data, Operation, Update

T = TypeVar("T")

OLD, NEW = 1, 2
MARK = (-1, 0)
Item = tuple[int, int]  # which source tuple it was made of, and the version it asks for


class Chance(Protocol):
    """What of `random.Random` is needed."""

    def randrange(self, stop: int) -> int: ...


class State(NamedTuple):
    """Sets of workers, channels and tuples are bits of a number."""

    queues: tuple[tuple[Item, ...], ...]
    reached: int
    heard: int
    passed: int
    tagging: int
    fresh: int
    let_by: frozenset[tuple[str, int]]
    met: tuple[int, ...]


Step = tuple[tuple[Operation, ...], State]


@dataclass(frozen=True)
class Machine:
    """A schedule at work on source tuples, each born at one operator: `origins[k]` is where
    tuple k is.
    """

    schedule: Schedule
    origins: tuple[str, ...]

    @cached_property
    def wiring(self) -> Wiring:
        return wire(trimmed(self.schedule))

    @property
    def start(self) -> State:
        wiring = self.wiring
        return State(
            ((),) * len(wiring.channels),
            0,
            0,
            0,
            0,
            (1 << len(self.origins)) - 1,
            frozenset(),
            (0,) * len(self.origins),
        )

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._messages(state)
        yield from self._new_versions(state)
        yield from self._births(state)
        yield from self._deliveries(state)

    def _messages(self, state: State) -> Iterator[Step]:
        """Yield the arrival of each head's control message."""
        for worker in self.wiring.heads:
            if not _has(state.reached, worker):
                yield self._pass(state._replace(reached=state.reached | 1 << worker), worker)

    def _new_versions(self, state: State) -> Iterator[Step]:
        """Yield each source's first request for the new version, once all targets have it."""
        if not changed(self, state):
            return
        for worker in self.wiring.tagging:
            if not _has(state.tagging, worker):
                yield (), state._replace(tagging=state.tagging | 1 << worker)

    def _births(self, state: State) -> Iterator[Step]:
        for number, origin in enumerate(self.origins):
            if _has(state.fresh, number):
                left = state._replace(fresh=state.fresh & ~(1 << number))
                for worker in self.wiring.of(origin):
                    version = int(_has(state.tagging, worker))
                    yield from self._born(left, worker, (number, version))

    def _born(self, state: State, worker: int, item: Item) -> Iterator[Step]:
        """Process a tuple at a source; send on what a blocking operator has processed already."""
        if self.wiring.workers[worker][0].kind != "blocking":
            yield from self._processed(state, worker, item)
            return
        for channel in chain.from_iterable(self.wiring.outs[worker]):
            yield (), _sent(state, (channel,), item)

    def _deliveries(self, state: State) -> Iterator[Step]:
        for number, queue in enumerate(state.queues):
            worker = self.wiring.channels[number].receiver
            # What is behind a marker waits for the worker's other markers.
            waits = _has(state.heard, number) and not _has(state.passed, worker)
            if queue and not waits:
                yield from self._delivered(state, number, worker)

    def _delivered(self, state: State, channel: int, worker: int) -> Iterator[Step]:
        """Take the first item of a channel."""
        first, *left = state.queues[channel]
        taken = state._replace(queues=_with(state.queues, channel, tuple(left)))
        if first == MARK:
            yield self._hear(taken, channel, worker)
        else:
            yield from self._processed(taken, worker, first)

    def _hear(self, state: State, channel: int, worker: int) -> Step:
        state = state._replace(heard=state.heard | 1 << channel)
        if all(_has(state.heard, awaited) for awaited in self.wiring.awaited[worker]):
            return self._pass(state, worker)
        return (), state

    def _pass(self, state: State, worker: int) -> Step:
        """Change a worker, if it is to change, and send its own markers: all that was to be waited
        for is here.
        """
        passed = state._replace(passed=state.passed | 1 << worker)
        state = _sent(passed, self.wiring.marking[worker], MARK)
        if worker not in self.wiring.changing:
            return (), state
        operator, number = self.wiring.workers[worker]
        return (Update(operator.name, number),), state

    def _processed(self, state: State, worker: int, item: Item) -> Iterator[Step]:
        operator, number = self.wiring.workers[worker]
        version = item[1] if self.wiring.tagging else None
        done = (Data(f"t{item[0] + 1}", operator.name, number, version),)
        if worker in self.wiring.changing:
            new = item[1] == 1 if self.wiring.tagging else _has(state.passed, worker)
            met = state.met[item[0]] | (NEW if new else OLD)
            state = state._replace(met=_with(state.met, item[0], met))
        if not operator.unique or operator.kind == "blocking":
            yield from ((done, _sent(state, sending, item)) for sending in self._sendings(worker))
            return
        yield done, state  # nothing yet, or nothing more
        if (operator.name, item[0]) not in state.let_by:
            state = state._replace(let_by=state.let_by | {(operator.name, item[0])})
            for channel in chain.from_iterable(self.wiring.outs[worker]):
                yield done, _sent(state, (channel,), item)

    def _sendings(self, worker: int) -> list[tuple[int, ...]]:
        """Return the channels that what is made of one tuple may take, each possibility with all of
        them.
        """
        if worker not in self._ways_on:
            self._ways_on[worker] = list(_sendings(self.wiring, worker)) or [()]
        return self._ways_on[worker]

    @cached_property
    def _ways_on(self) -> dict[int, list[tuple[int, ...]]]:
        return {}


@dataclass(frozen=True, slots=True)
class Explored:
    """`failing` is a history in which a source tuple is met before and after the change; None where
    there is none. `complete` is False where the limit ended it before all states were seen.
    """

    states: int
    complete: bool
    failing: tuple[Operation, ...] | None


def explore(schedule: Schedule, origins: Sequence[str], *, states_max: int = 200_000) -> Explored:
    """Explore every interleaving of one source tuple for each of `origins`."""
    machine = Machine(schedule, tuple(origins))
    came: dict[State, tuple[State, tuple[Operation, ...]] | None] = {machine.start: None}
    waiting = [machine.start]
    while waiting:
        state = waiting.pop()
        if OLD | NEW in state.met:
            return Explored(len(came), True, (*_way_to(came, state), *_to_the_end(machine, state)))
        for operations, after in machine.steps(state):
            if after not in came:
                if len(came) >= states_max:
                    return Explored(len(came), False, None)
                came[after] = (state, operations)
                waiting.append(after)
    return Explored(len(came), True, None)


def origins_of(schedule: Schedule) -> tuple[str, ...]:
    """Return where the source tuples are born that a change may meet: sources, and what blocking
    operators send.
    """
    kept = trimmed(schedule).dataflow
    sending = {edge.upstream for edge in kept.edges}
    blocking = [operator.name for operator in kept.operators if operator.kind == "blocking"]
    sources = [name for name in kept.sources if name not in blocking]
    return tuple(dict.fromkeys([*sources, *(name for name in blocking if name in sending)]))


def trimmed(schedule: Schedule) -> Schedule:
    """Return the schedule without what is not upstream of a target: no change can meet what happens
    there.
    """
    dataflow = schedule.dataflow
    graph = graph_of(dataflow)
    above = reachable(graph.before, graph.numbers(schedule.targets))
    kept = set(compress(graph.names, above))
    return replace(
        schedule,
        dataflow=_trimmed_dataflow(dataflow, kept),
        components=tuple(_trimmed_component(part, kept) for part in schedule.components),
        tagging=tuple(name for name in schedule.tagging if name in kept),
    )


def _trimmed_dataflow(dataflow: Dataflow, kept: set[str]) -> Dataflow:
    operators = tuple(operator for operator in dataflow.operators if operator.name in kept)
    edges = tuple(edge for edge in dataflow.edges if edge.downstream in kept)
    return replace(dataflow, operators=operators, edges=edges)


def _trimmed_component(component: Component, kept: set[str]) -> Component:
    return Component(
        operators=tuple(name for name in component.operators if name in kept),
        edges=tuple(edge for edge in component.edges if edge[1] in kept),
        heads=tuple(name for name in component.heads if name in kept),
    )


def walk(machine: Machine, chance: Chance) -> tuple[tuple[Operation, ...], State]:
    """Return one thing that can happen, to its end: when nothing is under way, every target has
    changed.
    """
    state = machine.start
    history: list[Operation] = []
    while steps := list(machine.steps(state)):
        operations, state = steps[chance.randrange(len(steps))]
        history += operations
    return tuple(history), state


def changed(machine: Machine, state: State) -> bool:
    """Whether every worker of every target has its new function."""
    return all(_has(state.passed, worker) for worker in machine.wiring.changing)


def _has(bits: int, number: int) -> bool:
    """Whether a set has this member."""
    return bits >> number & 1 == 1


def _sendings(wiring: Wiring, worker: int) -> Iterator[tuple[int, ...]]:
    operator, edges = wiring.workers[worker][0], wiring.outs[worker]
    match operator.kind:
        case "blocking":
            return
        case "one-to-one":
            for channel in chain.from_iterable(edges):
                yield (channel,)
        case "one-to-many":
            choices = [list(_on_one_edge(wiring, edge)) for edge in edges]
            for chosen in filter(None, product(*choices)):
                yield tuple(chain.from_iterable(chosen))


def _on_one_edge(wiring: Wiring, edge: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    known = wiring.channels[edge[0]].edge
    if known.way == "broadcast" and len(edge) > 1:
        return (edge,)
    return combinations_with_replacement(edge, 1 if known.one_per_tuple else 2)


def _sent(state: State, channels: Iterable[int], item: Item) -> State:
    queues = list(state.queues)
    for channel in channels:
        queues[channel] = (*queues[channel], item)
    return state._replace(queues=tuple(queues))


def _with(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _way_to(
    came: dict[State, tuple[State, tuple[Operation, ...]] | None], state: State
) -> tuple[Operation, ...]:
    parts: list[tuple[Operation, ...]] = []
    while (step := came[state]) is not None:
        state, operations = step
        parts.append(operations)
    return tuple(chain.from_iterable(reversed(parts)))


def _to_the_end(machine: Machine, state: State) -> tuple[Operation, ...]:
    """Return what is still under way, in any order: a change that is not in the history cannot
    conflict.
    """
    history: list[Operation] = []
    while (step := next(machine.steps(state), None)) is not None:
        operations, state = step
        history += operations
    return tuple(history)
