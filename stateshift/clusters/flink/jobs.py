"""Jobs of Flink: those under a tag, those of a name, their state as a cluster reports it, their
settings as keys of Flink's configuration, and their parallelism, which is changed in place.

A job's id is a digest of its tag and of the attempt: one that failed before it was anything keeps
its id for an hour, and the attempt after it has another.

Source of the settings: Flink 2.3, CheckpointConfigHandler and JobConfigHandler, held against the
defaults of CheckpointingOptions; values that Flink has by itself are left out. A job is rescaled by
Flink from 1.18 on, with its adaptive scheduler.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.causes import Cause, cause_of, hopeless, without_frames
from stateshift.clusters.flink.values import (
    ENDED,
    Checkpoints,
    Job,
    job_of,
    lasting_of,
    release_of,
)
from stateshift.clusters.http import Json, Refused, Unanswered, through_outages
from stateshift.clusters.noted import Notes
from stateshift.clusters.options import Options, settings
from stateshift.clusters.protocol import (
    Cluster,
    JobProgress,
    JobState,
    JobStatus,
    RunningJob,
    Slots,
    StopRequest,
)
from stateshift.clusters.redaction import redact
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError
from stateshift.survey import LiveJob

ASKED_AT_ONCE: Final = 16
_CHECKPOINTING: Final = "execution.checkpointing."
# A page's field, its key, and its value by itself.
_TIMES: Final = (("timeout", "timeout", 600_000), ("min_pause", "min-pause", 0))
_NUMBERS: Final = (
    ("max_concurrent", "max-concurrent-checkpoints", 1),
    ("tolerable_failed_checkpoints", "tolerable-failed-checkpoints", 0),
)
_BACKENDS: Final = {
    "EmbeddedRocksDBStateBackend": "rocksdb",
    "RocksDBStateBackend": "rocksdb",
    "ForStStateBackend": "forst",
}
# The part of a cluster's own configuration that it gives to jobs.
_GIVEN: Final = (
    _CHECKPOINTING,
    "restart-strategy",
    "state.backend",
    "parallelism.default",
    "pipeline.object-reuse",
)
# These settings belong to a cluster that makes slots when they are needed.
_ON_DEMAND: Final = {
    "kubernetes.cluster-id",
    "yarn.application.name",
    "high-availability.cluster-id.yarn",
}
_NEVER: Final = 1 << 62
_BY_CLUSTER: Final = "cluster level default"


def job_to_stop(cluster: Cluster, request: StopRequest) -> JobStatus:
    """Return the job to stop; by its tag alone if it has one: the source may run beside it."""
    named = {"job_id", "job_ids", "job_name"} & set(request.options)
    if request.tag is None or named:
        return cluster.find_source(request)
    return cluster.find(request.tag)


def job_id(tag: str, attempt: int = 0) -> str:
    """Return Flink's id of the job that is submitted under a tag."""
    identity = tag if attempt == 0 else f"{tag}\0{attempt}"
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def attempts(calls: FlinkCalls, tag: str, first: int = 0) -> tuple[int, Job | None]:
    """Return the first attempt not stillborn, from the `first` that is known on, and its job."""
    attempt = first
    job = calls.job(job_id(tag, attempt))
    while job is not None and job.stillborn:
        attempt += 1
        job = calls.job(job_id(tag, attempt))
    return attempt, job


def jobs_of_name(calls: FlinkCalls, name: str) -> list[Job]:
    """Return the jobs of this name that ever ran, oldest first, as far as Flink knows."""
    found: list[Job] = []
    for id, called, _ in calls.jobs():
        if called == name:
            job = calls.job(id)
            if job is not None and not job.stillborn:
                found.append(job)
    return found[::-1]


def running_id(calls: FlinkCalls, name: str) -> str:
    """Return the id of the job of this name that runs."""
    alive = [each for each in jobs_of_name(calls, name) if each.state is JobState.RUNNING]
    if len(alive) == 1:
        return alive[0].id
    if not alive:
        raise ClusterError(f"no job called {name!r} runs there", cluster=calls.cluster, job=name)
    ids = ", ".join(each.id for each in alive)
    fact = f"{len(alive)} jobs called {name!r} run there: {ids}"
    raise ClusterError(fact, cluster=calls.cluster, job=name)


