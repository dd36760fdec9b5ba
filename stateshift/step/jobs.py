"""The step that stops the old job, and starts it again when that is taken back: StopJob."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from stateshift.clusters.protocol import Cluster, JobState, JobStatus, StopRequest
from stateshift.errors import ClusterError, StorageError
from stateshift.formats.marks import FOLDER
from stateshift.plain import JsonObject
from stateshift.step.evidence import JobStopped, of_kind
from stateshift.step.marks import NoFiles, forget_stop, is_being_stopped, tag_of
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.step.restarting import Restart
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
            if evidence is not None or not is_ending:
                return []
            told = world.origins(self.job)
            if self.restart is None and (told is None or told.options is None):
                forget_stop(world.storage(self.location), self.job)
                return [f"{self.job} was being asked to stop: if it ends, {again}"]
            # It may have heard already: it is down before it is started again.
            self._stopped(cluster)
        forget_stop(world.storage(self.location), self.job)
        if evidence is None and state is JobState.UNKNOWN:
            return [f"{self.job} may have been stopped or not: {again} if it does not run"]
        if evidence is not None:
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
