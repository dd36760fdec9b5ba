"""Spark jobs that this machine's `spark-submit` starts, with any master URL.

    <state_dir>/<tag>.log, .lock, .pid, .exit  see `detached`; the process is the driver, or its
                                               launcher (`deploy`)

A job gets STATESHIFT_TAG, STATESHIFT_JOB and STATESHIFT_CHECKPOINT (its location) in its
environment; a driver in the cluster, which has another one, gets them as `spark.stateshift.tag`,
`.job` and `.checkpoint`. They also stand wherever `{tag}`, `{job}` and `{checkpoint}` do in an
argument or a value of `conf` (IS-6).

`find` asks the files of the tag. `find_source` asks them too, where there is a tag; else the pid
file, else the environments of this user's processes on this machine: a job that was started by hand
is recognised by the same variables. A job that is not seen is `absent` only where that can be
known. With any master but `local`, the driver may run in the cluster, or be started from another
host: `unknown`. A job is `unknown` as well if a process of Spark's on this machine names it in its
command line, without the variables.

`stop` writes the marker (see `stopping`) and gives the job `graceful_seconds` to answer it. A job
that answers has the rest of the time to stop between two batches. One that does not, or does not
end, gets SIGTERM, and SIGKILL after that. Being killed is safe too: Spark then repeats the batch it
was in. A driver in the cluster is asked by the marker alone: to kill it from here is refused, with
the command that does it. `driver_pods` tells of a driver that is a pod.

A Spark home, whose version is read without Java or pyspark, is recognised by one of these (pyspark
from PyPI has the first and the last, a binary release the others):

    python/pyspark/version.py, pyspark/version.py     __version__: str = "4.3.0"
    RELEASE                                           Spark 4.3.0 built for Hadoop 3.4.2
    jars/spark-core_2.13-4.3.0.jar
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import signal
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shlex import quote
from typing import ClassVar
from urllib.parse import unquote

from stateshift.clusters import detached
from stateshift.clusters.http import host_of_master, is_local, through_outages
from stateshift.clusters.kind import Submit
from stateshift.clusters.logged import log_command, logs_stop
from stateshift.clusters.noted import Record, fill, fill_arguments
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
from stateshift.clusters.spark_causes import LOG_BYTES, failure_of
from stateshift.clusters.spark_submit import deploy as spark_deploy
from stateshift.clusters.spark_submit import processes
from stateshift.clusters.spark_submit.deploy import DeployMode, DriverNotes
from stateshift.clusters.stopping import forget_marker
from stateshift.clusters.tagged import NotKilledError, TaggedCluster
from stateshift.clusters.waiting import wait_for, wait_until_settled
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import KindOptions, options_of

_log = logging.getLogger(__name__)

IN_SPARK = ("spark-internal", "pyspark-shell", "sparkr-shell")  # no files, but classes of Spark's
# The usual time from SIGTERM to SIGKILL: Spark's shutdown hooks take one or two seconds.
_KILL_SECONDS = 10.0
_SECONDS_MAX = 60.0
_HANDING_SECONDS = 300.0  # spark-submit may upload all of Spark, or files, first
_SETTLE_SECONDS = 60.0
_VERSION = re.compile(r"__version__[^=\n]*=\s*[\"']([^\"']+)[\"']")
_RELEASE = re.compile(r"Spark (\S+)")
_VERSION_FILES = (
    ("version.py", _VERSION),
    ("python/pyspark/version.py", _VERSION),
    ("RELEASE", _RELEASE),
)
_CORE = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


def refuse_missing(given: Options, pointer: str) -> None:
    """Refuse a missing application: spark-submit says so once the old job has been stopped."""
    application = str(given["application"])
    scheme, _, rest = application.rpartition(":")
    if "{" in application or scheme not in ("", "file") or application in IN_SPARK:
        return  # known only when it is started; or somewhere else
    if scheme:
        rest = unquote(rest.removeprefix("//"))
    if Path(str(given.get("cwd") or "."), rest).is_file():
        return
    expected = "a file on this machine, where spark-submit runs"
    place = f"{pointer}/application"
    raise SpecError((Complaint(place, "there is no such file", application, expected),))


def master_of(cluster: Options, connection: str | None) -> str:
    """The connection overrides the cluster's master; `host:port` means a standalone one."""
    if not connection:
        return str(cluster.get("master", "local[*]"))
    return f"spark://{connection}" if ":" in connection and "://" not in connection else connection


