"""Rates over samples: what each vertex took in and gave out, how busy it was, how much waits.

    VertexLoad     the rates of one vertex; a decision is made from these alone

Rates are differences of counters, divided by the difference of the tasks' own clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    read at, as far as that was seen. `lag` is None where a source does not tell.
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

    @property
    def is_source(self) -> bool:
        return not self.inputs


def loads_of(samples: Sequence[JobSample], settings: Settings) -> tuple[VertexLoad, ...]:
    """Return the load of each vertex over samples that count (`samples.usable`)."""
    vertices = zip(*(sample.vertices for sample in samples), strict=True)
    return tuple(_load(versions, settings) for versions in vertices)


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
    )


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
    it was not backpressured. Counts only while so much waits that it always had something to read.
    """
    observations = []
    for earlier, later in pairwise(versions):
        rate = (_known(later.records_in) - _known(earlier.records_in)) / _seconds(earlier, later)
        held_back = _mean(_shares(earlier, later, "backpressured_ms"))
        waits = later.lag is not None and later.lag >= settings.observed_lag_threshold * rate
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
