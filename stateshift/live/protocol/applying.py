"""Records folded into the states of their keys in the order of time, by the model's worker and by
the one that runs.

    turns(ready, pending, frontier, states, fold)   folds before a frontier, one key and time after
                                                    the other

A value that a key has asked to see again (`pending`) is folded at its time, beside the records of
that time. Times are whatever can be compared: numbers in the model, tuples of columns where it
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple

from stateshift.live.protocol.configuration import Moment, Time

# The operator's own: whoever writes its function knows their types.
Key = Any
State = Any
Value = Any


class Folded(NamedTuple):
    """A key's state, the rows that it put out, and values to be seen again at times to come."""

    state: State
    outputs: tuple[Value, ...] = ()
    later: tuple[tuple[Time, Value], ...] = ()


class Timer(NamedTuple):
    """A value that a key has asked to see at a time to come; of one time in the order of asking."""

    time: Moment
    number: int
    key: Key
    value: Value


@dataclass(slots=True)
class Timers:
    """The values that keys have asked to see again."""

    heap: list[Timer] = field(default_factory=list)
    asked: int = 0  # so often

    @property
    def earliest(self) -> Moment | None:
        return self.heap[0].time if self.heap else None

    def ask(self, time: Moment, key: Key, value: Value) -> None:
        heappush(self.heap, Timer(time, self.asked, key, value))
        self.asked += 1


class Turn(NamedTuple):
    """All values of one key and time, folded at once."""

    time: Moment
    key: Key
    values: tuple[Value, ...]
    folded: Folded


Fold = Callable[[Moment, Key, State, tuple[Value, ...]], Folded]


def turns(
    ready: Sequence[tuple[Moment, Key, Value]],
    pending: Timers,
    frontier: Moment,
    states: MutableMapping[Key, State],
    fold: Fold,
) -> Iterator[Turn]:
    """Fold the records, and what is asked for before the frontier, in the order of time.

    `ready` are in the order of their times, before the frontier. Values that are due are taken from
    `pending`, those that are asked for are added. A state of None is none.
    """
    heap = pending.heap
    position, end = 0, len(ready)
    while position < end or (heap and heap[0].time < frontier):
        time = heap[0].time if position == end else ready[position][0]
        if heap and heap[0].time < time:
            time = heap[0].time
        first = position
        while position < end and ready[position][0] == time:
            position += 1
        is_due = bool(heap) and heap[0].time == time
        groups: Iterable[tuple[Key, tuple[Value, ...]]]
        if position == first + 1 and not is_due:  # most times have one row: what it costs counts
            _, key, value = ready[first]
            groups = ((key, (value,)),)
        else:
            groups = _grouped(ready[first:position], heap, time)
        for key, values in groups:
            folded = fold(time, key, states.get(key), values)
            if folded.state is None:
                states.pop(key, None)
            else:
                states[key] = folded.state
            for later_time, value in folded.later:
                pending.ask(later_time, key, value)
            yield Turn(time, key, values, folded)


def _grouped(
    records: Sequence[tuple[Moment, Key, Value]], heap: list[Timer], time: Moment
) -> list[tuple[Key, tuple[Value, ...]]]:
    """Return the values of each key at a time: of its records, then of what is due."""
    by_key: dict[Key, list[Value]] = {}
    for _, key, value in records:
        by_key.setdefault(key, []).append(value)
    while heap and heap[0].time == time:
        due = heappop(heap)
        by_key.setdefault(due.key, []).append(due.value)
    return [(key, tuple(values)) for key, values in by_key.items()]
