"""Steps that touch something outside storage, or keep others from touching it: StopJob, FenceSource, SubmitJob,
AwaitProgress. They look before they act: a second attempt recognises the first by its tag."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stateshift.clusters.protocol import Cluster, JobState, JobStatus, StopRequest, Submission
from stateshift.errors import AlreadyThere, ClusterError, StalePlan
from stateshift.formats.marks import fence_owner, fence_text
from stateshift.plain import fingerprint
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.world import World

RAN = ("running", "queued", "unknown")  # what a job may have been before it was stopped, to be started again


class _NoFiles:
    """The part of a step that moves no bytes."""

    __slots__ = ()

    @property
    def files(self) -> int:
        return 0

    @property
    def bytes(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class StopJob(_NoFiles):
    """Stop the job at a consistent epoch, unless it is already stopped."""

    kind: ClassVar[str] = "StopJob"
    name: str
    cluster: str
    job: str
    location: str
    tag: str | None = None
    seconds_max: float = 300.0
    options: Mapping[str, Any] = field(default_factory=dict)
    restart: Mapping[str, Any] | None = None
    restart_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def request(self) -> StopRequest:
        return StopRequest(self.job, self.location, self.tag, self.seconds_max, self.options)

    def describe(self) -> str:
        return f"stop {self.job} on {self.cluster}"

    def run(self, world: World) -> Evidence:
        cluster = world.cluster(self.cluster)
        began, before = world.clock.now(), cluster.find_source(self.request)
        after = before
        if before.state.alive or before.state is JobState.UNKNOWN:
            after = cluster.stop(self.request)
        if after.state.alive:
            raise ClusterError(
                f"{self.job} is still {after.state} after it was asked to stop",
                cluster=self.cluster,
                job=self.job,
                hint="stop it by hand, then `stateshift resume WORKDIR`",
            )
        return {
            "state_before": str(before.state),
            "state": str(after.state),
            "at": began,
            "seconds": world.clock.now() - began,
        }

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        status = world.cluster(self.cluster).find_source(self.request)
        return [Discrepancy(self.job, "stopped", str(status.state))] if status.state.alive else []

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        """Start the job again where it was, if it ran and the spec says how. Evidence of a repeated attempt does not
        tell whether it ran: the attempt that was cut short may have stopped it."""
        cluster = world.cluster(self.cluster)
        state = cluster.find_source(self.request).state
        if state.alive:
            return []
        if evidence is None and state is JobState.UNKNOWN:
            return [f"{self.job} may have been stopped or not: start it again from {self.location} if it does not run"]
        ran = evidence is None or evidence.get("repeated") or evidence["state_before"] in RAN
        if not ran:
            return []
        if self.restart is None:
            return [f"{self.job} is stopped: start it again from {self.location} (no source_submit in the spec)"]
        owner = world.fence(self.location)
        if owner is not None:
            return [f"{self.job} is stopped, and not started again: run {owner} has moved it away from {self.location}"]
        tag = self._restart_tag(cluster, world)
        cluster.submit(
            Submission(tag, self.job, self.location, None, dict(self.restart), dict(self.restart_environment))
        )
        return []

    def _restart_tag(self, cluster: Cluster, world: World) -> str:
        """The first under which nothing was started yet, or something still runs: a job that was started again when an
        earlier halt was taken back has been stopped by the halt after that."""
        first = f"{tag_of(world, self.job)}.restart"
        tags = itertools.chain((first,), (f"{first}.{number}" for number in itertools.count(2)))
        return next(tag for tag in tags if cluster.find(tag).state not in (JobState.FINISHED, JobState.FAILED))


@dataclass(frozen=True, slots=True)
class FenceSource(_NoFiles):
    """Take the files that the old job would have to create for its next commit, so that it cannot. The engine creates
    them exclusively: a zombie that wakes up later finds them taken and dies.

    On object stores we create exclusively, and Spark nearly: s3a: looks whether a name is free, then copies onto it. A
    driver that slept between the two writes over one of these files and dies at the other: it commits the batch it was
    in, or puts out once more the one that it began. `holds` tells of it (tests/servers/test_fence_on_s3.py)."""

    kind: ClassVar[str] = "FenceSource"
    name: str
    location: str
    paths: tuple[str, ...]

    def describe(self) -> str:
        return f"fence {self.location} ({', '.join(self.paths)})"

    def run(self, world: World) -> Evidence:
        storage, taken = world.storage(self.location), list[str]()
        text = fence_text(world.run).encode()
        for path in self.paths:
            world.check_interrupted()
            try:
                storage.create(path, text)
            except AlreadyThere as error:
                found = _content(storage, path)
                if found != text:
                    for ours in reversed(taken):
                        storage.remove(ours)
                    raise _taken(f"{self.location}/{path}", found) from error
            taken.append(path)
        return {"fenced": list(self.paths), "undo": "remove these files"}

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        storage, text = world.storage(self.location), fence_text(world.run).encode()
        return [
            Discrepancy(f"{self.location}/{path}", "our fence", "nothing or something else")
            for path in self.paths
            if _content(storage, path) != text
        ]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        storage, left = world.storage(self.location), []
        text = fence_text(world.run).encode()
        for path in reversed(self.paths):
            content = _content(storage, path)
            if content == text:
                storage.remove(path)
            elif content is not None and evidence is not None:
                left.append(f"{self.location}/{path} is no longer our fence: left as it is")
        return left


@dataclass(frozen=True, slots=True)
class LiftFence(_NoFiles):
    """Take our own fence away before the run is over: the job goes on where it was. Undone, it is put up again, so that
    nobody goes on while the rest is taken back."""

    kind: ClassVar[str] = "LiftFence"
    name: str
    location: str
    paths: tuple[str, ...]

    def describe(self) -> str:
        return f"lift the fence at {self.location} ({', '.join(self.paths)})"

    def run(self, world: World) -> Evidence:
        storage, text = world.storage(self.location), fence_text(world.run).encode()
        for path in reversed(self.paths):
            world.check_interrupted()
            if _content(storage, path) == text:
                storage.remove(path)
        return {"lifted": list(self.paths)}

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        storage, text = world.storage(self.location), fence_text(world.run).encode()
        there = [path for path in self.paths if _content(storage, path) == text]
        return [Discrepancy(f"{self.location}/{path}", "no fence of ours", "our fence") for path in there]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        FenceSource(self.name, self.location, self.paths).run(world)
        return []


@dataclass(frozen=True, slots=True)
class SubmitJob(_NoFiles):
    """Find the tag, else submit with it."""

    kind: ClassVar[str] = "SubmitJob"
    name: str
    cluster: str
    job: str
    location: str
    connection: str | None
    options: Mapping[str, Any]
    environment: Mapping[str, str]

    def describe(self) -> str:
        return f"start {self.job} on {self.cluster} from {self.location}"

    def run(self, world: World) -> Evidence:
        cluster, tag = world.cluster(self.cluster), tag_of(world, self.job)
        status = cluster.find(tag)
        if status.state in (JobState.ABSENT, JobState.UNKNOWN):
            job = cluster.submit(
                Submission(tag, self.job, self.location, self.connection, self.options, self.environment)
            )
        else:
            job = status.id or tag
        return {"job": job, "tag": tag, "at": world.clock.now()}

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        status = world.cluster(self.cluster).find(tag_of(world, self.job))
        bad = status.state in (JobState.ABSENT, JobState.FAILED)
        return [Discrepancy(f"job {self.job}", "submitted and not failed", _told(status))] if bad else []

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        cluster, tag = world.cluster(self.cluster), tag_of(world, self.job)
        if evidence is None and cluster.find(tag).state is JobState.ABSENT:
            return []
        after = cluster.stop(StopRequest(self.job, self.location, tag, options=self.options))
        if after.state.alive:
            # Its image must not be pulled from under it, nor the old job be started beside it.
            raise ClusterError(
                f"{self.job} is still {after.state} on {self.cluster} after it was asked to stop",
                cluster=self.cluster,
                job=self.job,
                hint="stop it by hand, then `stateshift resume WORKDIR` goes on taking back",
            )
        return []


@dataclass(frozen=True, slots=True)
class AwaitProgress(_NoFiles):
    """Wait until the job that was restored from this image commits a batch. The job writes each of `commits` with its
    first batch; `idle` is what it writes (through `stateshift.job`) when it is restored and has nothing to read."""

    kind: ClassVar[str] = "AwaitProgress"
    name: str
    cluster: str
    job: str
    location: str
    commits: tuple[str, ...]
    idle: tuple[str, ...]
    epoch: int | None
    seconds_max: float

    def describe(self) -> str:
        return f"wait until {self.job} has committed {', '.join(self.commits)}"

    def run(self, world: World) -> Evidence:
        cluster, storage = world.cluster(self.cluster), world.storage(self.location)
        tag, began = tag_of(world, self.job), world.clock.now()
        while True:
            world.check_interrupted()
            status = cluster.find(tag)  # before the files: a job that ends in between has written them by then
            committed = [path for path in self.commits if storage.stat(path) is not None]
            settled = all(
                path in committed or _is_idle(storage, idle, tag)
                for path, idle in zip(self.commits, self.idle, strict=True)
            )
            seconds = world.clock.now() - began
            if settled or (committed and status.state is JobState.FINISHED):
                return self._evidence(committed, seconds, world)
            if status.state in (JobState.FINISHED, JobState.FAILED, JobState.ABSENT):
                raise self._failed(f"{self.job} {_died(status)} before it committed a batch", world)
            if seconds > self.seconds_max:
                raise self._failed(
                    f"{self.job} is {status.state} and has committed nothing in {self.seconds_max:.0f} s", world
                )
            world.clock.sleep(min(2.0, 0.1 + seconds / 20, self.seconds_max / 10))

    def _evidence(self, committed: list[str], seconds: float, world: World) -> Evidence:
        return {
            "committed": committed,
            "idle": [path for path in self.commits if path not in committed],
            "epoch": self.epoch,
            "at": world.clock.now(),
            "seconds": seconds,
        }

    def _failed(self, fact: str, world: World) -> ClusterError:
        log = world.cluster(self.cluster).log(tag_of(world, self.job), 15).strip()
        return ClusterError(
            fact + (f"; its log ends:\n{log}" if log else ""),
            cluster=self.cluster,
            job=self.job,
            hint="`stateshift rollback WORKDIR` takes the run back, and starts the old job again if the spec says how; "
            "`stateshift resume WORKDIR` waits again",
        )

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return []

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        return []


def _taken(place: str, content: bytes | None) -> StalePlan:
    """Somebody was first: another run with its fence, or the job itself."""
    owner = fence_owner(content or b"")
    if owner is not None:
        return StalePlan(
            f"{place} was fenced by run {owner} after the plan was made: two runs move one source",
            hint="let the other run finish; this one changed nothing: let go of its target with "
            "`stateshift rollback WORKDIR`",
        )
    return StalePlan(
        f"{place} was written after the plan was made: the job is still running",
        hint="stop the job, let go of the target (`stateshift rollback WORKDIR`), then plan again; nothing was changed",
    )


def tag_of(world: World, job: str) -> str:
    """What a second attempt recognises the first by: unique to this run and this job, safe in file names."""
    return f"{world.run}.{fingerprint(job)[:8]}"


def _is_idle(storage: Storage, path: str, tag: str) -> bool:
    content = _content(storage, path)
    return content is not None and tag.encode() in content


def _content(storage: Storage, path: str) -> bytes | None:
    return storage.read(path, 1 << 20) if storage.stat(path) is not None else None


def _died(status: JobStatus) -> str:
    if status.state is JobState.ABSENT:
        return "is not known to the cluster"
    return "ended" if status.state is JobState.FINISHED else "failed"


def _told(status: JobStatus) -> str:
    return str(status.state) + (f" ({status.detail})" if status.detail else "")
