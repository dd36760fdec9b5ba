"""PrepareJob: the target's application is started before the old job is stopped, and waits for its
image, so that its start is no part of the downtime.

    we  submit it with STATESHIFT_WAIT, under the tag that it will run under
    it  comes up, calls `stateshift.job.wait`, writes `_stateshift/waiting`, and looks for
        `_stateshift/released`
    we  stop the old job, bring its image over, publish it; SubmitJob then releases what waits

An application that does not call `wait` would start from nothing: it is stopped, and the old job is
left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from stateshift.clusters.protocol import Cluster, JobState, StopRequest, Submission
from stateshift.errors import ClusterError
from stateshift.formats.marks import WAIT, WAITING, is_meant
from stateshift.plain import JsonObject
from stateshift.step.evidence import JobStarted
from stateshift.step.marks import NoFiles, content_of, forget_marks
from stateshift.step.protocol import Evidence
from stateshift.step.starting import LOG_LINES, first_tag, stop_started_job, without_frames
from stateshift.world import World


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
        self._await(tag, world)
        return JobStarted(job, tag, at=began, seconds=world.clock.now() - began)

    def _await(self, tag: str, world: World) -> None:
        storage = world.storage(self.location)
        cluster = world.cluster(self.cluster)
        began = world.clock.now()
        while not is_meant(content_of(storage, WAITING), tag):
            world.check_interrupted()
            state = cluster.find(tag).state
            seconds = world.clock.now() - began
            if seconds > self.seconds_max:
                raise self._failed(cluster, tag, f"is {state} after {self.seconds_max:.0f} s")
            if state in (JobState.FAILED, JobState.FINISHED):
                raise self._failed(cluster, tag, "has ended")
            world.clock.sleep(min(1.0, 0.1 + seconds / 20))

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
