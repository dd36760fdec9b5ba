"""What a user's job imports: where its checkpoint is under the current spec, and how it is stopped between two batches.

    from stateshift import job

    query = counts.writeStream.option("checkpointLocation", job.checkpoint("Aggregate (5)")).start()
    job.run(query)

The same code runs before and after a move: the location comes from STATESHIFT_CHECKPOINT, which whoever submits the job
hands over, or else from the spec (an argument, or the file that STATESHIFT_SPEC names), from the entry of the job's
name: STATESHIFT_JOB, or an argument. Under `<location>/_stateshift`:

    operators.json    name -> directory, added to by `checkpoint`; what stands there is not hashed again
    stop              the marker that `watch` looks for, written by whoever wants the job to stop
    stopping          our answer to it: a copy
    idle              in each query's own checkpoint: it is restored, and has nothing to read (only under STATESHIFT_TAG)

Small files are read and written directly on a local path, else through Hadoop's FileSystem in the session's JVM, which
knows every scheme that Spark itself knows. Importing this is cheap: pyspark is imported by whoever uses it.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateshift.errors import Complaint, PlanError, SpecError
from stateshift.formats import marks

if TYPE_CHECKING:
    from stateshift.spec.model import JobSpec, Spec

STOP_SECONDS_MAX = 240.0  # how long a query may take to finish its batch before it is stopped in the middle of it
_SETTLE_SECONDS = 0.1     # longer than a query needs from deciding that it goes on to saying that it does

_asked: dict[tuple[str, str], str] = {}  # (location, directory) -> the name it was asked for under, in this process


def location(job: str | None = None, spec: Spec | str | None = None) -> str:
    """The checkpoint location of this job. `spec` is a spec, or the path of one."""
    handed_over, ours = os.environ.get("STATESHIFT_CHECKPOINT"), os.environ.get("STATESHIFT_JOB")
    if handed_over and (job is None or ours is None or job == ours):
        return handed_over
    current = _current(spec)
    if current is None:
        raise SpecError(
            (Complaint("", "no checkpoint location: neither STATESHIFT_CHECKPOINT nor a spec is there"),),
            hint="export STATESHIFT_SPEC=spec.json, or submit the job through stateshift",
        )
    entry = _entry(current, job or ours)
    return entry.destination if current.restart else entry.source


def checkpoint(name: str, job: str | None = None, spec: Spec | str | None = None) -> str:
    """Where the operator of this name keeps its state. Creates nothing but the entry in the index."""
    place = location(job, spec)
    index = _read(place, marks.INDEX)
    known = marks.decode_index(index, f"{place}/{marks.INDEX}") if index else {}
    directory = _directory(name, job, _current(spec), known)
    claimed = next((other for other, taken in known.items() if taken == directory and other != name), None)
    claimed = claimed or _asked.get((place, directory), name)
    if claimed != name:
        raise PlanError(
            f"{name!r} and {claimed!r} both have the directory {directory} below {place}",
            hint='rename one of them, or give one a "directory" in the spec\'s operators',
        )
    _asked[place, directory] = name
    if known.get(name) != directory:
        _write(place, marks.INDEX, marks.encode_index({**known, name: directory}))
    return f"{place.rstrip('/')}/{directory}"


def stop_requested() -> bool:
    """Whether somebody wants this job to stop: for jobs that have a loop of their own."""
    return _marker(location()) is not None


def run(*queries: Any) -> None:
    """`watch`, then stop the session: the last line of a job."""
    watch(*queries)
    session = _session()
    if session is not None:
        session.stop()


def watch(*queries: Any, seconds: float = 0.2) -> None:
    """Return when all queries have ended, or when the stop marker is there and each has been stopped between two of its
    batches. Raises what a query failed with. Looks every so many `seconds`."""
    places = _places(queries)
    waiting = {} if os.environ.get("STATESHIFT_TAG") is None else dict(enumerate(queries))
    while any(_active(query) for query in queries):
        for place in places:
            marker = _marker(place)
            if marker is not None:
                _write(place, marks.STOPPING, marker or b"\n")
                return _stop(queries)
        for index in [i for i, query in waiting.items() if _is_idle(query)]:
            _say_idle(waiting.pop(index))
        time.sleep(seconds)
    for query in queries:
        query.awaitTermination()
    return None


def _stop(queries: tuple[Any, ...]) -> None:
    """Tell all of them first, so that they finish their batches at the same time, then wait for each."""
    told = [_tell(query) for query in queries]
    until = time.monotonic() + STOP_SECONDS_MAX
    time.sleep(_SETTLE_SECONDS)
    for query, knows in zip(queries, told, strict=True):
        while time.monotonic() < until and not _between_batches(query, knows):
            time.sleep(0.01)
        query.stop()
        query.awaitTermination()


def _tell(query: Any) -> bool:
    """Set the engine's own flag, which its loop looks at between two batches: `StreamExecution.state`, set to TERMINATED
    as `stop` does it, without the interruption. False where this Spark has no such thing: then the moment between two
    batches can only be guessed."""
    from py4j.protocol import Py4JError

    jvm = _session_of(query)._jvm
    packages = ("org.apache.spark.sql.execution.streaming.runtime", "org.apache.spark.sql.execution.streaming")
    for package in packages:  # Spark 4.1 and later, Spark 3.3 to 4.0
        try:
            terminated = getattr(jvm.java.lang.Class.forName(f"{package}.TERMINATED$").getField("MODULE$"), "get")(None)
            _execution(query).state().set(terminated)
        except Py4JError:
            continue
        return True
    return False


def _between_batches(query: Any, told: bool) -> bool:
    """Whether stopping it now interrupts nothing. A query that was told begins no batch any more; one that was not may,
    between this look and the stop."""
    if _execution_ended(query):
        return True
    execution = _execution(query)
    planned, committed = _latest(execution.offsetLog()), _latest(execution.commitLog())
    return not query.status["isTriggerActive"] and planned == committed


def _is_idle(query: Any) -> bool:
    """Restored, and waiting for input: said by Spark (StreamExecution.updateStatusMessage) after its first look at the
    sources, and not before what had been planned when it was stopped is done again."""
    status = query.status
    waits = status["message"] in ("Waiting for data to arrive", "Waiting for next trigger")
    return waits and not status["isTriggerActive"] and not status["isDataAvailable"]


def _say_idle(query: Any) -> None:
    epoch = _latest(_execution(query).commitLog())
    _write(_checkpoint_of(query), marks.IDLE, marks.encode_idle(os.environ["STATESHIFT_TAG"], epoch))


def _marker(place: str) -> bytes | None:
    """The stop marker, if it is there and means us."""
    content = _read(place, marks.STOP)
    ours = os.environ.get("STATESHIFT_JOB"), os.environ.get("STATESHIFT_TAG")
    return content if content is not None and marks.asks_to_stop(content, *ours, time.time()) else None


def _places(queries: tuple[Any, ...]) -> tuple[str, ...]:
    """Where the marker may be: at the job's location, or where nothing says what that is, beside each query."""
    try:
        return (location(),)
    except SpecError:
        return tuple(dict.fromkeys(_checkpoint_of(query) for query in queries))


