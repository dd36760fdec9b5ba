"""Running queries, watched: stopped between two batches when the marker is there, and reported idle
when they are.

A query is stopped between two batches: its loop asks before every batch whether the query is still
active (MicroBatchExecution.runActivatedStream, Spark 3.3 to 4.3), which is a flag of its own:
StreamExecution.state. We set it to TERMINATED, as `stop` does, but without the interruption that
comes with `stop`. The query then finishes the batch it is in, commits it, and its thread ends. Only
one that sleeps until its next trigger is interrupted: its thread says so itself
(ProcessingTimeExecutor calls Clock.waitTillTime), and whatever wakes it now, it asks before it does
anything. Spark 4.3 asks once more within a batch, when that has been planned, and interrupts its
own thread if it is to end (MicroBatchExecution.runBatch): so the flag is set while a batch is being
done, or none is under way. In a Spark without such a flag, the moment between two batches may be
missed: then `stop` cuts a batch short that was planned and not committed, and Spark repeats it.

The last batches of a job's queries are noted in a file beside each checkpoint, for `stateshift
advise`. Nothing of it may disturb the job. A file is written at most every EVERY_SECONDS, whole or
not at all; where it cannot be, that is logged once and tried again later.

Only a query whose trigger goes on, batch after batch, tells by them how much it could do. One that
ends when all is read (available now, once) is busy until then, however many cores it has.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeAlias

from stateshift.errors import PlanError, SpecError
from stateshift.formats import marks
from stateshift.formats.spark.progress import (
    BATCHES_MAX,
    QueryProgress,
    batch_of_document,
    encode_progress,
)
from stateshift.job import files
from stateshift.job.files import Java
from stateshift.job.places import location, read_setting

_log = logging.getLogger(__name__)

# pyspark's StreamingQuery. pyspark is imported late, and mypy does not read its types.
Query: TypeAlias = Any

# For the moment in which setting a query's flag does not cut its batch short.
FLAG_SECONDS_MAX = 10.0
# For a query to finish its batch, before it is stopped in the middle of it; one in real-time mode
# gets the length of its batch on top.
BATCH_SECONDS_MAX = 240.0
WAITS_FOR_INPUT = ("Waiting for data to arrive", "Waiting for next trigger")


def run(*queries: Query) -> None:
    """Watch the queries, then stop the session: the last line of a job."""
    watch(*queries)
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def watch(*queries: Query, seconds: float = 0.2) -> None:
    """Watch queries until all have ended, or until the stop marker is there and each has been
    stopped between two of its batches. Raises the error of a query that failed. Looks every so many
    `seconds`. Keeps the progress of the queries beside their checkpoints.
    """
    places = _places(queries)
    tag = read_setting("TAG")
    restoring = list(queries) if tag else []
    kept = queries if keeps_progress() else ()
    progress = [ProgressFile(_execution(query)) for query in kept]
    beside = _Beside()
    while _any_runs(queries):
        if any(beside.is_answered(place) for place in places):
            return _stop_all(queries)
        for query in list(restoring):
            # Spark says so (ProgressContext and StreamExecution.updateStatusMessage) after its
            # first look at the sources: a batch that was planned when the query was stopped has
            # been done again by then.
            status = query.status
            is_busy = status["isTriggerActive"] or status["isDataAvailable"]
            if is_busy or status["message"] not in WAITS_FOR_INPUT:
                continue
            if beside.is_marked_idle(query, tag or ""):
                restoring.remove(query)
        for file in progress:
            if file.keep():
                break  # one a look: the marker does not wait until all are written
        time.sleep(seconds)
    return None


@dataclass(eq=False)
class _Beside:
    """The work beside the queries. A storage that fails is logged once, and tried again."""

    _has_failed: bool = field(default=False, init=False)

    def is_answered(self, place: str) -> bool:
        """Whether the stop marker is here, means us and is answered."""
        return self._tried(place, lambda: _answer_marker(place))

    def is_released(self, place: str, tag: str) -> bool:
        """Whether the image of a job that was started early is there."""
        return self._tried(place, lambda: marks.is_meant(files.read(place, marks.RELEASED), tag))

    def is_marked_idle(self, query: Query, tag: str) -> bool:
        """Whether it is noted by now that a query is restored and has nothing to read."""

        def mark() -> bool:
            idle = marks.encode_idle(tag, _latest(_execution(query).commitLog()))
            files.write(_checkpoint_of(query), marks.IDLE, idle)
            return True

        return self._tried(marks.IDLE, mark)

    def _tried(self, what: str, act: Callable[[], bool]) -> bool:
        try:
            return act()
        except Exception as error:  # whatever a storage raises: the user's job goes on
            if not self._has_failed:
                _log.warning("stateshift's files beside the image: %s: %s", what, error)
            self._has_failed = True
            return False


def wait(
    job: str | None = None, seconds: float = 0.1, first: Callable[[], object] | None = None
) -> None:
    """Wait until this job's image is there: it is, unless the job was started early. Called before
    its first query, and after all that takes its time: the session, libraries, lookup tables.
    `first` is done only by one that was started early, before it says that it waits: its query once
    over next to nothing, say, with a checkpoint of its own, so that the code is loaded. Looks every
    so many `seconds`. One that is asked to stop meanwhile ends here.
    """
    if not read_setting("WAIT"):
        return
    if first is not None:
        first()
    place, tag = location(job), read_setting("TAG") or ""
    files.write(place, marks.WAITING, marks.encode_tag(tag))
    beside = _Beside()
    while not beside.is_released(place, tag):
        if beside.is_answered(place):
            raise SystemExit(0)
        time.sleep(seconds)


def stop_requested() -> bool:
    """Whether somebody wants this job to stop: for jobs that have a loop of their own."""
    return _marker(location()) is not None


def _stop_all(queries: tuple[Query, ...]) -> None:
    """Set all flags first, so that the queries finish their batches at the same time; then wait."""
    flagged = [_set_flag(query) for query in queries]
    longest = max(map(_real_time_seconds, queries), default=0.0)
    until = time.monotonic() + BATCH_SECONDS_MAX + longest
    for query, is_flagged in zip(queries, flagged, strict=True):
        may_stop = _has_stopped if is_flagged else _between_batches
        while time.monotonic() < until and not may_stop(query):
            time.sleep(0.02)
        query.stop()
        query.awaitTermination()


def _real_time_seconds(query: Query) -> float:
    """Return the length of a batch in real-time mode; 0 for any other trigger."""
    trigger = str(_execution(query).trigger().toString())
    milliseconds = re.fullmatch(r"RealTimeTrigger\((\d+)\)", trigger)
    return int(milliseconds[1]) / 1000 if milliseconds else 0.0


def _set_flag(query: Query) -> bool:
    """Set the flag that ends a query after its batch. Return False if this Spark has none."""
    from py4j.java_gateway import JavaObject
    from py4j.protocol import Py4JError

    streaming = files.jvm().org.apache.spark.sql.execution.streaming
    for package in (streaming.runtime, streaming):  # from Spark 4.1 on, and before
        try:
            terminated = getattr(getattr(package, "TERMINATED$"), "MODULE$")
            if isinstance(terminated, JavaObject):
                until = time.monotonic() + FLAG_SECONDS_MAX
                while not _is_past_planning(query) and time.monotonic() < until:
                    time.sleep(0.005)
                _execution(query).state().set(terminated)
                return True
        except (Py4JError, TypeError, AttributeError):  # what py4j says of a name that is not there
            continue
    return False


def _is_past_planning(query: Query) -> bool:
    """Whether its thread does what has been planned, sleeps, or has ended."""
    thread = _execution(query).queryExecutionThread()
    if not thread.isAlive():
        return True
    frames = _frames(thread)
    return any(method in frames for method in _PAST_PLANNING)


def _frames(thread: Java) -> str:
    """Return a thread's stack as one text: asked frame by frame it would change meanwhile."""
    java, bearer = files.jvm().java, files.jvm().java.lang.Throwable()
    bearer.setStackTrace(thread.getStackTrace())
    text = java.io.StringWriter()
    bearer.printStackTrace(java.io.PrintWriter(text))
    return str(text.toString())


