"""Messages of the workers of a migrating operator, and what they compute: values, and no
behaviour.

    Logic                    what the operator computes of a key's values at a time
    Data, Control, Resize    what a worker's F gets from outside
    Routed, Moved, Progress  what F of a worker sends to S of another, or of the same one; arriving
                             it is `Received`
    Applied                  what S has done: what the promises of a migration are held against
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stateshift.live.protocol.applying import Folded, Key, State, Value
from stateshift.live.protocol.configuration import Configuration, Time, Update, bin_of

END: Time = 1 << 62  # the frontier of an input that is closed


class Record(NamedTuple):
    """A value of one key at one time, as the operator's input gives it."""

    time: Time
    key: Key
    value: Value


class Logic(NamedTuple):
    """What the operator computes: deterministic, and of one time's values the order does not matter
    (they come sorted; keys and values have an order). A state of None is none.
    """

    hash_of: Callable[[Key], int]
    fold: Callable[[Time, Key, State, tuple[Value, ...]], Folded]


class Applied(NamedTuple):
    """What S has done: all values of one key and time, once."""

    worker: int
    time: Time
    key: Key
    values: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Routed:
    """A record that F has sent to the worker where its bin is at the record's time."""

    record: Record


@dataclass(frozen=True, slots=True)
class Moved:
    """The keys of bins that move at `time`."""

    time: Time
    states: Mapping[Key, State]
    pending: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """Neither a record before `data` nor a state before `state` will follow on this channel."""

    data: Time
    state: Time


START = Progress(0, 0)


Message = Routed | Moved | Progress


@dataclass(frozen=True, slots=True)
class Data:
    """The data input: records, and the frontier after them."""

    records: tuple[Record, ...]
    frontier: Time


@dataclass(frozen=True, slots=True)
class Control:
    """The control input: updates in terms of `bins`, and the frontier after them."""

    updates: tuple[Update, ...]
    frontier: Time
    bins: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Tell keys apart by so many bins from now on."""

    bins: int


@dataclass(frozen=True, slots=True)
class Received:
    """What has come from F of another worker, or of this one."""

    source: int
    message: Message


Event = Data | Control | Resize | Received
Sent = tuple[int, Message]  # to which worker


def worker_of(configuration: Configuration, time: Time, hashed: int) -> int:
    """Return where a key is at a time, by its hash."""
    return configuration.worker(time, bin_of(hashed, configuration.bins))


def moves_at(configuration: Configuration, time: Time) -> tuple[tuple[int, int, int], ...]:
    """Return the moves of exactly this time: (bin, from worker, to worker)."""
    moves = []
    for bin, history in enumerate(configuration.history):
        if history[0].time < time:
            before = configuration.worker(time - 1, bin)
            after = configuration.worker(time, bin)
            if before != after:
                moves.append((bin, before, after))
    return tuple(moves)