class SparkSubmit(TaggedCluster):
    """See the module."""

    takes: ClassVar[KindOptions] = options_of("spark_submit")

    def master(self, connection: str | None) -> str:
        return master_of(self.options, connection)

    def mode(self, given: Options) -> DeployMode:
        return spark_deploy.deploy_mode(self.options, given)

    def version(self) -> str | None:
        try:
            return version_of(self.executable())
        except ClusterError:
            return None

    def host(self, connection: str | None = None) -> str | None:
        return host_of_master(self.master(connection))

    def find(self, tag: str) -> JobStatus:
        stem = self._stem(tag)
        trace = detached.trace(stem)
        if not trace.started:
            return JobStatus(JobState.QUEUED if trace.held else JobState.ABSENT)
        driver = self._notes.deployed(tag)
        if driver is not None:
            ended = self._notes.ended_path(tag).exists()
            return spark_deploy.status_of(driver, trace, detached.output_of(stem), ended)
        id = str(trace.pid)
        if trace.held:
            return JobStatus(JobState.RUNNING, id)
        if trace.code == 0:
            return JobStatus(JobState.FINISHED, id)
        detail = "was killed" if trace.code is None else f"exit code {trace.code}"
        if detached.was_stopped(stem):
            detail += ", asked to stop"
        return JobStatus(JobState.FAILED, id, detail)

    def find_untagged(self, request: StopRequest) -> JobStatus:
        for key in self.stop_options(request).keys() & {"pod", "app_name"}:
            fact = f'"{key}" of its "stop" is for drivers in Kubernetes (k8s://…, in cluster mode)'
            raise self.error(request.job, fact, "leave it out, or correct the cluster")
        if not processes.visible():
            why = "this system has no /proc: processes cannot be seen"
            return JobStatus(JobState.UNKNOWN, None, why)
        pids = self._processes(request)
        if pids:
            return JobStatus(JobState.RUNNING, str(pids[0]))
        if self.stop_options(request).get("pid_file"):
            return JobStatus(JobState.ABSENT)  # the spec names the process that it is
        stopped = self._notes.stopped(request)
        if stopped:
            return JobStatus(JobState.FINISHED, stopped[0], "stopped")
        master = self.master(None)
        if not is_local(master):
            why = "its driver may run in the cluster, or be started from another host"
            why = f"no process here is it, and with master {master} {why}"
            return JobStatus(JobState.UNKNOWN, None, why)
        named = processes.of_spark_naming(request.job, request.location)
        if named:
            why = "names it in its command line, and has no STATESHIFT_JOB and _CHECKPOINT"
            return JobStatus(JobState.UNKNOWN, str(named[0]), f"process {named[0]} {why}")
        return JobStatus(JobState.ABSENT)

    def try_start(self, submission: Submission) -> Trial:
        given = read_options(submission.options, self.takes.submit, "/submit")
        try:
            self.executable()
            refuse_missing(given, "/submit")
        except (ClusterError, SpecError) as error:
            return Trial(error.fact, error.hint)
        silent = spark_deploy.silent_master(self.master(submission.connection))
        if silent is not None:
            return Trial(silent, "start that master, or name another")
        application = str(given["application"])
        if application in IN_SPARK:
            return Trial()
        is_here = os.path.isabs(application) or application.startswith("file:")
        conf = {**settings(self.options.get("conf")), **settings(given.get("conf"))}
        has_more = any("jars" in key or "ClassPath" in key for key in conf)
        main_class = None if has_more else given.get("class")
        return self.try_application(application, main_class, is_here)

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        return processes.origin_of(self._processes(request), self.master(None))

    def has_begun(self, tag: str) -> bool:
        """Whether a process was started under the tag, whoever has its lock now."""
        return detached.trace(self._stem(tag)).started

    @contextmanager
    def turn(self, submission: Submission) -> Iterator[tuple[JobStatus, int | None]]:
        """Give the lock for the job's process; a holder without one submits, and is awaited."""
        stem = self._stem(submission.tag)
        with ExitStack() as held:

            def attempt() -> tuple[JobStatus, int | None] | None:
                status = self.find(submission.tag)
                if status.state is not JobState.ABSENT:
                    return (status, None) if status.id is not None else None
                lock = held.enter_context(detached.take_lock(stem))
                if lock is not None and not self.has_begun(submission.tag):
                    return status, lock
                held.close()  # somebody else is at it, or was: look again
                return None

            seconds_max = float(self.options.get("seconds_max", _SECONDS_MAX))
            taken = wait_for(attempt, seconds_max, self.interrupt)
            if taken is None:
                fact = "is being submitted by another process, which does not come to an end"
                raise self.error(submission.job, f"{submission.tag} {fact}")
            yield taken

    def prepare(self, submission: Submission, given: Options) -> Callable[[int | None], str]:
        master = self.master(submission.connection)
        conf = {**settings(self.options.get("conf")), **settings(given.get("conf"))}
        arguments = self._command(submission, given, master, conf)
        driver = None
        if self.mode(given) == "cluster":
            driver = spark_deploy.driver_in_cluster(master, conf)

        def start(lock: int | None) -> str:
            assert lock is not None
            stem = self._stem(submission.tag)
            self._notes.submitting(submission, driver)
            environment = self._environment(submission, given)
            log_command(_log, self.name, arguments)
            command = detached.DetachedCommand(arguments, environment, given.get("cwd"))
            process = detached.start(stem, command, lock)

            def is_known() -> bool | None:
                """Whether the process has written its number down, or has ended."""
                return detached.trace(stem).started or process.poll() is not None or None

            # Others know it by the number that it writes down itself: nobody shall hear of it
            # earlier.
            wait_for(is_known, 5.0)
            return str(detached.leave(process))

        return start

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        status = self._known(request)
        self._notes.stopping(request, self._processes(request))
        if status.state.alive and not self.stop_gracefully(request):
            self.kill_noted(request, status.id, lambda: self._kill(request))
            forget_marker(request, self.open_storage)  # it may have answered too late
        return self._known(request)

    def has_ended(self, request: StopRequest) -> bool:
        return not self.find_source(request).state.alive

    def log(self, tag: str, lines_max: int = 50) -> str:
        return last_lines(redact(detached.output_of(self._stem(tag)), os.environ), lines_max)

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        return failure_of(detached.output_of(self._stem(tag), bytes_max=LOG_BYTES), alive)

    def _known(self, request: StopRequest) -> JobStatus:
        """Return a job's status if it is known; a driver in the cluster outlives its launcher."""
        status, tag = self.find_source(request), request.tag
        if status.state is not JobState.UNKNOWN:
            return status
        driver = self._notes.deployed(tag)
        hint = "stop it by hand, and use a cluster of kind manual for the source"
        if tag is not None and driver is not None:
            ended = quote(str(self._notes.ended_path(tag)))
            kill = driver.to_kill(detached.output_of(self._stem(tag)))
            hint = f"end it: {kill}; once it is over: touch {ended}; "
            hint += "then: stateshift resume WORKDIR"
        fact = f"cannot tell whether {request.job} runs: {status.detail}"
        raise self.error(request.job, fact, hint)

    def _kill(self, request: StopRequest) -> None:
        tag, driver = request.tag, self._notes.deployed(request.tag)
        if tag is not None and driver is not None and self.find(tag).state.alive:
            # Without its launcher, the driver in the cluster would go on.
            kill = driver.to_kill(detached.output_of(self._stem(tag)))
            raise NotKilledError(
                f"{request.job} runs in the cluster ({driver.master}), did not answer the "
                "request to stop, and cannot be killed from here",
                cluster=self.name,
                job=request.job,
                hint=f"{kill}; then: stateshift resume WORKDIR",
            )
        self._signal(request, signal.SIGTERM)
        patience = float(self.options.get("kill_seconds", _KILL_SECONDS))
        if self.ends_within(patience, request):
            return
        self._signal(request, signal.SIGKILL)
        if not self.ends_within(_KILL_SECONDS, request):
            hint = f"look at it: ps -fp {self.find_source(request).id}"
            raise self.error(request.job, f"{request.job} is still there after SIGKILL", hint)

    def _signal(self, request: StopRequest, number: signal.Signals) -> None:
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

    def _processes(self, request: StopRequest) -> tuple[int, ...]:
        pid_file = self.stop_options(request).get("pid_file")
        if pid_file:
            return processes.of_pid_file(pid_file)
        tagged = processes.of_tag(request.tag) if request.tag is not None else ()
        return tagged or processes.of_job(request.job, request.location)

    def _command(
        self, submission: Submission, given: Options, master: str, conf: dict[str, str]
    ) -> list[str]:
        mode = self.mode(given)
        command = [str(self.executable()), "--master", master, "--deploy-mode", mode]
        command += ["--name", submission.job]
        if mode == "cluster":
            conf = conf | spark_deploy.identity_in_conf(master, submission, conf)
        for key, value in conf.items():
            command += ["--conf", f"{key}={fill(value, submission)}"]
        if self.options.get("java_options"):
            command += ["--driver-java-options", self.options["java_options"]]
        if given.get("class"):
            command += ["--class", given["class"]]
        if given.get("py_files"):
            command += ["--py-files", ",".join(given["py_files"])]
        return [*command, given["application"], *fill_arguments(given, submission)]

    def _environment(self, submission: Submission, given: Options) -> dict[str, str]:
        environment = dict(os.environ)
        home = home_of(self.executable())
        if home is not None and home == installed_pyspark():
            # pyspark's own script would use whatever `python3` and SPARK_HOME are around.
            environment["SPARK_HOME"] = str(home)
            environment["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
        if self.options.get("java_home"):
            environment["JAVA_HOME"] = self.options["java_home"]
        return {
            **environment,
            **settings(self.options.get("environment")),
            **settings(submission.environment),
            **settings(given.get("environment")),
            "STATESHIFT_TAG": submission.tag,
            "STATESHIFT_JOB": submission.job,
            "STATESHIFT_CHECKPOINT": submission.location,
        }

    def executable(self) -> Path:
        """Return its `spark-submit`; ClusterError if it is not on this machine."""
        return executable(self.options.get("spark_submit"))

    def _stem(self, tag: str) -> Path:
        return self.state_dir / detached.file_name(tag)

    @property
    def _notes(self) -> DriverNotes:
        return DriverNotes(self.state_dir, self.workdir)


class DriversElsewhere(SparkSubmit):
    """Drivers that a service runs, which knows them by our tag: `spark-submit` hands them over."""

    launcher: ClassVar[str] = "spark-submit"
    service: ClassVar[str]
    handed_over: ClassVar[str]  # what the service has done by then

    @abstractmethod
    def id_of(self, tag: str) -> str | None:
        """Return the id of the job that the service has under a tag."""

    @abstractmethod
    def of_tag(self, tag: str) -> JobStatus | None:
        """Return that job's status, for which the service may be asked more."""

    def hand_over(
        self, submission: Submission, given: Options, noted: Record
    ) -> Callable[[int | None], str]:
        """Return a start that is written down first. It ends once the service has the job, or
        spark-submit is over, and returns its id there, else the launcher's number.
        """
        begin, tag = SparkSubmit.prepare(self, submission, given), submission.tag

        def start(lock: int | None) -> str:
            self.notes.add(tag, begun=time.time(), **noted)
            pid = begin(lock)

            def accepted() -> str | None:
                is_over = detached.is_over(self._stem(tag))
                id = self.id_of(tag)
                if id is not None:
                    self.notes.add(tag, id=id)
                    return id
                return pid if is_over else None

            seconds_max = float(self.options.get("seconds_max", _HANDING_SECONDS))
            patient = through_outages(accepted, float(self.options.get("outage_seconds", 60.0)))
            return wait_for(patient, seconds_max, self.interrupt) or pid

        return start

    def settled(self, tag: str, record: Record, id: str) -> JobStatus:
        """Return the status of a job whose spark-submit was killed: the service may have it yet."""

        def look(over: bool) -> JobStatus | None:
            why = f"{self.launcher} ended before {self.handed_over}"
            return self.of_tag(tag) or (JobStatus(JobState.FAILED, id, why) if over else None)

        if "died" not in record:
            self.notes.add(tag, died=time.time())
        died = float((self.notes.read(tag) or record)["died"])
        settled = died + float(self.options.get("settle_seconds", _SETTLE_SECONDS))
        silent = JobStatus(JobState.UNKNOWN, id, f"{self.service} did not answer in time")
        return wait_until_settled(look, settled, self.interrupt) or silent

    def end_launcher(self, request: StopRequest) -> None:
        """Kill a spark-submit that has handed nothing over: nobody knows a job to stop yet."""
        tag, record = request.tag, self.notes.read(request.tag)
        if tag is None or record is None or "id" in record:
            return
        stem = self._stem(tag)
        if detached.trace(stem).held and self.id_of(tag) is None:
            self.notes.add_stopped(tag)
            self._signal(request, signal.SIGKILL)
            wait_for(lambda: not detached.is_held(stem) or None, _KILL_SECONDS, self.interrupt)


def installed_pyspark() -> Path | None:
    """Return the directory of the pyspark that this Python would import."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        return None
    return Path(spec.origin).parent


def executable(given: str | None) -> Path:
    """Return the `spark-submit` that is given, else pyspark's, SPARK_HOME's, or the PATH's."""
    if given is not None:
        path = shutil.which(os.path.expanduser(given))
        if path is None:
            hint = "correct the cluster's option spark_submit, or leave it out"
            raise ClusterError(f"no executable {given}", hint=hint)
        return Path(path).absolute()
    homes = (installed_pyspark(), os.environ.get("SPARK_HOME"))
    for home in filter(None, homes):
        submit = Path(str(home), "bin", "spark-submit")
        if submit.is_file():
            return submit
    path = shutil.which("spark-submit")
    if path is None:
        fact = "no spark-submit: not in an installed pyspark, not in SPARK_HOME, not on the PATH"
        hint = "pip install 'stateshift[spark]', or set the cluster's option spark_submit"
        raise ClusterError(fact, hint=hint)
    return Path(path)


def home_of(submit: Path) -> Path | None:
    """Return an executable's Spark home; None if it lies in none, as somebody's script."""
    above = submit.resolve().parent.parent
    pip = sorted(above.glob("lib/python3*/site-packages/pyspark"))
    for place in (above, *pip):
        if (place / "jars").is_dir():
            return place
    return None


def version_of(submit: Path) -> str | None:
    """Return the version of Spark that an executable starts; None if nothing says it."""
    home = home_of(submit)
    if home is None:
        return None
    for name, pattern in _VERSION_FILES:
        path = home / name
        if path.is_file():
            version = pattern.search(path.read_text("utf-8", "replace"))
            if version:
                return version[1]
    jars = sorted((home / "jars").glob("spark-core_*.jar"))
    names = (_CORE.fullmatch(jar.name) for jar in jars)
    return next((name[1] for name in names if name), None)


def check_submit(cluster: ClusterSpec, submit: Submit) -> None:
    """Refuse also a way to run the driver that this master does not have."""
    given = read_options(submit.options, SparkSubmit.takes.submit, submit.pointer)
    refuse_missing(given, submit.pointer)
    spark_deploy.refuse_impossible(
        spark_deploy.deploy_mode(cluster.options, given),
        master_of(cluster.options, submit.connection),
        str(given["application"]),
        submit.pointer,
    )
