"""Steps that keep the old job from going on, or let it: StopJob, FenceSource, LiftFence."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stateshift.clusters.protocol import Cluster, JobState, StopRequest, Submission
from stateshift.errors import AlreadyThere, ClusterError, StalePlan
from stateshift.formats.marks import fence_owner, fence_text
from stateshift.step.at_once import each
from stateshift.step.marks import NoFiles, content_of, tag_of
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.world import World

OTHERS_SECONDS_MAX = 30.0  # for runs that were second to take away what they have put up of a fence
RAN = ("running", "queued", "unknown")  # what a job may have been before it was stopped, to be started again


@dataclass(frozen=True, slots=True)
class StopJob(NoFiles):
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
        first = f"{tag_of(world, self.location)}.restart"  # jobs that share a source start it again once
        tags = itertools.chain((first,), (f"{first}.{number}" for number in itertools.count(2)))
        return next(tag for tag in tags if cluster.find(tag).state not in (JobState.FINISHED, JobState.FAILED))


@dataclass(frozen=True, slots=True)
class FenceSource(NoFiles):
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
        """At once, where each waits for a network: the job is down meanwhile. It may have gone on, and a fence before
        the commit of the batch that it is in would kill it: so all are looked at before the first is put up. Of several
        runs that put one up together, the one that has the first file has the source: it waits for the others, which
        take theirs away."""
        storage, text = world.storage(self.location), fence_text(world.run).encode()
        try:
            each(world, self.paths, lambda path: self._refuse_others(storage, path, text), storage)
            taken = each(world, self.paths, lambda path: _take(storage, path, text), storage)
            for path, ours in zip(self.paths, taken, strict=True):
                if not ours:
                    patience = 0.0 if path == self.paths[0] else OTHERS_SECONDS_MAX
                    self._take_from_others(world, storage, path, text, patience)
        except StalePlan:
            for path in reversed(self.paths):
                if content_of(storage, path) == text:
                    storage.remove(path)
            raise
        return {"fenced": list(self.paths), "undo": "remove these files"}

    def _refuse_others(self, storage: Storage, path: str, text: bytes) -> None:
        found = content_of(storage, path)
        if found not in (None, text):
            raise _taken(f"{self.location}/{path}", found)

    def _take_from_others(self, world: World, storage: Storage, path: str, text: bytes, patience: float) -> None:
        until = world.clock.now() + patience
        while not _take(storage, path, text):
            if fence_owner(content_of(storage, path) or text) is None or world.clock.now() >= until:
                self._refuse_others(storage, path, text)
            world.check_interrupted()
            world.clock.sleep(0.2)

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        storage, text = world.storage(self.location), fence_text(world.run).encode()
        return [
            Discrepancy(f"{self.location}/{path}", "our fence", "nothing or something else")
            for path in self.paths
            if content_of(storage, path) != text
        ]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        storage, left = world.storage(self.location), []
        text = fence_text(world.run).encode()
        for path in reversed(self.paths):
            content = content_of(storage, path)
            if content == text:
                storage.remove(path)
            elif content is not None and evidence is not None:
                left.append(f"{self.location}/{path} is no longer our fence: left as it is")
        return left


@dataclass(frozen=True, slots=True)
class LiftFence(NoFiles):
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
            if content_of(storage, path) == text:
                storage.remove(path)
        return {"lifted": list(self.paths)}

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        storage, text = world.storage(self.location), fence_text(world.run).encode()
        there = [path for path in self.paths if content_of(storage, path) == text]
        return [Discrepancy(f"{self.location}/{path}", "no fence of ours", "our fence") for path in there]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        FenceSource(self.name, self.location, self.paths).run(world)
        return []


def _take(storage: Storage, path: str, text: bytes) -> bool:
    """Whether it is ours now, or was."""
    try:
        storage.create(path, text)
        return True
    except AlreadyThere:
        return content_of(storage, path) == text


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
