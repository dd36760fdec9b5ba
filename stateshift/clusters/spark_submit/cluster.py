"""Spark jobs that this machine's `spark-submit` starts, with any master URL.

    <state_dir>/<tag>.log, .lock, .pid, .exit  see `detached`; the process is the driver, or its
                                               launcher
    <state_dir>/<tag>.deployed, .ended         of a driver in the cluster: see `spark_deploy`
    <state_dir>/<location>.source.json         which processes of a job that we did not submit were
                                               stopped

    options     master, deploy_mode (client or cluster), conf, spark_submit, java_home,
                java_options, environment,
                state_dir, pid_file, seconds_max, graceful_seconds, kill_seconds
    submission  application (needed), arguments, conf, deploy_mode, py_files, environment, cwd
    stopping    pid_file, graceful_seconds

A job gets STATESHIFT_TAG, STATESHIFT_JOB and STATESHIFT_CHECKPOINT (its location) in its
environment; a driver in the cluster, which has another one, gets them as `spark.stateshift.tag`,
`.job` and `.checkpoint`. They also stand wherever `{tag}`, `{job}` and `{checkpoint}` do in an
argument or a value of `conf` (IS-6).

`find` asks the files of the tag. `find_source` asks them too, where there is a tag; else the pid
file, else the environments of this user's processes on this machine: a job that was started by hand
is recognised by the same variables. Who is not seen is `absent` only where that can be known. With
any master but `local`, the driver may run in the cluster, or on the host of somebody else:
`unknown`. So is a job that a process of Spark's on this machine names in its command line, without
the variables.

`stop` writes the marker (see `stopping`) and gives the job `graceful_seconds` to answer it. Who
answers has the rest of the time to stop between two batches; who does not, or does not end, gets
SIGTERM, and SIGKILL after that. Being killed is safe too: Spark then repeats the batch it was in. A
driver in the cluster is asked by the marker alone: to kill it from here is refused, with the
command that does it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from urllib.parse import unquote

from stateshift.clusters import detached, processes
from stateshift.clusters.http.hosts import host_of_master
from stateshift.clusters.kind import ClusterKind, Submit, Surroundings
from stateshift.clusters.logged import log_command, logs_stop, logs_submission
from stateshift.clusters.noted import filled, filled_arguments
from stateshift.clusters.options import (
    ARGUMENTS,
    NEEDED_TEXT,
    SECONDS,
    SETTINGS,
    TEXT,
    TEXTS,
    Options,
    read_options,
    settings,
)
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
from stateshift.clusters.spark_causes import LOG_BYTES, failure_of
from stateshift.clusters.spark_submit import deploy as spark_deploy
from stateshift.clusters.spark_submit import home as spark_home
from stateshift.clusters.spark_submit.deploy import DEPLOY_MODE, Deployed
from stateshift.clusters.spark_submit.notes import DriverNotes
from stateshift.clusters.spark_submit.origin import origin_of
from stateshift.clusters.spark_trial import try_application
from stateshift.clusters.stopping import (
    GRACEFUL_SECONDS,
    OpenStorage,
    StopMarker,
    forget_answer,
    forget_marker,
    stop_options,
    stopped_gracefully,
)
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.model import ClusterSpec

_log = logging.getLogger(__name__)

CLUSTER_OPTIONS = {
    "master": TEXT,
    "deploy_mode": DEPLOY_MODE,
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
    "deploy_mode": DEPLOY_MODE,
    "py_files": TEXTS,
    "environment": SETTINGS,
    "cwd": TEXT,
}
STOP_OPTIONS = {"pid_file": TEXT, "graceful_seconds": SECONDS}

_IN_SPARK = ("spark-internal", "pyspark-shell", "sparkr-shell")  # no files, but classes of Spark's


def refuse_missing(given: Options, pointer: str) -> None:
    """Refuse an application that is not there: spark-submit would say so only when the old job has
    been stopped already.
    """
    application = str(given["application"])
    scheme, _, rest = application.rpartition(":")
    if "{" in application or scheme not in ("", "file") or application in _IN_SPARK:
        return  # known only when it is started; or somewhere else
    if scheme:
        rest = unquote(rest.removeprefix("//"))
    if Path(str(given.get("cwd") or "."), rest).is_file():
        return
    expected = "a file on this machine, where spark-submit runs"
    place = f"{pointer}/application"
    raise SpecError((Complaint(place, "there is no such file", application, expected),))


def refuse_impossible(
    cluster: Options, given: Options, pointer: str, connection: str | None
) -> None:
    """A way to run the driver that this master does not have."""
    mode = spark_deploy.deploy_mode(cluster, given)
    spark_deploy.refuse_impossible(
        mode, master_of(cluster, connection), str(given["application"]), pointer
    )


def master_of(cluster: Options, connection: str | None) -> str:
    """The connection overrides the cluster's master; `host:port` means a standalone one."""
    if not connection:
        return str(cluster.get("master", "local[*]"))
    return f"spark://{connection}" if ":" in connection and "://" not in connection else connection