_PAST_PLANNING = (".withNewExecutionId(", ".sleep(", ".waitTillTime(")


def _has_stopped(query: Query) -> bool:
    """Whether a query with its flag set has ended, or sleeps until its next trigger."""
    thread = _execution(query).queryExecutionThread()
    return not thread.isAlive() or ".waitTillTime(" in _frames(thread)


def _between_batches(query: Query) -> bool:
    """Whether stopping a query now probably cuts nothing short, if it has no flag."""
    execution = _execution(query)
    if not execution.queryExecutionThread().isAlive():
        return True
    planned = _latest(execution.offsetLog())
    return not query.status["isTriggerActive"] and planned == _latest(execution.commitLog())


def _any_runs(queries: tuple[Query, ...]) -> bool:
    """Whether any of them runs. Raises the error of one that failed."""
    ended = [query for query in queries if not query.isActive]
    for query in ended:
        query.awaitTermination()
    return len(ended) < len(queries)


def _marker(place: str) -> bytes | None:
    """Return the stop marker, if it is there and means us."""
    content = files.read(place, marks.STOP)
    if content is None:
        return None
    job, tag = read_setting("JOB"), read_setting("TAG")
    return content if marks.asks_to_stop(content, job, tag, time.time()) else None


def _answer_marker(place: str) -> bool:
    """Whether the stop marker is here and means us; it is answered then."""
    marker = _marker(place)
    if marker is None:
        return False
    files.write(place, marks.STOPPING, marker)
    return True


