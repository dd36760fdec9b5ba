"""The old job and the new one around the downtime: PrepareJob, StopJob.

PrepareJob starts the target's application before the old job is stopped, so that its start is no
part of the downtime:

    we  submit it with STATESHIFT_WAIT, under the tag that it will run under
    it  comes up, calls `stateshift.job.wait`, writes `_stateshift/waiting`, and looks for
        `_stateshift/released`
    we  stop the old job, bring its image over, publish it; SubmitJob then releases what waits

An application that does not call `wait` would start from nothing: it is stopped, and the old job is
left alone.

StopJob stops the old job. Taken back, it restarts the job where it was: as it was started there, by
the word of its cluster before the stop; else as the spec's `source_submit` says. A cluster that
refuses a start has done nothing, and the next way is tried. One that gives no answer may have
started the job: nothing else is tried then.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, cast

from stateshift.clusters.protocol import (
    Cluster,
    JobState,
    JobStatus,
    SavepointCluster,
    Silent,
    StopRequest,
    Submission,
    TellsStopping,
)
from stateshift.errors import ClusterError, StorageError
from stateshift.formats.marks import FOLDER, WAIT, WAITING, is_meant
from stateshift.plain import JsonObject
from stateshift.step.evidence import JobStarted, JobStopped, of_kind
from stateshift.step.marks import (
    NoFiles,
    content_of,
    forget_marks,
    forget_stop,
    is_being_stopped,
    tag_of,
)
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.step.starting import LOG_LINES, first_tag, stop_started_job, without_frames
from stateshift.world import World

# The states in which a job runs, or may: one that was stopped then is started again.
RAN = ("running", "queued", "unknown")


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
    options: JsonObject = field(default_factory=dict)
    restart: JsonObject | None = None
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
            after = self._stopped(cluster)
        else:
            forget_stop(world.storage(self.location), self.job)
        return JobStopped(
            state_before=str(before.state),
            state=str(after.state),
            at=began,
            seconds=world.clock.now() - began,
        )

    def _stopped(self, cluster: Cluster) -> JobStatus:
        after = cluster.stop(self.request)
        if after.state.alive:
            raise ClusterError(
                f"{self.job} is still {after.state} after it was asked to stop",
                cluster=self.cluster,
                job=self.job,
                hint="stop it by hand, then `stateshift resume WORKDIR`",
            )
        return after

    def _asked_again(self, cluster: Cluster, state: JobState, again: str) -> list[str]:
        """Have a job that nobody sees stop once more, as a resume would: its stop was cut short.
        Return nothing if it can be started again now, else what is not known.
        """
        if state is not JobState.UNKNOWN:
            return []
        unsure = f"{self.job} may have been stopped or not: {again} if it does not run"
        if self.restart is None or not hasattr(cluster, "is_stopping"):
            return [unsure]
        try:
            self._stopped(cluster)
        except ClusterError as error:
            return [f"{unsure} ({error.fact})"]
        return []

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        status = world.cluster(self.cluster).find_source(self.request)
        return [Discrepancy(self.job, "stopped", str(status.state))] if status.state.alive else []

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        """Start the job again where it was, if it ran and the spec says how. Evidence of a repeated
        attempt does not tell whether it ran: the attempt that was cut short may have stopped it.
        """
        cluster = world.cluster(self.cluster)
        state = cluster.find_source(self.request).state
        again = f"start it again from {self.location}"
        if state.alive:
            storage = world.storage(self.location)
            is_ending = is_being_stopped(storage, self.job, self.tag, world.clock.now())
            if not is_ending and hasattr(cluster, "is_stopping"):
                is_ending = cast(TellsStopping, cluster).is_stopping(self.request)
            if evidence is not None or not is_ending:
                return []
            told = world.origins(self.job)
            if self.restart is None and (told is None or told.options is None):
                forget_stop(world.storage(self.location), self.job)
                return [f"{self.job} was being asked to stop: if it ends, {again}"]
            # It may have heard already, or be killed: it is down before it is started again.
            self._stopped(cluster)
        forget_stop(world.storage(self.location), self.job)
        if evidence is None:
            unsure = self._asked_again(cluster, state, again)
            if unsure:
                return unsure
        else:
            stop = of_kind(evidence, JobStopped)
            if not stop.repeated and stop.state_before not in RAN:
                return []
        owner = world.fence(self.location)
        if owner is not None:
            moved = f"run {owner} has moved it away from {self.location}"
            return [f"{self.job} is stopped, and not started again: {moved}"]
        # Over an empty place it would begin anew, as if it had never run. A place that gives no
        # answer is left to its cluster.
        with suppress(StorageError):
            files = world.storage(self.location).list()
            if all(file.path.startswith(f"{FOLDER}/") for file in files):
                raise ClusterError(
                    f"{self.job} is not started again: nothing is at {self.location} any more, and "
                    "it would begin anew",
                    cluster=self.cluster,
                    job=self.job,
                    hint=f"bring back what was at {self.location}, then: stateshift rollback "
                    "WORKDIR",
                )
        # Jobs that share a source start it again once.
        first_tag = f"{tag_of(world, self.location)}.restart"
        return Restart(
            self.cluster, self.job, self.location, first_tag, self.restart, self.restart_environment
        ).run(world)


@dataclass(frozen=True, slots=True)
class PrepareJob(NoFiles):
    """Start the target's application, which waits for its image."""

    kind: ClassVar[str] = "PrepareJob"
    name: str
    cluster: str
    job: str
    location: str
    connection: str | None
    options: JsonObject
    environment: Mapping[str, str]
    seconds_max: float
    attempt: int = 1

    def describe(self) -> str:
        return (
            f"start {self.job} on {self.cluster}, where it waits for its image at {self.location}"
        )

    def run(self, world: World) -> Evidence:
        cluster, tag = world.cluster(self.cluster), first_tag(world, self.job, self.attempt)
        began, status = world.clock.now(), cluster.find(tag)
        environment = {**self.environment, WAIT: "1"}
        job = status.id or tag
        if status.state in (JobState.ABSENT, JobState.UNKNOWN):
            job = cluster.submit(
                Submission(tag, self.job, self.location, self.connection, self.options, environment)
            )
        storage, submitted = world.storage(self.location), world.clock.now()
        while not is_meant(content_of(storage, WAITING), tag):
            world.check_interrupted()
            state = cluster.find(tag).state
            seconds = world.clock.now() - submitted
            if seconds > self.seconds_max:
                raise self._failed(cluster, tag, f"is {state} after {self.seconds_max:.0f} s")
            if state in (JobState.FAILED, JobState.FINISHED):
                raise self._failed(cluster, tag, "has ended")
            world.clock.sleep(min(1.0, 0.1 + seconds / 20))
        return JobStarted(job, tag, at=began, seconds=world.clock.now() - began)

    def _failed(self, cluster: Cluster, tag: str, what: str) -> ClusterError:
        fact = (
            f"{self.job} was to wait for its image on {self.cluster}, and {what} without saying "
            "that it does"
        )
        log = without_frames(cluster.log(tag, LOG_LINES))
        if log:
            fact += f"; its log ends:\n{log}"
        hint = (
            "it has to call stateshift.job.wait() before its first query; the old job runs on: "
            "take this back (`stateshift rollback WORKDIR`), and mend it, or leave out "
            '"prepare"'
        )
        return ClusterError(fact, cluster=self.cluster, job=self.job, hint=hint)

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        cluster, tag = world.cluster(self.cluster), first_tag(world, self.job, self.attempt)
        if cluster.find(tag).state is not JobState.ABSENT:
            stop_started_job(
                cluster,
                self.cluster,
                StopRequest(self.job, self.location, tag, options=self.options),
            )
        forget_marks(world.storage(self.location))
        return []


