"""Spark jobs on YARN. `spark-submit` of this machine starts them, in cluster or client mode; the
ResourceManager finds them, tells how they are, and ends them.

    <state_dir>/<tag>.log, .lock, .pid, .exit   of spark-submit, see `detached`
    <state_dir>/<tag>.deployed                  of a driver in the cluster, see `deploy`
    <state_dir>/<tag>.json                      {"begun", "options", "id", "stopped"}, see `noted`

An application carries two tags of YARN: a digest of our tag, by which a second attempt recognises
the first, whoever asks and wherever; and a digest of the location, by which any run finds the job
that has its checkpoint there. `spark-submit` does not wait for the application's end
(waitAppCompletion=false): once YARN has accepted it, only YARN is asked. As long as `spark-submit`
runs, an application may still appear, and for `settle_seconds` after one that was killed.

In client mode the driver is the process that was started here: the job is over when both are.

A driver that fails is started again by YARN, up to `spark.yarn.maxAppAttempts` times. The job is
the application, not its attempt: a stop waits until the application is over, and kills it, with
all attempts that it would have, where the next attempt does not answer the marker either.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Final

from stateshift.clusters import detached
from stateshift.clusters.kind import ClusterKind, Submit
from stateshift.clusters.logged import logs_stop
from stateshift.clusters.noted import Record, noted_origin
from stateshift.clusters.options import Options, read_options, settings
from stateshift.clusters.protocol import (
    JobFailure,
    JobState,
    JobStatus,
    Origin,
    StopRequest,
    Submission,
    Trial,
)
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.spark_causes import LOG_BYTES, LOG_LINES, failure_of
from stateshift.clusters.spark_submit import deploy
from stateshift.clusters.spark_submit.cluster import SparkSubmit, refuse_missing
from stateshift.clusters.spark_submit.deploy import DeployMode
from stateshift.clusters.tagged import TaggedCluster
from stateshift.clusters.waiting import wait_for, wait_until_settled
from stateshift.clusters.yarn.calls import Application, Queue, YarnCalls
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.location import NoLocation, normal
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import KindOptions, options_of

_MASTER: Final = "yarn"
_PLACE: Final = "stateshift-place-"
_SECONDS_MAX: Final = 300.0  # spark-submit may upload all of Spark
_SETTLE_SECONDS: Final = 60.0
_WAITS_SECONDS: Final = 10.0  # an application that YARN starts is not accepted for longer
_REASON_MAX: Final = 300
_MORE: Final = re.compile(r" Details :|Failing this attempt")
_SIGNALLED: Final = 128  # above it, the shell says which signal ended it
_CONF_FOLDERS: Final = ("YARN_CONF_DIR", "HADOOP_CONF_DIR")
_FORGOTTEN: Final = (
    "YARN does not know it (any more): it ended a while ago, the ResourceManager was restarted, or "
    'HADOOP_CONF_DIR and the "url" of the cluster are of two YARNs'
)


class Yarn(SparkSubmit):
    """See the module."""

    takes: ClassVar[KindOptions] = options_of("yarn")

    @property
    def calls(self) -> YarnCalls:
        return YarnCalls(self.name, self.options, self.interrupt)

    def master(self, connection: str | None) -> str:
        return _MASTER

    def mode(self, given: Options) -> DeployMode:
        return deploy.deploy_mode(self.options, given, "cluster")

    def find(self, tag: str) -> JobStatus:
        # Before YARN is asked: what a spark-submit that is over has submitted, YARN knows by then.
        trace, record = detached.trace(self._stem(tag)), self.notes.read(tag)
        application = _current(self.calls.tagged(_mark(tag)))
        if record is not None and trace.started and self._notes.deployed(tag) is None:
            status = self._of_driver_here(tag, application, record)
        elif application is not None:
            status = self._status(application)
        elif trace.held:
            return JobStatus(JobState.QUEUED)
        elif record is None or not trace.started:
            return JobStatus(JobState.ABSENT)
        else:
            status = self._of_launcher(tag, trace, record)
        if record is not None and record.get("stopped") and status.state is JobState.FAILED:
            return JobStatus(JobState.FINISHED, status.id, "stopped")
        return status

    def _of_driver_here(
        self, tag: str, application: Application | None, record: Record
    ) -> JobStatus:
        """Return the status of a job in client mode: its driver is a process of this machine."""
        driver = super().find(tag)
        if application is None:
            is_new = driver.state is JobState.RUNNING and record.get("id") is None
            return JobStatus(JobState.QUEUED) if is_new else driver
        told = self._status(application)
        if told.state.alive:
            return told
        return replace(driver, id=application.id)

    def _of_launcher(self, tag: str, trace: detached.Trace, record: Record) -> JobStatus:
        """Return the status of a job in cluster mode that YARN does not know."""
        pid, stem = str(trace.pid), self._stem(tag)
        driver = self._notes.deployed(tag)
        id = record.get("id")
        if id is None and trace.code == 0 and driver is not None:
            id = driver.accepted_as(detached.output_of(stem)) or pid
        if id is not None:
            state = JobState.FINISHED if record.get("stopped") else JobState.UNKNOWN
            return JobStatus(state, str(id), _FORGOTTEN)
        is_killed = trace.code is None or trace.code > _SIGNALLED
        if not is_killed:
            return JobStatus(JobState.FAILED, pid, f"spark-submit ended with {trace.code}")

        def look(over: bool) -> JobStatus | None:
            application = _current(self.calls.tagged(_mark(tag)))
            if application is not None:
                return self._status(application)
            why = "spark-submit was killed before YARN had accepted the job"
            return JobStatus(JobState.FAILED, pid, why) if over else None

        seconds = float(self.options.get("settle_seconds", _SETTLE_SECONDS))
        settled = wait_until_settled(look, detached.last_said(stem) + seconds, self.interrupt)
        return settled or JobStatus(JobState.UNKNOWN, pid, "YARN did not answer in time")

    def find_untagged(self, request: StopRequest) -> JobStatus:
        """Return the application that the spec names, else the one for this location, else the
        one that is alive with the name. One that another location's tag is on is not it.
        """
        options, calls = self.stop_options(request), self.calls
        if options.get("application_id"):
            named = calls.application(str(options["application_id"]))
            return JobStatus(JobState.ABSENT) if named is None else self._status(named)
        here, name = _place(request.location), options.get("app_name")
        of_place = [] if name else calls.tagged(here)
        candidates = [each for each in of_place if each.job_state.alive]
        if not candidates:
            for each in calls.alive():
                is_elsewhere = any(tag.startswith(_PLACE) for tag in each.tags)
                if each.name == (name or request.job) and (name or not is_elsewhere):
                    candidates.append(each)
        if len(candidates) > 1:
            ids = ", ".join(each.id for each in candidates)
            why = f'several are alive: {ids}; "stop": {{"application_id": …}} says which it is'
            return JobStatus(JobState.UNKNOWN, None, why)
        last = candidates or of_place
        return self._status(last[-1]) if last else JobStatus(JobState.ABSENT)

    def occupants(self) -> tuple[str, ...]:
        return tuple(f"{each.name} ({each.id})" for each in self.calls.alive())

    def try_start(self, submission: Submission) -> Trial:
        given = read_options(submission.options, self.takes.submit, "/submit")
        try:
            environment = self._environment(submission, given)
            folders = [environment[name] for name in _CONF_FOLDERS if environment.get(name)]
            if not any(map(os.path.isdir, folders)):
                fact = f"{' and '.join(_CONF_FOLDERS)} name no folder, and spark-submit needs one"
                hint = 'give the cluster "environment": {"HADOOP_CONF_DIR": …}'
                return Trial(fact, hint)
            refused = self._refused_queue(given)
        except ClusterError as error:
            return Trial(error.fact, error.hint)
        if refused:
            return Trial(refused, 'correct "queue"')
        return super().try_start(submission)

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        """YARN tells neither file nor arguments: our notes do, or a driver that runs here."""
        noted = noted_origin(self.notes, self.find_source(request).id, "")
        return noted if noted.options is not None else super().origin(request, like)

    def has_begun(self, tag: str) -> bool:
        return self.notes.read(tag) is not None and super().has_begun(tag)

    def prepare(self, submission: Submission, given: Options) -> Callable[[int | None], str]:
        begin = super().prepare(submission, {**given, "conf": self._settings(submission, given)})
        tag = submission.tag

        def start(lock: int | None) -> str:
            self.notes.add(tag, begun=time.time(), options=dict(submission.options))
            pid = begin(lock)

            def accepted() -> str | None:
                """Return the application's id, or the launcher's number if there will be none."""
                is_over = detached.is_over(self._stem(tag))
                application = _current(self.calls.tagged(_mark(tag)))
                if application is not None:
                    self.notes.add(tag, id=application.id)
                    return application.id
                return pid if is_over else None

            seconds_max = float(self.options.get("seconds_max", _SECONDS_MAX))
            return wait_for(accepted, seconds_max, self.interrupt) or pid

        return start

    def _settings(self, submission: Submission, given: Options) -> dict[str, str]:
        conf = {**settings(self.options.get("conf")), **settings(given.get("conf"))}
        tags = (conf.get("spark.yarn.tags"), _mark(submission.tag), _place(submission.location))
        conf["spark.yarn.tags"] = ",".join(filter(None, tags))
        conf["spark.yarn.submit.waitAppCompletion"] = "false"
        conf["spark.yarn.queue"] = _queue_of(conf, given)
        if self.mode(given) == "cluster":
            environment = {**submission.environment, **settings(given.get("environment"))}
            for name, value in environment.items():
                conf.setdefault(f"spark.yarn.appMasterEnv.{name}", value)
        return conf

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        tag = request.tag
        if tag is not None and self._notes.deployed(tag) is not None:
            # Whoever still submits it is ended first: nobody knows an application to stop yet.
            is_held = detached.trace(self._stem(tag)).held
            if is_held and _current(self.calls.tagged(_mark(tag))) is None:
                self.notes.add_stopped(tag)
                self._signal(request, signal.SIGKILL)

        def kill(id: str) -> None:
            """End an application with all its attempts, and a driver that runs here."""
            if id.startswith("application_"):
                self.calls.kill(id)
            if self._processes(request):
                self._kill(request)

        return self.end(request, kill, "yarn application -status {id}")

    def has_ended(self, request: StopRequest) -> bool:
        return TaggedCluster.has_ended(self, request)

    def log(self, tag: str, lines_max: int = 50) -> str:
        """Return the end of what the driver said; of spark-submit, where there was none."""
        if lines_max <= 0:
            return ""
        application = _current(self.calls.tagged(_mark(tag)))
        runs_here = self.notes.read(tag) is not None and self._notes.deployed(tag) is None
        said = []
        if application is not None and application.job_state is JobState.FAILED:
            said.append(_reason(application))
        if application is None or runs_here:
            said.append(detached.output_of(self._stem(tag), bytes_max=LOG_BYTES))
        else:
            try:
                for file in ("stderr", "stdout"):
                    said.append(self.calls.said(application, file, LOG_BYTES))
            except ClusterError as error:
                way = "log aggregation is off, and it may be gone"
                if application.aggregation not in ("", "DISABLED"):
                    way = f"it is kept: yarn logs -applicationId {application.id}"
                said.append(f"(the log of {application.driver}: {error.fact}; {way})")
                said.append(application.diagnostics)  # with the end of it, as far as YARN keeps it
        return last_lines(redact("\n".join(filter(None, said)), os.environ), lines_max)

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        failure = failure_of(self.log(tag, LOG_LINES), alive)
        if failure is not None or alive:
            return failure
        application = _current(self.calls.tagged(_mark(tag)))
        if application is None or application.job_state is not JobState.FAILED:
            return None
        return JobFailure(_reason(application) or application.final)

    def _refused_queue(self, given: Options) -> str:
        """Return the reason why the queue takes no job, as far as the scheduler tells."""
        queues = self.calls.queues()
        conf = {**settings(self.options.get("conf")), **settings(given.get("conf"))}
        name = _queue_of(conf, given)
        queue = _queue_named(name, queues)
        if queue is not None:
            return "" if queue.is_open else f"the queue {name} is stopped"
        if not queues or any(each.makes_queues for each in queues):
            return ""
        there = ", ".join(sorted(each.path for each in queues))
        return f"YARN has no queue {name}, but {there}"

    def _status(self, application: Application) -> JobStatus:
        state, detail = application.job_state, None
        if state is JobState.QUEUED:
            detail = self._waiting(application)
        elif state is JobState.FAILED:
            detail = _reason(application) or application.final
        elif application.attempt > 1:
            detail = f"attempt {application.attempt}: YARN has started its driver again"
        return JobStatus(state, application.id, detail)

    def _waiting(self, application: Application) -> str | None:
        """Return the reason why an application is accepted and not started, once it should be."""
        if time.time() - application.started < _WAITS_SECONDS:
            return None
        since = time.strftime("%H:%M:%S UTC", time.gmtime(application.started))
        words = [f"accepted since {since}", _reason(application)]
        with suppress(ClusterError):
            room, queue = self.calls.room(), _queue_named(application.queue, self.calls.queues())
            if queue is not None and queue.used is not None and queue.most is not None:
                words.append(
                    f"the queue {queue.path} uses {queue.used:.0f} % of the cluster, and may use "
                    f"{queue.most:.0f} %"
                )
            words.append(
                f"{room.memory_free} of {room.memory} MB and {room.cores_free} of {room.cores} "
                "vcores of all nodes are free"
            )
        return "; ".join(filter(None, words))


def _current(applications: list[Application]) -> Application | None:
    """Return the one that is alive, else the newest."""
    alive = [each for each in applications if each.job_state.alive]
    last = alive or applications
    return last[-1] if last else None


def _queue_of(conf: dict[str, str], given: Options) -> str:
    return str(given.get("queue") or conf.get("spark.yarn.queue", "default"))


def _queue_named(name: str, queues: list[Queue]) -> Queue | None:
    return next((each for each in queues if name in (each.name, each.path)), None)


def _reason(application: Application) -> str:
    """Return YARN's own sentence on an application, without figures and logs that follow it."""
    sentence = _MORE.split(application.diagnostics, maxsplit=1)[0]
    line = " ".join(redact(sentence, os.environ).split())
    return "".join(each if each.isprintable() else "?" for each in line)[:_REASON_MAX]


def _mark(tag: str) -> str:
    """Return a tag of YARN: at most 100 letters of ASCII, without a comma."""
    return f"stateshift-{_digest(tag)}"


def _place(location: str) -> str:
    """Return the tag of a location, however it is written: `/a`, `file:///a/`."""
    with suppress(NoLocation):
        location = normal(location, os.getcwd())
    return f"{_PLACE}{_digest(location.rstrip('/'))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def check_submit(cluster: ClusterSpec, submit: Submit) -> None:
    """Refuse what would show only once the old job has been stopped."""
    given = read_options(submit.options, Yarn.takes.submit, submit.pointer)
    refuse_missing(given, submit.pointer)
    if submit.connection:
        place = f"{submit.pointer.rpartition('/')[0]}/remote_connection"
        fact = "spark-submit finds YARN by HADOOP_CONF_DIR, and not by an address"
        expected = "none: each YARN is a cluster of its own"
        raise SpecError((Complaint(place, fact, submit.connection, expected),))


KIND = ClusterKind("yarn", Yarn.takes.cluster, Yarn.open, check_submit)
