"""A look at a job of Flink over REST (1.15 to 2.3): counters of each subtask, the lag of sources,
free slots, and the time of rescales.

    of a subtask    read-records, write-records, accumulated-busy-time, accumulated-idle-time,
                    accumulated-backpressured-time (ms), each since it was started
    of a source     Source__<name>.numRecordsIn, .numRecordsOut, .pendingRecords
    partitions      the names ….KafkaSourceReader.topic.<topic>.partition.<n>.currentOffset

A source's task reads from no other, so that its own read-records stay 0: its reader's numRecordsIn
counts instead or, of a source that does not count those, its numRecordsOut.

Flink gathers counters when somebody asks, and answers with those that it has: a first question is
asked for its effect alone. Seen of 2.3.0 and 1.20.5; source: MetricFetcherImpl, MutableIOMetrics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stateshift.advise.evaluate.inputs import RestartCost
from stateshift.advise.evaluate.samples import Input, JobSample, SubtaskSample, VertexSample
from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.values import ENDED
from stateshift.clusters.http import Json
from stateshift.errors import ClusterError
from stateshift.world import Clock

# Counters that are older than this are asked for again: Flink gathers every ten seconds.
STALE_MS: Final = 12_000.0
SECONDS_MAX: Final = 12.0
SECONDS_BETWEEN: Final = 0.5

_PARTITION = re.compile(r"\.KafkaSourceReader\.topic\.(.+)\.partition\.(\d+)\.currentOffset$")
_SOURCE_METRIC = re.compile(r"\d+\.(Source__.+\.(?:numRecordsIn|numRecordsOut|pendingRecords))$")


@dataclass(frozen=True)
class VertexPages:
    """The answers of Flink on a vertex: its page, sums of its source's metrics, its partitions."""

    page: Json
    sums: Mapping[str, float]
    partitions: int | None = None


@dataclass(frozen=True)
class FlinkJob:
    """A job that can be looked at again and again."""

    calls: FlinkCalls
    id: str
    clock: Clock

    def look(self) -> JobSample:
        """Return the counters of the job by now.

        Raises:
            ClusterError: the cluster does not answer, the job has gone, or not all of it runs.
        """
        path = f"/jobs/{self.id}"
        page = self.calls.page(self.id)
        if page is None:
            raise self._error("Flink knows no such job any more")
        with self.calls.read(path):
            if page["state"] != "RUNNING":
                raise self._error(f"the job is {page['state']}")
            for vertex in page["vertices"]:
                if vertex["status"] != "RUNNING":
                    raise self._error(f"{vertex['name']} is {vertex['status']}")
            ids = [str(vertex["id"]) for vertex in page["vertices"]]
        until = self.clock.now() + SECONDS_MAX
        pages = {id: self._vertex(id, until) for id in ids}
        with self.calls.read(path):
            inputs: dict[str, tuple[Input, ...]] = {}
            for node in page["plan"]["nodes"]:
                edges = node.get("inputs", ())
                shipped = [
                    Input(str(edge["id"]), str(edge.get("ship_strategy", ""))) for edge in edges
                ]
                inputs[str(node["id"])] = tuple(shipped)
            starts = [int(vertex["start-time"]) for vertex in page["vertices"]]
            running = int(page["timestamps"]["RUNNING"])
            times = [int(page["now"]), *(int(each.page["now"]) for each in pages.values())]
            return JobSample(
                time=max(times) / 1000,
                job_id=str(page["jid"]),
                started=max([running, *starts]) / 1000,
                vertices=tuple(
                    _vertex(vertex, inputs[str(vertex["id"])], pages[str(vertex["id"])])
                    for vertex in page["vertices"]
                ),
            )

    def refuse_ended(self) -> None:
        """Refuse a job that is over.

        Raises:
            ClusterError: it has ended, Flink knows it no more, or does not answer.
        """
        page = self.calls.page(self.id)
        if page is None:
            raise self._error("Flink knows no such job any more")
        with self.calls.read(f"/jobs/{self.id}"):
            if page["state"] in ENDED:
                raise self._error(f"the job is {page['state']}")

    def _vertex(self, vertex: str, until: float) -> VertexPages:
        """Return the pages of a vertex once its counters are new, or the last before `until`."""
        while True:
            page = self.calls.vertex_page(self.id, vertex)
            with self.calls.read(f"/jobs/{self.id}/vertices/{vertex}"):
                if is_fresh(page):
                    break
            if self.clock.now() >= until:
                break
            self.clock.sleep(SECONDS_BETWEEN)
        names = self.calls.metrics(self.id, vertex)
        wanted = sorted({found[1] for found in map(_SOURCE_METRIC.match, names) if found})
        sums = self.calls.sums(self.id, vertex, wanted) if wanted else {}
        partitions = {match.groups() for match in map(_PARTITION.search, names) if match}
        return VertexPages(page, sums, len(partitions) or None)  # none of them: it names none

    def _error(self, fact: str) -> ClusterError:
        return ClusterError(fact, cluster=self.calls.cluster, job=self.id)


