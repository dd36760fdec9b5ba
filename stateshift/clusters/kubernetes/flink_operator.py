"""Flink jobs under flink-kubernetes-operator: a FlinkDeployment or a FlinkSessionJob (v1beta1) is a
job. The API server finds, suspends and starts it, by its resource; the JobManager, which the API
server passes requests on to, tells how far it has come.

    <state_dir>/<tag>.json            {"begun", "id": "flinkdeployment/orders" and "uid" once it is
                                      written, "location", "stopped", "fenced": the generation of a
                                      suspended spec that the operator was seen to leave alone}
    <state_dir>/<tag>.savepoint.json  {"begun", "location"}
    <state_dir>/place.<cluster>.json  {"begun", "place": the server and the namespace}: whatever was
                                      begun in one is not looked for in another

A job's id is its resource: `flinkdeployment/orders`, or `orders` where only one kind has the name.
A job is started by one write of its resource, which carries our tag: it is made, or a suspended one
is changed. A second attempt finds the first, whoever makes it; a resource whose job may run is
never changed into another job's. A suspended resource is the fence of its job: the operator starts
nothing of it.

A stop writes `suspended` with `upgradeMode: savepoint`, only where the job is RUNNING: the operator
suspends any other without a savepoint. If it does not carry that out in time, or otherwise, it is
written back, also by a rollback: the job goes on, or is resumed from its savepoint.
Nothing is deleted. `rest_url` names another way to the JobManagers, with {name} and {namespace}.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Final

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.checkpoints import latest_checkpoint
from stateshift.clusters.flink.jobs import job_to_stop, log_of, progress_of, settings_of
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
from stateshift.clusters.kubernetes.flink_resources import (
    BEFORE,
    CHECKPOINT_FOLDERS,
    DRAINS,
    JOB_KINDS,
    LOCATION,
    MARK,
    NATIVE,
    SAVEPOINT_FOLDERS,
    TAG,
    FlinkResource,
    new_resource,
    read_manifest,
)
from stateshift.clusters.logged import logs_image, logs_stop, logs_submission
from stateshift.clusters.noted import Notes, Record, digest, refuse_unknown
from stateshift.clusters.options import TEXT, Options, read_options
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
    UnknownAnswers,
)
from stateshift.clusters.redaction import last_lines
from stateshift.clusters.stopping import stop_options
from stateshift.clusters.waiting import wait_until_settled
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import options_of

_SETTLE_SECONDS: Final = 60.0
_RECONCILE_SECONDS: Final = 120.0  # the operator tells nothing while it waits for a savepoint
_REST_PORT: Final = 8081
_TAKES: Final = options_of("flink_operator")
_LIKE: Final = dict.fromkeys(("kubeconfig", "context", "namespace", "resource"), TEXT)
_OVER: Final = (JobState.FINISHED, JobState.FAILED)
_ENDED: Final = ("COMPLETED", "FAILED", "ABANDONED")
_FORGOTTEN: Final = "its resource is gone: somebody has deleted it"
_REPLACED: Final = "another resource has its name, without a mark of ours"
_SUPERSEDED: Final = "its resource was started again under another tag"


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


@dataclass(frozen=True, slots=True)
class _Start:
    """A job to start by its resource. `spec` is another's; None: the resource's own. `marks` are
    the labels and annotations of a manifest.
    """

    definition: Definition
    name: str
    spec: Json | None
    submission: Submission
    given: Options
    marks: Json | None = None

    @property
    def id(self) -> str:
        return f"{self.definition.kind.lower()}/{self.name}"


class _NotSuspended(ClusterError):
    """The operator has not ended a job that it was asked to end."""


@dataclass(frozen=True)
class FlinkOperator(UnknownAnswers):
    """See the module. `options` are checked already."""

    name: str
    state_dir: Path
    options: Options
    interrupt: Event | None = None

    @property
    def kind(self) -> str:
        return _TAKES.kind

    @cached_property
    def calls(self) -> KubernetesCalls:
        return KubernetesCalls(self.name, self.options, self.interrupt)

    @property
    def notes(self) -> Notes:
        return Notes(self.state_dir)

    def host(self, connection: str | None = None) -> str | None:
        return "kubernetes"

    # ---- finding

    def find(self, tag: str) -> JobStatus:
        record = self.notes.read(tag) or {}
        id, settled = record.get("id"), 0.0
        if record and id is None:
            settle = float(self.options.get("settle_seconds", _SETTLE_SECONDS))
            settled = float(record["begun"]) + settle

        def look(over: bool) -> JobStatus | None:
            resource = self._tagged(tag, record)
            if resource is not None:
                if settled:
                    self.notes.add(tag, id=resource.id, uid=resource.uid)
                return _status_of(resource, record)
            if id is None:
                return JobStatus(JobState.ABSENT) if over else None
            other = self._resource(id)
            if other is not None and TAG in other.annotations:
                return JobStatus(JobState.FINISHED, id, _SUPERSEDED)
            if other is None and record.get("stopped"):
                return JobStatus(JobState.FINISHED, id, "stopped")
            return JobStatus(JobState.UNKNOWN, id, _FORGOTTEN if other is None else _REPLACED)

        return wait_until_settled(look, settled, self.interrupt) or JobStatus(JobState.ABSENT)

    def _tagged(self, tag: str, record: Record) -> FlinkResource | None:
        """Return the resource that was started last under this tag."""
        if record.get("id") is not None:
            known = self._resource(str(record["id"]))
            found = [] if known is None else [known]
        else:
            found = self._each("", lambda kind: self.calls.every(kind, TAG, digest(tag)))
        return next((resource for resource in found if _has_tag(resource, tag, record)), None)

    def _each(
        self, kind: str, ask: Callable[[Definition], Sequence[Json | None]]
    ) -> list[FlinkResource]:
        """Return the answers for each kind of job; a server may lack that of sessions."""
        note = f"place.{self.name}"
        began = (self.notes.read(note) or {}).get("place", self.calls.place)
        if began != self.calls.place:  # a context may have been switched since
            fact = f"this was begun in {began}, and {self.name} leads to {self.calls.place} now"
            hint = 'name its "context" and "namespace" in the spec; if both names are of one server'
            raise self._error("", fact, f"{hint}: rm {self.notes.place(note)}")
        found: list[FlinkResource] = []
        for definition in self._definitions(kind):
            try:
                answers = ask(definition)
            except Refused as refused:
                if kind or refused.status != 404 or definition is not SESSION_JOB:
                    raise
                answers = []
            found += [FlinkResource(definition, plain) for plain in answers if plain is not None]
        return found

    def _write_down(self, tag: str, **more: object) -> None:
        """Note what is about to be asked for, and where."""
        self.notes.add(f"place.{self.name}", begun=time.time(), place=self.calls.place)
        self.notes.add(tag, begun=time.time(), **more)

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
        options = stop_options(request, self.options, _TAKES.stop, _TAKES.submit)
        ids = [*options.get("job_ids", ())]
        if "job_id" in options:
            ids.append(options["job_id"])
        if ids:
            return [each for each in map(self._resource, map(str, ids)) if each is not None]
        named = self._resource(str(options.get("job_name", request.job)))
        if named is None:
            return []
        is_marked = bool({MARK, BEFORE} & named.annotations.keys())  # somebody resumed it since
        location = named.annotations.get(LOCATION, "" if is_marked else request.location)
        return [named] if location.rstrip("/") == request.location.rstrip("/") else []

    def _resource(self, id: str) -> FlinkResource | None:
        """Return a job's resource; of a name that two kinds have, refuse to choose."""
        kind, _, name = id.rpartition("/")
        found = self._each(kind, lambda definition: [self.calls.get(definition, name)])
        if len(found) > 1:
            both = " and ".join(resource.id for resource in found)
            raise self._error(id, f"{name} is {both}", "name one of them with its kind")
        return found[0] if found else None

    def _definitions(self, kind: str) -> tuple[Definition, ...]:
        if not kind:
            return tuple(JOB_KINDS.values())
        if kind.lower() not in JOB_KINDS:
            raise self._error(kind, f"{kind} is no kind of job", f"one of {', '.join(JOB_KINDS)}")
        return (JOB_KINDS[kind.lower()],)

    def known(self, id: str) -> FlinkResource:
        """Return a job's resource, which has to be there."""
        resource = self._resource(id)
        if resource is None or resource.job is None:
            what = "is a session cluster, and no job" if resource is not None else "is not there"
            there = ", ".join(job.id for job in self.alive()) or "none"
            fact = f"{id} {what} ({self.calls.place})"
            raise self._error(id, fact, f"jobs that run there: {there}")
        return resource

    def running(self, job: str) -> tuple[RunningJob, ...]:
        resource = self._resource(job)
        return () if resource is None or resource.job is None else (resource.running_job,)

    def alive(self) -> tuple[RunningJob, ...]:
        jobs = [each.running_job for each in self._each("", self.calls.every) if each.job]
        return tuple(job for job in jobs if job.state.alive)

    def keeper(self, job_id: str) -> str | None:
        """Return the tool that writes a job's resource back as its repository has it, if any."""
        resource = self._resource(job_id)
        return None if resource is None else resource.keeper

    def job_settings(self, job_id: str) -> dict[str, str]:
        return settings_of(self.known(job_id).configuration)

    # ---- starting

    @logs_submission
    def submit(self, submission: Submission) -> str:
        given = read_options(submission.options, _TAKES.submit, "/submit")
        status = self.find(submission.tag)
        if status.state is not JobState.ABSENT:
            return status.id or submission.tag
        start = self._wanted(submission, given)
        self._write_down(submission.tag, location=submission.location)

        def decide(stored: Json | None) -> Json | None:
            resource = None if stored is None else FlinkResource(start.definition, stored)
            if resource is not None and _has_tag(resource, submission.tag, {}):
                return None
            return self._to_start(start, resource)

        stored = self.calls.change(start.definition, start.name, decide) or {}
        uid = (stored.get("metadata") or {}).get("uid")
        self.notes.add(submission.tag, id=start.id, uid=uid)
        return start.id

    def _wanted(self, submission: Submission, given: Options) -> _Start:
        """Return the resource to start: by its manifest, like another, or as it is there."""
        every, own = self.options.get("flink_configuration"), given.get("flink_configuration")
        given = {**given, "flink_configuration": {**(every or {}), **(own or {})}}
        named = str(given.get("resource") or "")
        kind, _, name = named.rpartition("/")
        if "spec" in given and kind:
            return _Start(self._definitions(kind)[0], name, given["spec"], submission, given)
        spec: Json | None = None
        marks: Json | None = None
        if "manifest" in given:
            model = read_manifest(str(given["manifest"]), self.calls.access.namespace)
            spec, marks = model.spec, model.metadata
        elif "like" in given:
            like = given["like"]
            options = dict(self.options)
            if {"kubeconfig", "context"} & like.keys():
                # Another context has another namespace, and another kubeconfig other contexts.
                options.pop("namespace", None)
                options.pop("context", None)
            options |= {key: value for key, value in like.items() if key != "resource"}
            source = replace(self, options=options, state_dir=self.state_dir / "like")
            model = source.known(str(like.get("resource", submission.job)))
            spec = model.spec_before
        else:
            model = self.known(named or submission.job)
        definition = model.definition
        if kind and self._definitions(kind)[0] is not definition:
            fact = f"{named} is of another kind than what it is to be like, {definition.kind}"
            raise self._error(submission.job, fact, 'leave the kind out of "resource"')
        return _Start(definition, name or model.name, spec, submission, given, marks)

    def _to_start(self, start: _Start, resource: FlinkResource | None) -> Json:
        """Return the resource to write, or refuse one that may have a job."""
        submission, spec = start.submission, start.spec
        if resource is None:
            if spec is None:
                fact = f"{start.id} is gone ({self.calls.place})"
                raise self._error(submission.job, fact, "start it by its manifest, or like another")
            namespace = self.calls.access.namespace
            new = new_resource(start.definition, start.name, namespace, start.marks)
            return new.for_start(submission, start.given, spec)
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
            raise self._error(submission.job, fact, hint)
        if "spec" in start.given and not is_ours:
            spec = None  # it is as it was, and may have been changed by its owner since
        return resource.for_start(submission, start.given, spec)

    def _refuse_session_job(self, start: _Start, resource: FlinkResource) -> None:
        """Refuse what the operator cannot do in a FlinkSessionJob that is there."""
        if start.definition is not SESSION_JOB or not resource.reconciled:
            return
        hint = 'give the new job another "resource", "like" this one'
        session = start.given.get("session", resource.spec.get("deploymentName"))
        if session != resource.spec.get("deploymentName"):
            fact = f"{resource.id} cannot be given another session ({session})"
            raise self._error(start.submission.job, fact, hint)
        goes_on = resource.final_savepoint == start.submission.location
        if not goes_on and resource.job_status.state is not JobState.FAILED:
            fact = f"the operator cannot start {resource.id} from another savepoint once it is "
            raise self._error(start.submission.job, f"{fact}suspended", hint)

    def try_start(self, submission: Submission) -> Trial:
        """Ask the API server whether it would admit the resource; nothing is written."""
        try:
            given = read_options(submission.options, _TAKES.submit, "/submit")
            start = self._wanted(submission, given)
            stored = self.calls.get(start.definition, start.name)
            resource = None if stored is None else FlinkResource(start.definition, stored)
            if resource is not None and not resource.is_suspended:
                self._refuse_session_job(start, resource)
                return Trial(untried=f"{resource.id} is not suspended yet, and has to be before")
            body = self._to_start(start, resource)
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
        self._write_down(note)
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
            last = self._same(first, self.calls.get(first.definition, first.name))
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
            raise self._error(first.id, fact, "once it runs: stateshift resume WORKDIR")
        self._refuse_configured(running, request)
        return running

    def _refuse_ended(self, resource: FlinkResource) -> None:
        id, status = resource.id, resource.job_status
        if resource.is_deleting:
            raise self._error(id, f"{id} {status.detail}", "wait for its end")
        if not resource.is_wanted or status.state in _OVER:
            known = f'"existing_savepoint_paths": its last one is {resource.savepoint}'
            raise self._error(id, f"{id} does not run: {status.detail or status.state}", known)

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
            raise self._error(id, fact, 'leave out "cancel_job"')
        if request.drain != drains:
            fact = f"the operator {'drains' if drains else 'does not drain'} {id} when it stops it"
            hint = f'"{DRAINS}": "{str(request.drain).lower()}" in its flinkConfiguration'
            raise self._error(id, fact, f'{hint}; or the other "drain"')
        if request.native != writes_native:
            wanted = "NATIVE" if request.native else "CANONICAL"
            hint = f'"{NATIVE}": "{wanted}" in its flinkConfiguration, or the other "format"'
            raise self._error(id, f"the savepoint of {id} would not be {wanted.lower()}", hint)
        if folder is None or not lies_below(folder, request.directory):
            fact = f"the operator writes the savepoint of {id} to {folder or 'no folder'}"
            hint = f"name that folder in the spec, and not {request.directory}; nothing was stopped"
            if folder is None:
                hint = f'give it "{SAVEPOINT_FOLDERS[0]}" in its flinkConfiguration'
            raise self._error(id, fact, hint)
        is_stateless = (resource.job or {}).get("upgradeMode", "stateless") == "stateless"
        if is_stateless and not any(map(configured.get, CHECKPOINT_FOLDERS)):
            fact = f"{id} is stateless and has no folder of checkpoints: the operator would refuse"
            hint = f'give it "{CHECKPOINT_FOLDERS[0]}" in its flinkConfiguration'
            raise self._error(id, f"{fact} to take its savepoint", hint)

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
                raise self._error(first.id, fact, hint) from further
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
            last = self._same(first, stored)
            is_so = not last.is_wanted and (last.job or {}).get("upgradeMode") == mode
            is_another = last.annotations.get(TAG) != first.annotations.get(TAG)
            # Somebody who has written over it would do so again: it is written once.
            if is_another or (last.annotations.get(MARK) == mark and (is_so or tries > 0)):
                return None
            if request is not None:
                self._refuse_ended(last)
                if not last.runs:
                    fact = f"{last.id} does not run any more ({last.flink_state.lower()})"
                    raise self._error(last.id, fact, "once it runs: stateshift resume WORKDIR")
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
            before, last = last, self._same(first, self.calls.get(first.definition, first.name))
            if last.is_wanted:
                fact = f"{last.id} is wanted to run again: somebody has written over our stop"
                hint = f"pause who keeps it ({last.keeper or 'kubectl get -o yaml shows who'})"
                raise self._error(last.id, fact, f"{hint}, then: stateshift resume WORKDIR")
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
        resource = self._resource(job_id)
        if resource is None or not resource.job_status.state.alive:
            return None
        is_successor = TAG in resource.annotations and MARK not in resource.annotations
        return None if is_successor else str(resource.job_status.state)

    def _snapshot(self, job: FlinkResource, request: SavepointRequest) -> str:
        """Return a savepoint of a job that goes on, by a FlinkStateSnapshot, which stays there."""
        if request.cancel or request.drain:
            raise self._error(job.id, "the operator does not cancel", 'leave out "cancel_job"')
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
                    self.calls.create(SNAPSHOT, {**made.plain, "spec": spec})
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
        raise self._error(job.id, f"no savepoint was taken: {why}", hint)

    def failed_behind(self, request: SavepointRequest) -> str | None:
        return None  # the operator does not tell: it suspends whatever ended with its savepoint

    def checkpoint(self, request: CheckpointRequest) -> str:
        fact = "the operator ends a job with a savepoint, and not with a checkpoint"
        raise self._error(request.job_id, fact, '"mode": "move"; nothing was stopped')

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        """Suspend a job with a savepoint. One of our own that does not run well enough to take one
        is suspended without: its image is where it was.
        """
        status = job_to_stop(self, request)
        refuse_unknown(status, request, self.name, self.notes)
        self.notes.add_stopped(request.tag)
        resource = None if status.id is None else self._resource(status.id)
        record = self.notes.read(request.tag) or {}
        if request.tag is None:
            if resource is not None and (resource.is_wanted or status.state.alive):
                self._suspend(resource, digest(f"stop {resource.id}"), request.seconds_max)
            return job_to_stop(self, request)
        if resource is None or not _has_tag(resource, request.tag, record):
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
            raise self._error(resource.id, error.fact, hint) from error

    def _same(self, first: FlinkResource, stored: Json | None) -> FlinkResource:
        """Return the resource as it is now: not another one of its name."""
        if stored is None or stored["metadata"].get("uid") != first.uid:
            what = "is gone" if stored is None else "is another one of that name by now"
            hint = f"its last savepoint is {first.savepoint}; start it again from there"
            raise self._error(first.id, f"{first.id} {what}", hint)
        return FlinkResource(first.definition, stored)

    # ---- the JobManager

    def progress(self, tag: str) -> JobProgress:
        resource = self._tagged(tag, self.notes.read(tag) or {})
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
        resource = self._tagged(tag, self.notes.read(tag) or {})
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

    def _error(self, job: str, fact: str, hint: str | None) -> ClusterError:
        return ClusterError(fact, cluster=self.name, job=job, hint=hint)


