"""A schedule on workers and channels: who sends to whom, where markers go, and who waits for which.

    worker   one of an operator's workers, by number
    channel  from one worker to another, first in, first out; of one edge
    outs     for each worker and each of its edges, the channels between which a tuple's key decides

A forward edge between operators of as many workers leads from each to its twin; any other leads
from all to all. What the model checks and the simulator measures is the same wiring.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateshift.dataflow.operators import Dataflow, Edge, Operator
from stateshift.dataflow.schedulers import Schedule


@dataclass(frozen=True, slots=True)
class Channel:
    edge: Edge
    sender: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Wiring:
    """`awaited` are the channels whose markers a worker waits for, `marking` those it sends its own
    along. `told` get a control message, `changing` take a new function, `tagging` say which version
    is meant.
    """

    workers: tuple[tuple[Operator, int], ...]
    channels: tuple[Channel, ...]
    outs: tuple[tuple[tuple[int, ...], ...], ...]
    awaited: tuple[tuple[int, ...], ...]
    marking: tuple[tuple[int, ...], ...]
    told: tuple[int, ...]
    changing: frozenset[int]
    tagging: tuple[int, ...]

    def of(self, name: str) -> tuple[int, ...]:
        """The numbers of an operator's workers."""
        return tuple(
            number for number, (operator, _) in enumerate(self.workers) if operator.name == name
        )


def wired(schedule: Schedule) -> Wiring:
    dataflow = schedule.dataflow
    workers = tuple(
        (operator, i) for operator in dataflow.operators for i in range(operator.workers)
    )
    numbers: dict[str, list[int]] = {operator.name: [] for operator in dataflow.operators}
    for number, (operator, _) in enumerate(workers):
        numbers[operator.name].append(number)
    channels, outs = _channels(dataflow, numbers, len(workers))
    with_markers = schedule.edges
    awaited: list[list[int]] = [[] for _ in workers]
    marking: list[list[int]] = [[] for _ in workers]
    for number, channel in enumerate(channels):
        if channel.edge.ends in with_markers:
            marking[channel.sender].append(number)
            awaited[channel.receiver].append(number)
    return Wiring(
        workers=workers,
        channels=tuple(channels),
        outs=tuple(map(tuple, outs)),
        awaited=tuple(map(tuple, awaited)),
        marking=tuple(map(tuple, marking)),
        told=tuple(number for name in schedule.heads for number in numbers[name]),
        changing=frozenset(number for name in schedule.targets for number in numbers[name]),
        tagging=tuple(number for name in schedule.tagging for number in numbers[name]),
    )


def _channels(
    dataflow: Dataflow, numbers: dict[str, list[int]], count: int
) -> tuple[list[Channel], list[list[tuple[int, ...]]]]:
    channels: list[Channel] = []
    outs: list[list[tuple[int, ...]]] = [[] for _ in range(count)]
    for edge in dataflow.edges:
        senders, receivers = numbers[edge.upstream], numbers[edge.downstream]
        twins = edge.way == "forward" and len(senders) == len(receivers)
        for place, sender in enumerate(senders):
            reached = receivers[place : place + 1] if twins else receivers
            outs[sender].append(tuple(range(len(channels), len(channels) + len(reached))))
            channels += [Channel(edge, sender, receiver) for receiver in reached]
    return channels, outs
