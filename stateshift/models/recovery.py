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

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from stateshift.dataflow.schedulers import Schedule
from stateshift.dataflow.wiring import Wiring, wired
from stateshift.errors import Complaint, SpecError

Function = Callable[[Any, int], Hashable]  # the state before, a tuple; the state after
CHANGE, SAVE = -1, -2
HINT = "one change for each operator that the schedule is for"


@dataclass(frozen=True, slots=True)
class Change:
    operator: str
    function: Function
    transform: Callable[[Any], Hashable] = lambda state: state


@dataclass(frozen=True)
class Reconfiguration:
    schedule: Schedule
    changes: tuple[Change, ...]

    def __post_init__(self) -> None:
        names, schedule = [change.operator for change in self.changes], self.schedule
        told = [
            f"{name!r} is to change twice" for name in dict.fromkeys(names) if names.count(name) > 1
        ]
        told += [
            f"{name!r} is no target of the schedule"
            for name in names
            if name not in schedule.targets
        ]
        told += [
            f"{name!r} is a target, and has no change"
            for name in schedule.targets
            if name not in names
        ]
        told += [
            (
                f"{one.name!r} is blocking: what comes before it and what comes after change "
                "each on its own"
            )
            for one in schedule.dataflow.operators
            if one.kind == "blocking"
        ]
        told += (
            ["tuples that say which function is meant: no worker keeps both"]
            if schedule.tagging
            else []
        )
        if told:
            raise SpecError(tuple(Complaint("/changes", fact) for fact in told), hint=HINT)


class Worker(NamedTuple):
    """`taken` counts the reconfigurations that it is through with; `heard` and `held` are the
    channels on which the markers of the next one, and those of the checkpoint under way, have come.
    """

    keeps: Hashable = ()
    taken: int = 0
    told: bool = False
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
    kept: tuple[Any, ...]
    saving: tuple[Any, ...] | None
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
        return tuple(wired(one.schedule) for one in self.reconfigurations)

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
        apart = state.saving is None or not self.careful
        if state.asked:
            for worker in self.wirings[state.done].heads:
                if not state.workers[worker].told:
                    yield self._passed(_with(state, worker, told=True), worker)
        elif state.done < len(self.reconfigurations) and apart:
            yield state._replace(asked=True)
        if state.saving is None and state.checkpoints and not (state.asked and self.careful):
            yield state._replace(saving=((None,) * len(state.workers), state.read, state.done))
        if state.saving is not None:
            for source in self.sources:
                if not state.workers[source].saved:
                    yield self._saved(state, source)

    def _failed(self, state: State) -> State:
        workers, read, done = state.kept
        return state._replace(
            queues=((),) * len(state.queues),
            workers=tuple(Worker(*one) for one in workers),
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
            if queue[0] == CHANGE and not state.asked:
                yield left  # of one that a careless checkpoint takes for complete
            elif queue[0] == CHANGE:
                yield self._passed(_with(left, receiver, heard=worker.heard | {number}), receiver)
            elif queue[0] == SAVE:
                left = _with(left, receiver, held=worker.held | {number})
                every = {
                    n
                    for n, channel in enumerate(self.wirings[0].channels)
                    if channel.receiver == receiver
                }
                yield self._saved(left, receiver) if left.workers[receiver].held >= every else left
            else:
                yield self._processed(left, receiver, queue[0])

    def _processed(self, state: State, worker: int, number: int) -> State:
        operator = self.wirings[0].workers[worker][0]
        function = self._function(operator.name, state.workers[worker].taken)
        if function is not None:
            state = _with(state, worker, keeps=function(state.workers[worker].keeps, number))
        edges = self.wirings[0].outs[worker]
        if operator.kind != "one-to-many":
            edges = edges[number % len(edges) :][:1] if edges else ()
        return _sent(
            state, [channel for edge in edges for channel in self._chosen(edge, number)], number
        )

    def _chosen(self, edge: tuple[int, ...], number: int) -> tuple[int, ...]:
        broadcast = self.wirings[0].channels[edge[0]].edge.way == "broadcast"
        return edge if broadcast else (edge[number % len(edge)],)

    def _function(self, name: str, taken: int) -> Function | None:
        for one in reversed(self.reconfigurations[:taken]):
            for change in one.changes:
                if change.operator == name:
                    return change.function
        return self.functions.get(name)

    def _passed(self, state: State, worker: int) -> State:
        """The worker changes, if it has heard all that it waits for, and says so to those behind
        it.
        """
        wiring, before = self.wirings[state.done], state.workers[worker]
        if not before.heard.issuperset(wiring.awaited[worker]) or (
            not wiring.awaited[worker] and not before.told
        ):
            return state
        keeps = before.keeps
        for change in self.reconfigurations[state.done].changes:
            if change.operator == wiring.workers[worker][0].name:
                keeps = change.transform(keeps)
        state = _with(state, worker, keeps=keeps, taken=state.done + 1, heard=frozenset())
        return self._completed(_sent(state, wiring.marking[worker], CHANGE))

    def _completed(self, state: State) -> State:
        """Whoever has no part in a reconfiguration is through with it when the others are."""
        wiring = self.wirings[state.done]
        part = {
            *wiring.heads,
            *wiring.changing,
            *(n for n, awaited in enumerate(wiring.awaited) if awaited),
        }
        if any(state.workers[worker].taken <= state.done for worker in part):
            return state
        workers = tuple(
            worker._replace(taken=state.done + 1, told=False) for worker in state.workers
        )
        return state._replace(workers=workers, done=state.done + 1, asked=False)

    def _saved(self, state: State, worker: int) -> State:
        assert state.saving is not None, "a marker of no checkpoint"
        parts, read, done = state.saving
        if worker in self.sources:
            read = _at(read, self.sources.index(worker), state.read[self.sources.index(worker)])
        here = state.workers[worker]
        state = _with(state, worker, saved=True, held=frozenset())
        saving = (_at(parts, worker, (here.keeps, here.taken)), read, done)
        state = state._replace(saving=saving)
        state = _sent(
            state, [channel for edge in self.wirings[0].outs[worker] for channel in edge], SAVE
        )
        if not all(one.saved for one in state.workers):
            return state
        workers = tuple(one._replace(saved=False) for one in state.workers)
        return state._replace(
            workers=workers, kept=saving, saving=None, checkpoints=state.checkpoints - 1
        )


def _sent(state: State, channels: Sequence[int], item: int) -> State:
    queues = list(state.queues)
    for channel in channels:
        queues[channel] = (*queues[channel], item)
    return state._replace(queues=tuple(queues))


def _with(state: State, worker: int, **fields: Any) -> State:
    return state._replace(
        workers=_at(state.workers, worker, state.workers[worker]._replace(**fields))
    )


def _at(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
