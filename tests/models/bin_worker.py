"""One worker of an operator whose keys move while it runs: F, which routes and moves, and S, which
holds and applies.

    data     ──▶ F ──Routed──▶ S ──▶ outputs
    control  ──▶   ──Moved───▶
      ▲  S's frontier │          Progress on both

F of every worker sends to S of every worker, and on one channel what is sent first arrives first.
Channels know nothing of each other: between two of them everything may overtake everything.

`advance(worker, event, logic)` is the whole protocol: the worker after an event, what it sends,
what it has applied.

A *frontier* is the earliest time that may still come. What holds them back is what makes moves
safe:

    F routes a record     once the control frontier has passed its time: until then its worker may
                          still change
    F's data frontier     the data input's, or the earliest record it has buffered
    F moves a bin         of S's beside it when an update's time is S's frontier: then all before it
                          is applied, nothing after
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

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from stateshift.errors import Complaint, SpecError
from stateshift.live.protocol.applying import Folded, Key, State, Timers, Value, turns
from stateshift.live.protocol.configuration import (
    Configuration,
    Time,
    apply_updates,
    bin_of,
    complaints,
    resize,
    retire,
)
from tests.models.bin_messages import (
    END,
    START,
    Applied,
    Control,
    Data,
    Event,
    Logic,
    Moved,
    Progress,
    Received,
    Record,
    Resize,
    Routed,
    Sent,
    moves_at,
    worker_of,
)


@dataclass(frozen=True, slots=True)
class F:
    """The half of a worker that routes records and moves bins."""

    configuration: Configuration
    data: Time = 0
    control: Time = 0
    buffered: tuple[Record, ...] = ()
    to_move: tuple[Time, ...] = ()  # times of updates, ascending, whose bins are still here
    reported: Progress = START

    @property
    def progress(self) -> Progress:
        earliest_record = min((record.time for record in self.buffered), default=END)
        earliest_move = min(self.to_move, default=END)
        return Progress(min(self.data, earliest_record), min(self.control, earliest_move, END))


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
        return min(min(progress.data, progress.state) for progress in self.heard)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of an operator: its number, and both of its halves."""

    number: int
    f: F
    s: S


def worker(
    number: int, configuration: Configuration, states: Mapping[Key, State] | None = None
) -> Worker:
    """Return a worker as the operator begins."""
    return Worker(number, F(configuration), S((START,) * configuration.workers, states or {}))


def advance(
    before: Worker, event: Event, logic: Logic
) -> tuple[Worker, tuple[Sent, ...], tuple[Applied, ...]]:
    """Return the worker after an event, what it sends to which worker in this order, and what it
    has applied.
    """
    f, s = before.f, before.s
    match event:
        case Data():
            f = _with_data(f, event)
        case Control():
            f = _with_control(f, event)
        case Resize():
            f = replace(f, configuration=resize(f.configuration, event.bins))
        case Received():
            s = _with_message(s, event)
    f, routed = _route(f, logic)
    s, applied = apply(s, before.number, logic)
    f, s, moved = _move(f, s, before.number, logic)
    f, progress = _report(f)
    return Worker(before.number, f, s), (*routed, *moved, *progress), applied


def _with_data(f: F, event: Data) -> F:
    wrong: list[Complaint] = []
    for number, record in enumerate(event.records):
        wrong += _early(f"/{number}/time", f.data, record.time)
    wrong += _early("/frontier", f.data, event.frontier)
    _check(tuple(wrong))
    return replace(f, data=event.frontier, buffered=(*f.buffered, *event.records))


def _with_control(f: F, event: Control) -> F:
    wrong = complaints(f.configuration, event.updates, event.bins, f.control)
    _check((*wrong, *_early("/frontier", f.control, event.frontier)))
    times = {*f.to_move, *(update.time for update in event.updates)}
    configuration = f.configuration
    if event.updates:
        configuration = apply_updates(configuration, event.updates, event.bins)
    return replace(
        f, control=event.frontier, configuration=configuration, to_move=tuple(sorted(times))
    )


def _with_message(s: S, event: Received) -> S:
    """Install state as it comes; let a record wait for its time."""
    match event.message:
        case Routed(record):
            return replace(s, waiting=(*s.waiting, record))
        case Moved(_, states, pending):
            return replace(s, states={**s.states, **states}, waiting=(*s.waiting, *pending))
        case Progress():
            before, after = s.heard[: event.source], s.heard[event.source + 1 :]
            return replace(s, heard=(*before, event.message, *after))


