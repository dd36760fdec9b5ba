"""Whether clusters that were to be emptied are empty: each is asked again once the moves are over.
A plan says what should have left; only the cluster knows what has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from stateshift.advise.rebalance.outcome import Drained, Rebalance
from stateshift.api.rebalancing.folder import RebalanceFolder
from stateshift.api.rebalancing.past import past_of
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.api.rebalancing.whereabouts import (
    JobList,
    Whereabouts,
    ids_of,
    jobs_now,
    list_jobs,
    name_there,
)
from stateshift.errors import PlanError, StateshiftError
from stateshift.migration import Adapters
from stateshift.specification import JobSpec

# A driver that was stopped is listed for some seconds more.
LOOKS, SECONDS_APART = 6, 2.0
NAMED_MAX = 5
UNLISTED = "it does not tell what else runs there"


class OccupantList(Protocol):
    """A cluster that names all that runs there, whoever has started it."""

    def occupants(self) -> tuple[str, ...]: ...


def survey_drained(
    request: RebalanceRequest, folder: RebalanceFolder, adapters: Adapters, outcome: Rebalance
) -> tuple[Drained, ...]:
    """Return the contents of each cluster that was to be emptied."""
    spec, names = request.spec, [cluster.name for cluster in request.clusters]
    for _ in range(LOOKS):
        clusters = list_jobs(spec, names, adapters, folder.place)
        jobs, where = jobs_now(spec.jobs, clusters, past_of(folder).places)
        ended = folder.memory().absence.ended
        first = {job.name: job for job in spec.jobs}
        look = _Look(clusters, jobs, first, where, ended, outcome)
        drained = tuple(look.at(name) for name in request.draining)
        if not outcome.carried or not any(each.others and not each.jobs for each in drained):
            break
        adapters.clock.sleep(SECONDS_APART)
    return drained


def not_empty(outcome: Rebalance) -> PlanError | None:
    """Return the error of a failed drain; None if all of its clusters are empty."""
    holding = [each for each in outcome.drained if not each.is_empty]
    if not holding:
        return None
    fact = "; ".join(f"{each.cluster} is not empty: {_held(each)}" for each in holding)
    return PlanError(fact, hint=_way_out(holding, outcome))


def _held(each: Drained) -> str:
    parts = [f"{job} stays: {reason}" for job, reason in each.jobs[:NAMED_MAX]]
    if len(each.jobs) > NAMED_MAX:
        parts.append(f"{len(each.jobs) - NAMED_MAX} more stay")
    if each.others:
        parts.append(f"not of the spec, and runs there: {', '.join(each.others[:NAMED_MAX])}")
    if each.unknown:
        parts.append(f"it cannot be asked: {each.unknown}")
    return "; ".join(parts)


def _way_out(holding: Collection[Drained], outcome: Rebalance) -> str:
    states = {each.state for each in (*outcome.unfinished, *outcome.carried)}
    if outcome.busy is not None:
        return "the same command with --wait waits for the other run"
    if states & {"planned", "unfinished"}:
        return "the same command with --yes makes the moves"
    if any(each.jobs for each in holding):
        return "mend what keeps the jobs, then the same command again"
    if any(each.others for each in holding):
        return "stop the others, or move them by specs of their own; then the same command again"
    return "the same command again, once the cluster answers"


@dataclass(frozen=True)
class _Look:
    """The lists of clusters, for the jobs of a spec. `ended` are those that nobody waits for."""

    clusters: Mapping[str, JobList]
    jobs: Mapping[str, JobSpec]
    first: Mapping[str, JobSpec]
    where: Mapping[str, Whereabouts]
    ended: Collection[str]
    outcome: Rebalance

    def at(self, name: str) -> Drained:
        """Return the contents of one cluster."""
        cluster = self.clusters[name]
        try:
            reasons = {job: self._why_there(job, name) for job in self.jobs}
            holds = {job: reason for job, reason in reasons.items() if reason}
            others, note = self._others(cluster, holds)
        except StateshiftError as error:
            return Drained(name, unknown=error.fact)
        return Drained(name, tuple(holds.items()), others, cluster.trouble, note)

    def _why_there(self, job: str, name: str) -> str:
        """Return the reason why a cluster still holds a job; "" if it does not. A job that was
        moved is asked for as the spec has it, too: somebody may have started it there again.
        """
        cluster, where = self.clusters[name], self.where[job]
        ids = ids_of(self.jobs[job], cluster)
        first = self.first.get(job)
        if not ids and first is not None and first.source_cluster == name:
            ids = ids_of(first, cluster)
        is_here = where.place.cluster == name
        if ids:
            elsewhere = f"it runs there, beside the one on {where.place.cluster}"
            return self._stays(job, name) if is_here else elsewhere
        if not is_here or job in self.ended:
            return ""
        if ids is None:
            return f"the cluster does not tell whether it runs; {self._stays(job, name)}"
        return where.unknown or f"it was left there, and {name} does not answer"

    def _stays(self, job: str, name: str) -> str:
        """Return the reason why a run has left a job where it is."""
        outcome = self.outcome
        if outcome.busy is not None:
            return f"another run is at work: {outcome.busy}"
        for each in (*outcome.carried, *outcome.unfinished):
            if job in each.jobs and each.source == name:
                way = f"its move to {each.target} is {each.state}"
                return f"{way}: {each.fact}" if each.fact else way
        if outcome.unfinished and outcome.decision is None:
            return "moves of earlier runs come first"
        stays = () if outcome.decision is None else outcome.decision.stays
        reasons = [stay.reason for stay in stays if stay.job == job]
        return reasons[0] if reasons else "it runs there"

    def _others(self, cluster: JobList, holds: Collection[str]) -> tuple[tuple[str, ...], str]:
        """Return the other jobs that run there, and a note if those cannot be told apart. Spark's
        applications have names of their own: only where no job of the spec is left there, all of
        them are others.
        """
        if cluster.trouble:
            return (), ""
        if cluster.jobs is not None:
            ours = {name_there(job) for job in self.jobs.values()}
            return tuple(called for _, called in cluster.jobs if called not in ours), ""
        if not hasattr(cluster.cluster, "occupants"):
            return (), UNLISTED
        if holds:
            return (), ""
        return cast(OccupantList, cluster.cluster).occupants(), ""
