"""Clusters of Spark, which start a job once for its tag, and stop it by its marker.

`TaggedCluster` has the order of a start: whoever has the tag's turn looks for its job, takes away
the marker that was meant for the one before it, and begins. `RemoteCluster` is one over a network:
an answer may be lost, and we may be killed before it comes. There, a start is written down before
it is begun (`noted`), and looked for afterwards.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import ClassVar, Generic, Self, TypeVar
from urllib.parse import unquote

from stateshift.clusters.http import Json, Refused, Unanswered, host_of
from stateshift.clusters.jars import complaints_about
from stateshift.clusters.kind import Surroundings
from stateshift.clusters.logged import logs_submission
from stateshift.clusters.noted import Notes, Record, digest, refuse_unknown, submission_url
from stateshift.clusters.options import Options, read_options
from stateshift.clusters.protocol import (
    JobFailure,
    JobState,
    JobStatus,
    StopRequest,
    Submission,
    Trial,
    UnknownAnswers,
)
from stateshift.clusters.spark_causes import LOG_LINES, failure_of
from stateshift.clusters.stopping import (
    GRACEFUL_SECONDS,
    OpenStorage,
    StopMarker,
    forget_marker,
    stop_options,
)
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError, StateshiftError
from stateshift.specification.location import scheme_named
from stateshift.specification.options import KindOptions

C = TypeVar("C")


class NotKilledError(ClusterError):
    """A cluster cannot kill a job, and has done nothing to it."""


_SETTLE_SECONDS = 60.0


@dataclass(frozen=True)
class TaggedCluster(UnknownAnswers, ABC):
    """A cluster of Spark's. `options` are checked already (`takes.cluster`)."""

    name: str
    state_dir: Path
    options: Options
    workdir: str = ""
    open_storage: OpenStorage | None = None
    interrupt: Event | None = None

    takes: ClassVar[KindOptions]

    @classmethod
    def open(cls, name: str, options: Options, surroundings: Surroundings) -> Self:
        return cls(
            name,
            surroundings.state_dir,
            options,
            str(surroundings.workdir.absolute()),
            surroundings.open_storage,
            surroundings.interrupt,
        )

    @property
    def kind(self) -> str:
        return self.takes.kind

    @property
    def notes(self) -> Notes:
        return Notes(self.state_dir)

    def error(self, job: str, fact: str, hint: str | None = None) -> ClusterError:
        return ClusterError(fact, cluster=self.name, job=job, hint=hint)

    @abstractmethod
    def find(self, tag: str) -> JobStatus: ...

    @abstractmethod
    def find_untagged(self, request: StopRequest) -> JobStatus:
        """Return the status of a source that is not there under the request's tag."""

    @abstractmethod
    def prepare(self, submission: Submission, given: Options) -> Callable[[int | None], str]:
        """Return the start itself. It takes the lock of its turn, and returns the job's id."""

    @abstractmethod
    def turn(self, submission: Submission) -> AbstractContextManager[tuple[JobStatus, int | None]]:
        """Give the status of the tag's job, which nobody else starts meanwhile, and any lock."""

    def find_source(self, request: StopRequest) -> JobStatus:
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        return self.find_untagged(request)

    @logs_submission
    def submit(self, submission: Submission) -> str:
        given = read_options(submission.options, self.takes.submit, "/submit")
        start = self.prepare(submission, given)
        with self.turn(submission) as (status, lock):
            if status.state is not JobState.ABSENT:
                return status.id or submission.tag
            # It was meant for the job before this one, and nobody came to take it away.
            forget_marker(StopRequest(submission.job, submission.location), self.open_storage)
            return start(lock)

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        return failure_of(self.log(tag, LOG_LINES), alive)

    @abstractmethod
    def log(self, tag: str, lines_max: int = 50) -> str: ...

    def stop_options(self, request: StopRequest) -> Options:
        return stop_options(request, self.options, self.takes.stop, self.takes.submit)

    def stop_gracefully(
        self, request: StopRequest, has_ended: Callable[[], bool] | None = None
    ) -> bool:
        """Whether the job ended by the marker; its request's time counts once it answers."""
        ended = has_ended or (lambda: self.has_ended(request))
        marker = StopMarker(request, request.seconds_max, self.open_storage)
        if not marker.possible:
            return False
        half = request.seconds_max / 2
        patience = float(self.stop_options(request).get("graceful_seconds", GRACEFUL_SECONDS))
        try:
            marker.write()
            answer = wait_for(
                lambda: ended() or marker.answered() or None,
                min(patience, half),
                self.interrupt,
            )
            over = wait_for(lambda: ended() or None, half, self.interrupt) if answer else None
            return bool(over)
        finally:
            marker.remove()

    def ends_within(self, seconds: float, request: StopRequest) -> bool:
        return bool(wait_for(lambda: self.has_ended(request) or None, seconds, self.interrupt))

    def has_ended(self, request: StopRequest) -> bool:
        state = self.find_source(request).state
        return not state.alive and state is not JobState.UNKNOWN

    def is_stopping(self, request: StopRequest) -> bool:
        killed = (self.notes.read(_kill_note(request)) or {}).get("id")
        if killed is None:
            return False
        status = self.find_source(request)
        return status.state.alive and status.id == killed

    def kill_noted(self, request: StopRequest, id: str | None, kill: Callable[[], None]) -> None:
        """Kill a job, which may take its time to end. A refusal leaves it as it is: not noted as
        one that is being stopped, nor as one that we have stopped.
        """
        self.notes.add(_kill_note(request), begun=time.time(), id=id)
        try:
            kill()
        except (Refused, NotKilledError):
            self.notes.add(_kill_note(request), id=None)
            if request.tag is not None and self.notes.read(request.tag) is not None:
                self.notes.add(request.tag, stopped=False)
            raise

    def end(self, request: StopRequest, kill: Callable[[str], None], look: str) -> JobStatus:
        """Stop a job and wait until it is not alive. `look` is how a person looks at a job that
        does not end, with {id} for its id. That it was stopped is noted before it is: a service
        may forget at once what it ends. A job that is still being submitted has no id to stop it
        by: it is waited for.
        """

        def submitted() -> JobStatus | None:
            seen = self.find_source(request)
            return None if seen.state.alive and seen.id is None else seen

        status = wait_for(submitted, request.seconds_max, self.interrupt)
        if status is None:
            fact = f"{request.job} is still being submitted after {request.seconds_max:g} s"
            raise self.error(request.job, fact, "once it is submitted: stateshift resume WORKDIR")
        refuse_unknown(status, request, self.name, self.notes)
        self.notes.add_stopped(request.tag)
        id = status.id
        if status.state.alive and id is not None:
            is_killed = not self.stop_gracefully(request)
            if is_killed:
                self.kill_noted(request, id, lambda: kill(id))
            if not self.ends_within(request.seconds_max, request):
                status = self.find_source(request)
                fact = f"{status.id}, the job {request.job}, is {status.state}"
                fact += f" {request.seconds_max:g} s after it was stopped"
                hint = f"look at it: {look.format(id=status.id)}"
                raise self.error(request.job, fact, hint)
            if is_killed:  # it may have answered too late
                forget_marker(request, self.open_storage)
        after = self.find_source(request)
        refuse_unknown(after, request, self.name, self.notes)
        return after

    def try_application(self, application: str, main_class: str | None, is_here: bool) -> Trial:
        """Look for an application and the class in its jar; elsewhere it is not known."""
        scheme, _, rest = application.rpartition(":")
        if "{" in application:
            return Trial(untried=f"{application} is known only when it is started")
        if scheme_named(scheme).everywhere_alike and self.open_storage is not None:
            folder, _, name = application.rpartition("/")
            try:
                if self.open_storage(folder).stat(name) is None:
                    return Trial(f"there is no {application}", 'correct "application"')
            except StateshiftError as error:
                return Trial(untried=f"{application} cannot be looked at from here: {error.fact}")
            return Trial()
        if not is_here or scheme not in ("", "file"):
            return Trial(untried=f"whether {application} is there is not known from here")
        path = Path(unquote(rest.removeprefix("//")) if scheme else application)
        if not path.is_file():
            return Trial(f"there is no {application}", 'correct "application"')
        if path.suffix == ".jar" and main_class is not None:
            for complaint in complaints_about(path, main_class, ""):
                return Trial(complaint.message, 'correct "class"')
        return Trial()


