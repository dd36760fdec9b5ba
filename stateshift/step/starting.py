"""Steps that start the job where its image is now, and wait for it: SubmitJob, AwaitProgress. They
look before they act: a second attempt recognises the first by its tag. A job that failed may be
started again, under a tag that follows from the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import ClassVar, cast

from stateshift import plain
from stateshift.clusters.protocol import (
    Cluster,
    JobFailure,
    JobProgress,
    JobState,
    JobStatus,
    KeepsJobs,
    Remedy,
    SavepointCluster,
    Silence,
    Silent,
    StopRequest,
    Submission,
)
from stateshift.errors import ClusterError, StalePlan
from stateshift.plain import JsonObject
from stateshift.specification.options import NEW_COMMANDS
from stateshift.step.evidence import JobConfirmed, JobStarted, SourceFenced
from stateshift.step.fences import FenceSource
from stateshift.step.marks import NoFiles, content_of, forget_marks, release, tag_of
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.terms import Terms, terms_of
from stateshift.world import World

# The lines of a log that are asked for, and those that an error shows.
LOG_LINES = 200
SHOWN_LINES = 20

# Nobody starts a job again more often: a cluster with an answer to every tag knows none of them.
STARTS_MAX = 64
SECONDS_BETWEEN_WORDS = 20.0  # that tell of a job which has not gone on yet
FIRST_WORD_SECONDS = 5.0

OVER = (JobState.FINISHED, JobState.FAILED, JobState.ABSENT)
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://([^/]*))?(.*)", re.DOTALL)
_FRAME = re.compile(r"\s+(at [\w.$/<>]+\(|\.\.\. \d+ more)")


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that was ended on a cluster where somebody else may have it run again."""

    cluster: str
    job_id: str

    def refuse_running(self, world: World) -> None:
        """Refuse to go on beside it."""
        state = cast(KeepsJobs, world.cluster(self.cluster)).runs_again(self.job_id)
        if state is None:
            return
        fact = f"{self.job_id} is wanted to run again ({state}): somebody has written it back"
        raise ClusterError(
            f"{fact}, and two jobs would run",
            cluster=self.cluster,
            job=self.job_id,
            hint="`stateshift rollback WORKDIR` leaves it running; pause who keeps it for a move",
        )


@dataclass(frozen=True, slots=True)
class SubmitJob(NoFiles):
    """Find the tag, else submit with it; a `prepared` job is released. Fences are asked once more:
    not every store lets an engine create exclusively, and the old job may commit.
    """

    kind: ClassVar[str] = "SubmitJob"
    name: str
    cluster: str
    job: str
    location: str
    connection: str | None
    options: JsonObject
    environment: Mapping[str, str]
    attempt: int = 1
    fences: tuple[FenceSource, ...] = ()
    prepared: bool = False
    ended: tuple[EndedJob, ...] = plain.later(())

    def describe(self) -> str:
        return f"start {self.job} on {self.cluster} from {self.location}"

    def status(self, world: World) -> JobStatus:
        """Return the status of the job that this step has started last."""
        return self._latest(world)[1]

    def _latest(self, world: World) -> tuple[str, JobStatus]:
        first = first_tag(world, self.job, self.attempt)
        return _latest(world.cluster(self.cluster), first)

    def run(self, world: World) -> Evidence:
        tag, status = self._latest(world)
        # A job that was prepared is over, then. If it was started again since, its image was there
        # already, and it may have ended well.
        was_early = tag == first_tag(world, self.job, self.attempt)
        has_ended_early = was_early and status.state is JobState.FINISHED
        if self.prepared and (status.state is JobState.FAILED or has_ended_early):
            return self._submitted(_following(tag), world, None)
        if status.state in (JobState.ABSENT, JobState.UNKNOWN):
            return self._submitted(tag, world, None)
        if self.prepared:
            self._refuse_unfenced(world)
            release(world.storage(self.location), tag)
        return self._submitted(tag, world, status.id or tag)

    def _refuse_unfenced(self, world: World) -> None:
        for fence in self.fences:
            broken = fence.holds(world, SourceFenced(fence.paths))
            if broken:
                raise StalePlan(
                    f"{broken[0].place} is no longer our fence: the old job has gone on after it "
                    "was fenced",
                    hint="stop the old job for good, take this back (`stateshift rollback "
                    "WORKDIR`), and plan again; the new job was not started",
                )

    def again(self, world: World, was_stopped: bool = False, hopeless: bool = False) -> Evidence:
        """Start the job once more if it failed, or `was_stopped` by us, or is alive and `hopeless`:
        then it is stopped first. Any other is left alone.
        """
        tag, status = self._latest(world)
        if hopeless and status.state.alive:
            self._stop(world, tag)
            return self._submitted(_following(tag), world, None)
        if status.state is JobState.FAILED or (was_stopped and status.state is JobState.FINISHED):
            return self._submitted(_following(tag), world, None)
        job = None if status.state is JobState.ABSENT else status.id or tag
        return self._submitted(tag, world, job)

    def _stop(self, world: World, tag: str) -> None:
        request = StopRequest(self.job, self.location, tag, options=self.options)
        stop_started_job(world.cluster(self.cluster), self.cluster, request)

    def _submitted(self, tag: str, world: World, job: str | None) -> Evidence:
        if job is None:
            self._refuse_unfenced(world)
            for each in self.ended:
                each.refuse_running(world)
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
        if status.state not in (JobState.ABSENT, JobState.FAILED):
            return []
        return [Discrepancy(f"job {self.job}", "submitted and not failed", _in_words(status))]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        tag, status = self._latest(world)
        if self.prepared:
            forget_marks(world.storage(self.location))
        if evidence is not None or status.state is not JobState.ABSENT:
            self._stop(world, tag)
        return []