_KILL_SECONDS = (
    10.0  # the usual time from SIGTERM to SIGKILL: Spark's shutdown hooks take one or two
)


@dataclass(frozen=True)
class SparkSubmit:
    """See the module. `options` are checked already (CLUSTER_OPTIONS)."""

    name: str
    state_dir: Path
    workdir: str
    options: Options
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
        if not trace.started:
            return JobStatus(JobState.QUEUED if trace.held else JobState.ABSENT)
        driver = self._notes.deployed(tag)
        if driver is not None:
            ended = self._notes.ended_path(tag).exists()
            return spark_deploy.status_of(driver, trace, detached.said(stem), ended)
        id = str(trace.pid)
        if trace.held:
            return JobStatus(JobState.RUNNING, id)
        if trace.code == 0:
            return JobStatus(JobState.FINISHED, id)
        detail = "was killed" if trace.code is None else f"exit code {trace.code}"
        if detached.stopped(stem):
            detail += ", asked to stop"
        return JobStatus(JobState.FAILED, id, detail)

    def find_source(self, request: StopRequest) -> JobStatus:
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        if not processes.visible():
            why = "this system has no /proc: processes cannot be seen"
            return JobStatus(JobState.UNKNOWN, None, why)
        pids = self._processes(request)
        return JobStatus(JobState.RUNNING, str(pids[0])) if pids else self._unseen(request)

    def _unseen(self, request: StopRequest) -> JobStatus:
        """Return the status of a job that none of the processes here is: it may run elsewhere."""
        if self._stop_options(request).get("pid_file"):
            return JobStatus(JobState.ABSENT)  # the spec names the process that it is
        stopped = self._notes.stopped(request)
        if stopped:
            return JobStatus(JobState.FINISHED, str(stopped[0]), "stopped")
        master = self._master(None)
        if not spark_deploy.is_local(master):
            why = (
                f"with master {master} its driver may run in the cluster, or be started from "
                "another host"
            )
            return JobStatus(JobState.UNKNOWN, None, f"no process here is it, and {why}")
        named = processes.of_spark_naming(request.job, request.location)
        if named:
            why = (
                f"process {named[0]} names it in its command line, and has no STATESHIFT_JOB "
                "and _CHECKPOINT"
            )
            return JobStatus(JobState.UNKNOWN, str(named[0]), why)
        return JobStatus(JobState.ABSENT)

    def try_start(self, submission: Submission) -> Trial:
        given = read_options(submission.options, SUBMIT_OPTIONS, "/submit")
        try:
            self._executable()
            refuse_missing(given, "/submit")
        except (ClusterError, SpecError) as error:
            return Trial(error.fact, error.hint)
        master = self._master(submission.connection)
        silent = spark_deploy.silent_master(master)
        if silent is not None:
            return Trial(silent, "start that master, or name another")
        application = str(given["application"])
        if application in _IN_SPARK:
            return Trial()
        is_here = os.path.isabs(application) or application.startswith("file:")
        return try_application(application, None, self.open_storage, is_here)

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        return origin_of(self._processes(request), self._master(None))

    @logs_submission
    def submit(self, submission: Submission) -> str:
        given = read_options(submission.options, SUBMIT_OPTIONS, "/submit")
        arguments, driver = self._command(submission, given), self._to_deploy(submission, given)

        def attempt() -> str | None:
            status = self.find(submission.tag)
            return start() if status.state is JobState.ABSENT else status.id

        def start() -> str | None:
            stem = self._stem(submission.tag)
            with detached.taken(stem) as lock:
                if lock is None or detached.trace(stem).started:
                    return None  # somebody else is at it, or was: look again
                forget_marker(submission, self.open_storage)
                self._notes.submitting(submission, driver)
                environment = self._environment(submission, given)
                log_command(_log, self.name, arguments)
                command = detached.Command(arguments, environment, given.get("cwd"))
                process = detached.start(stem, command, lock)
                # Others know it by the number that it writes down itself: nobody shall hear of it
                # earlier.
                wait_for(lambda: _is_known(stem, process) or None, 5.0)
                return str(detached.leave(process))

        id = wait_for(attempt, self._seconds_max, self.interrupt)
        if id is None:
            raise ClusterError(
                f"{submission.tag} is being submitted by another process, which does not "
                "come to an end",
                cluster=self.name,
                job=submission.job,
            )
        return id

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        status = self._known(request)
        self._notes.stopping(request, self._processes(request))
        if status.state.alive and not self._stop_gracefully(request):
            self._kill(request)
            forget_answer(request, self.open_storage)
        return self._known(request)

    def _known(self, request: StopRequest) -> JobStatus:
        """Return the status of a job, if it is known whether that runs. The launcher of a
        driver in the cluster may have ended without it.
        """
        status = self.find_source(request)
        if status.state is JobState.UNKNOWN:
            raise ClusterError(
                f"cannot tell whether {request.job} runs: {status.detail}",
                cluster=self.name,
                job=request.job,
                hint=self._way_to_tell(request.tag),
            )
        return status

    def _way_to_tell(self, tag: str | None) -> str:
        driver = self._notes.deployed(tag)
        if tag is None or driver is None:
            return "stop it by hand, and use a cluster of kind manual for the source"
        ended = quote(str(self._notes.ended_path(tag)))
        kill = driver.to_kill(detached.said(self._stem(tag)))
        return f"end it: {kill}; once it is over: touch {ended}; then: stateshift resume WORKDIR"

    def log(self, tag: str, lines_max: int = 50) -> str:
        return last_lines(redact(detached.said(self._stem(tag)), os.environ), lines_max)

    def failure(self, tag: str, alive: bool = False) -> Failure | None:
        return failure_of(detached.said(self._stem(tag), bytes_max=LOG_BYTES), alive)

    def _stop_gracefully(self, request: StopRequest) -> bool:
        """Whether the job has ended by itself."""
        marker = StopMarker(request, request.seconds_max, self.open_storage)
        patience = float(self._stop_options(request).get("graceful_seconds", GRACEFUL_SECONDS))
        return stopped_gracefully(marker, lambda: self._ended(request), patience, self.interrupt)

    def _kill(self, request: StopRequest) -> None:
        self._refuse_to_kill_the_launcher(request)
        self._signal(request, signal.SIGTERM)
        patience = float(self.options.get("kill_seconds", _KILL_SECONDS))
        if self._ends_within(patience, request):
            return
        self._signal(request, signal.SIGKILL)
        if not self._ends_within(_KILL_SECONDS, request):
            raise ClusterError(
                f"{request.job} is still there after SIGKILL",
                cluster=self.name,
                job=request.job,
                hint=f"look at it: ps -fp {self.find_source(request).id}",
            )

    def _refuse_to_kill_the_launcher(self, request: StopRequest) -> None:
        """The driver in the cluster would go on without it."""
        driver = self._notes.deployed(request.tag)
        if request.tag is None or driver is None or not self.find(request.tag).state.alive:
            return
        raise ClusterError(
            f"{request.job} runs in the cluster ({driver.master}), did not answer the "
            "request to stop, and cannot be "
            "killed from here",
            cluster=self.name,
            job=request.job,
            hint=(
                f"{driver.to_kill(detached.said(self._stem(request.tag)))}; then: stateshift "
                "resume WORKDIR"
            ),
        )

    def _ends_within(self, seconds: float, request: StopRequest) -> bool:
        return bool(wait_for(lambda: self._ended(request) or None, seconds, self.interrupt))

    def _signal(self, request: StopRequest, number: signal.Signals) -> None:
        """All processes of the job: the group of the one we started, and whatever carries its
        tag.
        """
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

    def _stop_options(self, request: StopRequest) -> Options:
        return stop_options(request, self.options, STOP_OPTIONS, SUBMIT_OPTIONS)

    def _command(self, submission: Submission, given: Options) -> list[str]:
        master, mode = (
            self._master(submission.connection),
            spark_deploy.deploy_mode(self.options, given),
        )
        command = [str(self._executable()), "--master", master, "--deploy-mode", mode]
        command += ["--name", submission.job]
        conf = self._conf(given)
        if mode == "cluster":
            conf |= spark_deploy.identity_in_conf(master, submission, conf)
        for key, value in conf.items():
            command += ["--conf", f"{key}={filled(value, submission)}"]
        if self.options.get("java_options"):
            command += ["--driver-java-options", self.options["java_options"]]
        if given.get("py_files"):
            command += ["--py-files", ",".join(given["py_files"])]
        arguments = filled_arguments(given.get("arguments", ()), submission)
        return [*command, given["application"], *arguments]

    def _conf(self, given: Options) -> dict[str, str]:
        return {**settings(self.options.get("conf")), **settings(given.get("conf"))}

    def _to_deploy(self, submission: Submission, given: Options) -> Deployed | None:
        """The driver, where it is to run in the cluster."""
        if spark_deploy.deploy_mode(self.options, given) == "client":
            return None
        return spark_deploy.deployed(self._master(submission.connection), self._conf(given))

    def _master(self, connection: str | None) -> str:
        return master_of(self.options, connection)

    def _environment(self, submission: Submission, given: Options) -> dict[str, str]:
        ours = {
            "STATESHIFT_TAG": submission.tag,
            "STATESHIFT_JOB": submission.job,
            "STATESHIFT_CHECKPOINT": submission.location,
        }
        environment = {**os.environ, **self._python_of_spark()}
        if self.options.get("java_home"):
            environment["JAVA_HOME"] = self.options["java_home"]
        for more in (
            settings(self.options.get("environment")),
            submission.environment,
            given.get("environment"),
        ):
            environment.update(settings(more))
        return environment | ours

    def _python_of_spark(self) -> dict[str, str]:
        """pyspark's own script would use whatever `python3` and SPARK_HOME are around: it gets
        ours.
        """
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

    @property
    def _notes(self) -> DriverNotes:
        return DriverNotes(self.state_dir, self.workdir)


def _is_known(stem: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has written its number down, or has ended."""
    return detached.trace(stem).started or process.poll() is not None


def _open(name: str, options: Options, surroundings: Surroundings) -> SparkSubmit:
    return SparkSubmit(
        name,
        surroundings.state_dir,
        str(surroundings.workdir.absolute()),
        options,
        surroundings.open_storage,
        surroundings.interrupt,
    )


def _check_submit(cluster: ClusterSpec, submit: Submit) -> None:
    read_options(submit.options, SUBMIT_OPTIONS, submit.pointer)
    refuse_missing(submit.options, submit.pointer)
    refuse_impossible(cluster.options, submit.options, submit.pointer, submit.connection)


KIND = ClusterKind("spark_submit", CLUSTER_OPTIONS, _open, _check_submit)