def _kill_note(request: StopRequest) -> str:
    return f"{request.tag or digest(request.location.rstrip('/'))}.killed"


class RemoteCluster(TaggedCluster, Generic[C]):
    """A cluster behind HTTP calls C; `forgotten` is why it does not know a job any more."""

    forgotten: ClassVar[str]

    @abstractmethod
    def calls(self, record: Record | None) -> C:
        """Return the calls of where the record's job was submitted, else of the cluster."""

    @abstractmethod
    def status_of(self, calls: C, id: str) -> JobStatus | None:
        """Return the status of the job with this id; None where the cluster knows of none."""

    @abstractmethod
    def find_unanswered(self, calls: C, tag: str, begun: float | None) -> JobStatus:
        """Look for a tag's job without an id: until `settle_seconds` after `begun` it may come."""

    @abstractmethod
    def body(self, calls: C, submission: Submission, given: Options) -> Json:
        """Return the body of the request that starts the job."""

    @abstractmethod
    def create(self, calls: C, tag: str, body: Json) -> str:
        """Start the job and return its id."""

    @property
    def settle_seconds(self) -> float:
        return float(self.options.get("settle_seconds", _SETTLE_SECONDS))

    def host(self, connection: str | None = None) -> str | None:
        return host_of(connection or str(self.options["url"]))

    def find(self, tag: str) -> JobStatus:
        record = self.notes.read(tag)
        calls = self.calls(record)
        if record is None:
            return self.find_unanswered(calls, tag, None)
        if record.get("id") is None:
            return self.find_unanswered(calls, tag, float(record["begun"]))
        id = str(record["id"])
        status = self.status_of(calls, id)
        if record.get("stopped") and (status is None or status.state is JobState.FAILED):
            return JobStatus(JobState.FINISHED, id, "stopped")
        return status or JobStatus(JobState.UNKNOWN, id, self.forgotten)

    def prepare(self, submission: Submission, given: Options) -> Callable[[int | None], str]:
        def start(lock: int | None) -> str:
            record: Record = {
                "begun": time.time(),
                "url": submission_url(submission, str(self.options["url"])),
                "options": dict(submission.options),
            }
            calls = self.calls(record)
            body = self.body(calls, submission, given)
            self.notes.add(submission.tag, **record)
            try:
                id = self.create(calls, submission.tag, body)
            except Unanswered:
                status = self.find(submission.tag)  # waits until it is settled
                if status.id is None:
                    raise
                id = status.id
            self.notes.add(submission.tag, id=id)
            return id

        return start