@dataclass(frozen=True, slots=True)
class AwaitProgress(NoFiles):
    """Wait until the job that was restored from this image gets further. A job of Spark writes each
    of `commits` with its first batch; a job of Flink is asked about at its cluster. A job writes
    `idle` (through `stateshift.job`) when it is restored and has nothing to read.
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
    ended: tuple[EndedJob, ...] = plain.later(())

    def describe(self) -> str:
        terms = self._terms
        awaited = ", ".join(self.commits) or f"a {terms.one}"
        return f"wait until {self.job} has {terms.done} {awaited}"

    @property
    def _terms(self) -> Terms:
        """The words of the job's engine: only jobs of Spark write files that show a batch."""
        return terms_of("spark" if self.commits else "flink")

    def run(self, world: World) -> Evidence:
        began = world.clock.now()
        silence = Silence(world.clock.now)
        seconds_max = self._seconds_max(world)
        told_at = FIRST_WORD_SECONDS - SECONDS_BETWEEN_WORDS
        watch = None
        if self.commits:
            watch = QueryWatch(world.storage(self.location), self.commits, seconds_max)
        while True:
            world.check_interrupted()
            seconds = world.clock.now() - began
            try:
                evidence = self._look(watch, seconds, world)
                silence.end()
            except Silent:
                if silence.is_too_long() or seconds > seconds_max:
                    raise
                evidence = None
            if evidence is not None:
                return evidence
            if seconds - told_at >= SECONDS_BETWEEN_WORDS:
                told_at, limit = seconds, f"{seconds:.0f} s of at most {seconds_max:.0f} s"
                world.meter.say(
                    f"{self.job} was started at {self.location or self.cluster}, and has "
                    f"{self._terms.none_in} in {limit}: it is waited for"
                )
            world.clock.sleep(min(2.0, 0.1 + seconds / 20, seconds_max / 10))

    def _look(self, watch: QueryWatch | None, seconds: float, world: World) -> Evidence | None:
        """Return the evidence that the job has gone on, if there is any after so many seconds.

        Raises:
            Silent: its cluster gives no answer.
            ClusterError: it will not go on, or has not in time.
        """
        cluster, first = world.cluster(self.cluster), first_tag(world, self.job, self.attempt)
        # Before the files: a job that ends in between has written them by then.
        tag, status = _latest(cluster, first)
        try:
            for each in self.ended:
                each.refuse_running(world)
        except ClusterError:
            if status.state.alive:  # of two jobs the new one can be started once more
                request = StopRequest(self.job, self.location, tag)
                stop_started_job(cluster, self.cluster, request)
            raise
        committed, is_enough = self._progress(cluster, tag, world)
        # A commit may be an earlier start's: one that failed since has shown nothing.
        failed_again = status.state is JobState.FAILED and tag != first
        has_ended_well = bool(committed) and status.state is JobState.FINISHED
        if has_ended_well or (is_enough and not failed_again):
            return JobConfirmed(
                committed=tuple(committed),
                at=world.clock.now(),
                idle=tuple(path for path in self.commits if path not in committed),
                epoch=self.epoch,
                seconds=seconds,
            )
        if status.state in OVER:
            when = f"before it {self._terms.done} a {self._terms.one}"
            if is_enough:
                when = "when it was started again"
            fact = f"{self.job} {_death(status)} {when}"
            raise self._failed(fact, "mend this, and {} starts it again", tag, world)
        if watch is not None:
            failure = watch.ended(world.cluster(self.cluster), tag, world.clock.now())
            if failure is not None:
                fact = (
                    f"{self.job} is {status.state}, but a query of it has ended before it "
                    "committed a batch"
                )
                again = "mend this, and {} starts the job again"
                raise self._failed(fact, again, tag, world, failure)
        self._refuse_late(status, seconds, tag, world)
        return None

    def _refuse_late(self, status: JobStatus, seconds: float, tag: str, world: World) -> None:
        seconds_max = self._seconds_max(world)
        if seconds <= seconds_max:
            return
        none = self._terms.none_in
        # Why it does not run yet, and not the usual words on one that does.
        has_reason = status.state in (JobState.UNKNOWN, JobState.QUEUED)
        state = _in_words(status) if has_reason else status.state
        fact = f"{self.job} is {state} and has {none} in {seconds_max:.0f} s"
        again = "{} waits again"
        writes_none = False
        if not self.commits:
            with suppress(ClusterError):
                cluster = cast(SavepointCluster, world.cluster(self.cluster))
                writes_none = cluster.progress(tag).writes_none
        if writes_none:
            fact += ": its checkpointing is off"
            again = (
                'under "submit" give it "flink_configuration": '
                '{{"execution.checkpointing.interval": "10 s"}}, or enable it in the program; '
                "then {}"
            )
        raise self._failed(fact, again, tag, world)

    def _seconds_max(self, world: World) -> float:
        correction = world.corrections.get(self.job)
        return self.seconds_max if correction is None else correction.seconds_max

    def _progress(self, cluster: Cluster, tag: str, world: World) -> tuple[list[str], bool]:
        """Return the commits, and whether they are enough. Without files the cluster tells them."""
        if not self.commits:
            return self._by_cluster(cluster, tag)
        storage = world.storage(self.location)
        committed = []
        is_enough = True
        for path, idle in zip(self.commits, self.idle, strict=True):
            if storage.stat(path) is not None:
                committed.append(path)
            elif is_enough:
                is_enough = tag.encode() in (content_of(storage, idle) or b"")
        return committed, is_enough

    def ended_in_vain(self, world: World) -> bool:
        """Whether the job has ended well, and has written none of the files of a batch."""
        _, status = _latest(world.cluster(self.cluster), first_tag(world, self.job, self.attempt))
        storage = world.storage(self.location)
        shown = any(storage.stat(path) is not None for path in self.commits)
        return bool(self.commits) and status.state is JobState.FINISHED and not shown

    def is_hopeless(self, world: World) -> bool:
        """Whether the job is alive, and a query has ended for good or it restarts for ever."""
        cluster = world.cluster(self.cluster)
        tag, status = _latest(cluster, first_tag(world, self.job, self.attempt))
        if not status.state.alive:
            return False
        if not self.commits:
            return cast(SavepointCluster, cluster).progress(tag).hopeless is not None
        # A job that gets further meanwhile has no query that nothing starts again.
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
        """Whether the job has gone on by now, where its cluster says it and no file does."""
        cluster = world.cluster(self.cluster)
        tag, _ = _latest(cluster, first_tag(world, self.job, self.attempt))
        return self._is_later(cast(SavepointCluster, cluster).progress(tag))

    def _by_cluster(self, cluster: Cluster, tag: str) -> tuple[list[str], bool]:
        """Return a checkpoint that the job has completed since it was restored from this image."""
        progress = cast(SavepointCluster, cluster).progress(tag)
        restored = progress.restored
        if restored is not None and self.location and not _is_at(restored, self.location):
            raise ClusterError(
                f"{self.job} was restored from {restored}, and not from {self.location}",
                cluster=self.cluster,
                job=self.job,
                hint="`stateshift rollback WORKDIR` takes the run back",
            )
        if progress.hopeless is not None:
            raise ClusterError(
                f"{self.job} fails again and again with the same: {progress.hopeless}",
                cluster=self.cluster,
                job=self.job,
                hint="`stateshift rollback WORKDIR` takes the run back, and starts the old job "
                "again if the spec says how: it would fail in the same way as often as it is "
                'resumed. With another "submit" (a jar that is mended, say) it is started again: '
                "`stateshift resume WORKDIR --spec FILE`",
            )
        is_restored = restored is not None or not self.location
        if not is_restored or not self._is_later(progress):
            return [], False
        return [f"checkpoint {progress.epoch}"], progress.running

    def _is_later(self, progress: JobProgress) -> bool:
        return progress.epoch is not None and progress.epoch > (self.epoch or 0)

    def _failed(
        self, fact: str, again: str, tag: str, world: World, failure: JobFailure | None = None
    ) -> ClusterError:
        """Return the error, with the newest exception of the job, and the end of its log."""
        cluster = world.cluster(self.cluster)
        failure = failure or cluster.failure(tag)
        if failure is not None:
            fact += f": {failure.fact}"
        log = without_frames(cluster.log(tag, LOG_LINES))
        if log:
            fact += f"; its log ends:\n{log}"
        return ClusterError(
            fact,
            cluster=self.cluster,
            job=self.job,
            hint=hint_for(
                failure,
                self.location,
                again.format("`stateshift resume WORKDIR`"),
                is_typed=self.cluster == NEW_COMMANDS,
            ),
        )


