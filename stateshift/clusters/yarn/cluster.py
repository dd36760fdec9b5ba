"""Spark jobs on YARN. `spark-submit` of this machine starts them, in cluster or client mode; the
ResourceManager finds them, tells how they are, and ends them.

    <state_dir>/<tag>.log, .lock, .pid, .exit   of spark-submit, see `detached`
    <state_dir>/<tag>.deployed                  of a driver in the cluster, see `deploy`
    <state_dir>/<tag>.json                      {"begun", "options", "id", "stopped", "died"}, see
                                                `noted`. Once YARN knows it: "id"; "died" is when
                                                a spark-submit was first seen to be gone

An application carries two tags of YARN: a digest of our tag, by which a second attempt recognises
the first, whoever asks and wherever; and a digest of the location, by which any run finds the job
that has its checkpoint there. `spark-submit` does not wait for the application's end
(waitAppCompletion=false): once YARN has accepted it, only YARN is asked. As long as `spark-submit`
runs, an application may still appear, and for `settle_seconds` after one is seen to be killed. An
application that it says to have submitted, and that YARN does not know, is not known.

In client mode the driver is the process that was started here: the job is over when both are.

A driver that fails is started again by YARN, up to `spark.yarn.maxAppAttempts` times. The job is
the application, not its attempt: a stop waits until the application is over, and kills it, with
all attempts that it would have, where the next attempt does not answer the marker either.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import ClassVar, Final, cast

from stateshift.clusters import detached
from stateshift.clusters.kind import ClusterKind, Submit
from stateshift.clusters.logged import logs_stop
from stateshift.clusters.noted import Record, digest, fill, fill_values, noted_origin
from stateshift.clusters.options import Options, read_options, settings
from stateshift.clusters.placement import Container, fit_on, spark_containers
from stateshift.clusters.protocol import (
    Fit,
    JobFailure,
    JobState,
    JobStatus,
    Origin,
    Room,
    StopRequest,
    Submission,
    Trial,
)
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.spark_causes import LOG_BYTES, LOG_LINES, failure_of
from stateshift.clusters.spark_submit import deploy
from stateshift.clusters.spark_submit.cluster import DriversElsewhere, refuse_missing
from stateshift.clusters.spark_submit.deploy import DeployMode
from stateshift.clusters.tagged import TaggedCluster
from stateshift.clusters.waiting import wait_for
from stateshift.clusters.yarn.calls import Application, Queue, YarnCalls
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.location import NoLocation, normal
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import KindOptions, options_of

_MASTER: Final = "yarn"
_TAGS: Final = "spark.yarn.tags"
_QUEUE: Final = "spark.yarn.queue"
PLACE: Final = "stateshift-place-"
_AGAIN_SECONDS: Final = 5.0  # a fail-over of YARN may lose a kill
_WAITS_SECONDS: Final = 10.0  # an application that YARN starts is not accepted for longer
_REASON_MAX: Final = 300
_SUBMITTED: Final = re.compile(r"Submitted application (application_\d+_\d+)")
_MODE: Final = "spark.submit.deployMode"
# In the environment of an origin: it is that of a process, and so are its options.
_AS_FOUND: Final = "STATESHIFT_AS_FOUND"
_MORE: Final = re.compile(r" Details :|Failing this attempt")
_SIGNALLED: Final = 128  # above it, the shell says which signal ended it
_CONF_FOLDERS: Final = ("YARN_CONF_DIR", "HADOOP_CONF_DIR")
_LABELS: Final = ("spark.yarn.am.nodeLabelExpression", "spark.yarn.executor.nodeLabelExpression")
_FORGOTTEN: Final = (
    "YARN does not know it (any more): it ended a while ago, the ResourceManager was restarted, or "
    'HADOOP_CONF_DIR and the "url" of the cluster are of two YARNs'
)


class Yarn(DriversElsewhere):
    """See the module."""

    takes: ClassVar[KindOptions] = options_of("yarn")
    service: ClassVar[str] = "YARN"
    handed_over: ClassVar[str] = "YARN had accepted the job"
    queue_key: ClassVar[str] = _QUEUE
    log_files: ClassVar[tuple[str, ...]] = ("stderr", "stdout")

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
        application = current(self.calls.tagged(mark(tag)))
        if record is not None and application is not None and "id" not in record:
            self.notes.add(tag, id=application.id)
        if record is not None and trace.started and self._notes.deployed(tag) is None:
            status = self._of_driver_here(tag, application, record)
        elif application is not None:
            status = self._status(application)
        elif trace.held and "id" not in (record or {}):
            return JobStatus(JobState.QUEUED)
        elif record is None or not trace.started:
            return JobStatus(JobState.ABSENT)
        else:
            status = self._of_launcher(tag, trace, record)
        if record is not None and record.get("stopped") and status.state is JobState.FAILED:
            return JobStatus(JobState.FINISHED, status.id, "stopped")
        return status

    def id_of(self, tag: str) -> str | None:
        application = current(self.calls.tagged(mark(tag)))
        return None if application is None else application.id

    def of_tag(self, tag: str) -> JobStatus | None:
        application = current(self.calls.tagged(mark(tag)))
        return None if application is None else self._status(application)

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
        pid, known = str(trace.pid), record.get("id")
        said = _SUBMITTED.findall(detached.output_of(self._stem(tag), bytes_max=LOG_BYTES))
        if known is None and said:
            application = self.calls.application(said[-1])
            if application is not None:
                return self._status(application)
        if known is not None or said or trace.code == 0:
            was_ended = known is not None and record.get("stopped")
            id = str(known) if known is not None else said[-1] if said else pid
            return JobStatus(JobState.FINISHED if was_ended else JobState.UNKNOWN, id, _FORGOTTEN)
        is_killed = trace.code is None or trace.code > _SIGNALLED
        if not is_killed:
            return JobStatus(JobState.FAILED, pid, f"{self.launcher} ended with {trace.code}")

        return self.settled(tag, record, pid)

    def find_untagged(self, request: StopRequest) -> JobStatus:
        """Return the application that the spec names, else the one for this location, else the
        one of ours that is alive with the name. One that another location's tag is on is not it;
        and what has a tag of ours goes by no name.
        """
        options, calls = self.stop_options(request), self.calls
        if options.get("application_id"):
            named = calls.application(str(options["application_id"]))
            return JobStatus(JobState.ABSENT) if named is None else self._status(named)
        of_place = calls.tagged(place(request.location))
        candidates = [each for each in of_place if each.job_state.alive]
        if not candidates and request.tag is None:
            name = options.get("app_name") or request.job
            for each in calls.alive():
                is_placed = any(tag.startswith(PLACE) for tag in each.tags)
                if each.name == name and each.type.startswith("SPARK") and not is_placed:
                    candidates.append(each)
        if len(candidates) > 1:
            ids = ", ".join(each.id for each in candidates)
            why = f'several are alive: {ids}; "stop": {{"application_id": …}} says which it is'
            return JobStatus(JobState.UNKNOWN, None, why)
        last = candidates or of_place
        if not last:
            return JobStatus(JobState.ABSENT)
        found = last[-1]
        if found not in of_place and found.user != calls.user:
            why = f"{found.id} has its name, and is of the user {found.user}, not of {calls.user}; "
            why += f'"stop": {{"application_id": "{found.id}"}} says that it is the job'
            return JobStatus(JobState.UNKNOWN, found.id, why)
        return self._status(found)

    def occupants(self) -> tuple[str, ...]:
        return tuple(f"{each.name} ({each.id})" for each in self.calls.alive())

    def try_start(self, submission: Submission) -> Trial:
        refused = self.refused_here(submission)
        return refused if refused.refused else super().try_start(submission)

    def refused_here(self, submission: Submission) -> Trial:
        """Return the refusal of what is not there: the configuration's folder, or the queue."""
        given = read_options(submission.options, self.takes.submit, "/submit")
        try:
            environment = self._environment(submission, given)
            folders = [environment[name] for name in _CONF_FOLDERS if environment.get(name)]
            if not any(map(os.path.isdir, folders)):
                names = " and ".join(_CONF_FOLDERS)
                fact = f"{names} name no folder, and {self.launcher} needs one"
                hint = 'give the cluster "environment": {"HADOOP_CONF_DIR": …}'
                return Trial(fact, hint)
            refused = self._refused_queue(submission, given)
        except ClusterError as error:
            return Trial(error.fact, error.hint)
        if refused:
            return Trial(refused, 'correct "queue"')
        return Trial()

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        """YARN tells neither file nor arguments: our notes do, or a driver that runs here. That
        was started in client mode, unless its command line says another.
        """
        noted = noted_origin(self.notes, self.find_source(request).id, "")
        found = noted if noted.options is not None else super().origin(request, like)
        if found is noted or found.options is None:
            return found
        conf = dict(cast(Mapping[str, str], found.options["conf"]))
        options = {"deploy_mode": conf.get(_MODE, "client"), **found.options, "conf": conf}
        tags = conf.pop(_TAGS, "").split(",")
        theirs = ",".join(tag for tag in tags if not tag.startswith("stateshift-"))
        if theirs:
            conf[_TAGS] = theirs
        return Origin(options, {**found.environment, _AS_FOUND: "yes"})

    def has_begun(self, tag: str) -> bool:
        return self.notes.read(tag) is not None and super().has_begun(tag)

    def prepare(self, submission: Submission, given: Options) -> Callable[[int | None], str]:
        is_of_spec = _AS_FOUND not in submission.environment  # else a process may have secrets
        noted = {"options": dict(submission.options)} if is_of_spec else {}
        conf = self._settings(submission, given)
        return self.hand_over(submission, {**given, "conf": conf}, noted)

    def _settings(self, submission: Submission, given: Options) -> dict[str, str]:
        conf = {**settings(self.options.get("conf")), **settings(given.get("conf"))}
        tags = (conf.get(_TAGS), mark(submission.tag), place(submission.location))
        conf[_TAGS] = ",".join(filter(None, tags))
        conf["spark.yarn.submit.waitAppCompletion"] = "false"
        if given.get("queue"):
            conf[_QUEUE] = str(given["queue"])
        if self.mode(given) == "cluster":
            # All of it is on a command line: what the spec says, and not what a process had.
            is_of_spec = _AS_FOUND not in submission.environment
            environment = dict(submission.environment) if is_of_spec else {}
            for name, value in {**environment, **settings(given.get("environment"))}.items():
                conf.setdefault(f"spark.yarn.appMasterEnv.{name}", value)
        return conf

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        self.end_launcher(request)
        runs_here = self._notes.deployed(request.tag) is None

        def kill(id: str) -> None:
            """End an application with all its attempts; then what runs of it here."""
            is_over = not id.startswith("application_") or self.kill_applications(id, request)
            if (is_over or runs_here) and self._processes(request):
                self._kill(request)

        return self.end(request, kill, "yarn application -status {id}")

    def kill_applications(self, id: str, request: StopRequest) -> bool:
        """Kill this one and all of the request's tag. Whether YARN says that they are over."""
        asked = -math.inf

        def over() -> bool | None:
            nonlocal asked
            found = [] if request.tag is None else self.calls.tagged(mark(request.tag))
            if all(each.id != id for each in found):
                found += filter(None, [self.calls.application(id)])
            alive = [each.id for each in found if each.job_state.alive]
            if alive and time.monotonic() - asked >= _AGAIN_SECONDS:
                for each in alive:
                    self.calls.kill(each)
                asked = time.monotonic()
            return None if alive else True

        return bool(wait_for(over, request.seconds_max, self.interrupt))

    def has_ended(self, request: StopRequest) -> bool:
        return TaggedCluster.has_ended(self, request)

    def log(self, tag: str, lines_max: int = 50) -> str:
        """Return the end of what the driver said; of spark-submit, where there was none."""
        if lines_max <= 0:
            return ""
        application = current(self.calls.tagged(mark(tag)))
        runs_here = self.notes.read(tag) is not None and self._notes.deployed(tag) is None
        said = []
        if application is not None and application.job_state is JobState.FAILED:
            said.append(reason(application))
        if application is None or runs_here:
            said.append(detached.output_of(self._stem(tag), bytes_max=LOG_BYTES))
        else:
            lost: list[ClusterError] = []
            for file in self.log_files:
                try:
                    said.append(self.calls.said(application, file, LOG_BYTES))
                except ClusterError as error:  # a JVM that did not start has no jobmanager.log
                    lost.append(error)
            if len(lost) == len(self.log_files):
                way = "log aggregation is off, and it may be gone"
                if application.aggregation not in ("", "DISABLED"):
                    way = f"it is kept: yarn logs -applicationId {application.id}"
                said.append(f"(the log of {application.driver}: {lost[0].fact}; {way})")
                said.append(application.diagnostics)  # with the end of it, as far as YARN keeps it
        return last_lines(redact("\n".join(filter(None, said)), os.environ), lines_max)

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        failure = failure_of(self.log(tag, LOG_LINES), alive)
        if failure is not None or alive:
            return failure
        application = current(self.calls.tagged(mark(tag)))
        if application is None or application.job_state is not JobState.FAILED:
            return None
        return JobFailure(reason(application) or application.final)

    def _refused_queue(self, submission: Submission, given: Options) -> str:
        """Return the reason why a queue that is named takes no job, if the scheduler tells one."""
        name = fill(self._settings(submission, given).get(self.queue_key, ""), submission)
        if not name:
            return ""  # spark-defaults.conf may name one, or YARN's own rules
        queues = self.calls.queues()
        queue = _queue_named(name, queues)
        if queue is not None:
            if queue.is_parent and not queue.makes_queues:
                return f"the queue {name} is a parent of queues, which takes no job itself"
            return "" if queue.is_open else f"the queue {name} is stopped"
        if not queues or any(each.makes_queues for each in queues):
            return ""
        there = ", ".join(sorted(each.path for each in queues))
        return f"YARN has no queue {name}, but {there}"

    def room(self) -> Room:
        return self.calls.room()

    def addresses(self) -> frozenset[str]:
        return frozenset(self.calls.urls)

    def fitting(self, until: float) -> Callable[[Submission], Fit]:
        """Return the question whether a job's containers find memory on the nodes, and in its
        queue. Whether vcores count, YARN does not tell: its usual calculator goes by memory alone.
        """
        nodes, queues, step = self.calls.nodes(), self.calls.queues(), self.calls.allocation_min()
        taken: Counter[str] = Counter()  # MB of the jobs before, by the queue

        def fit(submission: Submission) -> Fit:
            given = read_options(submission.options, self.takes.submit, "/submit")
            conf = fill_values(self._settings(submission, given), submission)
            containers = self._containers(conf, given, step)
            name = conf.get(_QUEUE, "default")
            queue = _queue_named(name, queues)
            if any(key in conf for key in _LABELS):
                return Fit(notes=("it asks for nodes with a label, whose room is not looked at",))
            if queue is None or queue.limits is None:
                told = f"what the queue {name} may use in nodes without a label is not told"
                return replace(fit_on(nodes, containers, "container"), notes=(told,))
            needed = [int(each.needs["memory"]) >> 20 for each in containers]
            most = queue.limits.container_max
            if most is not None and max(needed) > most:
                told = f"a container of {max(needed)} MB is larger than {queue.path} gives to one"
                return Fit(f"{told}, {most} MB", is_ever=True)
            above = [each for each in queues if queue.path.startswith(f"{each.path}.")]
            exceeded = queue_exceeded([queue, *above], needed, self.calls.user, taken)
            found = fit_on(nodes, containers, "container")
            taken.update({each.path: sum(needed) for each in (queue, *above)})
            if not found.lacks and not exceeded:
                return Fit()
            waits = "YARN accepts the job, and starts it or its executors once there is room"
            return replace(found, lacks=f"{found.lacks or exceeded}. {waits}")

        return fit

    def _containers(self, conf: Mapping[str, str], given: Options, step: int) -> list[Container]:
        """Return the containers of a job with their memory, rounded up to steps of so many MB."""
        containers = spark_containers(conf, "yarn", str(given["application"]).endswith(".py"))
        if self.mode(given) == "client":  # the driver is here
            master = {"spark.driver.memory": "512m"}
            for key in ("memory", "cores", "memoryOverhead"):
                if f"spark.yarn.am.{key}" in conf:
                    master[f"spark.driver.{key}"] = conf[f"spark.yarn.am.{key}"]
            here = spark_containers(master, "yarn")[0]
            containers[0] = replace(here, role="application master")
        rounded = []
        for each in containers:
            memory = math.ceil(each.needs["memory"] / (step << 20)) * (step << 20)
            rounded.append(replace(each, needs={"memory": Decimal(memory)}))
        return rounded

    def _status(self, application: Application) -> JobStatus:
        state, detail = application.job_state, None
        if state is JobState.QUEUED:
            detail = self._waiting(application)
        elif state is JobState.FAILED:
            detail = reason(application) or application.final
        elif application.attempt > 1:
            detail = f"attempt {application.attempt}: YARN has started its driver again"
        return JobStatus(state, application.id, detail)

    def _waiting(self, application: Application) -> str | None:
        """Return the reason why an application is accepted and not started, once it should be."""
        if time.time() - application.started < _WAITS_SECONDS:
            return None
        since = time.strftime("%H:%M:%S UTC", time.gmtime(application.started))
        words = [f"accepted since {since}", reason(application)]
        with suppress(ClusterError):
            room, queue = self.calls.room(), _queue_named(application.queue, self.calls.queues())
            if queue is not None and queue.limits is not None:
                used, most = queue.limits.used, queue.limits.most
                words.append(
                    f"the queue {queue.path} uses {used} of the {most} MB that it may have"
                )
            words.append(
                f"{room.memory_free} of {room.memory} MB and {room.cores_free} of {room.cores} "
                "vcores of all nodes are free"
            )
        return "; ".join(filter(None, words))


