"""Which of Flink's jobs is meant, and what is told of it: the jobs under a tag, those of a name,
and their state.

A job's id is a digest of its tag and of the attempt: one that failed before it was anything keeps
its id for an hour, and the attempt after it has another.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.causes import Cause, cause_of, without_frames
from stateshift.clusters.flink.values import Job, lasting_of
from stateshift.clusters.protocol import JobState, JobStatus, RunningJob
from stateshift.clusters.redaction import redact
from stateshift.errors import ClusterError


def job_id(tag: str, attempt: int = 0) -> str:
    """Flink's id of the job that is submitted under a tag."""
    told = tag if attempt == 0 else f"{tag}\0{attempt}"
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def attempts(calls: FlinkCalls, tag: str) -> tuple[int, Job | None]:
    """The first attempt that was not stillborn, or not made yet; and its job."""
    attempt = 0
    while (job := calls.job(job_id(tag, attempt))) is not None and job.stillborn:
        attempt += 1
    return attempt, job


def named(calls: FlinkCalls, name: str) -> list[Job]:
    """Oldest first, as far as they are still there; those that never were anything are left out."""
    found = [calls.job(id) for id, called, _ in calls.jobs() if called == name]
    return [job for job in found[::-1] if job is not None and not job.stillborn]


def running_of(calls: FlinkCalls, job: Job) -> RunningJob:
    settings = {**calls.settings(job.id), **({"scheduler": job.scheduler} if job.scheduler else {})}
    vertices = {v.id: (v.name, v.parallelism, v.parallelism_max) for v in job.vertices}
    return RunningJob(job.id, job.name, job.state, settings, vertices, lasting_of(settings))


def status_of(calls: FlinkCalls, job: Job, stopped: bool) -> JobStatus:
    if stopped and job.state is JobState.FAILED:
        return JobStatus(JobState.FINISHED, job.id, "stopped")
    if job.told in ("RUNNING", "FINISHED", "CREATED", "INITIALIZING"):
        waits = job.told == "RUNNING" and job.state is JobState.QUEUED
        return JobStatus(job.state, job.id, "waits for slots" if waits else None)
    cause = _ended_with(calls, job) or _cause(calls.exceptions(job.id))
    return JobStatus(job.state, job.id, job.told.lower() + (f": {cause.fact}" if cause else ""))


def stillborn_of(calls: FlinkCalls, id: str) -> ClusterError | None:
    """Why a job never was anything, where its answer was lost; None of one that is not there."""
    cause = _cause(calls.exceptions(id))
    if cause is None:
        return None
    fact = f"{redact(calls.url)}: the job was not started: {cause.fact}"
    return ClusterError(
        fact, cluster=calls.cluster, hint=cause.hint or "the JobManager's log has all of it"
    )


def log_of(calls: FlinkCalls, id: str) -> str:
    exceptions = calls.exceptions(id) or _last(calls.failure(id))
    cause = _cause(exceptions)
    lines = [line for one in exceptions[::-1] for line in _told(one)]
    return "\n".join(
        [*lines, f"way out: {cause.hint}"] if cause is not None and cause.hint else lines
    )


def _ended_with(calls: FlinkCalls, job: Job) -> Cause | None:
    """What has failed it for good: the page of exceptions is seconds old, and not every
    scheduler puts it there.
    """
    return cause_of(calls.failure(job.id).get("stack-trace")) if job.told == "FAILED" else None


def _cause(exceptions: Sequence[Mapping[str, Any]]) -> Cause | None:
    """Of the newest."""
    return cause_of(exceptions[0].get("stacktrace")) if exceptions else None


def _last(failure: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A failure as the page of exceptions has one, which does not have it yet."""
    stack = failure.get("stack-trace")
    return [{"stacktrace": stack}] if stack else []


def _told(exception: Mapping[str, Any]) -> list[str]:
    """When and where, and the stack without its frames."""
    at, who = (
        exception.get("timestamp"),
        redact(str(exception.get("taskName") or "the job"), os.environ),
    )
    when = (
        f"{datetime.fromtimestamp(float(at) / 1000, UTC).isoformat(' ', 'seconds')} " if at else ""
    )
    return [
        f"{when}{who}",
        *(f"  {line}" for line in without_frames(str(exception.get("stacktrace") or ""))),
    ]