def stop_started_job(cluster: Cluster, name: str, request: StopRequest) -> None:
    """Stop a job that we started: else it would lose its image, or run beside the old job."""
    after = cluster.stop(request)
    if after.state.alive:
        raise ClusterError(
            f"{request.job} is still {after.state} on {name} after it was asked to stop",
            cluster=name,
            job=request.job,
            hint="stop it by hand, then `stateshift resume WORKDIR` goes on taking back",
        )


def without_frames(log: str) -> str:
    """Return a log's last lines, without the JVM's stack frames: the failure is above them."""
    lines = [line for line in log.strip().splitlines() if not _FRAME.match(line)]
    return "\n".join(lines[-SHOWN_LINES:]).strip()


def first_tag(world: World, job: str, attempt: int) -> str:
    """Return the first tag of an attempt to move the job: that of an earlier one is over."""
    tag = tag_of(world, job)
    return tag if attempt == 1 else f"{tag}.{attempt}"


def _following(tag: str) -> str:
    """Return the tag under which a job is started again that failed."""
    head, mark, number = tag.rpartition(".again")
    return f"{head}.again{int(number) + 1}" if mark else f"{tag}.again2"


def _latest(cluster: Cluster, tag: str) -> tuple[str, JobStatus]:
    """Return the last tag under which a job was started, and its status; else the first tag."""
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
    """Whether an image, as an engine names it, is the one at the location. Each spells schemes in
    its own way, and an engine fills in the host that a location leaves out (hdfs:///p).
    """
    host, path = _place_of(image)
    its_host, its_path = _place_of(location)
    is_one_host = not host or not its_host or host == its_host
    return is_one_host and path.removesuffix("/_metadata") == its_path


