"""Steps that start the job where its image is now, and wait for it: SubmitJob, AwaitProgress. They
look before they act: a second attempt recognises the first by its tag. A job that failed may be
started again, under a tag that follows from the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from stateshift.clusters.protocol import (
    Cluster,
    Failure,
    JobProgress,
    JobState,
    JobStatus,
    SavepointCluster,
    StopRequest,
    Submission,
)
from stateshift.errors import ClusterError, StalePlan
from stateshift.step.evidence import JobConfirmed, JobStarted, SourceFenced
from stateshift.step.failures import QueryWatch, way_out
from stateshift.step.fences import FenceSource
from stateshift.step.marks import NoFiles, content_of, forget_marks, release, tag_of
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.terms import Terms, terms_of
from stateshift.world import World

# What is asked for of a log, and what of it an error tells.
LOG_LINES = 200
TOLD_LINES = 20

# More often nobody starts a job again: a cluster that has an answer to every tag knows none of
# them.
STARTS_MAX = 64


@dataclass(frozen=True, slots=True)
class SubmitJob(NoFiles):
    """Find the tag, else submit with it; what was `prepared` under it is told that its image is
    there. Not while the old job may still commit: whether its fences hold is asked once more, since
    not every store lets an engine create exclusively.
    """

    kind: ClassVar[str] = "SubmitJob"
    name: str
    cluster: str
    job: str
    location: str
    connection: str | None
    options: Mapping[str, Any]
    environment: Mapping[str, str]
    attempt: int = 1
    fences: tuple[FenceSource, ...] = ()
    prepared: bool = False

    def describe(self) -> str:
        return f"start {self.job} on {self.cluster} from {self.location}"

    def status(self, world: World) -> JobStatus:
        """Of the job that this step has started last."""
        return _latest(world.cluster(self.cluster), first_tag(world, self.job, self.attempt))[1]

    def run(self, world: World) -> Evidence:
        tag, status = _latest(world.cluster(self.cluster), first_tag(world, self.job, self.attempt))
        early = tag == first_tag(
            world, self.job, self.attempt
        )  # or it was started when its image was there
        if self.prepared and (
            status.state is JobState.FAILED or (early and status.state is JobState.FINISHED)
        ):
            return self._submitted(_following(tag), world, None)
        there = status.state not in (JobState.ABSENT, JobState.UNKNOWN)
        if self.prepared and there:
            self._refuse_unfenced(world)
            release(world.storage(self.location), tag)
        return self._submitted(tag, world, status.id or tag if there else None)

    def _refuse_unfenced(self, world: World) -> None:
        broken = [
            one for fence in self.fences for one in fence.holds(world, SourceFenced(fence.paths))
        ]
        if broken:
            raise StalePlan(
                (
                    f"{broken[0].place} is no longer our fence: the old job has gone on after "
                    "it was fenced"
                ),
                hint="stop the old job for good, take this back (`stateshift rollback "
                "WORKDIR`), and plan again; the "
                "new job was not started",
            )

    def again(self, world: World, was_stopped: bool = False, hopeless: bool = False) -> Evidence:
        """Start the job once more if it failed, or was stopped by us, as the person knows who was
        told so; and if it is alive and `hopeless`, once it was stopped. Any other is left alone.
        """
        cluster = world.cluster(self.cluster)
        tag, status = _latest(cluster, first_tag(world, self.job, self.attempt))
        if hopeless and status.state.alive:
            stopped(
                cluster,
                self.cluster,
                StopRequest(self.job, self.location, tag, options=self.options),
            )
            return self._submitted(_following(tag), world, None)
        if status.state is JobState.FAILED or (was_stopped and status.state is JobState.FINISHED):
            return self._submitted(_following(tag), world, None)
        return self._submitted(
            tag, world, None if status.state is JobState.ABSENT else status.id or tag
        )

    def _submitted(self, tag: str, world: World, job: str | None) -> Evidence:
        if job is None:
            self._refuse_unfenced(world)
            options, environment = self.options, self.environment
            correction = world.corrections.get(self.job)
            if correction is not None:
                options, environment = correction.applied(options), correction.environment
            job = world.cluster(self.cluster).submit(
                Submission(tag, self.job, self.location, self.connection, options, environment)
            )
        return JobStarted(job, tag, at=world.clock.now())

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        status = self.status(world)
        bad = status.state in (JobState.ABSENT, JobState.FAILED)
        return (
            [Discrepancy(f"job {self.job}", "submitted and not failed", _told(status))]
            if bad
            else []
        )

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        cluster = world.cluster(self.cluster)
        tag, status = _latest(cluster, first_tag(world, self.job, self.attempt))
        if self.prepared:
            forget_marks(world.storage(self.location))
        if evidence is None and status.state is JobState.ABSENT:
            return []
        stopped(
            cluster, self.cluster, StopRequest(self.job, self.location, tag, options=self.options)
        )
        return []


@dataclass(frozen=True, slots=True)
class AwaitProgress(NoFiles):
    """Wait until the job that was restored from this image gets further. A job of Spark writes each
    of `commits` with its first batch; of a job of Flink its cluster tells. `idle` is what a job
    writes (through `stateshift.job`) when it is restored and has nothing to read.
    """

    kind: ClassVar[str] = "AwaitProgress"
    name: str
    cluster: str
    job: str
    location: str
    commits: tuple[str, ...]
    idle: tuple[str, ...]
    epoch: int | None
    seconds_max: float
    attempt: int = 1

    def describe(self) -> str:
        terms = self._terms
        return (
            f"wait until {self.job} has {terms.done} {', '.join(self.commits) or f'a {terms.one}'}"
        )

    @property
    def _terms(self) -> Terms:
        """Only jobs of Spark write files that show a batch."""
        return terms_of("spark" if self.commits else "flink")

    def run(self, world: World) -> Evidence:
        cluster = world.cluster(self.cluster)
        first, began = first_tag(world, self.job, self.attempt), world.clock.now()
        correction = world.corrections.get(self.job)
        seconds_max = self.seconds_max if correction is None else correction.seconds_max
        watch = (
            QueryWatch(world.storage(self.location), self.commits, seconds_max)
            if self.commits
            else None
        )
        while True:
            world.check_interrupted()
            # Before the files: a job that ends in between has written them by then.
            tag, status = _latest(cluster, first)
            committed, settled = self._progress(cluster, tag, world)
            seconds = world.clock.now() - began
            # What was committed may be an earlier start's: one that failed since has shown nothing.
            failed = status.state is JobState.FAILED and tag != first
            if (settled and not failed) or (committed and status.state is JobState.FINISHED):
                return self._evidence(committed, seconds, world)
            if status.state in (JobState.FINISHED, JobState.FAILED, JobState.ABSENT):
                when = (
                    "when it was started again"
                    if settled
                    else f"before it {self._terms.done} a {self._terms.one}"
                )
                fact = f"{self.job} {_died(status)} {when}"
                raise self._failed(fact, "mend this, and {} starts it again", tag, world)
            ended = watch.ended(cluster, tag, world.clock.now()) if watch is not None else None
            if ended is not None:
                fact = (
                    f"{self.job} is {status.state}, but a query of it has ended before it "
                    "committed a batch"
                )
                raise self._failed(
                    fact, "mend this, and {} starts the job again", tag, world, ended
                )
            if seconds > seconds_max:
                fact = (
                    f"{self.job} is {status.state} and has {self._terms.none_in} in "
                    f"{seconds_max:.0f} s"
                )
                raise self._failed(fact, "{} waits again", tag, world)
            world.clock.sleep(min(2.0, 0.1 + seconds / 20, seconds_max / 10))

    def _progress(self, cluster: Cluster, tag: str, world: World) -> tuple[list[str], bool]:
        """What has been committed, and whether that is enough. Where no file tells, the cluster
        does.
        """
        if not self.commits:
            return self._by_cluster(cluster, tag)
        storage = world.storage(self.location)
        committed = [path for path in self.commits if storage.stat(path) is not None]
        both = zip(self.commits, self.idle, strict=True)
        return committed, all(
            path in committed or _is_idle(storage, idle, tag) for path, idle in both
        )

    def ended_in_vain(self, world: World) -> bool:
        """Whether the job has ended well, and has written none of the files that would show a
        batch.
        """
        _, status = _latest(world.cluster(self.cluster), first_tag(world, self.job, self.attempt))
        storage = world.storage(self.location)
        shown = any(storage.stat(path) is not None for path in self.commits)
        return bool(self.commits) and status.state is JobState.FINISHED and not shown

    def is_hopeless(self, world: World) -> bool:
        """Whether the job is alive and gets no further: a query of it has ended for good, or it
        restarts for ever.
        """
        cluster = world.cluster(self.cluster)
        tag, status = _latest(cluster, first_tag(world, self.job, self.attempt))
        if not status.state.alive:
            return False
        if not self.commits:
            return cast(SavepointCluster, cluster).progress(tag).hopeless is not None
        return self._has_ended_query(cluster, world)

    def _has_ended_query(self, cluster: Cluster, world: World) -> bool:
        """Whether a query has ended that nothing starts again: a job that gets further meanwhile
        has none.
        """
        watch = QueryWatch(world.storage(self.location), self.commits, self.seconds_max)
        while True:
            world.check_interrupted()
            tag, status = _latest(cluster, first_tag(world, self.job, self.attempt))
            if not status.state.alive or self._progress(cluster, tag, world)[1]:
                return False
            if watch.ended(cluster, tag, world.clock.now()) is not None:
                return True
            if not watch.suspects:
                return False
            world.clock.sleep(min(2.0, self.seconds_max / 10))

    def completed(self, world: World) -> bool:
        """Whether the job has gone on by now, where its cluster tells and no file does."""
        cluster = world.cluster(self.cluster)
        tag, _ = _latest(cluster, first_tag(world, self.job, self.attempt))
        return self._is_later(cast(SavepointCluster, cluster).progress(tag))

    def _by_cluster(self, cluster: Cluster, tag: str) -> tuple[list[str], bool]:
        """A checkpoint that the job has completed itself, since it was restored from this image
        and no other.
        """
        told = cast(SavepointCluster, cluster).progress(tag)
        if told.restored is not None and self.location and not _is_at(told.restored, self.location):
            raise ClusterError(
                f"{self.job} was restored from {told.restored}, and not from {self.location}",
                cluster=self.cluster,
                job=self.job,
                hint="`stateshift rollback WORKDIR` takes the run back",
            )
        if told.hopeless is not None:
            raise ClusterError(
                f"{self.job} fails again and again with the same: {told.hopeless}",
                cluster=self.cluster,
                job=self.job,
                hint="`stateshift rollback WORKDIR` takes the run back, and starts the old job "
                "again if the spec says "
                "how: it would fail in the same way as often as it is resumed. With "
                'another "submit" (a jar that is '
                "mended, say) it is started again: `stateshift resume WORKDIR --spec FILE`",
            )
        restored = told.restored is not None or not self.location
        done = [f"checkpoint {told.epoch}"] if self._is_later(told) and restored else []
        return done, bool(done) and told.running

    def _is_later(self, told: JobProgress) -> bool:
        return told.epoch is not None and told.epoch > (self.epoch or 0)

    def _evidence(self, committed: list[str], seconds: float, world: World) -> Evidence:
        return JobConfirmed(
            committed=tuple(committed),
            at=world.clock.now(),
            idle=tuple(path for path in self.commits if path not in committed),
            epoch=self.epoch,
            seconds=seconds,
        )

    def _failed(
        self, fact: str, again: str, tag: str, world: World, failure: Failure | None = None
    ) -> ClusterError:
        """The error, with the newest exception of the job, and what it said last."""
        cluster = world.cluster(self.cluster)
        failure = failure or cluster.failure(tag)
        log = without_frames(cluster.log(tag, LOG_LINES))
        why = f": {failure.fact}" if failure is not None else ""
        return ClusterError(
            fact + why + (f"; its log ends:\n{log}" if log else ""),
            cluster=self.cluster,
            job=self.job,
            hint=way_out(failure, self.location, again.format("`stateshift resume WORKDIR`")),
        )

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return []

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        return []


def stopped(cluster: Cluster, name: str, request: StopRequest) -> None:
    """Return when a job that we started runs no more: its image must not be pulled from under it,
    nor the old job be started beside it.
    """
    after = cluster.stop(request)
    if after.state.alive:
        raise ClusterError(
            f"{request.job} is still {after.state} on {name} after it was asked to stop",
            cluster=name,
            job=request.job,
            hint="stop it by hand, then `stateshift resume WORKDIR` goes on taking back",
        )


def without_frames(log: str) -> str:
    """A log's last lines, without the JVM's stack frames: they would be all of them, and what
    failed stands above.
    """
    lines = [
        line
        for line in log.strip().splitlines()
        if not re.match(r"\s+(at [\w.$/<>]+\(|\.\.\. \d+ more)", line)
    ]
    return "\n".join(lines[-TOLD_LINES:]).strip()


def first_tag(world: World, job: str, attempt: int) -> str:
    """The tag that an attempt to move the job begins with: what an earlier one started was
    stopped, and is over.
    """
    tag = tag_of(world, job)
    return tag if attempt == 1 else f"{tag}.{attempt}"


def _following(tag: str) -> str:
    """The tag under which a job is started again that failed."""
    head, mark, number = tag.rpartition(".again")
    return f"{head}.again{int(number) + 1}" if mark else f"{tag}.again2"


def _latest(cluster: Cluster, tag: str) -> tuple[str, JobStatus]:
    """The last tag under which something was started, and what became of it; the first one where
    nothing was.
    """
    status = cluster.find(tag)
    for _ in range(STARTS_MAX):
        if status.state not in (JobState.FAILED, JobState.FINISHED):
            break
        following = _following(tag)
        later = cluster.find(following)
        if later.state in (JobState.ABSENT, JobState.UNKNOWN):
            break
        tag, status = following, later
    return tag, status


def _is_at(image: str, location: str) -> bool:
    """Whether an image, as an engine tells of it, is the one at the location. Each spells
    schemes in its own way.
    """
    return image.partition(":")[2].strip("/").removesuffix("/_metadata") == location.partition(":")[
        2
    ].strip("/")


def _is_idle(storage: Storage, path: str, tag: str) -> bool:
    content = content_of(storage, path)
    return content is not None and tag.encode() in content


def _died(status: JobStatus) -> str:
    if status.state is JobState.ABSENT:
        return "is not known to the cluster"
    if status.state is JobState.FINISHED:
        return "ended"
    said = status.detail if (status.detail or "").lower() != "failed" else None
    return f"failed ({said})" if said else "failed"


def _told(status: JobStatus) -> str:
    return str(status.state) + (f" ({status.detail})" if status.detail else "")
