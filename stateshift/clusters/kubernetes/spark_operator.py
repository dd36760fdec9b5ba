"""Spark jobs under kubeflow's spark-operator: a SparkApplication (v1beta2) is a job. The API server
finds, suspends and starts it, by its resource; its driver's pod and the events tell the reasons.

A job is asked by the stop marker first (see `stopping`). Then its application is suspended in any
case: the operator would start it again by its restart policy. It has ended once its driver's pod
has: the operator says SUSPENDED before. If no operator takes notice, the suspension is written
back: it would end a job that nobody looks at any more. A suspended application is the fence of its
job. One whose job may run is never changed into another job's. Nothing is deleted.

The image's location is handed over as `spark.stateshift.checkpoint`, which `stateshift.job` reads,
and wherever `{checkpoint}`, `{job}` or `{tag}` stands in an argument or a setting (IS-6).

A ScheduledSparkApplication is no job: each of its runs is one, and would be followed by the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from stateshift.clusters.http import Json, Refused
from stateshift.clusters.kind import ClusterKind, Submit
from stateshift.clusters.kubernetes.calls import (
    EVENT,
    POD,
    SPARK_APPLICATION,
    SPARK_SCHEDULE,
    Definition,
)
from stateshift.clusters.kubernetes.capacity import spark_pods
from stateshift.clusters.kubernetes.resources import (
    LOCATION,
    OperatedJobs,
    Start,
    checked_submit,
)
from stateshift.clusters.kubernetes.spark_resources import (
    APP,
    PLACE,
    SCHEDULED,
    SUSPENDED,
    TERMINATED,
    SparkResource,
    has_ended,
    one_line,
    place_of,
    without_pod_name,
    words_of,
)
from stateshift.clusters.logged import logs_stop
from stateshift.clusters.noted import Record, refuse_unknown
from stateshift.clusters.options import Options, read_options
from stateshift.clusters.placement import Container
from stateshift.clusters.protocol import (
    JobFailure,
    JobState,
    JobStatus,
    Origin,
    Remedy,
    StopRequest,
    Submission,
    Trial,
)
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.spark_causes import LOG_LINES, failure_of
from stateshift.clusters.stopping import forget_marker
from stateshift.clusters.tagged import TaggedCluster
from stateshift.errors import ClusterError
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import KindOptions, options_of

_TAKES: Final = options_of("spark_operator")
_RECONCILE_SECONDS: Final = 60.0
_NO_FIELD: Final = 'unknown field "spec.suspend"'


@dataclass(frozen=True)
class SparkOperator(OperatedJobs[SparkResource], TaggedCluster):
    """See the module."""

    takes: ClassVar[KindOptions] = _TAKES
    kinds: ClassVar[Mapping[str, Definition]] = {"sparkapplication": SPARK_APPLICATION}
    optional: ClassVar[Definition] = SPARK_SCHEDULE
    merged: ClassVar[tuple[str, ...]] = ("conf",)

    def resource(self, definition: Definition, plain: Json) -> SparkResource:
        return SparkResource(definition, plain)

    def status_of(self, resource: SparkResource, record: Record) -> JobStatus:
        """Return the status. A job runs until the pod of its driver has ended, whatever the
        operator says.
        """
        status = resource.job_status
        if status.state in (JobState.FINISHED, JobState.FAILED):
            pod = self._driver(resource)
            if not has_ended(pod):
                is_ending = resource.is_stopped and resource.state not in TERMINATED
                if is_ending or "deletionTimestamp" in (pod or {})["metadata"]:
                    words = f"the pod of its driver, {resource.driver_pod}, is ending"
                else:
                    words = f"the operator says {resource.state.lower()}, but its driver, "
                    words += f"{resource.driver_pod}, runs"
                return JobStatus(JobState.RUNNING, resource.id, words)
        if status.state in (JobState.QUEUED, JobState.FAILED) and not resource.is_unseen:
            with suppress(Refused):  # without the right to see pods, its reasons are not seen
                pod = self._driver(resource)
                words = "" if pod is None else words_of(pod)
                if words:
                    told = f"{status.detail}; {resource.driver_pod}: {words}"
                    return JobStatus(status.state, status.id, told)
        return status

    # ---- finding

    def find_untagged(self, request: StopRequest) -> JobStatus:
        """Return the application that the spec names, else the one for this location, else that of
        the job's name. One that we started for another location is not it.
        """
        place, named = place_of(request.location), self.stop_options(request).get("app_name")
        found: list[SparkResource] = []
        if not named:
            found = self.each("", lambda kind: self.calls.every(kind, PLACE, place))
            found = [each for each in found if each.place == place]
        if named or (request.tag is None and not any(self._runs(each) for each in found)):
            one = self.named(str(named or request.job))
            if one is not None and one.place in (None, place):
                found.append(one)
            elif one is None and not found:
                self._refuse_schedule(str(named or request.job))
        alive = {each.id: each for each in found if self._runs(each)}
        if len(alive) > 1:
            why = f'several are alive: {", ".join(alive)}; "stop": {{"app_name": …}} says which'
            return JobStatus(JobState.UNKNOWN, None, why)
        last = [*alive.values()] or found
        return self.status_of(last[-1], {}) if last else JobStatus(JobState.ABSENT)

    def _runs(self, resource: SparkResource) -> bool:
        return self.status_of(resource, {}).state.alive

    def _refuse_schedule(self, name: str) -> None:
        """Refuse a job that a schedule runs again and again."""
        try:
            schedule = self.calls.get(SPARK_SCHEDULE, name)
        except Refused as refused:
            if refused.status != 404:  # there are no schedules
                raise
            return
        if schedule is None or schedule["spec"].get("suspend") is True:
            return
        fact = f"{name} is a ScheduledSparkApplication ({self.calls.place}), which would start "
        fact += "the job again while it is moved"
        way = f"suspend it first: kubectl patch scheduledsparkapplication {name} --type merge "
        way += """-p '{"spec": {"suspend": true}}'; then name its last run in "stop": """
        raise self.error(name, fact, f'{way}{{"app_name": …}}')

    def occupants(self) -> tuple[str, ...]:
        return tuple(each.id for each in self.each("", self.calls.every) if self._runs(each))

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        """Return the application and its spec: suspended, it is started again where it is."""
        id = self.find_source(request).id
        resource = None if id is None else self.named(id)
        if resource is None or not self._runs(resource):
            return Origin(why="no application of it runs there")
        return Origin({"resource": resource.id, "spec": resource.spec_before})

    # ---- starting

    @contextmanager
    def turn(self, submission: Submission) -> Iterator[tuple[JobStatus, int | None]]:
        """Give the status as it is: the API server takes one of two writes."""
        yield self.find(submission.tag), None

    def prepare(self, submission: Submission, given: Options) -> Callable[[int | None], str]:
        return lambda _: self.write_start(self.wanted(submission, given))

    def to_start(self, start: Start, resource: SparkResource | None) -> Json:
        submission, spec = start.submission, start.spec
        is_own = self._is_own(start)
        if spec is not None and start.model is not None and not is_own:
            spec = without_pod_name(spec)
        if resource is None:
            return self.make_new(start).for_start(submission, start.given, spec)
        # One of ours that is over may be started again: its image is where it was.
        is_ours = PLACE in resource.labels or SUSPENDED in resource.annotations
        is_free = resource.is_stopped or resource.state in TERMINATED
        status = self.status_of(resource, {})
        if status.state.alive or not is_free or not (is_own or is_ours):
            detail = f" ({status.detail})" if status.detail else ""
            fact = f"{resource.id} is there, and {status.state}{detail}: {self.calls.place}"
            hint = "two jobs would be one: suspend it first (spec.suspend), or give the new job "
            if not status.state.alive:
                hint = "it is somebody else's, and would have another program: give the new job "
            raise self.error(submission.job, fact, f'{hint}another "resource"')
        location = resource.annotations.get(LOCATION, submission.location)
        if "spec" in start.given and location.rstrip("/") == submission.location.rstrip("/"):
            spec = None  # it is as it was, and may have been changed by its owner since
        return resource.for_start(submission, start.given, spec)

    def _is_own(self, start: Start) -> bool:
        """Whether an application is started with its own spec."""
        place = f"{start.id}, {self.calls.place}"
        return "manifest" not in start.given and start.model in (None, place)

    def try_start(self, submission: Submission) -> Trial:
        """Ask the API server whether it would admit the resource; nothing is written."""
        try:
            given = read_options(submission.options, self.takes.submit, "/submit")
            start = self.wanted(submission, given)
            stored = self.calls.get(start.definition, start.name)
            resource = None if stored is None else self.resource(start.definition, stored)
            if resource is not None and self._is_own(start) and self._runs(resource):
                return Trial(untried=f"{resource.id} is not suspended yet, and has to be")
            body = self.to_start(start, resource)
            write = self.calls.create if resource is None else self.calls.update
            write(start.definition, body, trial=True)
        except ClusterError as error:
            return Trial(error.fact, error.hint)
        return Trial(untried="whether its image and its program start shows when the pod runs")

    def pods(self, resource: SparkResource) -> list[Container]:
        return spark_pods(resource.spec)

    # ---- stopping

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        status = self.find_source(request)
        refuse_unknown(status, request, self.name, self.notes)
        self.notes.add_stopped(request.tag)
        first = None if status.id is None else self.named(status.id)
        if first is None or not status.state.alive:
            return status
        if first.labels.get(SCHEDULED):
            self._refuse_schedule(first.labels[SCHEDULED])
        self._driver(first)  # an account that may not see it is told before anything is written

        def is_over() -> bool:
            """Whether the driver has. The operator may have started another one since."""
            last = self._now(first, self.calls.get(first.definition, first.name))
            is_another = last.submission_id != first.submission_id
            return is_another or has_ended(self._driver(last))

        if first.state in ("RUNNING", *TERMINATED) and not first.is_stopped:
            self.stop_gracefully(request, is_over)
        self._write_once(first, SparkResource.suspended)
        self._await_stopped(first, request)
        forget_marker(request, self.open_storage)  # it may have answered too late
        after = self.find_source(request)
        refuse_unknown(after, request, self.name, self.notes)
        return after

    def is_stopping(self, request: StopRequest) -> bool:
        status = self.find_source(request)
        resource = None if status.id is None else self.named(status.id)
        return status.state.alive and resource is not None and resource.is_suspended_by_us

    def _write_once(self, first: SparkResource, change: Callable[[SparkResource], Json]) -> None:
        """Write a job's `suspend`, or take it out. Somebody who has written over it would do so
        again: it is not written a second time then.
        """
        seen: int | None = None

        def decide(stored: Json | None) -> Json | None:
            nonlocal seen
            last = self._now(first, stored)
            seen = last.generation if seen is None else seen
            if last.is_pruned:
                raise Refused(_NO_FIELD, 400)
            wanted = change(last)
            is_so = last.is_stopped == bool(wanted["spec"].get("suspend"))
            return None if is_so or last.generation > seen + 1 else wanted

        try:
            self.calls.change(first.definition, first.name, decide)
        except Refused as refused:
            if _NO_FIELD not in refused.fact:
                raise
            fact = f"the SparkApplication of {self.calls.place} has no spec.suspend, without which "
            fact += "its operator starts the job again"
            hint = "use spark-operator 2.4 or newer with its CRDs; or a cluster of kind command"
            raise self.error(first.id, fact, hint) from refused

    def _await_stopped(self, first: SparkResource, request: StopRequest) -> None:
        reconcile = float(self.options.get("reconcile_seconds", _RECONCILE_SECONDS))
        reconcile = min(reconcile, request.seconds_max * 0.8)
        changed_at, before, last = time.monotonic(), first, first

        def look() -> JobStatus | None:
            nonlocal changed_at, before, last
            before, last = last, self._now(first, self.calls.get(first.definition, first.name))
            if not last.is_stopped:
                fact = f"{last.id} is wanted to run again: somebody has written over our stop"
                keeper = last.keeper or "kubectl get -o yaml shows who"
                hint = f"pause who keeps it ({keeper}), then: stateshift resume WORKDIR"
                raise self.error(request.job, fact, hint)
            status = self.status_of(last, {})
            if not status.state.alive:
                return status
            if last.status != before.status:
                changed_at = time.monotonic()
            if time.monotonic() - changed_at > reconcile:
                self._settle(last, request.job, f"{status.detail}", f"{reconcile:g} s")
            return None

        if self.calls.wait_for(look, request.seconds_max) is None:
            status = self.status_of(last, {})
            fact = f"{last.id} has not ended {request.seconds_max:g} s after it was suspended: "
            hint = f"kubectl describe pod {first.driver_pod}; then: stateshift resume WORKDIR"
            raise self.error(request.job, f"{fact}{status.detail}", hint)

    def _settle(self, last: SparkResource, job: str, detail: str, time: str) -> None:
        """Fence a job that its operator has left alone for a while, unless something is yet to
        happen, or take its suspension back. One of which only the driver is left is refused.
        """
        pod, state = self._driver(last), last.state
        is_ending = pod is None or "deletionTimestamp" in pod["metadata"]
        if last.is_unseen and has_ended(pod):  # no operator begins a job that is suspended by now

            def fence(stored: Json | None) -> Json | None:
                now = self._now(last, stored)
                is_so = now.generation != last.generation or not self._runs(now)
                return None if is_so else now.fenced()

            self.calls.change(last.definition, last.name, fence)
        elif state in TERMINATED and not is_ending:
            hint = f"the operator ends nothing of it: kubectl delete pod {last.driver_pod} "
            hint += f"-n {self.calls.access.namespace}; then: stateshift resume WORKDIR"
            raise self.error(job, f"{last.id}: {detail}", hint)
        elif not last.is_unseen and state not in ("SUSPENDING", "SUSPENDED", *TERMINATED):
            fact = f"no operator reconciles {last.id}: its status is as it was for {time} "
            fact += f"({self.calls.place})"
            if last.is_suspended_by_us:
                self._write_once(last, SparkResource.resumed)
                fact += "; it is to run as before"
            hint = "is the operator up, and does it watch this namespace?"
            raise self.error(job, fact, f"{hint} Then: stateshift resume WORKDIR")

    def _now(self, first: SparkResource, stored: Json | None) -> SparkResource:
        return self.same(first, stored, "see who has deleted it: kubectl get events")

    # ---- reasons

    def _driver(self, resource: SparkResource) -> Json | None:
        """Return the pod of the driver; one of its name may be another application's."""
        pod = self.calls.get(POD, resource.driver_pod)
        labels = {} if pod is None else pod["metadata"].get("labels") or {}
        return pod if labels.get(APP, resource.name) == resource.name else None

    def log(self, tag: str, lines_max: int = 50) -> str:
        """Return the end of what the driver said, and the reasons of the operator and the pod."""
        resource = self.tagged(tag, self.notes.read(tag) or {})
        if resource is None or lines_max <= 0:
            return ""
        pod = resource.driver_pod
        said: list[str] = []
        try:
            said.append(self.calls.pod_log(pod, lines_max))
        except ClusterError as error:
            said.append(f"(the log of {pod}: {error.fact})")
        said.append(resource.error)
        with suppress(ClusterError):
            plain = self._driver(resource)
            said.append("" if plain is None else words_of(plain))
            for name in (pod, resource.name):
                for event in self.calls.every(EVENT, fields=f"involvedObject.name={name}"):
                    if event.get("type") == "Warning":
                        said.append(one_line(f"{event.get('reason')}: {event.get('message')}"))
        text = redact("\n".join(filter(None, said)), os.environ)
        return last_lines(text, lines_max)

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        failure = failure_of(self.log(tag, LOG_LINES), alive)
        if failure is not None or alive:
            return failure
        resource = self.tagged(tag, self.notes.read(tag) or {})
        status = None if resource is None else self.status_of(resource, {})
        if status is None or status.state not in (JobState.QUEUED, JobState.FAILED):
            return None
        return JobFailure(status.detail or str(status.state), Remedy.OTHER_SUBMIT)


def check_submit(cluster: ClusterSpec, submit: Submit) -> None:
    """Refuse a submission that would be refused only once the old job has been stopped."""
    checked_submit(submit, SparkOperator.takes)


KIND = ClusterKind(
    SparkOperator.takes.kind, SparkOperator.takes.cluster, SparkOperator.open, check_submit
)