def _place_of(url: str) -> tuple[str, str]:
    """Return the host, or bucket, and the path of a location: file:/p and file:///p are one."""
    parts = _URL.fullmatch(url)
    assert parts is not None, "it matches any text"
    return parts[1] or "", parts[2].strip("/")


def _death(status: JobStatus) -> str:
    if status.state is JobState.ABSENT:
        return "is not known to the cluster"
    if status.state is JobState.FINISHED:
        return "ended"
    detail = status.detail or ""
    return f"failed ({detail})" if detail.lower() not in ("", "failed") else "failed"


def _in_words(status: JobStatus) -> str:
    return f"{status.state} ({status.detail})" if status.detail else str(status.state)


# A driver whose query has failed ends by itself, as a rule, and then its exit code tells more.
ENDING_SECONDS = 10.0
# A job may start its query again itself: after a failure that need not come again, it is given this
# long.
RESTARTING_SECONDS = 60.0
# A cluster is asked for its log so often: for some that is as much as two requests.
LOOK_SECONDS = 4.0

_BACK = (
    "`stateshift rollback WORKDIR` takes the run back, and starts the old job again if the spec "
    "says how"
)


@dataclass(slots=True)
class QueryWatch:
    """Looks for a query that has ended for good while its driver lives. Queries write `commits`."""

    storage: Storage
    commits: tuple[str, ...]
    seconds_max: float
    _since: dict[JobFailure, float] = field(default_factory=dict)
    _looked: float = float("-inf")

    @property
    def suspects(self) -> bool:
        """Whether the last look saw a query that has ended, and that has not had its time yet."""
        return bool(self._since)

    def ended(self, cluster: Cluster, tag: str, now: float) -> JobFailure | None:
        """Return the failure of a query that nothing starts again, once it has had its time."""
        if now - self._looked < min(LOOK_SECONDS, self.seconds_max / 10):
            return None
        self._looked = now
        failure = ended_query(cluster, tag, self.storage, self.commits)
        if failure is None:
            self._since.clear()
            return None
        since = self._since.setdefault(failure, now)
        patience = ENDING_SECONDS if failure.final else RESTARTING_SECONDS
        return failure if now - since >= min(patience, self.seconds_max / 4) else None