def _route(f: F, logic: Logic) -> tuple[F, tuple[Sent, ...]]:
    """Route records to the worker of their own time, which is certain once no update of it can come
    any more.
    """
    sent: list[Sent] = []
    buffered = []
    for record in f.buffered:
        if record.time < f.control:
            worker = worker_of(f.configuration, record.time, logic.hash_of(record.key))
            sent.append((worker, Routed(record)))
        else:
            buffered.append(record)
    return replace(f, buffered=tuple(buffered)), tuple(sent)


def apply(s: S, number: int, logic: Logic) -> tuple[S, tuple[Applied, ...]]:
    """Return S with all that lies before its frontier applied, time by time: what that asks for may
    lie before it as well.
    """
    frontier, states = s.frontier, dict(s.states)
    ready, waiting = _split(s.waiting, frontier)
    pending = Timers()

    def sorted_fold(time: Time, key: Key, state: State, values: tuple[Value, ...]) -> Folded:
        folded = logic.fold(time, key, state, tuple(sorted(values)))
        assert all(later > time for later, _ in folded.later), "what is asked for lies ahead"
        return folded

    applied = [
        Applied(number, turn.time, turn.key, tuple(sorted(turn.values)), turn.folded.outputs)
        for turn in turns(sorted(ready), pending, frontier, states, sorted_fold)
    ]
    waiting += [Record(asked.time, asked.key, asked.value) for asked in pending.heap]
    applied.sort(key=lambda one: (one.time, one.key))
    return replace(s, states=states, waiting=tuple(waiting)), tuple(applied)


def _split(records: Iterable[Record], frontier: Time) -> tuple[list[Record], list[Record]]:
    """Return the records before the frontier, and those from it on."""
    ready: list[Record] = []
    waiting: list[Record] = []
    for record in records:
        side = ready if record.time < frontier else waiting
        side.append(record)
    return ready, waiting


def _move(f: F, s: S, number: int, logic: Logic) -> tuple[F, S, list[Sent]]:
    """Make every move whose time is certain and has come. If nothing is to be moved from here,
    nothing is waited for.
    """
    sent: list[Sent] = []
    for time in f.to_move:
        targets = _targets(f, time, number)
        is_early = bool(targets) and s.frontier < time
        if time >= f.control or is_early:
            break
        going = _keys_by_target(f, s, targets, logic)
        for target in sorted(set(targets.values())):
            s, taken = _take(s, time, going[target])
            sent.append((target, taken))
        f = replace(f, to_move=f.to_move[1:])
    return f, s, sent


def _targets(f: F, time: Time, number: int) -> dict[int, int]:
    """Return the bins that go away from a worker at a time, with where they go."""
    moves = moves_at(f.configuration, time)
    return {bin: target for bin, source, target in moves if source == number}


def _keys_by_target(f: F, s: S, targets: Mapping[int, int], logic: Logic) -> Mapping[int, set[Key]]:
    """Return the keys here that go, by the worker that they go to."""
    going = defaultdict[int, set[Key]](set)
    for key in {*s.states, *(record.key for record in s.waiting)}:
        bin = bin_of(logic.hash_of(key), f.configuration.bins)
        if bin in targets:
            going[targets[bin]].add(key)
    return going


def _take(s: S, time: Time, keys: set[Key]) -> tuple[S, Moved]:
    """Take the state and the pending records of the keys that go out of S."""
    states = {key: state for key, state in s.states.items() if key in keys}
    pending = tuple(record for record in s.waiting if record.key in keys)
    left = {key: state for key, state in s.states.items() if key not in keys}
    waiting = tuple(record for record in s.waiting if record.key not in keys)
    return replace(s, states=left, waiting=waiting), Moved(time, states, pending)


def _report(f: F) -> tuple[F, list[Sent]]:
    """Report progress, after all that it speaks of; let go of what no time can need any more."""
    progress = f.progress
    # What moves at a time is known from the time before: of updates that wait, and of those that
    # may still come.
    needed = min(progress.data, f.control - 1, *(time - 1 for time in f.to_move[:1]))
    f = replace(f, configuration=retire(f.configuration, needed))
    if progress == f.reported:
        return f, []
    sent: list[Sent] = [(target, progress) for target in range(f.configuration.workers)]
    return replace(f, reported=progress), sent


def _early(pointer: str, frontier: Time, time: Time) -> Iterator[Complaint]:
    if time < frontier:
        yield Complaint(pointer, f"time runs backwards, from {frontier} to {time}", time)


def _check(wrong: tuple[Complaint, ...]) -> None:
    if wrong:
        hint = "an input that promised a frontier has nothing before it any more"
        raise SpecError(wrong, hint=hint)