def _places(queries: tuple[Query, ...]) -> tuple[str, ...]:
    """Return the job's location, where the marker is; if it is not known, the queries' places."""
    if any(not hasattr(query, "_jsq") for query in queries):
        raise PlanError(
            "queries of Spark Connect cannot be watched: what is needed of them is in the driver",
            hint="run the job in classic mode (spark-submit), or without job.watch",
        )
    try:
        return (location(),)
    except SpecError:
        return tuple(dict.fromkeys(_checkpoint_of(query) for query in queries))


def _execution(query: Query) -> Java:
    """Return Spark's StreamExecution behind the query."""
    return query._jsq.streamingQuery()


def _checkpoint_of(query: Query) -> str:
    return str(_execution(query).resolvedCheckpointRoot())


def _latest(log: Java) -> int | None:
    """Return the newest batch of an offset log or a commit log."""
    newest = log.getLatestBatchId()
    return int(newest.get()) if newest.isDefined() else None


EVERY_SECONDS = 10.0
# The trigger of a query, also of one that was given none. Source: Spark 3.3 to 4.3, Triggers.scala.
GOES_ON = "ProcessingTimeTrigger"
OFF = ("false", "0", "no", "off")

# Spark's StreamingExecution of a query. py4j's objects have no types here.
Execution: TypeAlias = Java
Write: TypeAlias = Callable[[str, str, bytes], None]


def keeps_progress() -> bool:
    """Whether queries keep their progress: not if STATESHIFT_PROGRESS is false."""
    word = read_setting("PROGRESS") or ""
    return word.strip().lower() not in OFF


class ProgressFile:
    """The file of one query. `execution` is Spark's StreamExecution behind it."""

    def __init__(self, execution: Execution, write: Write = files.write) -> None:
        self._execution, self._write = execution, write
        self._progress: QueryProgress | None = None
        self._next_time = time.monotonic() + EVERY_SECONDS
        self._has_failed = False

    def keep(self) -> bool:
        """Write what is new, if the time has come; return whether it had. Raises nothing."""
        if time.monotonic() < self._next_time:
            return False
        self.keep_now()
        self._next_time = time.monotonic() + EVERY_SECONDS
        return True

    def keep_now(self) -> None:
        """Write what is new. Raises nothing."""
        try:
            self._keep_new()
        except Exception as error:  # the job comes first, whatever goes wrong here
            if not self._has_failed:
                _log.warning("the query's progress is not kept for `stateshift advise`: %s", error)
            self._has_failed = True

    def _keep_new(self) -> None:
        if not str(self._execution.trigger().toString()).startswith(GOES_ON):
            return
        before = progress = self._progress
        # Spark keeps a hundred, or as many as its conf says; each that is asked for takes two
        # calls into the JVM. The oldest comes first.
        for document in reversed(list(islice(self._newest_first(), BATCHES_MAX))):
            batch = batch_of_document(document)
            if batch is None:
                continue
            if progress is None:
                progress = QueryProgress(str(document["runId"]), batch.started)
            progress = progress.with_batch(batch)
        if progress is None or progress is before:
            return
        place = str(self._execution.resolvedCheckpointRoot())
        complete = replace(progress, cores=self._count_cores())
        self._write(place, marks.PROGRESS, encode_progress(complete))
        self._progress = progress

    def _newest_first(self) -> Iterator[dict[str, Any]]:
        """Yield the progress documents of batches after the last known."""
        known = self._progress.batches[-1].id if self._progress is not None else -1
        documents = self._execution.recentProgress()
        for number in reversed(range(len(documents))):
            document = json.loads(str(documents[number].json()))
            if int(document["batchId"]) <= known:
                return
            yield document

    def _count_cores(self) -> int | None:
        """Return the cores of the executors that are at work, as the driver counts them."""
        try:
            executors = self._execution.sparkSession().sparkContext().statusStore()
            listed = executors.executorList(True)
            cores = [int(listed.apply(number).totalCores()) for number in range(listed.size())]
        except Exception as error:  # an inner part of Spark, which may be another one tomorrow
            _log.debug("Spark does not tell its cores: %s", error)
            return None
        return sum(cores) or None
