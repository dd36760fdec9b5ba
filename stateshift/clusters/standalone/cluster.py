"""Spark jobs on a standalone cluster, submitted to its master over REST: the driver runs on a
worker.

    options     url, ui_url, token_file, ca_file, request_seconds, settle_seconds, conf,
                environment,
                graceful_seconds, state_dir
    submission  application (needed: a file that the workers can read), class (of a jar), arguments,
                conf, py_files,
                environment, driver_memory, driver_cores
    stopping    driver (an id) or app_name, of a job that we did not submit; graceful_seconds

A `.py` application is run by Spark's own PythonRunner, which spark-submit refuses in this mode and
the master does not. The image's location is handed over as `spark.stateshift.checkpoint`, which
`stateshift.job` reads, beside `spark.stateshift.job` and `.tag`; in STATESHIFT_CHECKPOINT, _JOB and
_TAG; and wherever `{checkpoint}`, `{job}` or `{tag}` stands in an argument or a value of `conf`
(IS-6).

The master gives each submission a new id, and does not know tags. So what is begun is written down
first (`noted`), and where the answer was lost the driver is looked for by a digest of the tag in
its launch command, which its worker shows. Until `settle_seconds` later it may still appear: `find`
waits for that long before it says `absent`; and while a driver that may be ours waits for a worker,
nobody can tell: `unknown`. The launch command has a digest of the location as well, by which any
run finds the job that has its checkpoint there; a job that somebody else submitted has its name.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from stateshift.clusters.http.hosts import host_of
from stateshift.clusters.http.rest import Json, Refused, Unanswered
from stateshift.clusters.kind import ClusterKind, Surroundings, submit_options
from stateshift.clusters.logged import logs_stop, logs_submission
from stateshift.clusters.noted import (
    Notes,
    Record,
    Stopping,
    filled_arguments,
    filled_values,
    handed_over,
    identity,
    noted_origin,
    reached_at,
)
from stateshift.clusters.options import (
    ARGUMENTS,
    COUNT,
    NEEDED_TEXT,
    SECONDS,
    SETTINGS,
    TEXT,
    TEXTS,
    Options,
    read_options,
)
from stateshift.clusters.options import settings as texts
from stateshift.clusters.protocol import (
    Failure,
    JobState,
    JobStatus,
    Origin,
    StopRequest,
    Submission,
    Trial,
)
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.spark_causes import LOG_LINES, failure_of
from stateshift.clusters.spark_trial import try_application
from stateshift.clusters.standalone.calls import Driver, StandaloneCalls
from stateshift.clusters.standalone.origin import launched_with
from stateshift.clusters.stopping import OpenStorage, forget_marker
from stateshift.clusters.waiting import wait_until_settled
from stateshift.errors import ClusterError
from stateshift.specification.values import size_of

CLUSTER_OPTIONS = {
    "url": NEEDED_TEXT,
    "ui_url": TEXT,
    "token_file": TEXT,
    "ca_file": TEXT,
    "request_seconds": SECONDS,
    "settle_seconds": SECONDS,
    "conf": SETTINGS,
    "environment": SETTINGS,
    "graceful_seconds": SECONDS,
    "state_dir": TEXT,
}
SUBMIT_OPTIONS = {
    "application": NEEDED_TEXT,
    "class": TEXT,
    "arguments": ARGUMENTS,
    "conf": SETTINGS,
    "py_files": TEXTS,
    "environment": SETTINGS,
    "driver_memory": TEXT,
    "driver_cores": COUNT,
}
STOP_OPTIONS = {"driver": TEXT, "app_name": TEXT, "graceful_seconds": SECONDS}

_SETTLE_SECONDS = 60.0
_DRIVER_MEMORY = "1g"  # Spark's own
_CLOCKS_APART_SECONDS = 3600.0
_PYTHON = "org.apache.spark.deploy.PythonRunner"
_FORGOTTEN = (
    "its master does not know it any more: it ended a while ago, or the master was restarted"
)
# A master before Spark 4 starts drivers without what Spark needs of Java 9 and later; Java 8
# ignores it.
_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
_JAVA_OPTIONS = " ".join(
    [
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
    ]
)
# What a worker puts its own copy of the application in place of.
_COPY = "{{USER_JAR}}"
_PLACE = "-Dspark.stateshift.place="


@dataclass(frozen=True)
class Standalone:
    """See the module. `options` are checked already (CLUSTER_OPTIONS)."""

    name: str
    state_dir: Path
    options: Options
    open_storage: OpenStorage | None = None
    interrupt: threading.Event | None = None

    @property
    def kind(self) -> str:
        return "spark_standalone"

    def version(self) -> str | None:
        try:
            return self._calls(None).version()
        except ClusterError:
            return None

    def host(self, connection: str | None = None) -> str | None:
        return host_of(connection or str(self.options["url"]))

    def reaches(self, location: str) -> bool | None:
        return None

    def find(self, tag: str) -> JobStatus:
        record = self._notes.read(tag)
        calls = self._calls(record)
        if record is None:
            driver, _ = _first(calls, calls.drivers(active=True), _has(_mark(tag)))
            return _seen(driver)
        if record.get("id") is not None:
            return _of_id(calls, str(record["id"]), bool(record.get("stopped")))
        begun = float(record["begun"])
        settled = begun + float(self.options.get("settle_seconds", _SETTLE_SECONDS))

        def look(over: bool) -> JobStatus | None:
            since = begun - _CLOCKS_APART_SECONDS
            recent = [driver for driver in calls.drivers() if driver.submitted >= since]
            ours, unseen = _first(calls, recent, _has(_mark(tag)))
            if ours is not None:
                self._notes.add(tag, id=ours.id)
                return _status(ours)
            return _not_found(unseen) if over else None

        status = wait_until_settled(look, settled, self.interrupt)
        return status or JobStatus(JobState.UNKNOWN, None, "its master did not answer in time")

    def find_source(self, request: StopRequest) -> JobStatus:
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        options, calls = self._stopping.asked(request), self._calls(None)
        if "driver" in options:
            return _seen(calls.driver(str(options["driver"])))
        name = options.get("app_name")
        is_source = _has(_named(str(name))) if name else _is_source(request)
        drivers = calls.drivers(active=True)
        source, unseen = _first(calls, drivers, is_source)
        if source is not None:
            return _status(source)
        silent = [each for each in drivers if _runs_unseen(each, unseen)]
        if silent:
            return _silent(silent[0])
        return _unseen(calls, drivers, str(name or request.job))

    def occupants(self) -> tuple[str, ...]:
        """Return what runs there: applications by their names, and drivers."""
        calls = self._calls(None)
        applications = [f"{name} ({id})" for id, name in calls.running()]
        return (*applications, *(driver.id for driver in calls.drivers(active=True)))

    def try_start(self, submission: Submission) -> Trial:
        given = read_options(submission.options, SUBMIT_OPTIONS, "/submit")
        calls = self._calls({"url": reached_at(submission, str(self.options["url"]))})
        try:
            self._body(submission, given, calls.version())
            memory = given.get("driver_memory", _DRIVER_MEMORY)
            full = calls.without_room(int(given.get("driver_cores", 1)), size_of(str(memory)))
        except Refused as refused:
            return Trial(refused.fact, refused.hint)
        except Unanswered as silent:
            return Trial(f"its master gives no answer: {silent.fact}", silent.hint)
        except ClusterError as error:
            return Trial(error.fact, error.hint)
        if full is not None:
            return Trial(full, "a smaller driver, or a larger worker")
        application, main = str(given["application"]), given.get("class")
        is_here = host_of(calls.url) == ""
        return try_application(application, main, self.open_storage, is_here)

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        id = self.find_source(request).id
        noted = noted_origin(self._notes, id, "")
        if noted.options is not None:
            return noted
        calls = self._calls(None)
        driver = next((driver for driver in calls.drivers(active=True) if driver.id == id), None)
        return launched_with(None if driver is None else calls.launch_command(driver))

    @logs_submission
    def submit(self, submission: Submission) -> str:
        given = read_options(submission.options, SUBMIT_OPTIONS, "/submit")
        seconds_max = 2 * float(self.options.get("settle_seconds", _SETTLE_SECONDS)) + 60.0
        with self._notes.alone(submission.tag, seconds_max, self.interrupt):
            status = self.find(submission.tag)
            if status.state is JobState.UNKNOWN and status.id is None:
                raise ClusterError(
                    f"cannot tell whether {submission.job} was submitted: {status.detail}",
                    cluster=self.name,
                    job=submission.job,
                    hint="see on the master's page what these drivers are; then: stateshift "
                    "resume WORKDIR",
                )
            if status.state is not JobState.ABSENT:
                return status.id or submission.tag
            forget_marker(submission, self.open_storage)
            record = {
                "begun": time.time(),
                "url": reached_at(submission, str(self.options["url"])),
                "options": dict(submission.options),
            }
            calls = self._calls(record)
            body = self._body(submission, given, calls.version())
            self._notes.add(submission.tag, **record)
            try:
                id = calls.create(body)
            except Unanswered as unanswered:
                status = self.find(submission.tag)  # waits until it is settled
                if status.id is None:
                    raise unanswered
                id = status.id
            self._notes.add(submission.tag, id=id)
            return id

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        calls = self._calls(self._notes.read(request.tag) if request.tag is not None else None)
        look = f"curl {redact(calls.url)}/v1/submissions/status/{{id}}"
        # What ends is this driver, whatever the others are; only one that is the source as well
        # is not to be overlooked.
        source = self.find_source(request)
        own = request
        if source.state.alive:
            own = replace(request, options={**request.options, "driver": source.id})
        stopped = self._stopping.stop(own, calls.kill, look)
        another = self.find_source(request)
        return another if another.state.alive else stopped

    def log(self, tag: str, lines_max: int = 50) -> str:
        """Return what Java said, and behind it what Python did: PythonRunner sends both of its
        streams to stdout.
        """
        calls, id = self._calls(self._notes.read(tag)), self.find(tag).id
        driver = next((driver for driver in calls.drivers() if driver.id == id), None)
        if driver is None or lines_max <= 0:
            return ""
        logs = [calls.said(driver, stream, 1 << 16) for stream in ("stderr", "stdout")]
        text = "\n".join(filter(None, logs))
        return last_lines(redact(text, os.environ), lines_max)

    def failure(self, tag: str, alive: bool = False) -> Failure | None:
        return failure_of(self.log(tag, LOG_LINES), alive)

    def _body(self, submission: Submission, given: Options, version: str | None) -> Json:
        application = str(given["application"])
        python = application.endswith(".py")
        arguments = filled_arguments(given.get("arguments", ()), submission)
        if not python and "class" not in given:
            fact = f"{application} is no .py file, and nothing says which class of it is to be run"
            hint = '"submit": {"class": "org.shop.Orders"}'
            raise ClusterError(fact, cluster=self.name, job=submission.job, hint=hint)
        ours = {f"STATESHIFT_{name.upper()}": value for name, value in identity(submission).items()}
        if python:
            arguments = [_COPY, ",".join(given.get("py_files", ())), *arguments]
        if "://" not in application:
            application = f"file://{os.path.abspath(application)}"
        return {
            "action": "CreateSubmissionRequest",
            "clientSparkVersion": "stateshift",
            "appResource": application,
            "mainClass": _PYTHON if python else given["class"],
            "appArgs": arguments,
            "environmentVariables": {
                **texts(self.options.get("environment")),
                **submission.environment,
                **texts(given.get("environment")),
                **ours,
            },
            "sparkProperties": self._settings(submission, given, version),
        }

    def _settings(
        self, submission: Submission, given: Options, version: str | None
    ) -> dict[str, str]:
        defaults = {}
        if version is not None and version.startswith("3."):
            defaults["spark.driver.defaultJavaOptions"] = _JAVA_OPTIONS
        sizes = {}
        if "driver_memory" in given:
            sizes["spark.driver.memory"] = given["driver_memory"]
        if "driver_cores" in given:
            sizes["spark.driver.cores"] = given["driver_cores"]
        conf = {**texts(self.options.get("conf")), **texts(given.get("conf"))}
        return {
            "spark.app.name": submission.job,
            **defaults,
            **filled_values(conf, submission),
            **texts(sizes),
            **handed_over(submission),
            "spark.submit.deployMode": "cluster",
            "spark.stateshift.submission": _digest(submission.tag),
            "spark.stateshift.place": _digest(submission.location.rstrip("/")),
        }

    @property
    def _notes(self) -> Notes:
        return Notes(self.state_dir)

    @property
    def _stopping(self) -> Stopping:
        known = (STOP_OPTIONS, SUBMIT_OPTIONS)
        return Stopping(self, self._notes, self.options, *known, self.open_storage, self.interrupt)

    def _calls(self, record: Record | None) -> StandaloneCalls:
        """Return the calls of the master where the record's driver was submitted, else of the
        cluster's. Another master has a page of its own.
        """
        url = str((record or {}).get("url") or self.options["url"])
        options = dict(self.options)
        if url != self.options["url"]:
            options.pop("ui_url", None)
        return StandaloneCalls(self.name, url, options)


def _digest(text: str) -> str:
    """Return what stands for a tag or a location in a launch command: Spark hides settings in which
    it sees the word `secret` or `token`, and either may have one.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _mark(tag: str) -> str:
    return f'"-Dspark.stateshift.submission={_digest(tag)}"'


