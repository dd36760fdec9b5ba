"""Random jobs, and random walks of the protocol through them: whose turn it is, and what arrives
next, is drawn.

Job   a configuration, what each worker's inputs are told in which order, and the operator's logic
walk  the network after everything was told and has arrived, in an order drawn from `chance`
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from stateshift.errors import SpecError
from stateshift.live.protocol.applying import Folded, Key, State, Value
from stateshift.live.protocol.configuration import (
    Configuration,
    Time,
    Update,
    apply_updates,
    initial_configuration,
)
from tests.models.bin_messages import Control, Data, Logic, Record, Resize
from tests.models.network import Channel, Network, deliver, feed, network

LAST = 30  # the time to which all inputs come
KEYS = tuple(range(12))


def hash_of(key: Key) -> int:
    """Spread over all bins, and not in the order of the keys."""
    return int(key) * 0x9E3779B97F4A7C15 % (1 << 64)


def fold(time: Time, key: Key, state: State, values: tuple[Value, ...]) -> Folded:
    """A sum that tells itself, forgets itself at multiples of 7, and asks for odd values once
    more.
    """
    total = (state or 0) + sum(values)
    later = tuple((time + 1 + value % 5, -value) for value in values if value > 0 and value % 2)
    return Folded(total if total % 7 else None, (total, len(values)), later)


LOGIC = Logic(hash_of, fold)


@dataclass(frozen=True)
class Job:
    begin: Configuration
    states: dict[Key, State]
    data: tuple[tuple[Data, ...], ...]
    control: tuple[Control, ...]

    @property
    def records(self) -> list[Record]:
        return [record for told in self.data for one in told for record in one.records]

    @property
    def whole(self) -> Configuration:
        """With all updates, and nothing retired."""
        configuration = self.begin
        for one in self.control:
            configuration = apply_updates(configuration, one.updates, one.bins)
        return configuration


def a_job(chance: random.Random) -> Job:
    workers, bins = chance.randint(1, 4), 1 << chance.randint(0, 3)
    begin = initial_configuration([chance.randrange(workers) for _ in range(bins)], workers)
    states = {key: chance.randint(1, 6) for key in KEYS if chance.random() < 0.5}
    data = tuple(tuple(_data(chance)) for _ in range(workers))
    return Job(begin, states, data, tuple(_control(chance, begin)))


def _cuts(chance: random.Random, most: int) -> list[Time]:
    return [*sorted(chance.sample(range(1, LAST), chance.randint(0, most))), LAST]


def _data(chance: random.Random) -> list[Data]:
    """Records of any time that may still come, some far ahead."""
    found, frontier = [], 0
    for cut in _cuts(chance, 5):
        records = tuple(
            Record(chance.randint(frontier, LAST + 5), chance.choice(KEYS), chance.randint(1, 9))
            for _ in range(chance.randint(0, 3))
        )
        found.append(Data(records, cut))
        frontier = cut
    return found


def _control(chance: random.Random, begin: Configuration) -> list[Control]:
    """Updates at times to come, at times in terms of more or fewer bins than before."""
    found, frontier, configuration = [], 0, begin
    for cut in _cuts(chance, 4):
        bins = 1 << chance.randint(0, 4)
        earliest = max([frontier, *(history[-1].time for history in configuration.history)])
        times = sorted(chance.randint(earliest, LAST + 5) for _ in range(chance.randint(0, 4)))
        places = {(time, chance.randrange(bins)): chance.randrange(begin.workers) for time in times}
        updates = tuple(Update(time, bin, worker) for (time, bin), worker in places.items())
        configuration = apply_updates(configuration, updates, bins)
        found.append(Control(updates, cut, bins))
        frontier = cut
    return found


Choose = Callable[[Network], Channel]
Watch = Callable[[Network], None]


def walk(
    job: Job,
    chance: random.Random,
    watch: Watch | None = None,
    arrive: Callable[[Network, random.Random], Network] | None = None,
) -> Network:
    """Inputs and channels take turns at random until all is told and has arrived."""
    found = network(job.begin, LOGIC, job.states)
    data, control = [list(told) for told in job.data], [list(job.control) for _ in job.data]
    while True:
        ready = [(told, n) for told in (data, control) for n in range(len(job.data)) if told[n]]
        if not ready and not found.busy:
            return found
        if found.busy and (not ready or chance.random() < 0.7):
            found = (arrive or deliver_any)(found, chance)
        else:
            told_to, number = chance.choice(ready)
            found = feed(found, number, told_to[number].pop(0))
            found = _resized(found, number, chance)
        if watch:
            watch(found)


def deliver_any(found: Network, chance: random.Random) -> Network:
    return deliver(found, chance.choice(found.busy))


def _resized(found: Network, number: int, chance: random.Random) -> Network:
    """Now and then a worker splits its bins, or merges them where it may, alone and unasked."""
    bins = found.workers[number].f.configuration.bins
    if chance.random() < 0.05 and bins < 64:
        return feed(found, number, Resize(2 * bins))
    if chance.random() < 0.1 and bins > 1:
        with suppress(SpecError):  # halves that are apart
            return feed(found, number, Resize(bins // 2))
    return found


def with_channel(found: Network, channel: Channel, messages: tuple[object, ...]) -> Network:
    """As if these were on their way: for faults that no network of ours has."""
    return replace(found, channels={**found.channels, channel: messages})
