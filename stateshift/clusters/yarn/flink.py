"""Flink jobs on YARN. An application is a job (application mode): `flink run` of this machine
starts it, the ResourceManager finds and ends it, and its JobManager, which the ResourceManager
names, is asked for everything else. With a `session`, that takes the jobs as a cluster of
`flink_rest` does.

    <state_dir>/<tag>.*                 of `flink run`, as of `spark-submit`: see `cluster`
    <state_dir>/<job>.application.json  {"id"}: the application that was last seen with the job

A job's id is a digest of its tag, which the application is given
(`$internal.pipeline.job-id`, as flink-kubernetes-operator gives it). The application carries the
two tags of YARN that those of Spark carry, too. A job that somebody else has started is looked for
at each JobManager of an application that runs.

A JobManager's address is asked of YARN for each request: YARN may start it again elsewhere, and one
that is silent has ended only where YARN says so of its application. (apache/flink:
YarnResourceManagerDriver registers host and port of its REST API, which AppInfo calls
amRPCAddress.)
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from stateshift.clusters.flink.calls import OUTAGE_SECONDS, FlinkCalls
from stateshift.clusters.flink.causes import cause_of
from stateshift.clusters.flink.cluster import FlinkRest, check_jar
from stateshift.clusters.flink.jobs import (
    job_id,
    job_to_stop,
    jobs_of_name,
    live_jobs,
    log_of,
    progress_of,
    running_of,
    status_of,
)
from stateshift.clusters.flink.submit import read_submit
from stateshift.clusters.flink.values import Job, is_job_id, release_of
from stateshift.clusters.http import Over, Refused, Unanswered, through_outages
from stateshift.clusters.kind import ClusterKind, Submit, Surroundings
from stateshift.clusters.logged import logs_stop
from stateshift.clusters.noted import Record, fill, fill_arguments, noted_origin, refuse_unknown
from stateshift.clusters.options import Options, as_text, read_options, settings
from stateshift.clusters.protocol import (
    Cluster,
    JobProgress,
    JobState,
    JobStatus,
    Origin,
    RunningJob,
    Slots,
    StopRequest,
    Submission,
    Trial,
)
from stateshift.clusters.redaction import last_lines
from stateshift.clusters.spark_submit.deploy import DeployMode
from stateshift.clusters.stopping import stop_options
from stateshift.clusters.waiting import wait_for
from stateshift.clusters.whole_files import read_object, write_object
from stateshift.clusters.yarn.calls import Application, YarnCalls
from stateshift.clusters.yarn.cluster import PLACE, Yarn, current, mark, place
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import KindOptions, options_of
from stateshift.survey import LiveJob

T = TypeVar("T")
_TAKES: Final = options_of("flink_yarn")
_TYPE: Final = "Apache Flink"
_TAGS: Final = "yarn.tags"
_DIST: Final = re.compile(r"flink-dist-(\d.*)\.jar")
_PASSED_ON: Final = ("request_seconds", "outage_seconds", "flink_configuration")


@dataclass(frozen=True)
class JobManagerCalls(FlinkCalls):
    """The calls of the JobManager of an application, wherever YARN says that it is."""

    yarn: YarnCalls | None = field(default=None, repr=False)
    application: str = ""

    def place(self, path: str) -> str:
        assert self.yarn is not None
        now = self.yarn.application(self.application)
        if now is not None and now.job_state.alive:
            if now.state == "RUNNING" and now.address is not None:
                return f"http://{now.address}{path}"
            fact = f"{now.id} is {now.state} in YARN, and its JobManager has yet to start"
            raise Unanswered(fact, cluster=self.cluster)
        if now is None:
            fact = f"YARN does not know {self.application} (any more)"
            hint = f"look for its end: yarn logs -applicationId {self.application}"
            raise Unanswered(fact, cluster=self.cluster, hint=hint)
        raise Over(f"{now.id} is over: {now.state}, {now.final}", cluster=self.cluster)

    def has_gone(self, silent: Unanswered) -> bool:
        return self.of_one_application and isinstance(silent, Over)

    def unless_gone(self, ask: Callable[[], T], gone: T) -> T:
        """Return an answer. One that is silent is waited for, until YARN says that it is over."""
        assert self.yarn is not None
        answered = partial(super().unless_gone, ask, gone)
        look = through_outages(lambda: (answered(),), self.outage_seconds)
        answer = wait_for(look, self.outage_seconds + 60.0, self.yarn.interrupt)
        return gone if answer is None else answer[0]


class FlinkApplications(Yarn):
    """The applications that `flink run` starts, as YARN has them."""

    takes: ClassVar[KindOptions] = _TAKES
    launcher: ClassVar[str] = "flink"
    queue_key: ClassVar[str] = "yarn.application.queue"
    log_files: ClassVar[tuple[str, ...]] = (
        "jobmanager.out",
        "jobmanager.err",
        "jobmanager.log",
    )

    def mode(self, given: Options) -> DeployMode:
        return "cluster"

    def executable(self) -> Path:
        given = str(self.options.get("flink", "flink"))
        found = shutil.which(os.path.expanduser(given))
        if found is None:
            hint = 'name it in the option "flink" of the cluster'
            raise ClusterError(f"no executable {given}", cluster=self.name, hint=hint)
        return Path(found).absolute()

    def version(self) -> str | None:
        """Return the version of the distribution that the executable is of."""
        with suppress(ClusterError):
            for jar in self.executable().resolve().parent.parent.glob("lib/flink-dist-*.jar"):
                named = _DIST.fullmatch(jar.name)
                if named is not None:
                    return named[1]
        return None

    def try_start(self, submission: Submission) -> Trial:
        try:
            self.executable()
        except ClusterError as error:
            return Trial(error.fact, error.hint)
        refused = self.refused_here(submission)
        return refused if refused.refused else Trial(untried="flink run has no trial")

    def _settings(self, submission: Submission, given: Options) -> dict[str, str]:
        conf = {
            **settings(self.options.get("flink_configuration")),
            **settings(given.get("flink_configuration")),
            "yarn.application.name": submission.job,
            "$internal.pipeline.job-id": job_id(submission.tag),
        }
        tags = (conf.get(_TAGS), mark(submission.tag), place(submission.location))
        conf[_TAGS] = ",".join(filter(None, tags))
        if given.get("queue"):
            conf[self.queue_key] = str(given["queue"])
        return conf

    def _command(
        self, submission: Submission, given: Options, master: str, conf: dict[str, str]
    ) -> list[str]:
        # `run` takes this target from 2.0 on: before, it finds no executor for it.
        is_old = release_of(self.version() or "2.0") < (2, 0)
        command = [str(self.executable()), "run-application" if is_old else "run"]
        command += ["-t", "yarn-application"]
        command += [f"-D{key}={fill(value, submission)}" for key, value in conf.items()]
        if submission.location:
            claim = str(given.get("claim_mode", "no_claim")).upper()
            command += ["-s", submission.location, "-rm", claim]
            command += ["-n"] if given.get("allow_non_restored_state") else []
        if "entry_class" in given:
            command += ["-c", str(given["entry_class"])]
        if "parallelism" in given:
            command += ["-p", str(given["parallelism"])]
        arguments = [as_text(argument) for argument in given.get("arguments", ())]
        return [*command, str(given["jar"]), *fill_arguments({"arguments": arguments}, submission)]


class OnYarn(FlinkRest):
    """What applications and sessions have alike: YARN has put their JobManagers anywhere."""

    @property
    def kind(self) -> str:
        return _TAKES.kind

    def host(self, connection: str | None = None) -> str | None:
        return None  # whichever YARN chooses

    @property
    def yarn(self) -> YarnCalls:
        return YarnCalls(self.name, self.options, self.interrupt)

    def _manager(self, application: str, is_session: bool = False) -> JobManagerCalls:
        """Return the calls of an application's JobManager: no credentials of YARN go there."""
        options = {key: self.options[key] for key in _PASSED_ON if key in self.options}
        options |= {} if is_session else {"application": True}
        url = f"the JobManager of {application}"
        return JobManagerCalls(self.name, url, options, yarn=self.yarn, application=application)