def slots_of(calls: FlinkCalls) -> Slots | None:
    """Return the slots of a JobManager; None if its configuration cannot be read."""
    try:
        configured = calls.configuration()
    except Refused:
        return None
    every, free = calls.slots()
    adaptive = configured.get("jobmanager.scheduler", "").lower() == "adaptive"
    target = configured.get("execution.target", "")
    is_made = target.startswith(("kubernetes", "yarn")) or bool(_ON_DEMAND & configured.keys())
    return Slots(every, free, adaptive, is_made)


def running_of(calls: FlinkCalls, job: Job) -> RunningJob:
    """Return a job with its settings and its vertices, as rescaling needs them."""
    settings = dict(calls.settings(job.id))
    if job.scheduler:
        settings["scheduler"] = job.scheduler
    vertices = {v.id: (v.name, v.parallelism, v.parallelism_max) for v in job.vertices}
    return RunningJob(job.id, job.name, job.state, settings, vertices, lasting_of(settings))


def live_jobs(calls: FlinkCalls) -> tuple[LiveJob, ...]:
    """Return the jobs that have not ended, also those that Flink calls SUSPENDED. Several are asked
    at once: a page that hangs is waited for once.
    """
    jobs = [(id, name) for id, name, word in calls.jobs() if word not in ENDED]
    if not jobs:
        return ()
    with ThreadPoolExecutor(min(len(jobs), ASKED_AT_ONCE), "live") as threads:
        return tuple(threads.map(lambda job: live_job(calls, *job), jobs))


def live_job(calls: FlinkCalls, id: str, name: str, label: str = "") -> LiveJob:
    """Return a job that runs, with its images and operators as far as its pages tell them: one that
    is INITIALIZING tells none.
    """
    known = LiveJob(id, name, label or id)
    try:
        made, page = calls.checkpoints(id), calls.page(id)
        with calls.read(f"/jobs/{id}"):
            job = None if page is None else job_of(page)
    except (Refused, Unanswered):
        return known
    if job is None or not job.vertices or job.flink_state == "INITIALIZING":
        return known
    return replace(
        known,
        images=tuple(sorted(made.paths)),
        restored=None if made.restored is None else made.restored[1],
        operators=tuple(vertex.id for vertex in job.vertices),
    )


def status_of(calls: FlinkCalls, job: Job, stopped: bool) -> JobStatus:
    """Return the status of a job. One that failed since we `stopped` it has finished."""
    if stopped and job.state is JobState.FAILED:
        return JobStatus(JobState.FINISHED, job.id, "stopped")
    if job.flink_state in ("RUNNING", "FINISHED", "CREATED", "INITIALIZING"):
        waits = job.flink_state == "RUNNING" and job.state is JobState.QUEUED
        return JobStatus(job.state, job.id, "waits for slots" if waits else None)
    detail = job.flink_state.lower()
    cause = None
    if job.flink_state == "FAILED":
        # The page of exceptions is seconds old, and not every scheduler puts the last one there.
        cause = cause_of(calls.failure(job.id).get("stack-trace"))
    cause = cause or _cause(calls.exceptions(job.id))
    if cause is not None:
        detail += f": {cause.fact}"
    return JobStatus(job.state, job.id, detail)


def stillborn_of(calls: FlinkCalls, id: str) -> ClusterError | None:
    """Return the error for a job that never ran, if its answer was lost, and if it is there."""
    cause = _cause(calls.exceptions(id))
    if cause is None:
        return None
    fact = f"{redact(calls.url)}: the job was not started: {cause.fact}"
    hint = cause.hint or "the JobManager's log has all of it"
    return ClusterError(fact, cluster=calls.cluster, hint=hint)


