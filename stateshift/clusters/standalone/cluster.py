"""Spark jobs on a standalone cluster, submitted to its master over REST: the driver runs on a
worker.

A `.py` application is run by Spark's own PythonRunner, which spark-submit refuses in this mode and
the master does not. The image's location is handed over as `spark.stateshift.checkpoint`, which
`stateshift.job` reads, beside `spark.stateshift.job` and `.tag`; in STATESHIFT_CHECKPOINT, _JOB and
_TAG; and wherever `{checkpoint}`, `{job}` or `{tag}` stands in an argument or a value of `conf`
(IS-6).

The master gives each submission a new id, and does not know tags. A start is written down before it
is begun (`noted`), and if the answer was lost the driver is looked for by a digest of the tag in
its launch command, which its worker shows. Until `settle_seconds` later it may still appear: `find`
waits for that long before it says `absent`; and while a driver that may be ours waits for a worker,
nobody can tell: `unknown`. The launch command has a digest of the location as well, by which any
run finds the job that has its checkpoint there; a job that somebody else submitted has its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

from stateshift.clusters.http import Json, Unanswered, host_of
from stateshift.clusters.kind import ClusterKind, submit_options
from stateshift.clusters.logged import logs_stop
from stateshift.clusters.noted import (
    Record,
    digest,
    fill_arguments,
    fill_values,
    identity,
    identity_settings,
    noted_origin,
    submission_url,
)
from stateshift.clusters.options import Options, read_options
from stateshift.clusters.options import settings as texts
from stateshift.clusters.protocol import JobState, JobStatus, Origin, StopRequest, Submission, Trial
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.standalone.calls import Driver, StandaloneCalls, origin_of
from stateshift.clusters.tagged import RemoteCluster
from stateshift.clusters.waiting import wait_until_settled
from stateshift.errors import ClusterError
from stateshift.specification.options import KindOptions, options_of
from stateshift.specification.values import size_of

_DRIVER_MEMORY = "1g"  # Spark's own
_CLOCKS_APART_SECONDS = 3600.0
_PYTHON = "org.apache.spark.deploy.PythonRunner"
# A master before Spark 4 starts drivers without what Spark needs of Java 9 and later; Java 8
# ignores it.
_OPENED = """
java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util
java.util.concurrent java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs
sun.security.action sun.util.calendar
"""
_OPENING = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED.split()]
_JAVA_OPTIONS = " ".join(["-XX:+IgnoreUnrecognizedVMOptions", *_OPENING])
# A worker puts its own copy of the application in place of this.
_COPY = "{{USER_JAR}}"
_PLACE = "-Dspark.stateshift.place="


class Standalone(RemoteCluster[StandaloneCalls]):
    """See the module."""

    takes: ClassVar[KindOptions] = options_of("spark_standalone")
    forgotten = (
        "its master does not know it any more: it ended a while ago, or the master was restarted"
    )

    def version(self) -> str | None:
        try:
            return self.calls(None).version()
        except ClusterError:
            return None

    def calls(self, record: Record | None) -> StandaloneCalls:
        url = str((record or {}).get("url") or self.options["url"])
        options = dict(self.options)
        if url != self.options["url"]:
            options.pop("ui_url", None)  # another master has a page of its own
        return StandaloneCalls(self.name, url, options)

    def status_of(self, calls: StandaloneCalls, id: str) -> JobStatus | None:
        driver = calls.driver(id)
        return None if driver is None else _status(driver)

    def find_unanswered(self, calls: StandaloneCalls, tag: str, begun: float | None) -> JobStatus:
        mark = f'"-Dspark.stateshift.submission={digest(tag)}"'
        if begun is None:
            ours, _ = _first(calls, calls.drivers(active=True), lambda command: mark in command)
            return JobStatus(JobState.ABSENT) if ours is None else _status(ours)

        def look(over: bool) -> JobStatus | None:
            since = begun - _CLOCKS_APART_SECONDS
            recent = [driver for driver in calls.drivers() if driver.submitted >= since]
            ours, unseen = _first(calls, recent, lambda command: mark in command)
            if ours is not None:
                self.notes.add(tag, id=ours.id)
                return _status(ours)
            return _not_found(unseen) if over else None

        status = wait_until_settled(look, begun + self.settle_seconds, self.interrupt)
        return status or JobStatus(JobState.UNKNOWN, None, "its master did not answer in time")

    def find_untagged(self, request: StopRequest) -> JobStatus:
        """Return the driver that the spec names, else one for this location or the job's name."""
        options, calls = self.stop_options(request), self.calls(None)
        if "driver" in options:
            return self.status_of(calls, str(options["driver"])) or JobStatus(JobState.ABSENT)
        name = str(options.get("app_name") or request.job)
        named = _named(name)
        here = f'"{_PLACE}{digest(request.location.rstrip("/"))}"'

        def is_source(command: str) -> bool:
            if _PLACE in command:
                return here in command
            return named in command and request.tag is None

        drivers = calls.drivers(active=True)
        source, unseen = _first(calls, drivers, is_source)
        if source is not None:
            return _status(source)
        for driver in drivers:
            if driver.state is JobState.RUNNING and driver.id in unseen:
                why = (
                    f"{driver.id} may be it: its worker does not show how that was launched; "
                    f'"stop": {{"driver": "{driver.id}"}} says that it is'
                )
                return JobStatus(JobState.UNKNOWN, driver.id, why)
        return _elsewhere(calls, drivers, name)

    def occupants(self) -> tuple[str, ...]:
        calls = self.calls(None)
        applications = [f"{name} ({id})" for id, name in calls.running()]
        return (*applications, *(driver.id for driver in calls.drivers(active=True)))

    def try_start(self, submission: Submission) -> Trial:
        given = read_options(submission.options, self.takes.submit, "/submit")
        calls = self.calls({"url": submission_url(submission, str(self.options["url"]))})
        try:
            self.body(calls, submission, given)
            memory = given.get("driver_memory", _DRIVER_MEMORY)
            full = calls.without_room(int(given.get("driver_cores", 1)), size_of(str(memory)))
        except Unanswered as silent:
            return Trial(f"its master gives no answer: {silent.fact}", silent.hint)
        except ClusterError as error:
            return Trial(error.fact, error.hint)
        if full is not None:
            return Trial(full, "a smaller driver, or a larger worker")
        is_here = host_of(calls.url) == ""
        return self.try_application(str(given["application"]), given.get("class"), is_here)

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        id = self.find_source(request).id
        noted = noted_origin(self.notes, id, "")
        if noted.options is not None:
            return noted
        calls = self.calls(None)
        driver = next((driver for driver in calls.drivers(active=True) if driver.id == id), None)
        return origin_of(None if driver is None else calls.launch_command(driver))

    @contextmanager
    def turn(self, submission: Submission) -> Iterator[tuple[JobStatus, int | None]]:
        """Keep everybody else from submitting under the tag: the master would start both."""
        with self.notes.alone(submission.tag, 2 * self.settle_seconds + 60.0, self.interrupt):
            status = self.find(submission.tag)
            if status.state is JobState.UNKNOWN and status.id is None:
                fact = f"cannot tell whether {submission.job} was submitted: {status.detail}"
                hint = "see on the master's page what these drivers are; "
                raise self.error(submission.job, fact, f"{hint}then: stateshift resume WORKDIR")
            yield status, None

    def body(self, calls: StandaloneCalls, submission: Submission, given: Options) -> Json:
        version, application = calls.version(), str(given["application"])
        is_python = application.endswith(".py")
        if not is_python and "class" not in given:
            fact = f"{application} is no .py file, and nothing says which class of it is to be run"
            hint = '"submit": {"class": "org.shop.Orders"}'
            raise self.error(submission.job, fact, hint)
        arguments = fill_arguments(given, submission)
        if is_python:
            arguments = [_COPY, ",".join(given.get("py_files", ())), *arguments]
        if "://" not in application:
            application = f"file://{os.path.abspath(application)}"
        ours = {f"STATESHIFT_{name.upper()}": value for name, value in identity(submission).items()}
        return {
            "action": "CreateSubmissionRequest",
            "clientSparkVersion": "stateshift",
            "appResource": application,
            "mainClass": _PYTHON if is_python else given["class"],
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
            **fill_values(conf, submission),
            **texts(sizes),
            **identity_settings(submission),
            "spark.submit.deployMode": "cluster",
            "spark.stateshift.submission": digest(submission.tag),
            "spark.stateshift.place": digest(submission.location.rstrip("/")),
        }

    def create(self, calls: StandaloneCalls, tag: str, body: Json) -> str:
        return calls.create(body)

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        calls = self.calls(self.notes.read(request.tag))
        look = f"curl {redact(calls.url)}/v1/submissions/status/{{id}}"
        # This driver ends, whatever the others are; only one that is the source as well is not to
        # be overlooked.
        source = self.find_source(request)
        own = request
        if source.state.alive:
            own = replace(request, options={**request.options, "driver": source.id})
        stopped = self.end(own, calls.kill, look)
        another = self.find_source(request)
        return another if another.state.alive else stopped

    def log(self, tag: str, lines_max: int = 50) -> str:
        """Return the words of Java, then Python's: PythonRunner sends both streams to stdout."""
        calls, id = self.calls(self.notes.read(tag)), self.find(tag).id
        driver = next((driver for driver in calls.drivers() if driver.id == id), None)
        if driver is None or lines_max <= 0:
            return ""
        logs = [calls.said(driver, stream, 1 << 16) for stream in ("stderr", "stdout")]
        text = "\n".join(filter(None, logs))
        return last_lines(redact(text, os.environ), lines_max)