def ended_query(
    cluster: Cluster, tag: str, storage: Storage, commits: tuple[str, ...]
) -> JobFailure | None:
    """Return the failure of this job's query, whose driver lives; not of one kept elsewhere."""
    failure = None
    with suppress(ClusterError):  # a log that cannot be had now is asked for again
        failure = cluster.failure(tag, alive=True)
    if failure is None or failure.query is None:
        return failure
    # The file with the id of a query lies beside the folder of its commits. It may not be written.
    paths = [PurePosixPath(commit).parent.parent / "metadata" for commit in commits]
    contents = [content_of(storage, str(path)) for path in paths]
    identities = [content for content in contents if content is not None]
    query = failure.query.encode()
    is_of_job = not identities or any(query in identity for identity in identities)
    return failure if is_of_job else None


def hint_for(
    failure: JobFailure | None, location: str, otherwise: str, is_typed: bool = False
) -> str:
    """Return the commands that lead on; `otherwise` is the effect of a resume of unknown use. The
    start `is_typed`: an option of `move` has it, which no corrected spec can change.
    """
    remedy = failure.remedy if failure is not None else Remedy.UNKNOWN
    if is_typed and remedy is not Remedy.ROLLBACK:
        back = "`stateshift rollback WORKDIR` takes the run back, and starts the old job again if "
        return f"{back}`--restart` says how; {otherwise}. Another `--start` needs a new `move`"
    match remedy:
        case Remedy.ROLLBACK:
            return (
                f"{_BACK}. Resuming does not help: the job would be started on the same state and "
                "fail in the same way (see what is wrong with it: stateshift verify --deep "
                f"{location})"
            )
        case Remedy.OTHER_JOB:
            return (
                f"{_BACK}. Resuming as it is does not help: the application does not fit this "
                'state. With one that does as "application" under "submit": '
                "`stateshift resume WORKDIR --spec FILE`"
            )
        case Remedy.OTHER_SUBMIT:
            return (
                'correct "submit" in the spec, then `stateshift resume WORKDIR --spec FILE` '
                f"starts the job with it; or {_BACK}"
            )
        case Remedy.UNKNOWN:
            other = 'with another "submit": `stateshift resume WORKDIR --spec FILE`'
            return f"{_BACK}; {otherwise} ({other})"
