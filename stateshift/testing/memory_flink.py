"""The in-memory twin of a cluster that writes savepoints: jobs are values, and a savepoint is what
a test says it is.

    cluster = MemoryFlink(take=...)     take(location) puts an image there
    cluster.run("orders", "orders-id")  a job that somebody else started; its id is what it is known
                                        by
    lose_savepoints(n)                  the next n savepoints are taken, and the answer is lost
    slow_savepoints(n)                  the next n savepoints are still under way when we give up
    fails_behind                        why a job that is to stop fails once its savepoint is whole
    hopeless                            why those that it starts get no further
    only_native                         why its jobs write no canonical savepoint; `natives`: what
                                        was asked for
    settings, vertices                  of its jobs; `places` and `uploaded` are its slots and its
                                        jars
    cluster.complete                    () -> where the checkpoint is that the job completes now;
                                        `latest` the last one

A job that is restored has completed a checkpoint as soon as somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stateshift.clusters.protocol import (
    CheckpointRequest,
    JobProgress,
    JobState,
    JobStatus,
    RunningJob,
    SavepointRequest,
    Slots,
    StopRequest,
    Submission,
)
from stateshift.errors import ClusterError
from stateshift.testing.memory_cluster import MemoryCluster, MemoryJob


class MemoryFlink(MemoryCluster):
    """An in-memory cluster for tests that takes savepoints: `take(location)` writes one."""

    def __init__(
        self, take: Callable[[str], None], on_start: Callable[[Submission], None] | None = None
    ) -> None:
        super().__init__(version="2.3.0", on_start=on_start)
        self.savepoints: dict[str, str] = {}  # by tag
        self.epoch = 1_000
        self.latest: str | None = None
        self.fails_behind: str | None = None
        self.only_native: str | None = None
        self.hopeless: str | None = None
        self.natives: list[bool] = []
        self.settings: dict[str, object] = {}
        self.vertices: dict[str, tuple[str, int, int]] = {}
        self.places: Slots | None = None
        self.uploaded: dict[str, str] | None = None
        self.complete: Callable[[], str] | None = None
        self._take = take
        self._lost = 0
        self._slow = 0
        self._under_way: SavepointRequest | None = None

    def run(self, job: str, location: str) -> None:
        """`location` is its id: what it was started from is nobody's business."""
        self.jobs.append(MemoryJob(job, "", None, JobStatus(JobState.RUNNING, location)))

    def lose_savepoints(self, times: int = 1) -> None:
        self._lost += times

    def slow_savepoints(self, times: int = 1) -> None:
        self._slow += times

    def running(self, job: str) -> tuple[RunningJob, ...]:
        with self._lock:
            meant = [known for known in self.jobs if job in (known.status.id, known.job)]
            return tuple(
                replace(_running(known), settings=self.settings, vertices=self.vertices)
                for known in meant
            )

    def alive(self) -> tuple[RunningJob, ...]:
        with self._lock:
            return tuple(_running(job) for job in self.jobs if job.status.state.alive)

    def ended_as(self, name: str) -> str | None:
        with self._lock:
            states = [job.status.state for job in self.jobs if job.job == name]
        ended = [state.value for state in states if not state.alive]
        return ended[-1] if ended else None

    def no_canonical(self, job_id: str) -> str | None:
        return self.only_native

    def slots(self) -> Slots | None:
        return self.places

    def jars(self) -> dict[str, str] | None:
        return self.uploaded

    def savepoint(self, request: SavepointRequest) -> str:
        self.natives.append(request.native)
        if self._slow:
            self._slow -= 1
            self._under_way = request
            raise ClusterError("it takes long", cluster=self.name, job=request.job_id)
        self._under_way = None

        def take() -> str:
            location = f"{request.directory}/savepoint-{len(self.savepoints) + 1}"
            self._take(location)
            return location

        ends = JobState.FINISHED if request.stop or request.cancel else None
        if request.stop and self.fails_behind:
            ends = JobState.FAILED
        return self._taken(request.tag, request.job_id, take, ends)

    def failed_behind(self, request: SavepointRequest) -> str | None:
        return self.fails_behind if request.stop else None

    def is_ending(self, request: SavepointRequest | CheckpointRequest) -> bool:
        """Return whether its savepoint is under way, and let it be taken then."""
        if self._under_way is None or self._under_way != request:
            return False
        self.savepoint(self._under_way)
        return True

    def latest_checkpoint(self, job_id: str) -> str | None:
        """Return the last one; a job that has ended completes no more."""
        return self.latest

    def checkpoint(self, request: CheckpointRequest) -> str:
        def complete() -> str:
            if self.complete is None:
                raise ClusterError(
                    "its checkpoints are deleted when it is cancelled", cluster=self.name
                )
            self.latest = self.complete()
            return self.latest

        return self._taken(request.tag, request.job_id, complete, JobState.FAILED)

    def _taken(self, tag: str, job_id: str, take: Callable[[], str], ends: JobState | None) -> str:
        """Take an image once per tag; the job then `ends` so."""
        with self._lock:
            if tag not in self.savepoints:
                known = [job for job in self.jobs if job.status.id == job_id]
                job = next((job for job in known if job.status.state.alive), None)
                if job is None:
                    raise ClusterError(f"{job_id} does not run", cluster=self.name, job=job_id)
                self.savepoints[tag] = take()
                if ends is not None:
                    ended = replace(job, status=replace(job.status, state=ends))
                    self.jobs[self.jobs.index(job)] = ended
            if self._lost:
                self._lost -= 1
                raise ClusterError("no answer", cluster=self.name, job=job_id)
            return self.savepoints[tag]

    def progress(self, tag: str) -> JobProgress:
        with self._lock:
            job = next((job for job in self.jobs if job.tag == tag), None)
            if job is None:
                return JobProgress(None, None, None, False, self.hopeless)
            running = job.status.state is JobState.RUNNING
            epoch = self.epoch if running and self.hopeless is None else None
            return JobProgress(job.location or None, None, epoch, running, self.hopeless)

    def _meant(self, job: MemoryJob, request: StopRequest) -> bool:
        ids = request.options.get("job_ids")
        if isinstance(ids, list | tuple):
            return job.status.id in ids
        return super()._meant(job, request)


def _running(job: MemoryJob) -> RunningJob:
    return RunningJob(job.status.id or "", job.job, job.status.state)
