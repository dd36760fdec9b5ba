"""Changes of functions, checkpoints and failures together: what is asked for, and a small runtime
that carries it out.

    Change           an operator's new function, and what becomes of the state that the old one has
                     kept (F-1)
    Reconfiguration  changes that take effect at one cut, by a schedule; one after the other, never
                     two at a time
    Runtime          operators that read, change, save what they have and fail; `steps` is what may
                     happen next

Checkpoints are aligned, as the engines make them: a marker goes from the sources along every
channel, and a worker that has heard it on one channel takes nothing more from that one until it has
heard it on all, and saved. A failure takes every worker back to the last complete checkpoint, and
the sources read again from there. What was asked for is kept outside (a journal): what the
checkpoint does not have yet, is asked for again (F-17).

A change and a checkpoint must not be under way at the same time, which `careful` sees to. Both are
cuts, and the messages to heads overtake data: where a component has two heads, one may have changed
before its checkpoint and the other may not. Whoever then waits for both markers on two channels
hears them in different orders, and waits for ever; or the checkpoint holds one changed head and one
unchanged, and what is asked for again changes the first one twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, filterfalse
from typing import Any, NamedTuple, TypeAlias, TypeVar

from stateshift.dataflow.schedulers import Schedule
from stateshift.dataflow.simulation import Wiring, wire
from stateshift.errors import Complaint, SpecError

T = TypeVar("T")

# What an operator keeps: a value of its own kind.
Kept: TypeAlias = Any
Function = Callable[[Kept, int], Hashable]  # the state before, a tuple; the state after
# What a checkpoint has: what each worker keeps and has been through, what was read, what is done.
Saved: TypeAlias = tuple[Any, ...]
CHANGE, SAVE = -1, -2
HINT = "one change for each operator that the schedule is for"


@dataclass(frozen=True, slots=True)
class Change:
    """An operator's new function, and what becomes of the state that the old one has kept."""

    operator: str
    function: Function
    transform: Callable[[Kept], Hashable] = lambda state: state


@dataclass(frozen=True)
class Reconfiguration:
    """Changes that take effect at one cut, by a schedule."""

    schedule: Schedule
    changes: tuple[Change, ...]

    def __post_init__(self) -> None:
        facts = list(self._faults())
        if facts:
            raise SpecError(tuple(Complaint("/changes", fact) for fact in facts), hint=HINT)

    def _faults(self) -> Iterator[str]:
        schedule = self.schedule
        yield from self._mismatches()
        for operator in schedule.dataflow.operators:
            if operator.kind == "blocking":
                yield (
                    f"{operator.name!r} is blocking: what comes before it and what comes after "
                    "change each on its own"
                )
        if schedule.tagging:
            yield "tuples that say which function is meant: no worker keeps both"

    def _mismatches(self) -> Iterator[str]:
        """Yield where the changes are not one for each target."""
        changes = Counter(change.operator for change in self.changes)
        targets = self.schedule.targets
        for name in (name for name, count in changes.items() if count > 1):
            yield f"{name!r} is to change twice"
        for name in filterfalse(targets.__contains__, changes.elements()):
            yield f"{name!r} is no target of the schedule"
        for name in filterfalse(changes.__contains__, targets):
            yield f"{name!r} is a target, and has no change"


class Worker(NamedTuple):
    """`taken` counts the reconfigurations that it is through with; `heard` and `held` are the
    channels on which the markers of the next one, and those of the checkpoint under way, have come.
    """

    keeps: Hashable = ()
    taken: int = 0
    reached: bool = False
    heard: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    saved: bool = False


class State(NamedTuple):
    """`done` counts reconfigurations that are complete, `asked` says that the next one is under
    way. `kept` is what the last complete checkpoint has of each worker, `saving` what the one under
    way has so far.
    """

    queues: tuple[tuple[int, ...], ...]
    workers: tuple[Worker, ...]
    read: tuple[int, ...]
    done: int
    asked: bool
    kept: Saved
    saving: Saved | None
    checkpoints: int
    failures: int