def _named(name: str) -> str:
    return f'"-Dspark.app.name={name}"'


def _first(
    calls: StandaloneCalls, drivers: list[Driver], is_wanted: Callable[[str], bool]
) -> tuple[Driver | None, list[str]]:
    """Return the newest driver with a wanted command, and later ones' ids that hide theirs."""
    unseen = []
    for driver in drivers:
        command = calls.launch_command(driver)
        if command is None:
            unseen.append(driver.id)
        elif is_wanted(command):
            return driver, unseen
    return None, unseen


def _not_found(unseen: list[str]) -> JobStatus:
    """Return the status of a lost submission: absent only if all drivers are seen to differ."""
    if not unseen:
        return JobStatus(JobState.ABSENT)
    which = ", ".join(unseen[:3])
    if len(unseen) > 3:
        which += " …"
    why = f"{which} may be it: no worker shows yet how that was launched"
    return JobStatus(JobState.UNKNOWN, None, why)


def _elsewhere(calls: StandaloneCalls, drivers: list[Driver], name: str) -> JobStatus:
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


def _status(driver: Driver) -> JobStatus:
    detail = driver.message if driver.state in (JobState.FAILED, JobState.UNKNOWN) else None
    return JobStatus(driver.state, driver.id, detail)


KIND = ClusterKind(
    "spark_standalone",
    Standalone.takes.cluster,
    Standalone.open,
    submit_options(Standalone.takes.submit),
)
