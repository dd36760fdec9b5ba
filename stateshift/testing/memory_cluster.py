"""The in-memory twin: a cluster whose jobs are values, for contract tests and simulation.
Deterministic, no clock.

It counts itself what was really started, per tag, and can be made to misbehave:

    fail(n)          the next n submissions are refused before they have any effect
    lose_answers(n)  the next n submissions take effect, and the answer is lost
    delay(n)         the next n submissions get no answer, and take effect when somebody looks the
                     next time
    set_state(...)   what a job is from now on, whatever happened to it

One object is the cluster: it outlives the simulated process that talks to it. It may be used by
several threads.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from stateshift.clusters.protocol import JobFailure, JobState, JobStatus, StopRequest, Submission
from stateshift.clusters.spark_causes import failure_of
from stateshift.errors import ClusterError

Fault = Literal["fail", "lose", "delay"]


@dataclass(frozen=True, slots=True)
class MemoryJob:
    """One job of the in-memory cluster; `tag` is None where somebody else started it."""

    job: str
    location: str
    tag: str | None
    status: JobStatus


class MemoryCluster:
    """An in-memory cluster for tests, whose submissions fail, or come late, on request."""

    def __init__(
        self,
        name: str = "memory",
        version: str | None = "4.3.0",
        on_start: Callable[[Submission], None] | None = None,
        on_stop: Callable[[StopRequest], None] | None = None,
    ) -> None:
        self.name = name
        self.kind = "memory"
        self.started: Counter[str] = Counter()  # jobs really started, per tag
        self.submissions: list[Submission] = []  # those that took effect, in order
        self.stops: list[StopRequest] = []  # those that stopped a job
        self.jobs: list[MemoryJob] = []
        self._lock = threading.RLock()
        self._version = version
        self._on_start, self._on_stop = on_start, on_stop
        self._faults: deque[Fault] = deque()
        self._delayed: list[Submission] = []

    def version(self) -> str | None:
        return self._version

    def host(self, connection: str | None = None) -> str | None:
        return ""

    def reaches(self, location: str) -> bool | None:
        return True

    def find(self, tag: str) -> JobStatus:
        with self._lock:
            self._settle()
            job = next((job for job in self.jobs if job.tag == tag), None)
            return job.status if job is not None else JobStatus(JobState.ABSENT)

    def find_source(self, request: StopRequest) -> JobStatus:
        with self._lock:
            self._settle()
            meant = [job.status for job in self.jobs if self._meant(job, request)]
            if not meant:
                return JobStatus(JobState.ABSENT)
            alive = [status for status in meant if status.state.alive]
            return (alive or meant)[-1]

    def submit(self, submission: Submission) -> str:
        with self._lock:
            status = self.find(submission.tag)
            if status.state is not JobState.ABSENT:
                return status.id or submission.tag
            fault = self._faults.popleft() if self._faults else None
            if fault == "fail":
                raise self._no_answer(submission, "refused")
            if fault == "delay":
                self._delayed.append(submission)
                raise self._no_answer(submission, "not answered in time")
            id = self._start(submission)
            if fault == "lose":
                raise self._no_answer(submission, "accepted, but the answer was lost")
            return id

    def stop(self, request: StopRequest) -> JobStatus:
        with self._lock:
            self._settle()
            for index, job in enumerate(self.jobs):
                if job.status.state.alive and self._meant(job, request):
                    stopped = replace(job.status, state=JobState.FINISHED, detail="stopped")
                    self.jobs[index] = replace(job, status=stopped)
                    self.stops.append(request)
                    if self._on_stop is not None:
                        self._on_stop(request)
            return self.find_source(request)

    def log(self, tag: str, lines_max: int = 50) -> str:
        detail = self.find(tag).detail
        return "\n".join((detail or "").splitlines()[-lines_max:]) if lines_max > 0 else ""

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        return failure_of(self.find(tag).detail or "", alive)

    def run(self, job: str, location: str) -> None:
        self.jobs.append(MemoryJob(job, location, None, JobStatus(JobState.RUNNING, f"{job}-0")))

    def set_state(self, tag: str, state: JobState, detail: str | None = None) -> None:
        with self._lock:
            self._settle()
            index = next(i for i, job in enumerate(self.jobs) if job.tag == tag)
            status = replace(self.jobs[index].status, state=state, detail=detail)
            self.jobs[index] = replace(self.jobs[index], status=status)

    def fail(self, times: int = 1) -> None:
        self._faults.extend(["fail"] * times)

    def lose_answers(self, times: int = 1) -> None:
        self._faults.extend(["lose"] * times)

    def delay(self, times: int = 1) -> None:
        self._faults.extend(["delay"] * times)

    def _settle(self) -> None:
        """Start what was under way: `find` never says `absent` before that."""
        while self._delayed:
            self._start(self._delayed.pop(0))

    def _start(self, submission: Submission) -> str:
        self.started[submission.tag] += 1
        self.submissions.append(submission)
        id = f"{submission.job}-{len(self.submissions)}"
        status = JobStatus(JobState.RUNNING, id)
        self.jobs.append(MemoryJob(submission.job, submission.location, submission.tag, status))
        if self._on_start is not None:
            self._on_start(submission)
        return id

    def _meant(self, job: MemoryJob, request: StopRequest) -> bool:
        """Whether the request means a job: by the tag if it is ours, else by name and place."""
        tags = {other.tag for other in self.jobs}
        if request.tag is not None and request.tag in tags:
            return job.tag == request.tag
        return (job.job, job.location) == (request.job, request.location)

    def _no_answer(self, submission: Submission, fact: str) -> ClusterError:
        return ClusterError(f"{submission.tag} was {fact}", cluster=self.name, job=submission.job)