class SessionOnYarn(OnYarn):
    """A session: an application that takes jobs by its REST API."""

    def _calls(self, record: Record | None, job: str = "") -> FlinkCalls:
        named = str(self.options["session"])
        if named.startswith("application_"):
            return self._manager(named, is_session=True)
        alive = [each for each in self.yarn.alive() if each.name == named]
        ids = [each.id for each in alive if each.type.startswith(_TYPE)]
        if len(ids) != 1:
            shown = f": {', '.join(ids)}" if ids else ""
            fact = f"{len(ids)} applications of Flink called {named!r} run in YARN{shown}"
            hint = 'start the session, or name one by its id: "session": "application_…"'
            raise ClusterError(fact, cluster=self.name, hint=hint)
        return self._manager(ids[0], is_session=True)


@dataclass(frozen=True)
class FlinkOnYarn(OnYarn):
    """Jobs of which each is an application. See the module."""

    workdir: str = ""

    @property
    def applications(self) -> FlinkApplications:
        around = (self.workdir, None, self.interrupt)
        return FlinkApplications(self.name, self.state_dir, self.options, *around)

    def version(self) -> str | None:
        return self.applications.version()

    # ---- finding

    def find(self, tag: str) -> JobStatus:
        """Return the status of a tag's job: the JobManager's while it answers, else YARN's."""

        def look() -> JobStatus | None:
            status = self.applications.find(tag)
            application = None if status.id is None else self._application(status.id)
            if application is None:
                return status
            if status.state is not JobState.RUNNING:
                return self._of_application(application, status)
            calls = self._manager(application.id)
            try:
                job = calls.job(job_id(tag))
            except Over:
                return None  # by now: YARN says how it ended
            if job is None:
                return replace(status, state=JobState.QUEUED, detail="its JobManager is up")
            is_stopped = bool((self._notes.read(tag) or {}).get("stopped"))
            return self._noted(calls, status_of(calls, job, is_stopped))

        seconds = self._outage_seconds
        found = wait_for(through_outages(look, seconds), seconds + 60.0, self.interrupt)
        return found or JobStatus(JobState.UNKNOWN, None, "neither YARN nor its JobManager tells")

    def find_source(self, request: StopRequest) -> JobStatus:
        """Return the status of the source; of several ids, of one that is alive, if there is. One
        that is over by now is known by what was noted of it, or by the name of its application.
        """
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        ids, name = self._named(request)
        sources = self._found(request)
        alive = [each for each in sources if each[1].state.alive]
        if len(alive) > 1 and not ids:
            listed = ", ".join(f'"{job.id}" ({calls.application})' for calls, job in alive)
            fact = f"{len(alive)} jobs called {name!r} run in YARN: {listed}"
            hint = 'say which: "stop": {"job_id": …}'
            raise ClusterError(fact, cluster=self.name, job=request.job, hint=hint)
        if sources:
            calls, job = (alive or sources)[0]
            return self._noted(calls, status_of(calls, job, False))
        over = [read_object(self._note(id)) or {} for id in ids]
        known = [self._application(str(each["id"])) for each in over if "id" in each]
        ended = [each for each in known if each is not None]
        if ended:
            return self._of_application(ended[-1], JobStatus(ended[-1].job_state, ids[-1]))
        return JobStatus(JobState.ABSENT)

    def _named(self, request: StopRequest) -> tuple[list[str], str]:
        """Return the ids of the spec, and the name that counts where there are none."""
        options = stop_options(request, self.options, _TAKES.stop, _TAKES.submit)
        ids = [*map(str, options.get("job_ids", ()))]
        if "job_id" in options:
            ids.append(str(options["job_id"]))
        return ids, str(options.get("job_name", request.job))

    def _found(self, request: StopRequest) -> list[tuple[JobManagerCalls, Job]]:
        """Return the jobs of a request, whose JobManagers answer. One that was started from another
        image is not it.
        """
        ids, name = self._named(request)
        found = []
        for wanted in ids or [name]:
            for application, calls, job in self._looked_up(wanted):
                places = [tag for tag in application.tags if tag.startswith(PLACE)]
                if ids or not places or place(request.location) in places:
                    found.append((calls, job))
        return found

    def _looked_up(self, wanted: str) -> list[tuple[Application, JobManagerCalls, Job]]:
        """Return the jobs with this id, else name, of all applications. Where none has it, one that
        is silent may: it is waited for until it answers, or YARN says that it is over.
        """

        def look() -> list[tuple[Application, JobManagerCalls, Job]]:
            found, silent = [], None
            for application in self._running():
                calls = self._manager(application.id)
                try:
                    by_id = calls.job(wanted) if is_job_id(wanted) else None
                    jobs = [by_id] if by_id is not None else jobs_of_name(calls, wanted)
                except Over:
                    continue
                except Unanswered as error:
                    silent = error
                    continue
                found += [(application, calls, job) for job in jobs]
            if not found and silent is not None:
                raise silent
            return found

        seconds = self._outage_seconds
        return wait_for(through_outages(look, seconds), seconds + 60.0, self.interrupt) or []

    def _running(self) -> list[Application]:
        alive = [each for each in self.yarn.alive() if each.type.startswith(_TYPE)]
        return [each for each in alive if each.state == "RUNNING"]

    def _calls(self, record: Record | None, job: str = "") -> JobManagerCalls:
        """Return the calls of the JobManager that has the job, or had it when it was last seen."""
        found = self._looked_up(job)
        if len(found) > 1:
            ids = ", ".join(application.id for application, _, _ in found)
            fact = f"several applications have a job {job}: {ids}"
            hint = 'name one by kind "flink_rest", "application": true, at its amRPCAddress'
            raise ClusterError(fact, cluster=self.name, job=job, hint=hint)
        if found:
            self._noted(found[0][1], JobStatus(JobState.RUNNING, job))
            return found[0][1]
        noted = read_object(self._note(job))
        if noted is not None:
            return self._manager(str(noted["id"]))
        running = ", ".join(f"{each.id} ({each.name})" for each in self._running())
        fact = f"no JobManager in YARN knows a job {job}"
        hint = f"applications of Flink that run: {running or 'none'}"
        raise ClusterError(fact, cluster=self.name, job=job, hint=hint)

    @property
    def _outage_seconds(self) -> float:
        return float(self.options.get("outage_seconds", OUTAGE_SECONDS))

    def _note(self, job: str) -> Path:
        return self.state_dir / f"{job}.application.json"

    def _noted(self, calls: JobManagerCalls, status: JobStatus) -> JobStatus:
        """Note the application of a job, which is not to be found by it once it is over."""
        if status.id is not None and (read_object(self._note(status.id)) or {}) != {
            "id": calls.application
        }:
            write_object(self._note(status.id), {"id": calls.application})
        return status

    def _application(self, id: str) -> Application | None:
        return self.yarn.application(id) if id.startswith("application_") else None

    def _of_application(self, application: Application, status: JobStatus) -> JobStatus:
        """Return a status with the cause in the words of the JobManager, which YARN keeps where it
        has said them: where it was not heard of again, the words are YARN's own.
        """
        if application.state != "FINISHED":
            return status
        if application.final == "KILLED":
            return replace(status, state=JobState.FINISHED, detail="cancelled")
        cause = cause_of(application.diagnostics) if status.state is JobState.FAILED else None
        return status if cause is None else replace(status, detail=cause.fact)

    def running(self, job: str) -> tuple[RunningJob, ...]:
        def ask(calls: JobManagerCalls, job: Job) -> tuple[RunningJob, ...]:
            return (running_of(calls, job),)

        jobs: list[RunningJob] = []
        for _, calls, each in self._looked_up(job):
            jobs += calls.unless_gone(partial(ask, calls, each), ())
        return tuple(jobs)

    def where(self, job: str, is_id: bool) -> tuple[FlinkCalls, str]:
        found = [(calls, each) for _, calls, each in self._looked_up(job) if each.state.alive]
        if len(found) != 1:
            listed = "".join(f"; {each.id} in {calls.application}" for calls, each in found)
            fact = f"{len(found)} jobs of the id or name {job} run in YARN{listed}"
            raise ClusterError(fact, cluster=self.name, job=job)
        return found[0][0], found[0][1].id

    def alive(self) -> tuple[RunningJob, ...]:
        jobs: list[RunningJob] = []
        for application in self._running():
            calls = self._manager(application.id)
            jobs += calls.unless_gone(calls.alive, ())
        return tuple(jobs)

    def live(self) -> tuple[LiveJob, ...]:
        """Return the jobs that run, with what they have written."""
        jobs: list[LiveJob] = []
        for application in self._running():
            calls = self._manager(application.id)
            jobs += calls.unless_gone(partial(live_jobs, calls), ())
        return tuple(jobs)

    def ended_as(self, name: str) -> str | None:
        return None  # YARN does not list the jobs of what is over

    def slots(self) -> Slots | None:
        return None  # each application makes its own

    def given_settings(self) -> dict[str, str]:
        return settings(self.options.get("flink_configuration"))

    def jars(self) -> Mapping[str, str] | None:  # type: ignore[override]
        return None

    # ---- starting and stopping

    def submit(self, submission: Submission) -> str:
        self.applications.submit(submission)
        return job_id(submission.tag)

    def try_start(self, submission: Submission) -> Trial:
        return self.applications.try_start(submission)

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        alive = [calls for calls, job in self._found(request) if job.state.alive]
        if len(alive) != 1:
            return Origin(why=f"{len(alive)} jobs run there, and one is started again")
        why = "neither YARN nor Flink tells what an application was started with"
        return noted_origin(self._notes, alive[0].application, why)

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        """Cancel a job, which ends its application. One of ours that does not end so is killed by
        YARN; another's may be a session with more jobs, and is left.
        """
        applications = self.applications
        applications.end_launcher(request)
        status = job_to_stop(self, request)
        refuse_unknown(status, request, self.name, self._notes)
        self._notes.add_stopped(request.tag)
        id = status.id
        if not status.state.alive or id is None:
            return status
        calls = self._calls(None, id) if is_job_id(id) else None
        application = id if calls is None else calls.application
        known = self._application(application)
        is_ours = known is not None and any(tag.startswith(PLACE) for tag in known.tags)
        if calls is not None:
            patience = min(60.0, request.seconds_max / 2) if is_ours else request.seconds_max
            ended = through_outages(partial(self._has_ended, calls, id, is_ours), patience)
            with suppress(Unanswered, Refused):
                calls.cancel(id)
                wait_for(ended, patience, self.interrupt)
        if is_ours and not applications.kill_applications(application, request):
            fact = f"{application}, the job {request.job}, still runs {request.seconds_max:g} s "
            hint = f"look at it: yarn application -status {application}"
            raise ClusterError(
                f"{fact}after it was killed", cluster=self.name, job=request.job, hint=hint
            )
        status = job_to_stop(self, request)
        if status.state.alive and not is_ours:
            fact = (
                f"{id}, the job {request.job}, still runs {request.seconds_max:g} s after it was "
            )
            fact += f"cancelled, in {application}, which stateshift has not started"
            hint = f"if nothing else runs in it: yarn application -kill {application}"
            raise ClusterError(fact, cluster=self.name, job=request.job, hint=hint)
        return status

    def _has_ended(self, calls: JobManagerCalls, id: str, is_ours: bool) -> bool | None:
        """Whether the application of a job is over; of another's application, the job."""
        now = self._application(calls.application)
        if now is None or not now.job_state.alive:
            return True
        if is_ours:
            return None
        job = calls.job(id)
        return None if job is not None and job.state.alive else True

    def log(self, tag: str, lines_max: int = 50) -> str:
        """Return the exceptions of a job while its JobManager answers, else the end of its log."""
        application = current(self.yarn.tagged(mark(tag)))
        if application is not None and application.state == "RUNNING":
            with suppress(Refused, Unanswered):
                return last_lines(log_of(self._manager(application.id), job_id(tag)), lines_max)
        return self.applications.log(tag, lines_max)

    def progress(self, tag: str) -> JobProgress:
        application = current(self.yarn.tagged(mark(tag)))
        if application is None or application.state != "RUNNING":
            return JobProgress(None, None, None, False)
        return progress_of(self._manager(application.id), self._notes, tag, job_id(tag))


