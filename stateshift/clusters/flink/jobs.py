"""Jobs of Flink: those under a tag, those of a name, and their state as a cluster reports it.

A job's id is a digest of its tag and of the attempt: one that failed before it was anything keeps
its id for an hour, and the attempt after it has another.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.causes import Cause, cause_of, without_frames
from stateshift.clusters.flink.values import Job, lasting_of
from stateshift.clusters.http.rest import Json
from stateshift.clusters.protocol import JobState, JobStatus, RunningJob
from stateshift.clusters.redaction import redact
from stateshift.errors import ClusterError


def job_id(tag: str, attempt: int = 0) -> str:
    """Return Flink's id of the job that is submitted under a tag."""
    identity = tag if attempt == 0 else f"{tag}\0{attempt}"
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def attempts(calls: FlinkCalls, tag: str, first: int = 0) -> tuple[int, Job | None]:
    """Return the first attempt that was not stillborn, or not made yet; and its job. `first` is
    the last one that we know of: Flink may have forgotten those before it.
    """
    attempt = first
    job = calls.job(job_id(tag, attempt))
    while job is not None and job.stillborn:
        attempt += 1
        job = calls.job(job_id(tag, attempt))
    return attempt, job


def named(calls: FlinkCalls, name: str) -> list[Job]:
    """Return the jobs of this name, oldest first, as far as they are still there; those that never
    ran are left out.
    """
    found: list[Job] = []
    for id, called, _ in calls.jobs():
        if called == name:
            job = calls.job(id)
            if job is not None and not job.stillborn:
                found.append(job)
    return found[::-1]


def running_of(calls: FlinkCalls, job: Job) -> RunningJob:
    """Return a job with its settings and its vertices, as rescaling needs them."""
    settings = dict(calls.settings(job.id))
    if job.scheduler:
        settings["scheduler"] = job.scheduler
    vertices = {v.id: (v.name, v.parallelism, v.parallelism_max) for v in job.vertices}
    return RunningJob(job.id, job.name, job.state, settings, vertices, lasting_of(settings))


def status_of(calls: FlinkCalls, job: Job, stopped: bool) -> JobStatus:
    """Return the status; one that failed since we `stopped` it has finished."""
    if stopped and job.state is JobState.FAILED:
        return JobStatus(JobState.FINISHED, job.id, "stopped")
    if job.flink_state in ("RUNNING", "FINISHED", "CREATED", "INITIALIZING"):
        waits = job.flink_state == "RUNNING" and job.state is JobState.QUEUED
        return JobStatus(job.state, job.id, "waits for slots" if waits else None)
    detail = job.flink_state.lower()
    cause = _ended_with(calls, job) or _cause(calls.exceptions(job.id))
    if cause is not None:
        detail += f": {cause.fact}"
    return JobStatus(job.state, job.id, detail)


def stillborn_of(calls: FlinkCalls, id: str) -> ClusterError | None:
    """Return why a job never ran, if its answer was lost; None if it is not there."""
    cause = _cause(calls.exceptions(id))
    if cause is None:
        return None
    fact = f"{redact(calls.url)}: the job was not started: {cause.fact}"
    return ClusterError(
        fact, cluster=calls.cluster, hint=cause.hint or "the JobManager's log has all of it"
    )


def log_of(calls: FlinkCalls, id: str) -> str:
    """Return what made a job fail, oldest first, and the way out if one is known."""
    exceptions = calls.exceptions(id) or _last(calls.failure(id))
    lines: list[str] = []
    for exception in reversed(exceptions):
        lines += _lines_of(exception)
    return "\n".join([*lines, *_way_out(exceptions)])


def _way_out(exceptions: Sequence[Json]) -> list[str]:
    cause = _cause(exceptions)
    return [f"way out: {cause.hint}"] if cause is not None and cause.hint else []


def _ended_with(calls: FlinkCalls, job: Job) -> Cause | None:
    """Return what has failed a job for good. The page of exceptions is seconds old, and not every
    scheduler puts it there.
    """
    if job.flink_state != "FAILED":
        return None
    return cause_of(calls.failure(job.id).get("stack-trace"))


def _cause(exceptions: Sequence[Json]) -> Cause | None:
    """Return the cause of the newest exception."""
    return cause_of(exceptions[0].get("stacktrace")) if exceptions else None


def _last(failure: Json) -> list[Json]:
    """Return a failure as the page of exceptions has one, which does not have it yet."""
    stack = failure.get("stack-trace")
    return [{"stacktrace": stack}] if stack else []


def _lines_of(exception: Json) -> list[str]:
    """Return when and where an exception came, and its stack without the frames."""
    title = redact(str(exception.get("taskName") or "the job"), os.environ)
    milliseconds = exception.get("timestamp")
    if milliseconds:
        time = datetime.fromtimestamp(float(milliseconds) / 1000, UTC)
        title = f"{time.isoformat(' ', 'seconds')} {title}"
    stack = without_frames(str(exception.get("stacktrace") or ""))
    return [title, *(f"  {line}" for line in stack)]
