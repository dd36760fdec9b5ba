"""Rates over samples: the input and the output of each vertex, its busy time, its lag.

    VertexLoad     the rates of one vertex; a decision is made from these alone
    queued         the records that were written to a vertex and not read by it yet

Rates are differences of counters, divided by the difference of the tasks' own clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from stateshift.advise.evaluate.samples import Input, JobSample, SubtaskSample, VertexSample
from stateshift.advise.evaluate.settings import Settings


@dataclass(frozen=True, slots=True)
class VertexLoad:
    """The work of a vertex in a second. `busy` and `backpressured` are shares of time: the busiest
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
        """Return the records that are written to it in a second, read yet or not."""
        return max(0.0, self.input_rate + self.queue_rate)


def loads_of(samples: Sequence[JobSample], settings: Settings) -> tuple[VertexLoad, ...]:
    """Return the load of each vertex over samples that count (`samples.usable`)."""
    vertices = list(zip(*(sample.vertices for sample in samples), strict=True))
    loads = {versions[-1].id: _load(versions, settings) for versions in vertices}
    ends = {versions[-1].id: (versions[0], versions[-1]) for versions in vertices}
    full = set()
    for id, (first, last) in ends.items():
        # The subtask that was least idle had work for so much of the time.
        if 1 - min(_shares(first, last, "idle_ms")) >= NEVER_IDLE:
            full.add(id)
    queues = _Queues({id: last for id, (_, last) in ends.items()}, loads, frozenset(full))
    return tuple(_with_queue(load, queues, *ends[id]) for id, load in loads.items())


def _load(versions: Sequence[VertexSample], settings: Settings) -> VertexLoad:
    first, last = versions[0], versions[-1]
    seconds = _seconds(first, last)
    input_rate = (_known(last.records_in) - _known(first.records_in)) / seconds
    busy_shares = _shares(first, last, "busy_ms")
    lag_rate = 0.0
    if first.lag is not None and last.lag is not None:
        lag_rate = (last.lag - first.lag) / seconds
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
        lag_rate=lag_rate,
        observed=_observed(versions, settings) if last.is_source else None,
        partitions=last.partitions,
        busy_mean=_mean(busy_shares),
        records_skew=_records_skew(first, last),
        busiest=busy_shares.index(max(busy_shares)),
    )


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
    """Return a source's rate while nothing holds it back: over the time that it was not
    backpressured, and only while it always had something to read.
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
    """Return each subtask's share of time between two samples. Busy time may go back a little."""
    shares = []
    for before, after in zip(first.subtasks, last.subtasks, strict=True):
        spent = _known(getattr(after, counter)) - _known(getattr(before, counter))
        shares.append(max(0.0, spent / _ran_ms(before, after)))
    return shares


def _seconds(first: VertexSample, last: VertexSample) -> float:
    """Return the time of the subtasks between two samples that count; the mean of their clocks."""
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


# ---- queues between vertices

# Counters of two vertices are not read at one moment: a queue of less than this is none.
QUEUE_SECONDS_MIN: Final = 1.0
# A queue grows only before a subtask that has next to no idle time.
NEVER_IDLE: Final = 0.9
_BROADCAST: Final = "BROADCAST"
# Two counts that differ by no more than this are of the same records.
ALIKE: Final = 1.03


@dataclass(frozen=True, slots=True)
class EdgeFlow:
    """The records between two vertices: all of the writer's, less those that `others` count."""

    writer: str
    others: tuple[str, ...] = ()
    copies: int = 1


@dataclass(frozen=True)
class _Queues:
    """The vertices of a job with the counters of the last look, brought forward to one moment."""

    last: Mapping[str, VertexSample]
    loads: Mapping[str, VertexLoad]
    full: frozenset[str]

    def edges(self, reader: VertexSample) -> list[EdgeFlow] | None:
        """Return the edges to a vertex; None if the records on one of them cannot be told."""
        edges = []
        for writer in dict.fromkeys(edge.vertex for edge in reader.inputs):
            edge = self._edge(writer, reader)
            if edge is None:
                return None
            edges.append(edge)
        return edges

    def _edge(self, writer: str, reader: VertexSample) -> EdgeFlow | None:
        """Flink counts a record for several vertices once, one of a side output besides (2.3.0)."""
        strategies = [edge.ship_strategy for edge in reader.inputs if edge.vertex == writer]
        others = []
        for each in self.last.values():
            if each.id != reader.id and any(edge.vertex == writer for edge in each.inputs):
                others.append(each)
        written, read = self.total_out(writer), self.total_in(reader.id)
        if _BROADCAST in strategies:
            copies = reader.parallelism
        else:  # a join of a stream with itself
            alone = all(edge.vertex == writer for edge in reader.inputs)
            copies = len(strategies) if alone and read > ALIKE * written else 1
        if not others:
            return EdgeFlow(writer, (), copies)
        single = [each for each in others if len(each.inputs) == 1]
        known = [each for each in single if each.id not in self.full]
        parts: dict[str, float] = {}
        for each in known:
            is_broadcast = each.inputs[0].ship_strategy == _BROADCAST
            part = self.total_in(each.id) / (each.parallelism if is_broadcast else 1)
            if not any(part <= ALIKE * other and other <= ALIKE * part for other in parts.values()):
                parts[each.id] = part
        if written <= ALIKE * sum(parts.values()):
            return EdgeFlow(writer, (), copies) if len(parts) == 1 else None
        if len(known) == len(others) and all(
            each.inputs[0].ship_strategy != _BROADCAST for each in known
        ):
            return EdgeFlow(writer, tuple(parts), copies)
        every = read + sum(self.total_in(each.id) for each in others)
        return EdgeFlow(writer, (), copies) if every > ALIKE * written else None

    def total_out(self, id: str) -> float:
        return _known(self.last[id].records_out) + self._late(id) * self.loads[id].output_rate

    def total_in(self, id: str) -> float:
        return _known(self.last[id].records_in) + self._late(id) * self.loads[id].input_rate

    def _late(self, id: str) -> float:
        times = [each.counted_at for each in self.last.values() if each.counted_at is not None]
        counted = self.last[id].counted_at
        return 0.0 if counted is None else max(times) - counted


def _with_queue(
    load: VertexLoad, queues: _Queues, first: VertexSample, last: VertexSample
) -> VertexLoad:
    """Return a vertex's load with its queue, which grows by two rates, each by its own clock."""
    edges = queues.edges(last) if load.id in queues.full and not load.is_source else None
    if edges is None:
        return load
    written = queued = 0.0
    attempts = {subtask.attempt for subtask in last.subtasks}
    counted_at = [last.counted_at]
    for edge in edges:
        others = sum(queues.loads[other].input_rate for other in edge.others)
        written += edge.copies * max(0.0, queues.loads[edge.writer].output_rate - others)
        others = sum(queues.total_in(other) for other in edge.others)
        queued += edge.copies * (queues.total_out(edge.writer) - others)
        writer = queues.last[edge.writer]
        attempts |= {subtask.attempt for subtask in writer.subtasks}
        counted_at.append(writer.counted_at)
    queued -= queues.total_in(load.id)
    if len(attempts) != 1 or None in counted_at:  # they have not counted from one start on
        queued = 0.0
    seconds = _seconds(first, last)
    grows = written - load.input_rate
    grows = max(grows, -max(0.0, queued - grows * seconds) / seconds)  # not more than there was
    waits = queued if queued >= QUEUE_SECONDS_MIN * written else 0.0
    return replace(load, queued=waits, queue_rate=grows)