def current(applications: list[Application]) -> Application | None:
    """Return the one that is alive, else the newest."""
    alive = [each for each in applications if each.job_state.alive]
    last = alive or applications
    return last[-1] if last else None


def _queue_named(name: str, queues: list[Queue]) -> Queue | None:
    """Return the queue with this name or path, a leaf before a parent."""
    named = [each for each in queues if name in (each.name, each.path)]
    return min(named, key=lambda each: each.is_parent, default=None)


def queue_exceeded(
    queues: Sequence[Queue], needed: Sequence[int], user: str, taken: Mapping[str, int]
) -> str:
    """Return the limit of a queue, or of one above it, that containers of these sizes (MB) exceed;
    the first of them is the application's master. `taken` is what others are to have there.
    """
    leaf, total, master = queues[0], sum(needed), needed[0]
    limits = leaf.limits
    assert limits is not None, "a queue that tells them"
    masters_left = limits.masters_most - limits.masters_used
    if limits.has_masters and master > masters_left:
        return (
            f"{leaf.path} leaves {max(0, masters_left):.0f} MB to drivers "
            f"(maximum-am-resource-percent), and it needs {master}"
        )
    user_left = limits.user_most - limits.users.get(user, 0) - taken.get(leaf.path, 0)
    if total - min(needed) > user_left:  # YARN lets a user's last container go beyond it
        told = f"{max(0, user_left):.0f} MB"
        return f"the user {user} in {leaf.path} may have {told} more, and it needs {total}"
    for queue in queues:
        if queue.limits is None:
            continue
        left = queue.limits.most - queue.limits.used - taken.get(queue.path, 0)
        if total > left:
            return f"the queue {queue.path} may have {max(0, left)} MB more, and it needs {total}"
    return ""


def reason(application: Application) -> str:
    """Return YARN's own sentence on an application, without figures and logs that follow it."""
    sentence = _MORE.split(application.diagnostics, maxsplit=1)[0]
    line = " ".join(redact(sentence, os.environ).split())
    return "".join(each if each.isprintable() else "?" for each in line)[:_REASON_MAX]


def mark(tag: str) -> str:
    """Return a tag of YARN: at most 100 letters of ASCII, without a comma."""
    return f"stateshift-{digest(tag)}"


def place(location: str) -> str:
    """Return the tag of a location, however it is written: `/a`, `file:///a/`."""
    with suppress(NoLocation):
        location = normal(location, os.getcwd())
    return f"{PLACE}{digest(location.rstrip('/'))}"


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