def is_fresh(page: Json) -> bool:
    """Whether the counters of each subtask are whole, and of its last seconds."""
    return all(_age_ms(subtask) <= STALE_MS for subtask in page["subtasks"])


def _age_ms(subtask: Json) -> float:
    """Return the age of a subtask's counters; infinite where they say nothing."""
    counters = _subtask(subtask)
    counted = counters.clock_ms
    states: Json = subtask.get("status-duration") or {}
    running = float(states["RUNNING"] if "RUNNING" in states else subtask["duration"])
    return running - counted if counted and counters.records_in is not None else math.inf


def _vertex(vertex: Json, inputs: tuple[Input, ...], pages: VertexPages) -> VertexSample:
    metrics = [subtask["metrics"] for subtask in pages.page["subtasks"]]
    records_in = _sum(_counter(each, "read-records") for each in metrics)
    records_out = _sum(_counter(each, "write-records") for each in metrics)
    parallelism_max = int(vertex.get("maxParallelism", -1))
    lag = None if inputs else _metric(pages.sums, ".pendingRecords")
    if lag is not None:
        lag = max(0.0, lag)  # a source that is ahead of its broker may say less than none
    counted_at = None  # the mean of its subtasks, while each of them says something
    ages = [_age_ms(subtask) for subtask in pages.page["subtasks"]]
    if ages and math.isfinite(sum(ages)):
        counted_at = (float(pages.page["now"]) - sum(ages) / len(ages)) / 1000
    return VertexSample(
        id=str(vertex["id"]),
        name=str(vertex["name"]),
        parallelism=int(vertex["parallelism"]),
        parallelism_max=parallelism_max if parallelism_max > 0 else None,
        inputs=inputs,
        records_in=records_in if inputs else source_records(records_in, pages.sums, records_out),
        records_out=records_out,
        subtasks=tuple(map(_subtask, pages.page["subtasks"])),
        lag=lag,
        partitions=None if inputs else pages.partitions,
        counted_at=counted_at,
    )


def source_records(
    read: float | None, sums: Mapping[str, float], written: float | None
) -> float | None:
    """Return the input of a source: the first of its counters that counts."""
    counters = (read, _metric(sums, ".numRecordsIn"), _metric(sums, ".numRecordsOut"), written)
    known = [counter for counter in counters if counter is not None]
    return next((counter for counter in known if counter > 0), known[0] if known else None)


def _metric(sums: Mapping[str, float], suffix: str) -> float | None:
    values = [value for name, value in sums.items() if name.endswith(suffix)]
    return _number(sum(values)) if values else None


def _subtask(subtask: Json) -> SubtaskSample:
    metrics, attempt = subtask["metrics"], subtask.get("attempt")
    return SubtaskSample(
        records_in=_counter(metrics, "read-records"),
        busy_ms=_number(metrics.get("accumulated-busy-time")),
        idle_ms=_number(metrics.get("accumulated-idle-time")),
        backpressured_ms=_number(metrics.get("accumulated-backpressured-time")),
        attempt=attempt if isinstance(attempt, int) else None,
    )


def _counter(metrics: Json, name: str) -> float | None:
    """Return a counter; None while Flink has gathered it of none, or of some of its tasks."""
    if metrics.get(f"{name}-complete") is False:
        return None
    return _number(metrics.get(name))


def _number(value: float | str | None) -> float | None:
    """Return a number, if it is one: Flink writes "NaN" as a text."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = list(values)
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def restart_of(calls: FlinkCalls, id: str) -> RestartCost | None:
    """Return the time of the slowest of the job's rescales that Flink remembers."""
    rescales, took_ms = calls.rescales(id), []
    with calls.read(f"/jobs/{id}/rescales/history"):
        for rescale in rescales:
            began = rescale.get("startTimestampInMillis")
            ended = rescale.get("endTimestampInMillis")
            is_complete = rescale.get("terminalState") == "COMPLETED"
            if is_complete and began is not None and ended is not None:
                took_ms.append(float(ended) - float(began))
    known = [took for took in took_ms if 0 <= took < math.inf]
    return RestartCost(max(known) / 1000, "flink") if known else None
