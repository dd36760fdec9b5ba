"""A schedule on workers and channels: the channels between workers, and the way of the markers.

    worker   one of an operator's workers, by number
    channel  from one worker to another, first in, first out; of one edge
    outs     for each worker and each of its edges, the channels between which a tuple's key decides

A forward edge between operators of as many workers leads from each to its twin; any other leads
from all to all. The model checks, and the simulator measures, the same wiring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from stateshift.dataflow.schedulers import Schedule
from stateshift.specification.dataflow.operators import Edge, Operator


@dataclass(frozen=True, slots=True)
class Channel:
    """A queue from one worker to another, first in, first out."""

    edge: Edge
    sender: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Wiring:
    """`awaited` are the channels whose markers a worker waits for, `marking` those it sends its own
    along. `heads` get a control message, `changing` take a new function, `tagging` say which
    version is meant.
    """

    workers: tuple[tuple[Operator, int], ...]
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
    workers: list[tuple[Operator, int]] = []
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
