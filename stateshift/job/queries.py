"""Running queries, watched: stopped between two batches when the marker is there, and reported idle
when they are.

How a query is stopped between two batches: its loop asks before every batch whether the query is
still active (MicroBatchExecution.runActivatedStream, Spark 3.3 to 4.3), which is a flag of its own:
StreamExecution.state. We set it to TERMINATED, as `stop` does, but without the interruption that
comes with `stop`. The query then finishes the batch it is in, commits it, and its thread ends. Only
one that sleeps until its next trigger is interrupted: its thread says so itself
(ProcessingTimeExecutor calls Clock.waitTillTime), and whatever wakes it now, it asks before it does
anything. Spark 4.3 asks once more within a batch, when that has been planned, and interrupts its
own thread if it is to end (MicroBatchExecution.runBatch): so the flag is set while a batch is being
done, or none is under way. Where a Spark has no such flag, the moment between two batches is waited
for and may be missed: the batch that `stop` then cuts short has been planned and not committed, and
Spark repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stateshift.errors import PlanError, SpecError
from stateshift.formats import marks
from stateshift.job import files
from stateshift.job.places import handed_over, location

TELL_SECONDS_MAX = (
    10.0  # how long a moment is waited for in which telling a query does not cut its batch short
)
BATCH_SECONDS_MAX = (
    240.0  # how long a query may take to finish its batch before it is stopped in the middle of it
)


def run(*queries: Any) -> None:
    """`watch`, then stop the session: the last line of a job."""
    watch(*queries)
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def watch(*queries: Any, seconds: float = 0.2) -> None:
    """Return when all queries have ended, or when the stop marker is there and each has been
    stopped between two of its batches. Raises what a query failed with. Looks every so many
    `seconds`.
    """
    places = _places(queries)
    tag = handed_over("TAG")
    restoring = list(queries) if tag else []
    while _running(queries):
        for place in places:
            marker = _marker(place)
            if marker is not None:
                files.write(place, marks.STOPPING, marker)
                return _stop(queries)
        for query in [query for query in restoring if _is_idle(query)]:
            restoring.remove(query)
            files.write(
                _checkpoint_of(query), marks.IDLE, marks.encode_idle(tag or "", _committed(query))
            )
        time.sleep(seconds)
    return None


def wait(
    job: str | None = None, seconds: float = 0.1, first: Callable[[], object] | None = None
) -> None:
    """Return when this job's image is there: at once, unless it was started early. Called before
    its first query, and once what takes its time is done: the session, libraries, lookup tables.
    `first` is done only by one that was started early, before it says that it waits: its query once
    over next to nothing, say, with a checkpoint of its own, so that the code is loaded. Looks every
    so many `seconds`. One that is asked to stop meanwhile ends here.
    """
    if not handed_over("WAIT"):
        return
    if first is not None:
        first()
    place, tag = location(job), handed_over("TAG") or ""
    files.write(place, marks.WAITING, marks.encode_tag(tag))
    while not marks.is_meant(files.read(place, marks.RELEASED), tag):
        marker = _marker(place)
        if marker is not None:
            files.write(place, marks.STOPPING, marker)
            raise SystemExit(0)
        time.sleep(seconds)


def stop_requested() -> bool:
    """Whether somebody wants this job to stop: for jobs that have a loop of their own."""
    return _marker(location()) is not None


def _stop(queries: tuple[Any, ...]) -> None:
    """Tell all of them first, so that they finish their batches at the same time; then wait for
    each.
    """
    told = [_tell(query) for query in queries]
    until = time.monotonic() + BATCH_SECONDS_MAX
    for query, knows in zip(queries, told, strict=True):
        while time.monotonic() < until and not (
            _has_stopped(query) if knows else _between_batches(query)
        ):
            time.sleep(0.02)
        query.stop()
        query.awaitTermination()


def _tell(query: Any) -> bool:
    """Set the flag; False where this Spark has none."""
    from py4j.java_gateway import JavaObject
    from py4j.protocol import Py4JError

    streaming = files.jvm().org.apache.spark.sql.execution.streaming
    for package in (streaming.runtime, streaming):  # from Spark 4.1 on, and before
        try:
            terminated = getattr(getattr(package, "TERMINATED$"), "MODULE$")
            if isinstance(terminated, JavaObject):
                until = time.monotonic() + TELL_SECONDS_MAX
                while not _is_past_planning(query) and time.monotonic() < until:
                    time.sleep(0.005)
                _execution(query).state().set(terminated)
                return True
        except (Py4JError, TypeError, AttributeError):  # what py4j says of a name that is not there
            continue
    return False


def _is_past_planning(query: Any) -> bool:
    """Whether its thread does what has been planned, sleeps, or has ended."""
    thread = _execution(query).queryExecutionThread()
    if not thread.isAlive():
        return True
    frames = _frames(thread)
    return any(method in frames for method in _PAST_PLANNING)


def _frames(thread: Any) -> str:
    """All of its stack as one text: frame by frame it would be another by the time that the last
    is asked for.
    """
    java, bearer = files.jvm().java, files.jvm().java.lang.Throwable()
    bearer.setStackTrace(thread.getStackTrace())
    text = java.io.StringWriter()
    bearer.printStackTrace(java.io.PrintWriter(text))
    return str(text.toString())


_PAST_PLANNING = (".withNewExecutionId(", ".sleep(", ".waitTillTime(")


def _has_stopped(query: Any) -> bool:
    """Whether a query that was told has done its last batch: it has ended, or sleeps until its
    next trigger.
    """
    thread = _execution(query).queryExecutionThread()
    return not thread.isAlive() or ".waitTillTime(" in _frames(thread)


def _between_batches(query: Any) -> bool:
    """Whether stopping it now probably cuts nothing short, of a query that could not be told."""
    execution = _execution(query)
    if not execution.queryExecutionThread().isAlive():
        return True
    planned = _latest(execution.offsetLog())
    return not query.status["isTriggerActive"] and planned == _latest(execution.commitLog())


def _is_idle(query: Any) -> bool:
    """Restored, and waiting for input. Spark says so (ProgressContext and
    StreamExecution.updateStatusMessage) after its first look at the sources: what was planned when
    it was stopped has been done again by then.
    """
    status = query.status
    waits = status["message"] in ("Waiting for data to arrive", "Waiting for next trigger")
    return waits and not status["isTriggerActive"] and not status["isDataAvailable"]


def _running(queries: tuple[Any, ...]) -> bool:
    """Whether any of them runs. Raises what one that does not has failed with."""
    ended = [query for query in queries if not query.isActive]
    for query in ended:
        query.awaitTermination()
    return len(ended) < len(queries)


def _marker(place: str) -> bytes | None:
    """The stop marker, if it is there and means us."""
    content = files.read(place, marks.STOP)
    job, tag = handed_over("JOB"), handed_over("TAG")
    return (
        content
        if content is not None and marks.asks_to_stop(content, job, tag, time.time())
        else None
    )


def _places(queries: tuple[Any, ...]) -> tuple[str, ...]:
    """Where the marker may be: at the job's location, or, where nothing says what that is,
    beside each query.
    """
    if any(not hasattr(query, "_jsq") for query in queries):
        raise PlanError(
            "queries of Spark Connect cannot be watched: what is needed of them is in the driver",
            hint="run the job in classic mode (spark-submit), or without job.watch",
        )
    try:
        return (location(),)
    except SpecError:
        return tuple(dict.fromkeys(_checkpoint_of(query) for query in queries))


def _execution(query: Any) -> Any:
    """Spark's StreamExecution behind the query."""
    return query._jsq.streamingQuery()


def _checkpoint_of(query: Any) -> str:
    return str(_execution(query).resolvedCheckpointRoot())


def _committed(query: Any) -> int | None:
    return _latest(_execution(query).commitLog())


def _latest(log: Any) -> int | None:
    """The newest batch of an offset log or a commit log."""
    newest = log.getLatestBatchId()
    return int(newest.get()) if newest.isDefined() else None
