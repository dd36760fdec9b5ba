"""Workers and the channels between them, as one value: the protocol in a world where every order
can be tried.

Network
  logic       what is computed
  workers     F and S of each
  channels    (from, to) -> messages on their way, the first one first
  applied     what all S have done, in the order in which it happened

feed(network, worker, event)  an input says something to a worker's F
deliver(network, channel)     the first message of a channel arrives; which channel is anybody's
                              choice
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stateshift.live.protocol.applying import Key, State
from stateshift.live.protocol.configuration import Configuration, Time
from tests.models.bin_messages import (
    Applied,
    Control,
    Data,
    Event,
    Logic,
    Message,
    Received,
    Resize,
    Sent,
    worker_of,
)
from tests.models.bin_worker import Worker, advance, worker

Channel = tuple[int, int]
Channels = Mapping[Channel, tuple[Message, ...]]


@dataclass(frozen=True, slots=True)
class Network:
    """The state of all workers, and every message on its way between them."""

    logic: Logic
    workers: tuple[Worker, ...]
    channels: Channels
    applied: tuple[Applied, ...] = ()

    @property
    def busy(self) -> tuple[Channel, ...]:
        """The channels with something on its way, in a fixed order."""
        return tuple(sorted(channel for channel, messages in self.channels.items() if messages))

    @property
    def frontiers(self) -> tuple[Time, ...]:
        """The frontier of each worker's outputs; a controller waits for the least of them."""
        return tuple(worker.s.frontier for worker in self.workers)


def network(
    configuration: Configuration, logic: Logic, states: Mapping[Key, State] | None = None
) -> Network:
    """Return the workers as an operator begins, with the states it already has, each where the
    configuration says.
    """
    own: list[dict[Key, State]] = [{} for _ in range(configuration.workers)]
    for key, state in (states or {}).items():
        place = worker_of(configuration, configuration.since, logic.hash_of(key))
        own[place][key] = state
    workers = tuple(worker(number, configuration, has) for number, has in enumerate(own))
    return Network(logic, workers, {})


def feed(before: Network, number: int, event: Data | Control | Resize) -> Network:
    """Return the network after worker `number` has taken an event from an input; what it sends is
    on its way.
    """
    return _advanced(before, number, event)


def deliver(before: Network, channel: Channel) -> Network:
    """Return the network after the first message of a channel, which must have one, arrives."""
    first, *rest = before.channels[channel]
    left = replace(before, channels={**before.channels, channel: tuple(rest)})
    return _advanced(left, channel[1], Received(channel[0], first))


def drained(before: Network) -> Network:
    """Return the network when everything has arrived, one channel after the other."""
    while before.busy:
        before = deliver(before, before.busy[0])
    return before


def _advanced(before: Network, number: int, event: Event) -> Network:
    after, sent, applied = advance(before.workers[number], event, before.logic)
    workers = (*before.workers[:number], after, *before.workers[number + 1 :])
    channels = _with(before.channels, number, sent)
    return replace(before, workers=workers, channels=channels, applied=(*before.applied, *applied))


def _with(channels: Channels, source: int, sent: Sequence[Sent]) -> Channels:
    queues = dict(channels)
    for target, message in sent:
        queues[source, target] = (*queues.get((source, target), ()), message)
    return queues