def _has(mark: str) -> Callable[[str], bool]:
    return lambda command: mark in command


def _is_source(request: StopRequest) -> Callable[[str], bool]:
    """Whether any run of ours submitted the driver for this location, or somebody else under the
    job's name.
    """
    here = f'"{_PLACE}{_digest(request.location.rstrip("/"))}"'
    named = _named(request.job)

    def is_source(command: str) -> bool:
        if _PLACE in command:
            return here in command
        return named in command

    return is_source


def _named(name: str) -> str:
    return f'"-Dspark.app.name={name}"'


def _first(
    calls: StandaloneCalls, drivers: list[Driver], wanted: Callable[[str], bool]
) -> tuple[Driver | None, list[str]]:
    """Return the newest driver whose launch command is a wanted one; and the ids of those before it
    that do not show theirs.
    """
    unseen = []
    for driver in drivers:
        command = calls.launch_command(driver)
        if command is None:
            unseen.append(driver.id)
        elif wanted(command):
            return driver, unseen
    return None, unseen


def _not_found(unseen: list[str]) -> JobStatus:
    """Return the status of a submission whose answer was lost: it is absent only if every driver is
    seen to be another one.
    """
    if not unseen:
        return JobStatus(JobState.ABSENT)
    which = ", ".join(unseen[:3])
    if len(unseen) > 3:
        which += " …"
    why = f"{which} may be it: no worker shows yet how that was launched"
    return JobStatus(JobState.UNKNOWN, None, why)


