"""Rates over samples: what each vertex took in and gave out, how busy it was, how much waits.

    VertexLoad     the rates of one vertex; a decision is made from these alone
    queued         what was written to a vertex and not read by it yet

Rates are differences of counters, divided by the difference of the tasks' own clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from stateshift.advise.evaluate.samples import (
    Input,
    JobSample,
    SubtaskSample,
    VertexSample,
)
from stateshift.advise.evaluate.settings import Settings


@dataclass(frozen=True, slots=True)
class VertexLoad:
    """What a vertex did a second. `busy` and `backpressured` are shares of time: the busiest
    subtask's, or the mean, as the settings say. `observed` is the rate that a source is able to
    read at, as far as that was seen. `lag` is None where a source does not tell. `queued` is the
    number of records in the buffers before it, `queue_rate` the growth of that. `busiest` is the
    number of the busiest subtask.
    """

    id: str
    name: str
    parallelism: int
    parallelism_max: int | None
    inputs: tuple[Input, ...]
    input_rate: float
    output_rate: float
    busy: float
    backpressured: float = 0.0
    lag: float | None = None
    lag_rate: float = 0.0
    observed: float | None = None
    partitions: int | None = None
    busy_mean: float | None = None
    records_skew: float | None = None  # the most of a subtask, over the mean
    queued: float = 0.0
    queue_rate: float = 0.0
    busiest: int | None = None

    @property
    def is_source(self) -> bool:
        return not self.inputs

    @property
    def arriving(self) -> float:
        """Return what is written to it a second, whether it reads that yet or not."""
        return max(0.0, self.input_rate + self.queue_rate)


def loads_of(samples: Sequence[JobSample], settings: Settings) -> tuple[VertexLoad, ...]:
    """Return the load of each vertex over samples that count (`samples.usable`)."""
    vertices = list(zip(*(sample.vertices for sample in samples), strict=True))
    loads = {versions[-1].id: _load(versions, settings) for versions in vertices}
    ends = {versions[-1].id: (versions[0], versions[-1]) for versions in vertices}
    return tuple(_with_queues(loads, ends))


def _load(versions: Sequence[VertexSample], settings: Settings) -> VertexLoad:
    first, last = versions[0], versions[-1]
    seconds = _seconds(first, last)
    input_rate = (_known(last.records_in) - _known(first.records_in)) / seconds
    lags = [version.lag for version in versions]
    return VertexLoad(
        id=last.id,
        name=last.name,
        parallelism=last.parallelism,
        parallelism_max=last.parallelism_max,
        inputs=last.inputs,
        input_rate=input_rate,
        output_rate=(_known(last.records_out) - _known(first.records_out)) / seconds,
        busy=_busy(versions, settings),
        backpressured=_mean(_shares(first, last, "backpressured_ms")),
        lag=last.lag,
        lag_rate=_lag_rate(lags[0], lags[-1], seconds),
        observed=_observed(versions, settings) if last.is_source else None,
        partitions=last.partitions,
        busy_mean=_mean(_shares(first, last, "busy_ms")),
        records_skew=_records_skew(first, last),
        busiest=_busiest(first, last),
    )


def _busiest(first: VertexSample, last: VertexSample) -> int:
    shares = _shares(first, last, "busy_ms")
    return shares.index(max(shares))


def _lag_rate(first: float | None, last: float | None, seconds: float) -> float:
    if first is None or last is None:
        return 0.0
    return (last - first) / seconds


def _busy(versions: Sequence[VertexSample], settings: Settings) -> float:
    """Return the share of time for which the vertex was busy."""
    if settings.busy_time_aggregator == "AVG":
        return _mean(_shares(versions[0], versions[-1], "busy_ms"))
    weighted, seconds = 0.0, 0.0
    for earlier, later in pairwise(versions):
        lasted = _seconds(earlier, later)
        weighted += lasted * max(_shares(earlier, later, "busy_ms"))
        seconds += lasted
    return weighted / seconds


def _observed(versions: Sequence[VertexSample], settings: Settings) -> float | None:
    """Return what a source reads a second while nothing holds it back: its rate over the time that
    it was not backpressured. Counts only while so much waits that it always had something to read,
    and was never idle.
    """
    observations = []
    for earlier, later in pairwise(versions):
        rate = (_known(later.records_in) - _known(earlier.records_in)) / _seconds(earlier, later)
        held_back = _mean(_shares(earlier, later, "backpressured_ms"))
        waits = later.lag is not None and later.lag >= settings.observed_lag_threshold * rate
        waits = waits and _mean(_shares(earlier, later, "idle_ms")) < 1 - NEVER_IDLE
        if waits and rate > 0 and held_back < 1:
            observations.append(rate / (1 - held_back))
    if len(observations) < settings.observed_min_observations:
        return None
    return _mean(observations)


def _records_skew(first: VertexSample, last: VertexSample) -> float | None:
    taken = []
    for before, after in zip(first.subtasks, last.subtasks, strict=True):
        if before.records_in is not None and after.records_in is not None:
            taken.append(after.records_in - before.records_in)
    if len(taken) < 2 or sum(taken) <= 0:
        return None
    return max(taken) * len(taken) / sum(taken)


def _shares(first: VertexSample, last: VertexSample, counter: str) -> list[float]:
    """Return the share of time that each subtask spent so between two samples. Busy time may go
    back a little: that of a subtask that is held back all the time, say.
    """
    shares = []
    for before, after in zip(first.subtasks, last.subtasks, strict=True):
        spent = _known(getattr(after, counter)) - _known(getattr(before, counter))
        shares.append(max(0.0, spent / _ran_ms(before, after)))
    return shares


def _seconds(first: VertexSample, last: VertexSample) -> float:
    """Return how long the subtasks ran between two samples that count; the mean of their clocks."""
    both = zip(first.subtasks, last.subtasks, strict=True)
    return _mean(_ran_ms(before, after) for before, after in both) / 1000


def _ran_ms(before: SubtaskSample, after: SubtaskSample) -> float:
    return _known(after.clock_ms) - _known(before.clock_ms)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _known(value: float | None) -> float:
    assert value is not None, "samples.usable has refused what is not known"
    return value


# ---- what waits between vertices

# Counters of two vertices are not read at one moment: a queue of less than this is none.
QUEUE_SECONDS_MIN: Final = 1.0
# A queue grows only before a subtask that has next to no idle time.
NEVER_IDLE: Final = 0.9
_BROADCAST: Final = "BROADCAST"
# Two counts that differ by no more than this are of the same records.
ALIKE: Final = 1.03


@dataclass(frozen=True, slots=True)
class Edge:
    """What is written on the edges from one vertex to another: all that the writer has counted,
    less what `others` read, which have outputs of their own; each record so many times.
    """

    writer: str
    others: tuple[str, ...] = ()
    copies: int = 1


@dataclass(frozen=True)
class _Queues:
    """The vertices of a job with the counters of the last look, brought forward to one moment."""

    last: Mapping[str, VertexSample]
    loads: Mapping[str, VertexLoad]
    full: frozenset[str]

    def edges(self, reader: VertexSample) -> list[Edge] | None:
        """Return the edges to a vertex; None if what is written on one of them cannot be told."""
        edges = []
        for writer in dict.fromkeys(edge.vertex for edge in reader.inputs):
            edge = self._edge(writer, reader)
            if edge is None:
                return None
            edges.append(edge)
        return edges

    def _edge(self, writer: str, reader: VertexSample) -> Edge | None:
        """Flink counts a record once that goes to several vertices, and each of those reads it. One
        of a side output is counted beside them. Seen of 2.3.0.
        """
        strategies = [edge.ship_strategy for edge in reader.inputs if edge.vertex == writer]
        others = [
            each
            for each in self.last.values()
            if each.id != reader.id and any(edge.vertex == writer for edge in each.inputs)
        ]
        written, read = self.total_out(writer), self.total_in(reader.id)
        if _BROADCAST in strategies:
            copies = reader.parallelism
        else:  # a join of a stream with itself
            alone = all(edge.vertex == writer for edge in reader.inputs)
            copies = len(strategies) if alone and read > ALIKE * written else 1
        if not others:
            return Edge(writer, (), copies)
        known = [each for each in others if each.id not in self.full and len(each.inputs) == 1]
        parts: dict[str, float] = {}
        for each in known:
            part = self.total_in(each.id) / (
                each.parallelism if each.inputs[0].ship_strategy == _BROADCAST else 1
            )
            if not any(part <= ALIKE * other and other <= ALIKE * part for other in parts.values()):
                parts[each.id] = part
        if written <= ALIKE * sum(parts.values()):
            return Edge(writer, (), copies) if len(parts) == 1 else None
        if len(known) == len(others) and all(
            each.inputs[0].ship_strategy != _BROADCAST for each in known
        ):
            return Edge(writer, tuple(parts), copies)
        every = read + sum(self.total_in(each.id) for each in others)
        return Edge(writer, (), copies) if every > ALIKE * written else None

    def total_out(self, id: str) -> float:
        return _known(self.last[id].records_out) + self._late(id) * self.loads[id].output_rate

    def total_in(self, id: str) -> float:
        return _known(self.last[id].records_in) + self._late(id) * self.loads[id].input_rate

    def _late(self, id: str) -> float:
        times = [each.counted_at for each in self.last.values() if each.counted_at is not None]
        counted = self.last[id].counted_at
        return 0.0 if counted is None else max(times) - counted


def _with_queues(
    loads: Mapping[str, VertexLoad], ends: Mapping[str, tuple[VertexSample, VertexSample]]
) -> Iterator[VertexLoad]:
    """Yield the loads with the records that wait before each vertex. Growth is the difference of
    two rates, each by the clock of its own tasks.
    """
    full = frozenset(id for id, both in ends.items() if _occupied(*both) >= NEVER_IDLE)
    queues = _Queues({id: last for id, (_, last) in ends.items()}, loads, full)
    for id, load in loads.items():
        edges = queues.edges(ends[id][1]) if id in full and not load.is_source else None
        if edges is None:
            yield load
            continue
        written = queued = 0.0
        for edge in edges:
            others = sum(loads[other].input_rate for other in edge.others)
            written += edge.copies * max(0.0, loads[edge.writer].output_rate - others)
            others = sum(queues.total_in(other) for other in edge.others)
            queued += edge.copies * (queues.total_out(edge.writer) - others)
        queued -= queues.total_in(id)
        if not _count_alike([id, *(edge.writer for edge in edges)], queues.last):
            queued = 0.0
        seconds = _seconds(*ends[id])
        grows = written - load.input_rate
        grows = max(grows, -max(0.0, queued - grows * seconds) / seconds)  # not more than there was
        waits = queued if queued >= QUEUE_SECONDS_MIN * written else 0.0
        yield replace(load, queued=waits, queue_rate=grows)


def _count_alike(ids: Iterable[str], last: Mapping[str, VertexSample]) -> bool:
    """Whether all subtasks of some vertices have counted from one start of the job on."""
    vertices = [last[id] for id in ids]
    attempts = {subtask.attempt for vertex in vertices for subtask in vertex.subtasks}
    return len(attempts) == 1 and all(vertex.counted_at is not None for vertex in vertices)


def _occupied(first: VertexSample, last: VertexSample) -> float:
    """Return for how much of the time the subtask that was least idle was not."""
    return 1 - min(_shares(first, last, "idle_ms"))