@dataclass(frozen=True)
class Runtime:
    """`tuples` are read by the sources in turn. `functions` are the first ones; an operator without
    one keeps nothing. Which way a tuple takes follows from it, so that what is read again goes the
    same way. A one-to-many operator sends along all of its edges, whatever else is said of it.
    """

    reconfigurations: Sequence[Reconfiguration]
    tuples: int
    functions: Mapping[str, Function] = field(default_factory=dict)
    checkpoints: int = 1
    failures: int = 1
    careful: bool = True

    @cached_property
    def wirings(self) -> tuple[Wiring, ...]:
        return tuple(wire(change.schedule) for change in self.reconfigurations)

    @cached_property
    def sources(self) -> tuple[int, ...]:
        fed = {channel.receiver for channel in self.wirings[0].channels}
        return tuple(number for number in range(len(self.wirings[0].workers)) if number not in fed)

    @property
    def start(self) -> State:
        wiring = self.wirings[0]
        workers = tuple(Worker() for _ in wiring.workers)
        read = tuple(0 for _ in self.sources)
        kept = (tuple((worker.keeps, worker.taken) for worker in workers), read, 0)
        return State(
            ((),) * len(wiring.channels),
            workers,
            read,
            0,
            False,
            kept,
            None,
            self.checkpoints,
            self.failures,
        )

    def steps(self, state: State) -> Iterator[State]:
        yield from self._asked(state)
        yield from self._reads(state)
        yield from self._delivered(state)
        if state.failures:
            yield self._failed(state)

    # -- what the coordinator does

    def _asked(self, state: State) -> Iterator[State]:
        if state.asked:
            yield from self._messages(state)
        elif self._may_ask(state):
            yield state._replace(asked=True)
        if state.saving is not None:
            yield from self._sources_saved(state)
        elif self._may_save(state):
            yield state._replace(saving=((None,) * len(state.workers), state.read, state.done))

    def _may_ask(self, state: State) -> bool:
        is_saving = state.saving is not None
        if is_saving and self.careful:
            return False
        return state.done < len(self.reconfigurations)

    def _may_save(self, state: State) -> bool:
        if state.asked and self.careful:
            return False
        return state.checkpoints > 0

    def _messages(self, state: State) -> Iterator[State]:
        """Yield the arrival of each head's control message."""
        for worker in self.wirings[state.done].heads:
            if not state.workers[worker].reached:
                yield self._passed(_with(state, worker, reached=True), worker)

    def _sources_saved(self, state: State) -> Iterator[State]:
        """Yield the beginning of a checkpoint at each source."""
        for source in self.sources:
            if not state.workers[source].saved:
                yield self._saved(state, source)

    def _failed(self, state: State) -> State:
        workers, read, done = state.kept
        return state._replace(
            queues=((),) * len(state.queues),
            workers=tuple(Worker(keeps, taken) for keeps, taken in workers),
            read=read,
            done=done,
            asked=False,
            saving=None,
            failures=state.failures - 1,
        )

    # -- what workers do

    def _reads(self, state: State) -> Iterator[State]:
        for place, source in enumerate(self.sources):
            number = state.read[place] * len(self.sources) + place
            if number < self.tuples:
                read = _at(state.read, place, state.read[place] + 1)
                yield self._processed(state._replace(read=read), source, number)

    def _delivered(self, state: State) -> Iterator[State]:
        for number, queue in enumerate(state.queues):
            receiver = self.wirings[0].channels[number].receiver
            worker = state.workers[receiver]
            if not queue or number in worker.heard or number in worker.held:
                continue
            left = state._replace(queues=_at(state.queues, number, queue[1:]))
            if queue[0] == CHANGE:
                yield self._heard_change(left, number, receiver)
            elif queue[0] == SAVE:
                yield self._heard_save(left, number, receiver)
            else:
                yield self._processed(left, receiver, queue[0])

    def _heard_change(self, state: State, channel: int, receiver: int) -> State:
        if not state.asked:
            return state  # of one that a careless checkpoint takes for complete
        heard = state.workers[receiver].heard | {channel}
        return self._passed(_with(state, receiver, heard=heard), receiver)

    def _heard_save(self, state: State, channel: int, receiver: int) -> State:
        held = state.workers[receiver].held | {channel}
        state = _with(state, receiver, held=held)
        return self._saved(state, receiver) if held >= self._into(receiver) else state

    def _into(self, receiver: int) -> set[int]:
        """Return the numbers of all channels to a worker."""
        channels = enumerate(self.wirings[0].channels)
        return {number for number, channel in channels if channel.receiver == receiver}

    def _processed(self, state: State, worker: int, number: int) -> State:
        operator = self.wirings[0].workers[worker][0]
        function = self._function(operator.name, state.workers[worker].taken)
        if function is not None:
            state = _with(state, worker, keeps=function(state.workers[worker].keeps, number))
        edges = self.wirings[0].outs[worker]
        if edges and operator.kind != "one-to-many":
            edges = (edges[number % len(edges)],)
        channels: list[int] = []
        for edge in edges:
            channels += self._chosen(edge, number)
        return _sent(state, channels, number)

    def _chosen(self, edge: tuple[int, ...], number: int) -> tuple[int, ...]:
        broadcast = self.wirings[0].channels[edge[0]].edge.way == "broadcast"
        return edge if broadcast else (edge[number % len(edge)],)

    def _function(self, name: str, taken: int) -> Function | None:
        for reconfiguration in reversed(self.reconfigurations[:taken]):
            for change in reconfiguration.changes:
                if change.operator == name:
                    return change.function
        return self.functions.get(name)

    def _passed(self, state: State, worker: int) -> State:
        """Change a worker, if it has heard all that it waits for; it says so to those behind it."""
        wiring, before = self.wirings[state.done], state.workers[worker]
        awaited = wiring.awaited[worker]
        ready = before.heard.issuperset(awaited) if awaited else before.reached
        if not ready:
            return state
        keeps = before.keeps
        for change in self.reconfigurations[state.done].changes:
            if change.operator == wiring.workers[worker][0].name:
                keeps = change.transform(keeps)
        state = _with(state, worker, keeps=keeps, taken=state.done + 1, heard=frozenset())
        return self._completed(_sent(state, wiring.marking[worker], CHANGE))

    def _completed(self, state: State) -> State:
        """Complete a reconfiguration if all are through with it who have a part in it."""
        wiring = self.wirings[state.done]
        if any(state.workers[worker].taken <= state.done for worker in _participants(wiring)):
            return state
        done = state.done + 1
        workers = tuple(worker._replace(taken=done, reached=False) for worker in state.workers)
        return state._replace(workers=workers, done=done, asked=False)

    def _saved(self, state: State, worker: int) -> State:
        assert state.saving is not None, "a marker of no checkpoint"
        parts, read, done = state.saving
        if worker in self.sources:
            place = self.sources.index(worker)
            read = _at(read, place, state.read[place])
        here = state.workers[worker]
        state = _with(state, worker, saved=True, held=frozenset())
        saving = (_at(parts, worker, (here.keeps, here.taken)), read, done)
        state = state._replace(saving=saving)
        channels = list(chain.from_iterable(self.wirings[0].outs[worker]))
        state = _sent(state, channels, SAVE)
        if not all(each.saved for each in state.workers):
            return state
        workers = tuple(each._replace(saved=False) for each in state.workers)
        return state._replace(
            workers=workers, kept=saving, saving=None, checkpoints=state.checkpoints - 1
        )


def _participants(wiring: Wiring) -> set[int]:
    """Return the workers that have a part in a reconfiguration."""
    waiting = (worker for worker, awaited in enumerate(wiring.awaited) if awaited)
    return {*wiring.heads, *wiring.changing, *waiting}


def _sent(state: State, channels: Sequence[int], item: int) -> State:
    queues = list(state.queues)
    for channel in channels:
        queues[channel] = (*queues[channel], item)
    return state._replace(queues=tuple(queues))


def _with(state: State, worker: int, **fields: Kept) -> State:
    changed = state.workers[worker]._replace(**fields)
    return state._replace(workers=_at(state.workers, worker, changed))


def _at(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])