def _open(name: str, options: Options, around: Surroundings) -> Cluster:
    known = (name, around.state_dir, options, around.interrupt)
    if "session" in options:
        return SessionOnYarn(*known)
    workdir = str(around.workdir.absolute())
    return FlinkOnYarn(*known, workdir=workdir)


def check_submit(cluster: ClusterSpec, submit: Submit) -> None:
    """Refuse what would show only once the old job has been stopped."""
    given = read_options(submit.options, _TAKES.submit, submit.pointer)
    is_session = "session" in cluster.options
    for option in ("queue",) if is_session else ("jar_id",):
        if option in given:
            fact = "a session has its own" if is_session else "an application brings its jar along"
            place = f"{submit.pointer}/{option}"
            raise SpecError((Complaint(place, fact, given[option], "none"),))
    if submit.connection:
        pointer = f"{submit.pointer.rpartition('/')[0]}/remote_connection"
        fact = "YARN is found by HADOOP_CONF_DIR and its url, and not by an address"
        expected = "none: each YARN is a cluster of its own"
        raise SpecError((Complaint(pointer, fact, submit.connection, expected),))
    others = {key: value for key, value in submit.options.items() if key != "queue"}
    check_jar(read_submit(others, submit.pointer, cluster.options), submit.pointer)


KIND = ClusterKind(_TAKES.kind, _TAKES.cluster, _open, check_submit)