def progress_of(calls: FlinkCalls, notes: Notes, tag: str, id: str) -> JobProgress:
    """Return the progress of the job with this id, which was started under a tag."""
    job, checkpoints = calls.job(id), calls.checkpoints(id)
    restored_epoch, path = _restored_from(notes, tag, id, checkpoints)
    epoch = checkpoints.latest.id if checkpoints.latest else None
    why = None
    if epoch is None or epoch <= (restored_epoch or 0):
        with suppress(Refused, Unanswered):
            exceptions = calls.exceptions(id)
            why = hopeless([str(each.get("stacktrace") or "") for each in exceptions])
    return JobProgress(
        restored=path,
        restored_epoch=restored_epoch,
        epoch=epoch,
        running=job is not None and job.runs,
        hopeless=why,
        writes_none=job is not None and epoch is None and is_off(calls.settings(id)),
    )


def _restored_from(
    notes: Notes, tag: str, id: str, checkpoints: Checkpoints
) -> tuple[int | None, str | None]:
    """Return the epoch and the path of the image that a job began from. Flink names the last one
    that it was restored from: after a failure that is a checkpoint of its own. It gets there only
    from the image that it was submitted with, which is returned instead. The folder of a checkpoint
    has the job's id, unless `execution.checkpointing.create-subdir` is false.
    """
    last, record = checkpoints.restored, notes.read(tag) or {}
    if last is None:
        return None, None
    is_own_checkpoint = f"/{id}/" in last[1] or last[1] in checkpoints.paths
    if not is_own_checkpoint:
        if record and record.get("restored") != list(last):
            notes.add(tag, restored=list(last))
        return last
    first = record.get("restored")
    if first:
        return first[0], first[1]
    return None, record.get("location")


def log_of(calls: FlinkCalls, id: str) -> str:
    """Return the exceptions of a job, oldest first, and the way out if one is known."""
    exceptions = calls.exceptions(id)
    if not exceptions:  # that page does not have it yet
        stack = calls.failure(id).get("stack-trace")
        exceptions = [{"stacktrace": stack}] if stack else []
    lines: list[str] = []
    for exception in reversed(exceptions):
        title = redact(str(exception.get("taskName") or "the job"), os.environ)
        milliseconds = exception.get("timestamp")
        if milliseconds:
            time = datetime.fromtimestamp(float(milliseconds) / 1000, UTC)
            title = f"{time.isoformat(' ', 'seconds')} {title}"
        stack = without_frames(str(exception.get("stacktrace") or ""))
        lines += [title, *(f"  {line}" for line in stack)]
    cause = _cause(exceptions)
    if cause is not None and cause.hint:
        lines.append(f"way out: {cause.hint}")
    return "\n".join(lines)


def _cause(exceptions: Sequence[Json]) -> Cause | None:
    return cause_of(exceptions[0].get("stacktrace")) if exceptions else None


def is_off(page: Options) -> bool:
    """Whether a job completes no checkpoints by itself, by the page of their settings."""
    interval = page.get("interval")
    return isinstance(interval, int) and not 0 < interval < _NEVER


def job_settings(calls: FlinkCalls, id: str) -> dict[str, str]:
    """Return the settings that a job runs under, where they are not Flink's own."""
    page, config = calls.settings(id), calls.job_config(id)
    if not config:
        return {}
    found = dict(_of_checkpoints(page)) if page and not is_off(page) else {}
    if str(page.get("state_backend")) in _BACKENDS:
        found["state.backend.type"] = _BACKENDS[str(page["state_backend"])]
    if config.get("object-reuse-mode") is True:
        found["pipeline.object-reuse"] = "true"
    parallelism = config.get("job-parallelism")
    if isinstance(parallelism, int) and parallelism > 0:
        found["parallelism.default"] = str(parallelism)
    by_cluster = _of_cluster(calls)
    for key, value in by_cluster.items():
        is_restart = key.startswith("restart-strategy")
        if is_restart and _BY_CLUSTER in str(config.get("restart-strategy", "")).lower():
            found[key] = value
        if key.endswith(".incremental"):
            found[key] = value
    return found


def given_settings(calls: FlinkCalls) -> dict[str, str]:
    """Return the settings that a cluster gives to each of its jobs."""
    return {**_of_cluster(calls), **settings(calls.options.get("flink_configuration"))}


def _of_cluster(calls: FlinkCalls) -> dict[str, str]:
    try:
        return settings_of(calls.configuration())
    except (Refused, Unanswered):  # we may not see it
        return {}


