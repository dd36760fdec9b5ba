"""One worker of an operator whose keys move while it runs: F, which routes and moves, and S, which
holds and applies.

    data     ──▶ F ──Routed──▶ S ──▶ outputs     F of every worker sends to S of every worker, and
                                                 on one channel
    control  ──▶   ──Moved───▶                   what is sent first arrives first. Channels know
                                                 nothing of each
      ▲  S's frontier │        Progress on both  other: between two of them everything may overtake
                                                 everything.

`advance(worker, event, logic)` is the whole protocol: the worker after an event, what it sends,
what it has applied.

A *frontier* is the earliest time that may still come. What holds them back is what makes moves
safe:

    F routes a record once the control frontier has passed its time: until then its worker may still
    change
    F's data frontier     the data input's, or the earliest record it has buffered
    F moves a bin of S's beside it when an update's time is S's frontier: then all before it is applied, nothing after
    F's state frontier    the control input's, or the earliest update whose bins it still has to
                          move
    S's frontier          the least of both, of all F; S applies what lies before it, in the order
                          of times
    Moved                 takes a bin's state *and* the records that its keys have asked for at
                          times to come

A split or merge of bins moves no key, so every worker makes it alone (M-24). Nothing here waits,
reads a clock or sends anything: a test delivers in any order it likes, and a runtime over whatever
channels it has. Rows M-6 and M-7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from stateshift.errors import Complaint, SpecError
from stateshift.live.protocol.configuration import (
    Configuration,
    Time,
    complaints,
    resized,
    retired,
    updated,
)
from stateshift.live.protocol.messages import (
    END,
    START,
    Applied,
    Control,
    Data,
    Event,
    Key,
    Logic,
    Moved,
    Progress,
    Received,
    Record,
    Resize,
    Routed,
    Sent,
    State,
)


@dataclass(frozen=True, slots=True)
class F:
    configuration: Configuration
    data: Time = 0
    control: Time = 0
    buffered: tuple[Record, ...] = ()
    to_move: tuple[Time, ...] = ()  # times of updates, ascending, whose bins are still here
    told: Progress = START

    @property
    def progress(self) -> Progress:
        data = min((record.time for record in self.buffered), default=END)
        return Progress(min(self.data, data), min(self.control, *self.to_move[:1], END))


@dataclass(frozen=True, slots=True)
class S:
    """`heard` is the progress of F of every worker; `waiting` are records that were routed or
    asked for.
    """

    heard: tuple[Progress, ...]
    states: Mapping[Key, State]
    waiting: tuple[Record, ...] = ()

    @property
    def frontier(self) -> Time:
        return min(min(one.data, one.state) for one in self.heard)


@dataclass(frozen=True, slots=True)
class Worker:
    number: int
    f: F
    s: S


def worker(
    number: int, configuration: Configuration, states: Mapping[Key, State] | None = None
) -> Worker:
    """A worker as the operator begins."""
    return Worker(number, F(configuration), S((START,) * configuration.workers, states or {}))


def advance(
    before: Worker, event: Event, logic: Logic
) -> tuple[Worker, tuple[Sent, ...], tuple[Applied, ...]]:
    """The worker after an event, what it sends to which worker in this order, and what it has
    applied.
    """
    match event:
        case Data():
            told = replace(before, f=_with_data(before.f, event))
        case Control():
            told = replace(before, f=_with_control(before.f, event))
        case Resize():
            told = replace(
                before,
                f=replace(before.f, configuration=resized(before.f.configuration, event.bins)),
            )
        case Received():
            told = replace(before, s=_with_message(before.s, event))
    f, routed = _route(told.f, logic)
    s, applied = apply(told.s, before.number, logic)
    f, s, moved = _move(f, s, before.number, logic)
    f, progress = _tell(f)
    return Worker(before.number, f, s), (*routed, *moved, *progress), applied


def _with_data(f: F, event: Data) -> F:
    wrong = (
        c
        for n, record in enumerate(event.records)
        for c in _early(f"/{n}/time", f.data, record.time)
    )
    _check((*wrong, *_early("/frontier", f.data, event.frontier)))
    return replace(f, data=event.frontier, buffered=(*f.buffered, *event.records))


def _with_control(f: F, event: Control) -> F:
    wrong = complaints(f.configuration, event.updates, event.bins, f.control)
    _check((*wrong, *_early("/frontier", f.control, event.frontier)))
    times = {*f.to_move, *(update.time for update in event.updates)}
    configuration = (
        updated(f.configuration, event.updates, event.bins) if event.updates else f.configuration
    )
    return replace(
        f, control=event.frontier, configuration=configuration, to_move=tuple(sorted(times))
    )


def _with_message(s: S, event: Received) -> S:
    """State is installed as it comes; a record waits for its time."""
    match event.message:
        case Routed(record):
            return replace(s, waiting=(*s.waiting, record))
        case Moved(_, states, pending):
            return replace(s, states={**s.states, **states}, waiting=(*s.waiting, *pending))
        case Progress():
            return replace(
                s, heard=(*s.heard[: event.source], event.message, *s.heard[event.source + 1 :])
            )


def _route(f: F, logic: Logic) -> tuple[F, tuple[Sent, ...]]:
    """To the worker of the record's own time, which is certain once no update of it can come any
    more.
    """
    certain = [record for record in f.buffered if record.time < f.control]
    place = f.configuration.worker_of
    sent = tuple(
        (place(record.time, logic.hash_of(record.key)), Routed(record)) for record in certain
    )
    return replace(
        f, buffered=tuple(record for record in f.buffered if record.time >= f.control)
    ), sent


def apply(s: S, number: int, logic: Logic) -> tuple[S, tuple[Applied, ...]]:
    """S with all that lies before its frontier applied, time by time: what that asks for may lie
    before it as well.
    """
    frontier, states, applied = s.frontier, dict(s.states), []
    ready = [record for record in s.waiting if record.time < frontier]
    waiting = [record for record in s.waiting if record.time >= frontier]
    heapify(ready)
    while ready:
        time, key, _ = ready[0]
        values = []
        while ready and ready[0][:2] == (time, key):
            values.append(heappop(ready).value)
        states[key], outputs, later = logic.fold(time, key, states.get(key), tuple(values))
        applied.append(Applied(number, time, key, tuple(values), outputs))
        for record in (Record(then, key, value) for then, value in later):
            assert record.time > time, "what is asked for lies ahead"
            heappush(ready, record) if record.time < frontier else waiting.append(record)
    kept = {key: state for key, state in states.items() if state is not None}
    return replace(s, states=kept, waiting=tuple(waiting)), tuple(applied)


def _move(f: F, s: S, number: int, logic: Logic) -> tuple[F, S, list[Sent]]:
    """Every move whose time is certain and has come. Where nothing is to be moved from here,
    nothing is waited for.
    """
    sent: list[Sent] = []
    for time in f.to_move:
        moves = {
            bin: target for bin, source, target in f.configuration.moved(time) if source == number
        }
        if time >= f.control or (moves and s.frontier < time):
            break
        here = {*s.states, *(record.key for record in s.waiting)}
        goes = {key: moves.get(f.configuration.bin_of(logic.hash_of(key))) for key in here}
        for target in sorted(set(moves.values())):
            s, taken = _take(s, time, {key for key, there in goes.items() if there == target})
            sent.append((target, taken))
        f = replace(f, to_move=f.to_move[1:])
    return f, s, sent


def _take(s: S, time: Time, keys: set[Key]) -> tuple[S, Moved]:
    """The state and the pending records of the keys that go, out of S."""
    states = {key: state for key, state in s.states.items() if key in keys}
    pending = tuple(record for record in s.waiting if record.key in keys)
    left = {key: state for key, state in s.states.items() if key not in keys}
    waiting = tuple(record for record in s.waiting if record.key not in keys)
    return replace(s, states=left, waiting=waiting), Moved(time, states, pending)


def _tell(f: F) -> tuple[F, list[Sent]]:
    """Progress, after all that it speaks of; and what no time can need any more is let go of."""
    progress = f.progress
    # What moves at a time, the time before tells: of updates that wait, and of those that may still
    # come.
    needed = min(progress.data, f.control - 1, *(time - 1 for time in f.to_move[:1]))
    f = replace(f, configuration=retired(f.configuration, needed))
    if progress == f.told:
        return f, []
    return replace(f, told=progress), [
        (target, progress) for target in range(f.configuration.workers)
    ]


def _early(pointer: str, frontier: Time, time: Time) -> Iterator[Complaint]:
    if time < frontier:
        yield Complaint(pointer, f"time runs backwards, from {frontier} to {time}", time)


def _check(wrong: tuple[Complaint, ...]) -> None:
    if wrong:
        raise SpecError(
            wrong, hint="an input that promised a frontier has nothing before it any more"
        )