# For a job that waits for slots, or for a first checkpoint.
GOING_SECONDS_MAX = 90.0
# A program that refuses its arguments ends within these.
SETTLED_SECONDS = 5.0
_OVER = (JobState.FINISHED, JobState.FAILED)
_ENDS = {JobState.FINISHED: "ended", JobState.FAILED: "failed"}


@dataclass(frozen=True, slots=True)
class Restart:
    """A job to be started again from `location`; its tags begin with `first_tag`.
    `tells_progress`: its cluster is a SavepointCluster, which tells how far a job has come.
    """

    cluster: str
    job: str
    location: str
    first_tag: str
    options: JsonObject | None
    environment: Mapping[str, str]
    tells_progress: bool = False

    def run(self, world: World) -> list[str]:
        """Start the job, and see that it does not fail at once. Return lines on what is left."""
        cluster = world.cluster(self.cluster)
        told = world.origins(self.job)
        ways: list[tuple[str, JsonObject, Mapping[str, str]]] = []
        if told is not None and told.options is not None:
            ways.append(("as it was started", told.options, told.environment))
        is_told = bool(ways) and told is not None and self.options == told.options
        if self.options is not None and not is_told:
            ways.append(("by `source_submit`", self.options, self.environment))
        if not ways:
            why = (
                told.why
                if told is not None and told.why
                else "no `source_submit` in the spec, or `--restart` of `move`"
            )
            return [f"{self.job} is stopped: start it again from {self.location} ({why})"]
        refusals: list[str] = []
        named = len(ways) > 1
        for way, options, environment in ways:
            tag = current_tag(cluster, self.first_tag)
            submission = Submission(tag, self.job, self.location, None, options, environment)
            try:
                cluster.submit(submission)
                left = self._await_settled(cluster, tag, world)
                world.meter.say(f"{self.job} was started again from {self.location}")
                return left
            except Silent:
                raise
            except ClusterError as error:
                refusals.append(f"{way}: {error.fact}" if named else error.fact)
        raise ClusterError(
            f"{self.job} could not be started again where it was: {'; '.join(refusals)}",
            cluster=self.cluster,
            job=self.job,
            hint="`stateshift rollback WORKDIR` tries it again; or start it by hand from "
            f"{self.location}, then `stateshift rollback WORKDIR --runs-again`",
        )

    def _await_settled(self, cluster: Cluster, tag: str, world: World) -> list[str]:
        """Return once the job goes on: it runs for a while, or has completed a checkpoint."""
        began = world.clock.now()
        running_since: float | None = None
        while True:
            status = cluster.find(tag)
            now = world.clock.now()
            if status.state in _OVER or self._is_hopeless(cluster, tag, world):
                how = _ENDS.get(status.state, "got no further")
                detail = f" ({status.detail})" if status.detail else ""
                raise ClusterError(f"it {how} when it was started again{detail}")
            if status.state is JobState.UNKNOWN:
                return []
            if status.state is not JobState.RUNNING:
                running_since = None
            elif running_since is None:
                running_since = now
            is_settled = running_since is not None and now - running_since >= SETTLED_SECONDS
            if is_settled and self._goes_on(cluster, tag):
                return []
            if now - began >= GOING_SECONDS_MAX:
                fact = f"{self.job} was started again as {status.id or tag}, and nobody has seen "
                return [f"{fact}it going on: look at it on {self.cluster}"]
            world.clock.sleep(0.5)

    def _is_hopeless(self, cluster: Cluster, tag: str, world: World) -> bool:
        """Whether the job fails again and again; it is stopped then."""
        if not self.tells_progress:
            return False
        if cast(SavepointCluster, cluster).progress(tag).hopeless is None:
            return False
        cluster.stop(StopRequest(self.job, self.location, tag))
        return True

    def _goes_on(self, cluster: Cluster, tag: str) -> bool:
        if not self.tells_progress:
            return True
        progress = cast(SavepointCluster, cluster).progress(tag)
        is_later = progress.epoch is not None and progress.epoch > (progress.restored_epoch or 0)
        return progress.running and (is_later or progress.writes_none)


def current_tag(cluster: Cluster, first: str) -> str:
    """Return the first tag of nothing, or of something that runs: those before have ended."""
    tag = first
    number = 1
    while cluster.find(tag).state in _OVER:
        number += 1
        tag = f"{first}.{number}"
    return tag
