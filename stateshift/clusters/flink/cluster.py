"""Flink jobs on a session cluster, over its REST API. A job's id is a digest of its tag: Flink
starts one job under an id, and whoever knows the tag finds it.

The submission's location is the savepoint that the job is restored from; empty, it starts with
nothing. It is also put wherever `{checkpoint}` does in an argument or a value of
`flink_configuration`, as the job and the tag do (IS-6). Its claim is always Flink's to leave the
files alone: with `claim` it would delete them, and they may be the only copy.

While something is waited for, Flink may be silent for `outage_seconds`: its JobManager may
restart. `application` says that this is a cluster of one application, which goes when the
application has ended; it takes no submissions, and where it does not answer, its job has ended. It
may go before it has said where the savepoint or the last checkpoint is, which is then looked for
where it was to be (`Gone`).

A job that failed before it was anything (its savepoint did not fit, say) was not started: the tag's
next attempt has another id. Flink forgets jobs an hour after they ended, and all of them when its
JobManager restarts without high availability: one that we know of and it does not is
`unknown`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.checkpoints import end_with_checkpoint, latest_checkpoint
from stateshift.clusters.flink.jobs import (
    attempts,
    given_settings,
    job_id,
    job_settings,
    job_to_stop,
    jobs_of_name,
    live_jobs,
    log_of,
    progress_of,
    rescale,
    running_id,
    running_of,
    slots_of,
    status_of,
    stillborn_of,
)
from stateshift.clusters.flink.savepoints import (
    failed_savepoint,
    is_under_way,
    no_canonical,
    take_savepoint,
)
from stateshift.clusters.flink.submit import (
    TAKES,
    one_application,
    origin_of,
    read_submit,
    ready,
    try_start,
)
from stateshift.clusters.flink.values import Job, is_job_id
from stateshift.clusters.http import Refused, Unanswered, host_of, through_outages
from stateshift.clusters.jars import complaints_about
from stateshift.clusters.kind import ClusterKind, Submit
from stateshift.clusters.logged import logs_image, logs_stop, logs_submission
from stateshift.clusters.noted import Notes, Record, refuse_unknown, submission_url
from stateshift.clusters.options import Options
from stateshift.clusters.protocol import (
    CheckpointRequest,
    Gone,
    JobProgress,
    JobState,
    JobStatus,
    Origin,
    RunningJob,
    SavepointRequest,
    Slots,
    StopRequest,
    Submission,
    Trial,
    UnknownAnswers,
)
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.stopping import stop_options
from stateshift.clusters.waiting import wait_for, wait_until_settled
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.survey import LiveJob

_SETTLE_SECONDS = 60.0
_FORGOTTEN = (
    "Flink does not know it any more: it ended a while ago, or its JobManager was restarted"
)


@dataclass(frozen=True)
class FlinkRest(UnknownAnswers):
    """See the module. `options` are checked already."""

    name: str
    state_dir: Path
    options: Options
    interrupt: threading.Event | None = None

    @property
    def kind(self) -> str:
        return "flink_rest"

    def version(self) -> str | None:
        try:
            return self._calls(None).version()
        except ClusterError:
            return None

    def host(self, connection: str | None = None) -> str | None:
        return host_of(connection or str(self.options["url"]))

    def find(self, tag: str) -> JobStatus:
        record = self._notes.read(tag) or {}
        calls, stopped = self._calls(record), bool(record.get("stopped"))
        if record.get("id") is not None:
            id = str(record["id"])
            job = calls.job(id)
            if job is not None:
                return status_of(calls, job, stopped)
            if stopped:
                return JobStatus(JobState.FINISHED, id, "stopped")
            return JobStatus(JobState.UNKNOWN, id, _FORGOTTEN)
        settled = 0.0
        if record and not record.get("refused"):
            settle = float(self.options.get("settle_seconds", _SETTLE_SECONDS))
            settled = float(record["begun"]) + settle

        def look(over: bool) -> JobStatus | None:
            attempt, job = attempts(calls, tag, _last_attempt(record))
            if job is None:
                stillborn = attempt > record.get("attempt", attempt)
                return JobStatus(JobState.ABSENT) if over or stillborn else None
            if record:
                self._notes.add(tag, id=job.id)
            return status_of(calls, job, stopped)

        return wait_until_settled(look, settled, self.interrupt) or JobStatus(JobState.ABSENT)

    def find_source(self, request: StopRequest) -> JobStatus:
        """Return the status of the source; of several ids, of one that is alive, if there is."""
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        calls = self._calls(None)
        try:
            sources = self._sources(request)
        except Unanswered as silent:
            if not calls.has_gone(silent):
                raise
            return JobStatus(JobState.FINISHED, None, f"its cluster went with it: {silent.fact}")
        if not sources:
            return JobStatus(JobState.ABSENT)
        alive = (job for job in sources if job.state.alive)
        return status_of(calls, next(alive, sources[-1]), False)

    @logs_submission
    def submit(self, submission: Submission) -> str:
        given = read_submit(submission.options, "/submit", self.options)
        if self._calls(None).of_one_application:
            fact = one_application(self.name)
            hint = (
                "submit to a session cluster, or start the application by a cluster of kind command"
            )
            raise ClusterError(fact, cluster=self.name, job=submission.job, hint=hint)
        status = self.find(submission.tag)
        if status.state is not JobState.ABSENT:
            return status.id or submission.tag
        record: Record = {"url": submission_url(submission, str(self.options["url"]))}
        calls = self._calls(record)
        with ready(calls, submission, given, self.interrupt) as start:
            known = self._notes.read(submission.tag) or {}
            attempt, _ = attempts(calls, submission.tag, _last_attempt(known))
            record |= {
                "begun": time.time(),
                "attempt": attempt,
                "location": submission.location,
                "options": given,
                "refused": False,
            }
            return self._started(calls, submission.tag, record, start)

    def _started(
        self, calls: FlinkCalls, tag: str, record: Record, start: Callable[[str], object]
    ) -> str:
        id = job_id(tag, int(record["attempt"]))
        self._notes.add(tag, **record, asked=id)
        try:
            start(id)
        except Refused:
            job = calls.job(id)  # somebody was first, or what is behind the job's start failed
            if job is None or job.stillborn:
                self._notes.add(tag, refused=True)
                raise
        except Unanswered as unanswered:
            if self.find(tag).id != id:  # waits until it is settled
                raise stillborn_of(calls, id) or unanswered from unanswered
        self._notes.add(tag, id=id)
        return id

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        """Cancel a job; one whose state is wanted is stopped with a savepoint."""
        status = job_to_stop(self, request)
        refuse_unknown(status, request, self.name, self._notes)
        self._notes.add_stopped(request.tag)
        calls = self._calls(self._notes.read(request.tag))
        while status.state.alive and status.id is not None:
            id = status.id
            calls.cancel(id)

            def has_ended(id: str = id) -> bool | None:
                job = calls.job(id)
                return None if job is not None and job.state.alive else True

            look = through_outages(has_ended, calls.outage_seconds)
            if not wait_for(look, request.seconds_max, self.interrupt):
                fact = f"{id}, the job {request.job}, still runs {request.seconds_max:g} s after "
                hint = f"look at it: curl {redact(calls.url.rstrip('/'))}/jobs/{id}"
                raise ClusterError(
                    f"{fact}it was cancelled", cluster=self.name, job=request.job, hint=hint
                )
            status = job_to_stop(self, request)  # of several, another one
        return status

    def log(self, tag: str, lines_max: int = 50) -> str:
        """Return the exceptions of a job, oldest first; and the way out, if there is one."""
        calls, id = self._calls(self._notes.read(tag)), self.find(tag).id
        return last_lines(log_of(calls, id), lines_max) if id is not None else ""

    def try_start(self, submission: Submission) -> Trial:
        record: Record = {"url": submission_url(submission, str(self.options["url"]))}
        return try_start(self._calls(record), submission, self.interrupt)

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        alive = [job for job in self._sources(request) if job.state.alive]
        if len(alive) != 1:
            return Origin(why=f"{len(alive)} jobs run there, and one is started again")
        return origin_of(self._calls(None), alive[0], self._notes, like)

    def running(self, job: str) -> tuple[RunningJob, ...]:
        calls = self._calls(None)

        def ask() -> tuple[RunningJob, ...]:
            by_id = calls.job(job) if is_job_id(job) else None
            jobs = jobs_of_name(calls, job) if by_id is None else [by_id]
            return tuple(running_of(calls, each) for each in jobs)

        return calls.unless_gone(ask, ())

    def alive(self) -> tuple[RunningJob, ...]:
        calls = self._calls(None)
        return calls.unless_gone(calls.alive, ())

    def live(self) -> tuple[LiveJob, ...]:
        """Return the jobs that run, with what they have written; none of a cluster that is gone."""
        calls = self._calls(None)
        return calls.unless_gone(partial(live_jobs, calls), ())

    def ended_as(self, name: str) -> str | None:
        calls = self._calls(None)
        return calls.unless_gone(partial(calls.ended_as, name), None)

    def no_canonical(self, job_id: str) -> str | None:
        calls = self._calls(None, job_id)

        def ask() -> str | None:
            job = calls.job(job_id)
            return None if job is None else no_canonical(calls, job, self.interrupt)

        return calls.unless_gone(ask, None)

    def slots(self) -> Slots | None:
        return slots_of(self._calls(None))

    def where(self, job: str, is_id: bool) -> tuple[FlinkCalls, str]:
        """Return the JobManager that runs the job of this id, or name, and the job's id there."""
        calls = self._calls(None)
        return calls, job if is_id else running_id(calls, job)

    def job_settings(self, job_id: str) -> dict[str, str]:
        calls = self._calls(None, job_id)
        return calls.unless_gone(partial(job_settings, calls, job_id), {})

    def given_settings(self) -> dict[str, str]:
        return given_settings(self._calls(None))

    def jars(self) -> dict[str, str] | None:
        return self._calls(None).jars()

    @logs_image("savepoint")
    def savepoint(self, request: SavepointRequest) -> str:
        calls = self._calls(None, request.job_id)
        return take_savepoint(calls, request, self._notes, self.interrupt)

    def failed_behind(self, request: SavepointRequest) -> str | None:
        return failed_savepoint(request.tag, self._notes)

    def is_ending(self, request: SavepointRequest | CheckpointRequest) -> bool:
        calls = self._calls(None, request.job_id)
        if isinstance(request, SavepointRequest):
            return is_under_way(calls, request, self._notes)
        return calls.state(request.job_id) == "CANCELLING"

    def latest_checkpoint(self, job_id: str) -> str | None:
        began, calls = time.time(), self._calls(None, job_id)
        try:
            return latest_checkpoint(calls, job_id)
        except Unanswered as silent:
            if not calls.has_gone(silent):
                raise
            hint = 'its job has ended: name its newest chk- folder in "existing_savepoint_paths"'
            raise Gone(silent.fact, began, cluster=self.name, job=job_id, hint=hint) from silent

    @logs_image("last checkpoint")
    def checkpoint(self, request: CheckpointRequest) -> str:
        calls = self._calls(None, request.job_id)
        return end_with_checkpoint(calls, request, self._notes, self.interrupt)

    def progress(self, tag: str) -> JobProgress:
        record = self._notes.read(tag) or {}
        calls = self._calls(record)
        id = record.get("id") or job_id(tag, attempts(calls, tag, _last_attempt(record))[0])
        return progress_of(calls, self._notes, tag, id)

    def rescale(
        self, job_id: str, parallelism: Mapping[str, int], seconds_max: float = 120.0
    ) -> None:
        """Change the parallelism of vertices in place, and wait for it. Others stay as they are."""
        calls = self._calls(None, job_id)
        rescale(calls, job_id, parallelism, seconds_max, self.interrupt)

    def _sources(self, request: StopRequest) -> list[Job]:
        """Return the jobs of the spec's ids; else those of its name, alive ones alone if any."""
        options = stop_options(request, self.options, TAKES.stop, TAKES.submit)
        calls = self._calls(None)
        ids = [*options.get("job_ids", ())]
        if "job_id" in options:
            ids.append(options["job_id"])
        if ids:
            jobs = [calls.job(str(id)) for id in ids]
            return [job for job in jobs if job is not None]
        name = str(options.get("job_name", request.job))
        place = request.location.rstrip("/")
        elsewhere = set()
        for record in self._notes.every():
            of_image = str(record.get("location", place)).rstrip("/")
            if "asked" in record and of_image != place:
                elsewhere.add(str(record["asked"]))
        here = [job for job in jobs_of_name(calls, name) if job.id not in elsewhere]
        alive = [job for job in here if job.state.alive]
        if len(alive) > 1:
            listed = [f'"{job.id}"' for job in alive]
            fact = f"{len(alive)} jobs called {name!r} run on {self.name}: {', '.join(listed)}"
            hint = f'say which: "stop": {{"job_id": {listed[0]}}}, or all of them as "job_ids"'
            raise ClusterError(fact, cluster=self.name, job=request.job, hint=hint)
        return alive or here

    @property
    def _notes(self) -> Notes:
        return Notes(self.state_dir)

    def _calls(self, record: Record | None, job: str = "") -> FlinkCalls:
        """Return the calls of where the record's job was submitted, or the job with this id is."""
        url = (record or {}).get("url") or self.options["url"]
        return FlinkCalls(self.name, str(url), self.options)


def _last_attempt(record: Record) -> int:
    return int(record.get("attempt", 0))


def _check_submit(cluster: ClusterSpec, submit: Submit) -> None:
    if cluster.options.get("application"):
        way_out = "a session cluster; or nothing here, and it is started by hand"
        message = one_application(cluster.name)
        raise SpecError((Complaint(submit.pointer, message, None, way_out),))
    check_jar(read_submit(submit.options, submit.pointer, cluster.options), submit.pointer)


def check_jar(given: Options, pointer: str) -> None:
    """Refuse a jar that has not the class."""
    jar = given.get("jar")
    if not jar:
        return
    complaints = tuple(complaints_about(Path(str(jar)), given.get("entry_class"), pointer))
    if complaints:
        raise SpecError(complaints)


KIND = ClusterKind(
    "flink_rest",
    TAKES.cluster,
    lambda name, options, around: FlinkRest(name, around.state_dir, options, around.interrupt),
    _check_submit,
)
