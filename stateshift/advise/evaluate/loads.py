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
    for group in queue_groups([last for _, last in ends.values()]):
        loads |= _with_queue(group, loads, ends)
    return tuple(loads.values())


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


@dataclass(frozen=True, slots=True)
class QueueGroup:
    """Vertices that write to the same ones, and those: what the first have written and the others
    have not read waits between them. Flink counts no edge of its own. `copies` is how often a
    record that a writer counts once is read.
    """

    writers: Mapping[str, float]
    readers: tuple[str, ...]


def queue_groups(vertices: Sequence[VertexSample]) -> Iterator[QueueGroup]:
    """Yield the groups of a job; none of vertices that broadcast some of their records only: nobody
    counts those apart.
    """
    groups: list[tuple[set[str], list[VertexSample]]] = []
    for reader in vertices:
        if reader.is_source:
            continue
        writers, readers = {edge.vertex for edge in reader.inputs}, [reader]
        for group in [group for group in groups if group[0] & writers]:
            groups.remove(group)
            writers, readers = writers | group[0], [*group[1], *readers]
        groups.append((writers, readers))
    for names, readers in groups:
        copies = {name: _copies(name, readers) for name in names}
        known = {name: count for name, count in copies.items() if count is not None}
        if len(known) == len(copies):
            yield QueueGroup(known, tuple(reader.id for reader in readers))


def _copies(writer: str, readers: Sequence[VertexSample]) -> float | None:
    """Return how often a record of a writer is read, each of its edges having as many of them."""
    counts, broadcasts = [], []
    for reader in readers:
        for edge in reader.inputs:
            if edge.vertex == writer:
                is_broadcast = edge.ship_strategy == _BROADCAST
                broadcasts.append(is_broadcast)
                counts.append(reader.parallelism if is_broadcast else 1)
    return None if any(broadcasts) and len(broadcasts) > 1 else _mean(counts)


def _with_queue(
    group: QueueGroup,
    loads: Mapping[str, VertexLoad],
    ends: Mapping[str, tuple[VertexSample, VertexSample]],
) -> dict[str, VertexLoad]:
    """Return the loads of the readers before which records wait, or waited. Growth is the
    difference of two rates, each by the clock of its own tasks.
    """
    readers = [loads[id] for id in group.readers]
    full = [load for load in readers if _occupied(*ends[load.id]) >= NEVER_IDLE]
    reads = sum(load.input_rate for load in full)
    if reads <= 0:
        return {}
    written = sum(loads[id].output_rate * copies for id, copies in group.writers.items())
    grows = written - sum(load.input_rate for load in readers)
    queued = _queued(group, loads, {id: last for id, (_, last) in ends.items()})
    seconds = _mean(_seconds(*ends[load.id]) for load in full)
    before = 0.0 if queued is None else max(0.0, queued - grows * seconds)
    grows = max(grows, -before / seconds)  # no more is drained than there was
    waits = 0.0 if queued is None or queued < QUEUE_SECONDS_MIN * written else queued
    return {
        load.id: replace(
            load,
            queued=waits * load.input_rate / reads,
            queue_rate=grows * load.input_rate / reads,
        )
        for load in full
    }


def _occupied(first: VertexSample, last: VertexSample) -> float:
    """Return for how much of the time the subtask that was least idle was not."""
    return 1 - min(_shares(first, last, "idle_ms"))


def _queued(
    group: QueueGroup, loads: Mapping[str, VertexLoad], last: Mapping[str, VertexSample]
) -> float | None:
    """Return the records written less those read, both brought forward to one moment by their
    rates. None where a subtask has counted from another start than the others.
    """
    vertices = [last[id] for id in (*group.writers, *group.readers)]
    attempts = {subtask.attempt for vertex in vertices for subtask in vertex.subtasks}
    times = [vertex.counted_at for vertex in vertices if vertex.counted_at is not None]
    if len(attempts) > 1 or len(times) < len(vertices):
        return None
    moment = max(times)
    queued = 0.0
    for id, copies in group.writers.items():
        late = moment - _known(last[id].counted_at)
        queued += copies * (_known(last[id].records_out) + late * loads[id].output_rate)
    for id in group.readers:
        late = moment - _known(last[id].counted_at)
        queued -= _known(last[id].records_in) + late * loads[id].input_rate
    return queued
