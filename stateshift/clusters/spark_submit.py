"""Spark jobs on this machine: `spark-submit` in client mode, with any master URL.

    <state_dir>/<tag>.log, .lock, .pid, .exit     see `detached`; the process is the driver

    options      master, conf, spark_submit, java_home, java_options, environment, state_dir, pid_file, seconds_max,
                 graceful_seconds, kill_seconds
    submission   application (needed), arguments, conf, py_files, environment, cwd
    stopping     pid_file, graceful_seconds

A job gets STATESHIFT_TAG, STATESHIFT_JOB and STATESHIFT_CHECKPOINT (its location) in its environment. `find` asks the
files of the tag. `find_source` asks them too, where there is a tag; else the pid file, else the environments of this
user's processes on this machine: a job that was started by hand is recognised by the same variables. A job that runs
elsewhere, or without them, is not seen: it is `absent`.

`stop` writes the marker (see `stopping`) and gives the job `graceful_seconds` to answer it. Who answers has
the rest of the time to stop between two batches; who does not, or does not end, gets SIGTERM, and SIGKILL after that.
Being killed is safe too: Spark then repeats the batch it was in.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from stateshift.clusters import detached, processes, spark_home
from stateshift.clusters.hosts import host_of_master
from stateshift.clusters.options import (
    ARGUMENTS,
    NEEDED_TEXT,
    SECONDS,
    SETTINGS,
    TEXT,
    TEXTS,
    read_options,
    settings,
)
from stateshift.clusters.protocol import JobState, JobStatus, StopRequest, Submission
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.stopping import (
    GRACEFUL_SECONDS,
    OpenStorage,
    StopMarker,
    forget_marker,
    stop_options,
    stopped_gracefully,
)
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError, Complaint, SpecError

CLUSTER_OPTIONS = {
    "master": TEXT,
    "conf": SETTINGS,
    "spark_submit": TEXT,
    "java_home": TEXT,
    "java_options": TEXT,
    "environment": SETTINGS,
    "state_dir": TEXT,
    "pid_file": TEXT,
    "seconds_max": SECONDS,
    "graceful_seconds": SECONDS,
    "kill_seconds": SECONDS,
}
SUBMIT_OPTIONS = {
    "application": NEEDED_TEXT,
    "arguments": ARGUMENTS,
    "conf": SETTINGS,
    "py_files": TEXTS,
    "environment": SETTINGS,
    "cwd": TEXT,
}
STOP_OPTIONS = {"pid_file": TEXT, "graceful_seconds": SECONDS}

_IN_SPARK = ("spark-internal", "pyspark-shell", "sparkr-shell")  # no files, but classes of Spark's


def refuse_missing(given: Mapping[str, Any], pointer: str) -> None:
    """An application that is not there would be found out when the old job has been stopped already."""
    application = str(given["application"])
    scheme, _, rest = application.rpartition(":")
    if "{" in application or scheme not in ("", "file") or application in _IN_SPARK:
        return  # told only when it is started; or somewhere else
    path = Path(str(given.get("cwd") or "."), unquote(rest.removeprefix("//")) if scheme else rest)
    if not path.is_file():
        raise SpecError((Complaint(f"{pointer}/application", "there is no such file", application,
                                   "a file on this machine, where spark-submit runs"),))  # fmt: skip


_KILL_SECONDS = 10.0  # the usual time from SIGTERM to SIGKILL: Spark's shutdown hooks take one or two


@dataclass(frozen=True)
class SparkSubmit:
    """See the module. `options` are checked already (CLUSTER_OPTIONS)."""

    name: str
    state_dir: Path
    options: Mapping[str, Any]
    open_storage: OpenStorage | None = None
    interrupt: threading.Event | None = None

    @property
    def kind(self) -> str:
        return "spark_submit"

    def version(self) -> str | None:
        try:
            return spark_home.version_of(self._executable())
        except ClusterError:
            return None

    def host(self, connection: str | None = None) -> str | None:
        return host_of_master(self._master(connection))

    def reaches(self, location: str) -> bool | None:
        return None

    def find(self, tag: str) -> JobStatus:
        stem = self._stem(tag)
        trace = detached.trace(stem)
        id = str(trace.pid) if trace.started else None
        if trace.held:
            return JobStatus(JobState.RUNNING if trace.started else JobState.QUEUED, id)
        if not trace.started:
            return JobStatus(JobState.ABSENT)
        if trace.code == 0:
            return JobStatus(JobState.FINISHED, id)
        detail = "was killed" if trace.code is None else f"exit code {trace.code}"
        return JobStatus(JobState.FAILED, id, detail + (", asked to stop" if detached.stopped(stem) else ""))

    def find_source(self, request: StopRequest) -> JobStatus:
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        if not processes.visible():
            return JobStatus(JobState.UNKNOWN, None, "this system has no /proc: processes cannot be seen")
        pids = self._processes(request)
        return JobStatus(JobState.RUNNING, str(pids[0])) if pids else JobStatus(JobState.ABSENT)

    def submit(self, submission: Submission) -> str:
        given = read_options(submission.options, SUBMIT_OPTIONS, "/submit")
        arguments = self._command(submission, given)

        def attempt() -> str | None:
            status = self.find(submission.tag)
            return start() if status.state is JobState.ABSENT else status.id

        def start() -> str | None:
            stem = self._stem(submission.tag)
            with detached.taken(stem) as lock:
                if lock is None or detached.trace(stem).started:
                    return None  # somebody else is at it, or was: look again
                forget_marker(submission, self.open_storage)
                environment = self._environment(submission, given)
                process = detached.start(stem, arguments, environment, lock, directory=given.get("cwd"))
                # Others know it by the number that it writes down itself: nobody shall be told of it earlier.
                wait_for(lambda: detached.trace(stem).started or process.poll() is not None or None, 5.0)
                return str(detached.leave(process))

        id = wait_for(attempt, self._seconds_max, self.interrupt)
        if id is None:
            raise ClusterError(
                f"{submission.tag} is being submitted by another process, which does not come to an end",
                cluster=self.name,
                job=submission.job,
            )
        return id

    def stop(self, request: StopRequest) -> JobStatus:
        status = self.find_source(request)
        if status.state is JobState.UNKNOWN:
            raise ClusterError(
                f"cannot tell whether {request.job} runs: {status.detail}",
                cluster=self.name,
                job=request.job,
                hint="stop it by hand, and use a cluster of kind manual for the source",
            )
        if status.state.alive and not self._stop_gracefully(request):
            self._kill(request)
        return self.find_source(request)

    def log(self, tag: str, lines_max: int = 50) -> str:
        return last_lines(redact(detached.said(self._stem(tag)), os.environ), lines_max)

    def _stop_gracefully(self, request: StopRequest) -> bool:
        """Whether the job has ended by itself."""
        marker = StopMarker(request, request.seconds_max, self.open_storage)
        patience = float(self._stop_options(request).get("graceful_seconds", GRACEFUL_SECONDS))
        return stopped_gracefully(marker, lambda: self._ended(request), patience, self.interrupt)

    def _kill(self, request: StopRequest) -> None:
        self._signal(request, signal.SIGTERM)
        patience = float(self.options.get("kill_seconds", _KILL_SECONDS))
        if wait_for(lambda: self._ended(request) or None, patience, self.interrupt):
            return
        self._signal(request, signal.SIGKILL)
        if not wait_for(lambda: self._ended(request) or None, _KILL_SECONDS, self.interrupt):
            raise ClusterError(
                f"{request.job} is still there after SIGKILL",
                cluster=self.name,
                job=request.job,
                hint=f"look at it: ps -fp {self.find_source(request).id}",
            )

    def _signal(self, request: StopRequest, number: signal.Signals) -> None:
        """All processes of the job: the group of the one we started, and whatever carries its tag."""
        tag = request.tag
        if tag is None or not self.find(tag).state.alive:
            processes.send(self._processes(request), number)
            return
        stem = self._stem(tag)
        detached.note_stopped(stem)
        pid = detached.trace(stem).pid
        if pid is not None:
            processes.send_group(pid, number)
        if number is signal.SIGKILL:
            processes.send({*processes.of_tag(tag), *detached.holders(stem)}, number)

    def _ended(self, request: StopRequest) -> bool:
        return not self.find_source(request).state.alive

    def _processes(self, request: StopRequest) -> tuple[int, ...]:
        pid_file = self._stop_options(request).get("pid_file")
        if pid_file:
            return processes.of_pid_file(pid_file)
        tagged = processes.of_tag(request.tag) if request.tag is not None else ()
        return tagged or processes.of_job(request.job, request.location)

    def _stop_options(self, request: StopRequest) -> dict[str, Any]:
        return stop_options(request, self.options, STOP_OPTIONS, SUBMIT_OPTIONS)

    def _command(self, submission: Submission, given: Mapping[str, Any]) -> list[str]:
        command = [str(self._executable()), "--master", self._master(submission.connection), "--deploy-mode", "client"]
        command += ["--name", submission.job]
        for key, value in {**settings(self.options.get("conf")), **settings(given.get("conf"))}.items():
            command += ["--conf", f"{key}={value}"]
        if self.options.get("java_options"):
            command += ["--driver-java-options", self.options["java_options"]]
        if given.get("py_files"):
            command += ["--py-files", ",".join(given["py_files"])]
        return [*command, given["application"], *map(str, given.get("arguments", ()))]

    def _master(self, reached: str | None) -> str:
        """The connection overrides the cluster's master; `host:port` means a standalone one."""
        if not reached:
            return str(self.options.get("master", "local[*]"))
        return f"spark://{reached}" if ":" in reached and "://" not in reached else reached

    def _environment(self, submission: Submission, given: Mapping[str, Any]) -> dict[str, str]:
        ours = {
            "STATESHIFT_TAG": submission.tag,
            "STATESHIFT_JOB": submission.job,
            "STATESHIFT_CHECKPOINT": submission.location,
        }
        environment = {**os.environ, **self._python_of_spark()}
        if self.options.get("java_home"):
            environment["JAVA_HOME"] = self.options["java_home"]
        for more in (settings(self.options.get("environment")), submission.environment, given.get("environment")):
            environment.update(settings(more))
        return environment | ours

    def _python_of_spark(self) -> dict[str, str]:
        """pyspark's own script would use whatever `python3` and SPARK_HOME are around: it gets ours."""
        home = spark_home.home_of(self._executable())
        if home is None or home != spark_home.installed_pyspark():
            return {}
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        return {"SPARK_HOME": str(home), "PYSPARK_PYTHON": python}

    def _executable(self) -> Path:
        return spark_home.executable(self.options.get("spark_submit"))

    @property
    def _seconds_max(self) -> float:
        return float(self.options.get("seconds_max", 60.0))

    def _stem(self, tag: str) -> Path:
        return self.state_dir / detached.file_name(tag)
