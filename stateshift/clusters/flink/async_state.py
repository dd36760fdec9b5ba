"""Whether a running job can write a canonical savepoint, as far as Flink tells before it is asked
for one.

ForSt writes none (ForStKeyedStateBackend.savepoint), nor does any backend of an operator that asks
its state without waiting (state V2, since 2.0; StreamOperatorStateHandler.snapshotState): asked for
one, its task fails, and the job with it. Such an operator is known by what it measures, under
`asyncStateProcessing` (AsyncExecutionController); nothing else that Flink tells of a job has a word
of it. Flink gathers these names when somebody asks, at most every ten seconds
(metrics.fetcher.update-interval): meanwhile it answers with none, or with those of a job that was
still being set up.
"""

from __future__ import annotations

import threading
import time
from itertools import chain
from typing import Final

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.values import Job, release_of
from stateshift.clusters.http.rest import Refused, Unanswered
from stateshift.clusters.waiting import wait_for

_MEASURED: Final = ".asyncStateProcessing."
_GATHERING_SECONDS: Final = 12.0


def no_canonical(calls: FlinkCalls, job: Job, interrupt: threading.Event | None) -> str | None:
    """Return why a canonical savepoint of this job would fail, None if it would not."""
    if keeps_in_forst(calls, job):
        return f"{job.name} keeps its state in ForSt, which writes no canonical savepoint"
    if release_of(calls.version()) < (2, 0):
        return None
    names = _async_operators(calls, job, interrupt)
    if not names:
        return None
    return (
        f"{names[0]!r} of {job.name} asks its state asynchronously (state V2), and writes no "
        "canonical savepoint"
    )


def keeps_in_forst(calls: FlinkCalls, job: Job) -> bool:
    """Whether a job keeps its state in ForSt, which may be asked asynchronously."""
    return "forst" in str(calls.settings(job.id).get("state_backend", "")).lower()


def _async_operators(calls: FlinkCalls, job: Job, interrupt: threading.Event | None) -> list[str]:
    """Return the operators, by the names under which they measure; none if Flink does not say in
    time.
    """
    age = _GATHERING_SECONDS
    if job.started is not None:
        age = (job.now - job.started) / 1000
    settled = time.monotonic() + max(0.0, _GATHERING_SECONDS - age)

    def measured() -> list[str] | None:
        try:
            metrics = {vertex: calls.metrics(job.id, vertex.id) for vertex in job.vertices}
        except (Refused, Unanswered):  # it has ended, or nothing is measured here
            return []
        names = chain.from_iterable(metrics.values())
        operators = {_operator(name) for name in names if _MEASURED in name}
        if operators:
            return sorted(operators)
        running = [vertex for vertex in job.vertices if vertex.state == "RUNNING"]
        all_known = all(metrics[vertex] for vertex in running)
        return [] if all_known and time.monotonic() >= settled else None

    return wait_for(measured, _GATHERING_SECONDS + 1.0, interrupt) or []


def _operator(metric: str) -> str:
    """Return `orders_count` of `0.orders_count.asyncStateProcessing.numInFlightRecords`."""
    return metric.partition(_MEASURED)[0].partition(".")[2]