def _has_tag(resource: FlinkResource, tag: str, record: Record) -> bool:
    """Whether a job was started under this tag last. Somebody may have taken our marks away."""
    label = (resource.metadata.get("labels") or {}).get(TAG)
    known = resource.annotations.get(TAG)
    if known is not None or label is not None:
        return known == tag if known is not None else label == digest(tag)
    return resource.uid is not None and record.get("uid") == resource.uid


def _status_of(resource: FlinkResource, record: Record) -> JobStatus:
    """Return the status of a job of ours. A suspended spec that the operator has not come to is its
    end only where it was seen to be left alone: the operator may be about to start an earlier one.
    """
    if resource.is_wanted or resource.is_suspended:
        return resource.job_status
    if record.get("fenced") == resource.generation:
        return JobStatus(JobState.FINISHED, resource.id, "suspended")
    words = resource.error or "the operator has yet to suspend it"
    return JobStatus(JobState.RUNNING, resource.id, words)


def check_submit(cluster: ClusterSpec, submit: Submit) -> None:
    """Refuse a submission that would be refused only once the old job has been stopped."""
    given = read_options(submit.options, _TAKES.submit, submit.pointer)
    read_options(given.get("like") or {}, _LIKE, f"{submit.pointer}/like")
    named = str(given.get("resource", "")).lower()
    is_of_target = submit.pointer.rpartition("/")[2] == "submit"
    is_in_place = is_of_target and not {"like", "manifest", "spec"} & given.keys()
    if is_in_place and named.startswith("flinksessionjob/"):
        fact = "the operator starts no FlinkSessionJob from another savepoint once it is suspended"
        expected = 'another "resource", "like" this one'
        raise SpecError((Complaint(f"{submit.pointer}/resource", fact, named, expected),))
    if submit.connection:
        place = f"{submit.pointer.rpartition('/')[0]}/remote_connection"
        fact = "a job is started by its resource, and not at an address"
        expected = 'none: "context" and "namespace" of the cluster say where'
        raise SpecError((Complaint(place, fact, submit.connection, expected),))


KIND = ClusterKind(
    _TAKES.kind,
    _TAKES.cluster,
    lambda name, options, around: FlinkOperator(name, around.state_dir, options, around.interrupt),
    check_submit,
)
