"""Flink jobs under flink-kubernetes-operator: a FlinkDeployment or a FlinkSessionJob (v1beta1) is a
job. The API server finds, suspends and starts it, by its resource; the JobManager, which the API
server passes requests on to, tells how far it has come.

    <state_dir>/<tag>.json            see `resources`; and "fenced": the generation of a suspended
                                      spec that the operator was seen to leave alone
    <state_dir>/<tag>.savepoint.json  {"begun", "location"}

A resource whose job may run is never changed into another job's. A suspended resource is the fence
of its job: the operator starts nothing of it.

A stop writes `suspended` with `upgradeMode: savepoint`, only where the job is RUNNING: the operator
suspends any other without a savepoint. If it does not carry that out in time, or otherwise, it is
written back, also by a rollback: the job goes on, or is resumed from its savepoint.
Nothing is deleted. `rest_url` names another way to the JobManagers, with {name} and {namespace}.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.checkpoints import latest_checkpoint
from stateshift.clusters.flink.jobs import (
    job_to_stop,
    live_job,
    log_of,
    progress_of,
    settings_of,
)
from stateshift.clusters.flink.savepoints import lies_below
from stateshift.clusters.flink.values import ENDED
from stateshift.clusters.http import Json, Refused, Service, Unanswered
from stateshift.clusters.kind import ClusterKind, Submit
from stateshift.clusters.kubernetes.calls import (
    SESSION_JOB,
    SNAPSHOT,
    Definition,
    KubernetesCalls,
)
from stateshift.clusters.kubernetes.capacity import flink_pods
from stateshift.clusters.kubernetes.flink_resources import (
    BEFORE,
    CHECKPOINT_FOLDERS,
    DRAINS,
    JOB_KINDS,
    MARK,
    NATIVE,
    SAVEPOINT_FOLDERS,
    FlinkResource,
)
from stateshift.clusters.kubernetes.resources import (
    LOCATION,
    TAG,
    OperatedJobs,
    Start,
    checked_submit,
    new_resource,
)
from stateshift.clusters.logged import logs_image, logs_stop, logs_submission
from stateshift.clusters.noted import Record, digest, refuse_unknown
from stateshift.clusters.options import Options, read_options
from stateshift.clusters.placement import Container
from stateshift.clusters.protocol import (
    CheckpointRequest,
    JobProgress,
    JobState,
    JobStatus,
    Origin,
    RunningJob,
    SavepointRequest,
    StopRequest,
    Submission,
    Trial,
)
from stateshift.clusters.redaction import last_lines
from stateshift.clusters.stopping import stop_options
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import KindOptions, options_of
from stateshift.survey import LiveJob

_TAKES: Final = options_of("flink_operator")
_RECONCILE_SECONDS: Final = 120.0  # the operator tells nothing while it waits for a savepoint
_REST_PORT: Final = 8081
_OVER: Final = (JobState.FINISHED, JobState.FAILED)
_ENDED: Final = ("COMPLETED", "FAILED", "ABANDONED")


@dataclass(frozen=True)
class JobManagerCalls(FlinkCalls):
    """The calls of a JobManager that the API server passes on."""

    through: KubernetesCalls | None = field(default=None, repr=False)

    def service(self) -> Service:
        service = super().service()
        if self.through is None:
            return service
        right = 'the account needs "get" of services/proxy; or give the cluster a "rest_url"'
        return self.through.proven(replace(service, ways_out={**service.ways_out, 403: right}))


class _NotSuspended(ClusterError):
    """The operator has not ended a job that it was asked to end."""


@dataclass(frozen=True)
class FlinkOperator(OperatedJobs[FlinkResource]):
    """See the module."""

    takes: ClassVar[KindOptions] = _TAKES
    kinds: ClassVar[Mapping[str, Definition]] = JOB_KINDS
    optional: ClassVar[Definition] = SESSION_JOB
    merged: ClassVar[tuple[str, ...]] = ("flink_configuration",)

    def resource(self, definition: Definition, plain: Json) -> FlinkResource:
        return FlinkResource(definition, plain)

    def status_of(self, resource: FlinkResource, record: Record) -> JobStatus:
        """Return the status of a job of ours. A suspended spec that the operator has not come to is
        its end only where it was seen to be left alone: the operator may be about to start an
        earlier one.
        """
        if resource.is_wanted or resource.is_suspended:
            return resource.job_status
        if record.get("fenced") == resource.generation:
            return JobStatus(JobState.FINISHED, resource.id, "suspended")
        words = resource.error or "the operator has yet to suspend it"
        return JobStatus(JobState.RUNNING, resource.id, words)

    # ---- finding

    def find_source(self, request: StopRequest) -> JobStatus:
        """Return the status of the source; of several ids, of one that is alive, if there is."""
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        sources = [resource.job_status for resource in self._sources(request)]
        alive = (status for status in sources if status.state.alive)
        return next(alive, sources[-1] if sources else JobStatus(JobState.ABSENT))

    def _sources(self, request: StopRequest) -> list[FlinkResource]:
        """Return the resources of the spec's ids, else the one of its name. One that we started
        from another image, or have stopped to take one, is not it.
        """
        options = stop_options(request, self.options, self.takes.stop, self.takes.submit)
        ids = [*options.get("job_ids", ())]
        if "job_id" in options:
            ids.append(options["job_id"])
        if ids:
            return [each for each in map(self.named, map(str, ids)) if each is not None]
        named = self.named(str(options.get("job_name", request.job)))
        if named is None:
            return []
        is_marked = bool({MARK, BEFORE} & named.annotations.keys())  # somebody resumed it since
        location = named.annotations.get(LOCATION, "" if is_marked else request.location)
        return [named] if location.rstrip("/") == request.location.rstrip("/") else []

    def running(self, job: str) -> tuple[RunningJob, ...]:
        resource = self.named(job)
        return () if resource is None or resource.job is None else (resource.running_job,)

    def alive(self) -> tuple[RunningJob, ...]:
        jobs = [each.running_job for each in self.each("", self.calls.every) if each.job]
        return tuple(job for job in jobs if job.state.alive)

    def live(self) -> tuple[LiveJob, ...]:
        """Return the jobs that run, with what their resources and JobManagers tell of images. A
        session cluster, which may have jobs without a resource, is one that tells nothing.
        """
        jobs = []
        for resource in self.each("", self.calls.every):
            if resource.job is None:
                jobs.append(LiveJob("", f"session cluster {resource.name}", resource.id))
                continue
            if not resource.job_status.state.alive:
                continue
            id = resource.flink_id
            job = LiveJob(id or "", resource.name, resource.id)
            if id is not None and resource.runs:
                job = live_job(self._jobs(resource), id, resource.name, resource.id)
            named = (resource.savepoint,) if resource.savepoint else ()
            began = (resource.job or {}).get("initialSavepointPath") or None
            jobs.append(replace(job, images=(*job.images, *named), restored=job.restored or began))
        return tuple(jobs)

    def where(self, job: str, is_id: bool) -> tuple[FlinkCalls, str]:
        """Return the JobManager of a job's resource, and the job's id there."""
        resource = self.known(job)
        if resource.flink_id is None:
            fact = f"{resource.id} has no job yet: {resource.job_status.detail or 'it never ran'}"
            raise self.error(job, fact, "wait until it runs")
        return self._jobs(resource), resource.flink_id

    def keeper(self, job_id: str) -> str | None:
        """Return the tool that writes a job's resource back as its repository has it, if any."""
        resource = self.named(job_id)
        return None if resource is None else resource.keeper

    def job_settings(self, job_id: str) -> dict[str, str]:
        return settings_of(self.known(job_id).configuration)

    # ---- starting

    @logs_submission
    def submit(self, submission: Submission) -> str:
        given = read_options(submission.options, self.takes.submit, "/submit")
        status = self.find(submission.tag)
        if status.state is not JobState.ABSENT:
            return status.id or submission.tag
        return self.write_start(self.wanted(submission, given))

    def to_start(self, start: Start, resource: FlinkResource | None) -> Json:
        submission, spec = start.submission, start.spec
        if resource is None:
            return self.make_new(start).for_start(submission, start.given, spec)
        self._refuse_session_job(start, resource)
        status, is_ours = resource.job_status, TAG in resource.annotations
        # One of ours that has failed is over as well: its image is where it was.
        is_over = resource.is_suspended or (is_ours and status.state in _OVER)
        if resource.job is None or not is_over:
            detail = f" ({status.detail})" if status.detail else ""
            fact = f"{resource.id} is there, and {status.state}{detail}: {self.calls.place}"
            hint = (
                "two jobs would be one: suspend it first (job.state), or give the new job another "
                '"resource"'
            )
            raise self.error(submission.job, fact, hint)
        is_marked = is_ours or bool({MARK, BEFORE} & resource.annotations.keys())
        if not is_marked and start.model not in (None, f"{start.id}, {self.calls.place}"):
            fact = f"{resource.id} is there, suspended by somebody else: {self.calls.place}"
            hint = 'it would have another program: give the new job another "resource"'
            raise self.error(submission.job, fact, hint)
        if "spec" in start.given and not is_ours:
            spec = None  # it is as it was, and may have been changed by its owner since
        return resource.for_start(submission, start.given, spec)

    def _refuse_session_job(self, start: Start, resource: FlinkResource) -> None:
        """Refuse what the operator cannot do in a FlinkSessionJob that is there."""
        if start.definition is not SESSION_JOB or not resource.reconciled:
            return
        hint = 'give the new job another "resource", "like" this one'
        session = start.given.get("session", resource.spec.get("deploymentName"))
        if session != resource.spec.get("deploymentName"):
            fact = f"{resource.id} cannot be given another session ({session})"
            raise self.error(start.submission.job, fact, hint)
        goes_on = resource.final_savepoint == start.submission.location
        if not goes_on and resource.job_status.state is not JobState.FAILED:
            fact = f"the operator cannot start {resource.id} from another savepoint once it is "
            raise self.error(start.submission.job, f"{fact}suspended", hint)

    def try_start(self, submission: Submission) -> Trial:
        """Ask the API server whether it would admit the resource; nothing is written."""
        try:
            given = read_options(submission.options, self.takes.submit, "/submit")
            start = self.wanted(submission, given)
            stored = self.calls.get(start.definition, start.name)
            resource = None if stored is None else FlinkResource(start.definition, stored)
            if resource is not None and not resource.is_suspended:
                self._refuse_session_job(start, resource)
                return Trial(untried=f"{resource.id} is not suspended yet, and has to be before")
            body = self.to_start(start, resource)
            write = self.calls.create if resource is None else self.calls.update
            write(start.definition, body, trial=True)
        except ClusterError as error:
            return Trial(error.fact, error.hint)
        return Trial()

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        """Return the resource and its spec: suspended, it is started again where it is."""
        alive = [each for each in self._sources(request) if each.job_status.state.alive]
        if len(alive) != 1:
            return Origin(why=f"{len(alive)} jobs run there, and one is started again")
        return Origin({"resource": alive[0].id, "spec": alive[0].spec_before})

    def pods(self, resource: FlinkResource) -> list[Container]:
        return flink_pods(resource.spec, resource.configuration)

    # ---- stopping

    @logs_image("savepoint")
    def savepoint(self, request: SavepointRequest) -> str:
        note, mark = f"{request.tag}.savepoint", digest(request.tag)
        noted = (self.notes.read(note) or {}).get("location")
        resource = self.known(request.job_id)
        # One that runs again by now has gone on from it: it is out of date.
        is_out = not resource.is_suspended or resource.annotations.get(MARK) != mark
        if noted is not None and not (request.stop and is_out):
            return str(noted)
        self.write_down(note)
        if request.stop:
            if resource.is_wanted or resource.annotations.get(MARK) != mark:
                resource = self._savable(resource, request)
            ended = self._suspend(resource, mark, request.seconds_max, request)
            location = str(ended.final_savepoint)
        else:
            location = self._snapshot(resource, request)
        self.notes.add(note, location=location)
        return location

    def _savable(self, first: FlinkResource, request: SavepointRequest) -> FlinkResource:
        """Return the job's resource once it runs; refuse what the operator would not do, or not so,
        before anything is written. One whose stop was taken back may not run yet.
        """
        last = first

        def look() -> FlinkResource | None:
            nonlocal last
            last = self._now(first, self.calls.get(first.definition, first.name))
            self._refuse_ended(last)
            return last if last.runs else None

        running = self.calls.wait_for(look, self._reconcile_seconds(request.seconds_max))
        state = None
        if running is not None and running.flink_id is not None:
            state = self._jobs(running).state(running.flink_id)
        if running is None or state != "RUNNING":
            status = last.job_status
            words = status.detail or str(state or last.flink_state or status.state).lower()
            fact = f"{first.id} does not run ({words}), and would be suspended without a savepoint"
            raise self.error(first.id, fact, "once it runs: stateshift resume WORKDIR")
        self._refuse_configured(running, request)
        return running

    def _refuse_ended(self, resource: FlinkResource) -> None:
        id, status = resource.id, resource.job_status
        if resource.is_deleting:
            raise self.error(id, f"{id} {status.detail}", "wait for its end")
        if not resource.is_wanted or status.state in _OVER:
            known = f'"existing_savepoint_paths": its last one is {resource.savepoint}'
            raise self.error(id, f"{id} does not run: {status.detail or status.state}", known)

    def _refuse_configured(self, resource: FlinkResource, request: SavepointRequest) -> None:
        """Refuse a savepoint that would be another one by the job's configuration. The JobManager
        knows what the operator has by default, but for the operator's own keys.
        """
        id = resource.id
        configured = {**self._jobs(resource).configuration(), **resource.configuration}
        folder = next(filter(None, map(configured.get, SAVEPOINT_FOLDERS)), None)
        writes_native = configured.get(NATIVE, "CANONICAL").upper() == "NATIVE"
        drains = configured.get(DRAINS, "false").lower() == "true"
        if request.cancel:
            fact = "the operator does not cancel a job behind its savepoint"
            raise self.error(id, fact, 'leave out "cancel_job"')
        if request.drain != drains:
            fact = f"the operator {'drains' if drains else 'does not drain'} {id} when it stops it"
            hint = f'"{DRAINS}": "{str(request.drain).lower()}" in its flinkConfiguration'
            raise self.error(id, fact, f'{hint}; or the other "drain"')
        if request.native != writes_native:
            wanted = "NATIVE" if request.native else "CANONICAL"
            hint = f'"{NATIVE}": "{wanted}" in its flinkConfiguration, or the other "format"'
            raise self.error(id, f"the savepoint of {id} would not be {wanted.lower()}", hint)
        if folder is None or not lies_below(folder, request.directory):
            fact = f"the operator writes the savepoint of {id} to {folder or 'no folder'}"
            hint = f"name that folder in the spec, and not {request.directory}; nothing was stopped"
            if folder is None:
                hint = f'give it "{SAVEPOINT_FOLDERS[0]}" in its flinkConfiguration'
            raise self.error(id, fact, hint)
        is_stateless = (resource.job or {}).get("upgradeMode", "stateless") == "stateless"
        if is_stateless and not any(map(configured.get, CHECKPOINT_FOLDERS)):
            fact = f"{id} is stateless and has no folder of checkpoints: the operator would refuse"
            hint = f'give it "{CHECKPOINT_FOLDERS[0]}" in its flinkConfiguration'
            raise self.error(id, f"{fact} to take its savepoint", hint)

    def _suspend(
        self,
        first: FlinkResource,
        mark: str,
        seconds_max: float,
        request: SavepointRequest | None = None,
    ) -> FlinkResource:
        """Return the resource once it is suspended with a savepoint; else take that back."""
        self._write_stop(first, "savepoint", mark, request)
        try:
            ended = self._await_suspended(first, seconds_max)
            if request is None:
                doubt = ended.doubt("", None)
            else:
                doubt = ended.doubt(request.directory, request.native)
            if doubt is None:
                return ended
            hint = "it was resumed. It may not run well enough to take one, or the operator has "
            hint += f"another default: kubectl describe {ended.id}"
            fact = f"{ended.id} {doubt}"
            raise _NotSuspended(fact, cluster=self.name, job=ended.id, hint=hint)
        except _NotSuspended as error:
            # The job is to run again, unless somebody else has decided about it since.
            try:
                self._resume(first, mark)
            except ClusterError as further:
                by_hand = 'with "state": "running" and "upgradeMode": "savepoint" in spec.job'
                fact = f"{error.fact}; and it could not be set back: {further.fact}"
                hint = f"stateshift rollback WORKDIR; or: kubectl edit {first.id}, {by_hand}"
                raise self.error(first.id, fact, hint) from further
            raise

    def _write_stop(
        self,
        first: FlinkResource,
        mode: str,
        mark: str,
        request: SavepointRequest | None = None,
    ) -> None:
        """Write that a job is to be suspended, once, unless the request cannot be met."""
        tries = 0

        def decide(stored: Json | None) -> Json | None:
            nonlocal tries
            last = self._now(first, stored)
            is_so = not last.is_wanted and (last.job or {}).get("upgradeMode") == mode
            is_another = last.annotations.get(TAG) != first.annotations.get(TAG)
            # Somebody who has written over it would do so again: it is written once.
            if is_another or (last.annotations.get(MARK) == mark and (is_so or tries > 0)):
                return None
            if request is not None:
                self._refuse_ended(last)
                if not last.runs:
                    fact = f"{last.id} does not run any more ({last.flink_state.lower()})"
                    raise self.error(last.id, fact, "once it runs: stateshift resume WORKDIR")
            tries += 1
            return None if last.is_suspended else last.for_stop(mode, mark)

        self.calls.change(first.definition, first.name, decide)

    def _await_suspended(self, first: FlinkResource, seconds_max: float) -> FlinkResource:
        """Return the resource once its job has ended, which the operator was asked for.

        Raises:
            _NotSuspended: it does not, and is to be set back.
        """
        reconcile = self._reconcile_seconds(seconds_max)
        changed_at = time.monotonic()
        last = first

        def look() -> FlinkResource | None:
            nonlocal last, changed_at
            before, last = last, self._now(first, self.calls.get(first.definition, first.name))
            if last.is_wanted:
                fact = f"{last.id} is wanted to run again: somebody has written over our stop"
                hint = f"pause who keeps it ({last.keeper or 'kubectl get -o yaml shows who'})"
                raise self.error(last.id, fact, f"{hint}, then: stateshift resume WORKDIR")
            if last.is_suspended:
                return last
            if last.status != before.status:
                changed_at = time.monotonic()
            if time.monotonic() - changed_at <= reconcile:
                return None
            # No operator begins a job that is suspended by now, nor one that it has cancelled.
            is_left = last.is_left_cancelled and self._word(last) in ("", *ENDED)
            is_stateless = (last.job or {}).get("upgradeMode") == "stateless"
            if is_stateless and (is_left or not last.reconciled):
                return last
            is_seen = last.is_observed or last.is_worked_on or last.status != first.status
            # The operator says nothing while it waits for a savepoint, which the job shows.
            if not is_seen and self._word(last) == "RUNNING":
                fact = f"no operator reconciles {last.id}: its status is as it was for "
                fact += f"{reconcile:g} s ({self.calls.place})"
                hint = "is the operator up, and does it watch this namespace?"
                raise _NotSuspended(fact, cluster=self.name, job=last.id, hint=hint)
            return None

        ended = self.calls.wait_for(look, seconds_max)
        if ended is not None:
            return ended
        words = last.error or "and the operator says no reason"
        fact = f"{last.id} is not suspended after {seconds_max:g} s: {words}"
        hint = f"see its events: kubectl describe {last.id}"
        raise _NotSuspended(fact, cluster=self.name, job=last.id, hint=hint)

    def _reconcile_seconds(self, seconds_max: float) -> float:
        """Return the operator's time to notice a write, of the time for all of it."""
        configured = float(self.options.get("reconcile_seconds", _RECONCILE_SECONDS))
        return min(configured, seconds_max * 0.8)

    def _word(self, resource: FlinkResource) -> str | None:
        """Return the JobManager's word for the job: SAVING while it takes a savepoint, empty if
        there is no such job; None without an answer.
        """
        jobs, id = self._jobs(resource), resource.flink_id
        if id is None:
            return ""
        with suppress(Refused, Unanswered):
            state = jobs.state(id) or ""
            return "SAVING" if state == "RUNNING" and jobs.takes_savepoint(id) else state
        return None

    def _resume(self, first: FlinkResource, mark: str) -> None:
        def decide(stored: Json | None) -> Json | None:
            last = None if stored is None else FlinkResource(first.definition, stored)
            if last is None or last.annotations.get(MARK) != mark or last.is_wanted:
                return None
            return last.resumed()

        self.calls.change(first.definition, first.name, decide)

    def call_off(self, request: SavepointRequest) -> bool:
        """Take back a request to end a job; not one that has ended it."""
        resource, mark = self.known(request.job_id), digest(request.tag)
        if resource.annotations.get(MARK) != mark or resource.is_suspended:
            return False  # without a savepoint, `savepoint` resumes it
        self._resume(resource, mark)
        return True

    def is_ending(self, request: SavepointRequest | CheckpointRequest) -> bool:
        resource = self.known(request.job_id)
        is_asked = resource.annotations.get(MARK) == digest(request.tag)
        return is_asked and not resource.is_wanted

    def runs_again(self, job_id: str) -> str | None:
        """Return the state of a job that was ended, if it runs: somebody has written it back. One
        that was started in its resource has our tag, and no mark of the end any more.
        """
        resource = self.named(job_id)
        if resource is None or not resource.job_status.state.alive:
            return None
        is_successor = TAG in resource.annotations and MARK not in resource.annotations
        return None if is_successor else str(resource.job_status.state)

    def _snapshot(self, job: FlinkResource, request: SavepointRequest) -> str:
        """Return a savepoint of a job that goes on, by a FlinkStateSnapshot, which stays there."""
        if request.cancel or request.drain:
            raise self.error(job.id, "the operator does not cancel", 'leave out "cancel_job"')
        spec: Json = {
            "backoffLimit": 0,
            "jobReference": {"kind": job.definition.kind, "name": job.name},
            "savepoint": {
                "path": request.directory,
                "formatType": "NATIVE" if request.native else "CANONICAL",
                "disposeOnDelete": False,
            },
        }
        attempt, asked, name = 1, False, ""

        def look() -> Json | None:
            nonlocal attempt, asked, name
            name = f"stateshift-{digest(request.tag)[:20]}-{attempt}"
            stored = self.calls.get(SNAPSHOT, name)
            if stored is None:
                made = new_resource(SNAPSHOT, name, self.calls.access.namespace)
                asked = True  # also where the answer is lost
                try:
                    self.calls.create(SNAPSHOT, {**made, "spec": spec})
                except Refused as refused:
                    if refused.status != 409:
                        raise
                return None
            status: Json = stored.get("status") or {}
            if status.get("state") not in _ENDED:
                return None
            if "path" in status or asked:
                return stored
            attempt += 1  # an earlier attempt's, which was reported then
            return None

        ended = self.calls.wait_for(look, request.seconds_max)
        if ended is not None and ended["status"].get("state") == "COMPLETED":
            return str(ended["status"]["path"])
        why = f"it is not there after {request.seconds_max:g} s"
        if ended is not None:
            why = FlinkResource(SNAPSHOT, ended).error
        hint = f"kubectl describe flinkstatesnapshot {name}"
        raise self.error(job.id, f"no savepoint was taken: {why}", hint)

    def failed_behind(self, request: SavepointRequest) -> str | None:
        return None  # the operator does not tell: it suspends whatever ended with its savepoint

    def checkpoint(self, request: CheckpointRequest) -> str:
        fact = "the operator ends a job with a savepoint, and not with a checkpoint"
        raise self.error(request.job_id, fact, '"mode": "move"; nothing was stopped')

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        """Suspend a job with a savepoint. One of our own that does not run well enough to take one
        is suspended without: its image is where it was.
        """
        status = job_to_stop(self, request)
        refuse_unknown(status, request, self.name, self.notes)
        self.notes.add_stopped(request.tag)
        resource = None if status.id is None else self.named(status.id)
        record = self.notes.read(request.tag) or {}
        if request.tag is None:
            if resource is not None and (resource.is_wanted or status.state.alive):
                self._suspend(resource, digest(f"stop {resource.id}"), request.seconds_max)
            return job_to_stop(self, request)
        if resource is None or not resource.has_tag(request.tag, record):
            return status
        if resource.is_wanted or status.state.alive:
            mark = digest(f"stop {request.tag}")
            ended = self._end_ours(resource, mark, request.seconds_max)
            known = {"begun": time.time(), **record, "id": ended.id, "uid": ended.uid}
            self.notes.add(request.tag, **{**known, "fenced": ended.generation})
        return job_to_stop(self, request)

    def _end_ours(self, resource: FlinkResource, mark: str, seconds_max: float) -> FlinkResource:
        configured = resource.configuration
        if resource.runs:
            # A session job's folder may be that of its session.
            with suppress(Refused, Unanswered):
                configured = {**self._jobs(resource).configuration(), **configured}
            if any(map(configured.get, SAVEPOINT_FOLDERS)):
                self._write_stop(resource, "savepoint", mark)
                with suppress(_NotSuspended):
                    return self._await_suspended(resource, seconds_max / 2)
        self._write_stop(resource, "stateless", mark)
        try:
            return self._await_suspended(resource, seconds_max / 2)
        except _NotSuspended as error:
            way_out = f"kubectl delete {resource.id}, then: stateshift rollback WORKDIR"
            hint = f"{error.hint}; or: {way_out}"
            raise self.error(resource.id, error.fact, hint) from error

    def _now(self, first: FlinkResource, stored: Json | None) -> FlinkResource:
        way_out = f"its last savepoint is {first.savepoint}; start it again from there"
        return self.same(first, stored, way_out)

    # ---- the JobManager

    def progress(self, tag: str) -> JobProgress:
        resource = self.tagged(tag, self.notes.read(tag) or {})
        none = JobProgress(None, None, None, False)
        if resource is None or not resource.is_wanted or not resource.is_observed:
            return none
        if resource.is_starting:
            return none
        if resource.flink_id is None or resource.flink_state in ("", "RECONCILING"):
            return none  # the id may be the last job's
        return progress_of(self._jobs(resource), self.notes, tag, resource.flink_id)

    def latest_checkpoint(self, job_id: str) -> str | None:
        resource = self.known(job_id)
        if resource.flink_id is None:
            return None
        return latest_checkpoint(self._jobs(resource), resource.flink_id)

    def log(self, tag: str, lines_max: int = 50) -> str:
        """Return the operator's error, and the exceptions of the job if its JobManager answers."""
        resource = self.tagged(tag, self.notes.read(tag) or {})
        if resource is None:
            return ""
        said = [resource.error]
        if resource.flink_id is not None:
            with suppress(Refused, Unanswered):
                said.append(log_of(self._jobs(resource), resource.flink_id))
        return last_lines("\n".join(filter(None, said)), lines_max)

    def _jobs(self, resource: FlinkResource) -> JobManagerCalls:
        """Return the calls of a job's JobManager: of its own deployment, or of its session."""
        name = str(resource.spec.get("deploymentName") or resource.name)
        given, namespace = self.options.get("rest_url"), self.calls.access.namespace
        options = {key: self.options[key] for key in ("request_seconds",) if key in self.options}
        if given is not None:
            url = str(given).replace("{name}", name).replace("{namespace}", namespace)
            return JobManagerCalls(self.name, url, options, option="rest_url")
        url = self.calls.service_url(f"{name}-rest", _REST_PORT)
        return JobManagerCalls(self.name, url, options, option="rest_url", through=self.calls)


def check_submit(cluster: ClusterSpec, submit: Submit) -> None:
    """Refuse a submission that would be refused only once the old job has been stopped."""
    given = checked_submit(submit, FlinkOperator.takes)
    named = str(given.get("resource", "")).lower()
    is_of_target = submit.pointer.rpartition("/")[2] == "submit"
    is_in_place = is_of_target and not {"like", "manifest", "spec"} & given.keys()
    if is_in_place and named.startswith("flinksessionjob/"):
        fact = "the operator starts no FlinkSessionJob from another savepoint once it is suspended"
        expected = 'another "resource", "like" this one'
        raise SpecError((Complaint(f"{submit.pointer}/resource", fact, named, expected),))


KIND = ClusterKind(
    FlinkOperator.takes.kind,
    FlinkOperator.takes.cluster,
    lambda name, options, around: FlinkOperator(name, around.state_dir, options, around.interrupt),
    check_submit,
)
