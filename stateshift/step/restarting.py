"""The restart of a job where it was, once its stop is taken back: as it was started there, by the
word of its cluster before it was stopped; else as the spec's `source_submit` says.

A cluster that refuses a start has done nothing, and the next way is tried. One that gives no answer
may have started the job: nothing else is tried then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from stateshift.clusters.protocol import (
    Cluster,
    JobState,
    SavepointCluster,
    Silent,
    StopRequest,
    Submission,
)
from stateshift.errors import ClusterError
from stateshift.plain import JsonObject
from stateshift.world import World

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
            ways.append(("by source_submit", self.options, self.environment))
        if not ways:
            why = told.why if told is not None and told.why else "no source_submit in the spec"
            return [f"{self.job} is stopped: start it again from {self.location} ({why})"]
        refusals: list[str] = []
        for way, options, environment in ways:
            tag = current_tag(cluster, self.first_tag)
            submission = Submission(tag, self.job, self.location, None, options, environment)
            try:
                cluster.submit(submission)
                return self._await_settled(cluster, tag, world)
            except Silent:
                raise
            except ClusterError as error:
                refusals.append(f"{way}: {error.fact}")
        raise ClusterError(
            f"{self.job} could not be started again where it was ({'; '.join(refusals)})",
            cluster=self.cluster,
            job=self.job,
            hint=f"start it by hand on {self.cluster} from {self.location}; `stateshift rollback "
            "WORKDIR` tries it again",
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
    """Return the first tag under which nothing was started yet, or something still runs: what was
    started again earlier has failed, or was stopped by the halt after that.
    """
    tag = first
    number = 1
    while cluster.find(tag).state in _OVER:
        number += 1
        tag = f"{first}.{number}"
    return tag