def _current(spec: Spec | str | None) -> Spec | None:
    path = spec if spec is not None else os.environ.get("STATESHIFT_SPEC")
    if not isinstance(path, str):
        return path
    from stateshift.spec import parse_spec

    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        complaint = Complaint("", f"cannot read the spec: {error}")
        raise SpecError((complaint,), hint="correct STATESHIFT_SPEC") from error
    parsed: Spec = parse_spec(text, base=str(Path(path).absolute().parent), environment=dict(os.environ))
    return parsed


def _entry(spec: Spec, name: str | None) -> JobSpec:
    """The entry of this name, and no other (IS-3)."""
    if name is None and len(spec.jobs) == 1:
        return spec.jobs[0]
    names = [entry.name for entry in spec.jobs]
    if name is None:
        raise SpecError(
            (Complaint("/jobs", f"which of {', '.join(names)} is this job?"),), hint=f"export STATESHIFT_JOB={names[0]}"
        )
    entry = spec.job(name)
    if entry is None:
        near = difflib.get_close_matches(name, names, n=1)
        message = f"no job is called {name!r}" + (f" (did you mean {near[0]!r}?)" if near else "")
        raise SpecError((Complaint("/jobs", message, name, ", ".join(names)),))
    return entry


def _directory(name: str, job: str | None, spec: Spec | None, known: dict[str, str]) -> str:
    """What the spec says, else what the index says, else the hash: in this order, so that state that is there is found
    again under another hash profile."""
    from stateshift.formats import uid
    from stateshift.spec.model import HashProfile

    if spec is not None:
        operators = _entry(spec, job or os.environ.get("STATESHIFT_JOB")).operators
        given = next((operator.directory for operator in operators if operator.name == name), None)
        if given is not None:
            return given
    profile = spec.uid_hash if spec is not None else HashProfile()
    return known.get(name) or uid.directory_name(name, profile.p, profile.m, profile.offset, profile.signed)


def _active(query: Any) -> bool:
    return bool(query.isActive)


def _execution(query: Any) -> Any:
    """Spark's StreamExecution behind the query."""
    return query._jsq.streamingQuery()


def _execution_ended(query: Any) -> bool:
    return not _execution(query).queryExecutionThread().isAlive()


def _checkpoint_of(query: Any) -> str:
    return str(_execution(query).resolvedCheckpointRoot())


def _latest(log: Any) -> int | None:
    """The newest batch of an offset log or commit log."""
    newest = log.getLatestBatchId()
    return int(newest.get()) if newest.isDefined() else None


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _session_of(query: Any) -> Any:
    return _session()
