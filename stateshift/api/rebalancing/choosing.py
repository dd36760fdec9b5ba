"""A decision whose moves can all be planned.

A move that is decided on is planned before anything is done: what the plan refuses forbids that
cluster to that job, and it is decided again. The plan of any other move judges versions, formats,
storages, brokers, slots and locks in the same way. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import cast

from stateshift import migration
from stateshift.advise.measuring import Capacity
from stateshift.advise.rebalance.decision import Decision, JobMove, decide
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.situation import Policy, Situation
from stateshift.api.rebalancing.folder import RebalanceFolder
from stateshift.api.rebalancing.move_spec import Way, spec_of_move
from stateshift.api.rebalancing.past import reason_against
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.api.rebalancing.survey import SurveyResult
from stateshift.clusters.protocol import SavepointCluster
from stateshift.errors import ClusterError, Interrupted, StateshiftError
from stateshift.estimating import RESTART_SECONDS
from stateshift.migration import Adapters, Proposal
from stateshift.specification import Mode, RebalancedCluster, Rebalancing

_Key = tuple[tuple[str, ...], str]


@dataclass(frozen=True)
class PlannedDecision:
    """The decision, its situation, and the way of each of its moves."""

    situation: Situation
    decision: Decision
    ways: tuple[Way, ...]


def policy_of(section: Rebalancing, sample_seconds: float) -> Policy:
    """Return the rules of the decision, as the spec gives them. Two runs count as two if a sample
    lies between.
    """
    return Policy(
        load_max=section.load_max,
        trigger=section.trigger,
        aim=section.aim,
        idle_below=section.idle_below,
        runs=section.runs,
        runs_apart_seconds=sample_seconds,
        runs_within_seconds=section.runs_within,
        gain_min=section.gain_min,
        relief_min=section.relief_min,
        horizon_seconds=section.horizon,
        cool_down_seconds=section.cool_down,
        remembered_seconds=section.remembered,
        moves_max=section.moves_max,
    )


@dataclass
class MoveChooser:
    """Decides until every move of the decision can be planned."""

    request: RebalanceRequest
    folder: RebalanceFolder
    adapters: Adapters
    surveyed: SurveyResult
    ways: dict[_Key, Way] = field(default_factory=dict)

    def choose(self, memory: Memory) -> PlannedDecision:
        """Return the decision. Each round forbids a move or has planned one, so that it ends."""
        surveyed, situation = self.surveyed, self.surveyed.situation
        policy = policy_of(self.request.section, self.request.sample_seconds)
        clusters = {cluster.name: cluster for cluster in self.request.clusters}
        while True:
            decision = decide(situation, policy, memory)
            too_large = list(
                without_memory(decision, surveyed.memory, clusters, surveyed.capacities)
            )
            new = [move for move in decision.moves if _key(move) not in self.ways]
            if too_large:
                for move, reason in too_large:
                    situation = _forbid(situation, move, reason)
            elif new:
                for move in new:
                    situation = self._plan(situation, move)
            else:
                ways = tuple(self.ways[_key(move)] for move in decision.moves)
                return PlannedDecision(situation, decision, ways)

    def _plan(self, situation: Situation, move: JobMove) -> Situation:
        """Plan a move; return the situation with what its plan says."""
        failed = reason_against(self.folder, self.request, move, self.adapters.clock.now())
        if failed is not None:
            return _forbid(situation, move, failed)
        number = self.folder.next_move() + len(self.ways)
        # The best way first. A job of Flink that has completed no checkpoint would be waited for,
        # and may never complete one.
        modes: tuple[Mode, ...] = ("move",)
        if self.request.section.warm and all(map(self._can_be_followed, move.jobs)):
            modes = ("warm", "move")
        reason = ""
        for mode in modes:
            way = Way(move.jobs, move.source, move.target, number, mode, move.parallelism)
            try:
                spec = spec_of_move(self.request, self.surveyed, way)
                proposal = migration.propose(spec, self.adapters, self.folder.place)
            except Interrupted:
                raise
            except StateshiftError as error:
                reason = error.fact
                continue
            if not proposal.refusals:
                self.ways[_key(move)] = way
                return self._with_downtime(situation, move, proposal)
            reason = proposal.refusals[0].message
        return _forbid(situation, move, f"the plan refuses it: {reason}")

    def _can_be_followed(self, name: str) -> bool:
        """Whether a job has left a checkpoint that can be copied while it runs."""
        where = self.surveyed.whereabouts[name]
        spec = self.request.spec.cluster(where.place.cluster)
        cluster = self.adapters.open_cluster(spec, self.folder.place)
        if self.surveyed.jobs[name].flink is None:
            return True
        if where.id is None or not hasattr(cluster, "latest_checkpoint"):
            return False
        try:
            return cast(SavepointCluster, cluster).latest_checkpoint(where.id) is not None
        except ClusterError:
            return False

    def _with_downtime(self, situation: Situation, move: JobMove, proposal: Proposal) -> Situation:
        """Return the situation with the plan's estimate, for jobs whose restart nobody has
        measured.
        """
        needs, restarts = self.surveyed.needs, self.surveyed.restarts
        estimated: dict[str, float] = {}
        for plan in proposal.plans:
            seconds = 0.0 if plan.estimate is None else plan.estimate.downtime_seconds
            estimated[plan.job] = estimated.get(plan.job, 0.0) + seconds
        jobs = []
        for job in situation.jobs:
            seconds = estimated.get(job.name, 0.0)
            if job.name in move.jobs and seconds and not needs[job.name].is_measured:
                if restarts:  # of other jobs, in place of what is assumed of a restart
                    seconds = max(0.0, seconds - RESTART_SECONDS) + median(restarts)
                job = replace(job, downtime_seconds=seconds)
            jobs.append(job)
        return replace(situation, jobs=tuple(jobs))


def _key(move: JobMove) -> _Key:
    return move.jobs, move.target


def _forbid(situation: Situation, move: JobMove, reason: str) -> Situation:
    """Return the situation in which a move is not possible."""
    jobs = []
    for job in situation.jobs:
        if job.name in move.jobs:
            job = replace(job, forbidden={**job.forbidden, move.target: reason})
        jobs.append(job)
    return replace(situation, jobs=tuple(jobs))


def without_memory(
    decision: Decision,
    needed_by: Mapping[str, int | None],
    clusters: Mapping[str, RebalancedCluster],
    told: Mapping[str, Capacity],
) -> Iterator[tuple[JobMove, str]]:
    """Yield the moves for which their target has not enough memory, and why."""
    free: dict[str, int] = {}
    for name, cluster in clusters.items():
        memory = cluster.memory or told[name].memory
        if memory is not None:
            free[name] = memory - told[name].memory_used
    for move in decision.moves:
        if move.source == move.target:  # what a slot has does not change
            continue
        needed = [needed_by[name] for name in move.jobs]
        known = [size for size in needed if size is not None]
        if move.target not in free or len(known) < len(needed):
            continue
        free[move.target] -= sum(known)
        if free[move.target] < 0:
            lacks = -free[move.target]
            free[move.target] += sum(known)
            yield move, f"its memory is taken: {lacks / (1 << 20):,.0f} MiB too few are free"