def settings_of(configured: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a configuration that is of jobs, without the folders of images."""
    given = {key: value for key, value in configured.items() if key.startswith(_GIVEN)}
    for own in ("dir", "savepoint-dir", "storage"):
        given.pop(f"{_CHECKPOINTING}{own}", None)
    return given


def _of_checkpoints(page: Json) -> Iterator[tuple[str, str]]:
    yield f"{_CHECKPOINTING}interval", f"{page['interval']} ms"
    if str(page.get("mode", "")).lower() == "at_least_once":
        yield f"{_CHECKPOINTING}mode", "AT_LEAST_ONCE"
    for field, key, usual in _TIMES:
        if page.get(field, usual) != usual:
            yield f"{_CHECKPOINTING}{key}", f"{page[field]} ms"
    for field, key, usual in _NUMBERS:
        if page.get(field, usual) != usual:
            yield f"{_CHECKPOINTING}{key}", str(page[field])
    kept = page.get("externalization") or {}
    if kept.get("enabled") is True and kept.get("delete_on_cancellation") is False:
        yield f"{_CHECKPOINTING}externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION"
    if page.get("unaligned_checkpoints") is True:
        yield f"{_CHECKPOINTING}unaligned.enabled", "true"


def rescale(
    calls: FlinkCalls,
    id: str,
    parallelism: Mapping[str, int],
    seconds_max: float,
    interrupt: threading.Event | None,
) -> None:
    """Rescale a job and wait until as many run as were asked for. Repeating it is safe."""
    version = calls.version()
    if release_of(version) < (1, 18):
        fact = f"Flink {version} cannot change the parallelism of a running job"
        hint = "stop it with a savepoint, and start it from there with another parallelism"
        raise _error(calls, id, fact, hint)
    job = _job(calls, id)
    if not job.state.alive:
        fact = f"{job.name} is {job.flink_state}"
        raise _error(calls, id, fact, "only a job that runs can be rescaled")
    _refuse_unfit(calls, job, parallelism)
    if _is_so(job, parallelism):
        return
    # Flink wants the requirements of all vertices. As many as asked for and not more; fewer while
    # there are no slots for them, rather than none.
    wanted = dict(calls.parallelism(id))
    for vertex, count in parallelism.items():
        wanted[vertex] = {"parallelism": {"lowerBound": 1, "upperBound": count}}
    calls.set_parallelism(id, wanted)
    look = through_outages(
        lambda: _is_so(_job(calls, id), parallelism) or None, calls.outage_seconds
    )
    if not wait_for(look, seconds_max, interrupt):
        changed = [vertex for vertex in _job(calls, id).vertices if vertex.id in parallelism]
        now = ", ".join(f"{vertex.name} with {vertex.parallelism}" for vertex in changed)
        fact = f"{job.name} runs {now} {seconds_max:g} s after it was asked for more or less"
        hint = (
            "it goes on: are there enough free slots? and Flink rescales no more often than its "
            "cool-down says (jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling)"
        )
        raise _error(calls, id, fact, hint)


def _refuse_unfit(calls: FlinkCalls, job: Job, parallelism: Mapping[str, int]) -> None:
    vertices = {vertex.id: vertex for vertex in job.vertices}
    for id, count in parallelism.items():
        if id not in vertices:
            known = ", ".join(f"{vertex.id} ({vertex.name})" for vertex in job.vertices)
            raise _error(calls, job.id, f"{job.name} has no vertex {id}", f"it has {known}")
        most = vertices[id].parallelism_max
        if not 1 <= count <= most:
            fact = f"{vertices[id].name} cannot run {count} times: its max parallelism is {most}"
            hint = "a higher max parallelism needs a rewritten savepoint: stateshift repartition"
            raise _error(calls, job.id, fact, hint)


def _is_so(job: Job, parallelism: Mapping[str, int]) -> bool:
    return job.runs and all(
        parallelism.get(v.id, v.parallelism) == v.parallelism for v in job.vertices
    )


def _job(calls: FlinkCalls, id: str) -> Job:
    job = calls.job(id)
    if job is None:
        raise calls.unknown(id)
    return job


def _error(calls: FlinkCalls, id: str, fact: str, hint: str) -> ClusterError:
    return ClusterError(fact, cluster=calls.cluster, job=id, hint=hint)