def _runs_unseen(driver: Driver, unseen: list[str]) -> bool:
    """Whether a driver runs of which its worker does not tell how it was launched."""
    return driver.state is JobState.RUNNING and driver.id in unseen


def _silent(driver: Driver) -> JobStatus:
    """Return the status of a job that no driver is whose worker tells, where one runs whose worker
    does not: it may be that one.
    """
    why = (
        f"{driver.id} may be it: its worker does not show how that was launched; "
        f'"stop": {{"driver": "{driver.id}"}} says that it is'
    )
    return JobStatus(JobState.UNKNOWN, driver.id, why)


def _unseen(calls: StandaloneCalls, drivers: list[Driver], name: str) -> JobStatus:
    """Return the status of a job that no driver on the cluster is: its driver may run elsewhere
    (client mode), and its application here. Each driver of this name, as of a job that was moved
    on, has an application of its own.
    """
    applications = calls.applications(name)
    if not applications:
        return JobStatus(JobState.ABSENT)
    perhaps_named = 0
    for driver in drivers:
        command = calls.launch_command(driver)
        if command is None or _named(name) in command:
            perhaps_named += 1
    if len(applications) <= perhaps_named:
        return JobStatus(JobState.ABSENT)
    why = (
        f"application {applications[0]} has its name, and a driver that does not run on the cluster"
    )
    return JobStatus(JobState.UNKNOWN, applications[0], why)


def _of_id(calls: StandaloneCalls, id: str, stopped: bool) -> JobStatus:
    driver = calls.driver(id)
    if stopped and (driver is None or driver.state is JobState.FAILED):
        return JobStatus(JobState.FINISHED, id, "stopped")
    return JobStatus(JobState.UNKNOWN, id, _FORGOTTEN) if driver is None else _status(driver)


def _seen(driver: Driver | None) -> JobStatus:
    return JobStatus(JobState.ABSENT) if driver is None else _status(driver)


def _status(driver: Driver) -> JobStatus:
    detail = driver.message if driver.state in (JobState.FAILED, JobState.UNKNOWN) else None
    return JobStatus(driver.state, driver.id, detail)


def _open(name: str, options: Options, surroundings: Surroundings) -> Standalone:
    return Standalone(
        name,
        surroundings.state_dir,
        options,
        surroundings.open_storage,
        surroundings.interrupt,
    )


KIND = ClusterKind("spark_standalone", CLUSTER_OPTIONS, _open, submit_options(SUBMIT_OPTIONS))
