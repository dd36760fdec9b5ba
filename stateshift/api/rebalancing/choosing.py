"""A decision whose moves can all be planned.

A move that is decided on is planned before anything is done: what the plan refuses forbids that
cluster to that job, and it is decided again. So versions, formats, storages, brokers, slots and
locks are judged by what judges every other move. Reads only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median
from typing import cast

from stateshift import migration
from stateshift.advise.rebalance.decision import Decision, Move, decide
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.policy import Policy
from stateshift.advise.rebalance.situation import Situation
from stateshift.api.rebalancing.folder import Folder
from stateshift.api.rebalancing.memory_needs import without_memory
from stateshift.api.rebalancing.move_spec import Way, spec_of_move
from stateshift.api.rebalancing.refused import reason_against
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.api.rebalancing.surveying import Surveyed
from stateshift.clusters.protocol import SavepointCluster
from stateshift.errors import ClusterError, Interrupted, StateshiftError
from stateshift.estimating import RESTART_SECONDS
from stateshift.migration import Adapters, Proposal
from stateshift.specification import Mode, Rebalancing

_Key = tuple[tuple[str, ...], str]


@dataclass(frozen=True)
class Chosen:
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
class Choosing:
    """Decides until every move of the decision can be planned."""

    request: RebalanceRequest
    folder: Folder
    adapters: Adapters
    surveyed: Surveyed
    ways: dict[_Key, Way] = field(default_factory=dict)

    def chosen(self, memory: Memory) -> Chosen:
        """Return the decision. Each round forbids a move or has planned one, so that it ends."""
        situation = self.surveyed.situation
        policy = policy_of(self.request.section, self.request.sample_seconds)
        clusters = {cluster.name: cluster for cluster in self.request.clusters}
        needed, told = self.surveyed.memory, self.surveyed.capacities
        while True:
            decision = decide(situation, policy, memory)
            forbidden = tuple(without_memory(decision, needed, clusters, told))
            new = [move for move in decision.moves if _key(move) not in self.ways]
            if not forbidden and not new:
                ways = tuple(self.ways[_key(move)] for move in decision.moves)
                return Chosen(situation, decision, ways)
            if forbidden:
                new = []
            for move, reason in forbidden:
                situation = _forbidding(situation, move, reason)
            for move in new:
                situation = self._planned(situation, move)

    def _planned(self, situation: Situation, move: Move) -> Situation:
        """Plan a move; return the situation with what its plan says."""
        refused = reason_against(self.folder, self.request, move, self.adapters.clock.now())
        if refused is not None:
            return _forbidding(situation, move, refused)
        number = self.folder.next_move() + len(self.ways)
        reasons = []
        modes: tuple[Mode, ...] = ("move",)
        if self.request.section.warm and all(map(self._can_be_followed, move.jobs)):
            modes = ("warm", "move")  # the best first
        for mode in modes:
            way = Way(move.jobs, move.source, move.target, number, mode, move.parallelism)
            try:
                spec = spec_of_move(self.request, self.surveyed, way)
                proposal = migration.propose(spec, self.adapters, self.folder.place)
            except Interrupted:
                raise
            except StateshiftError as error:
                reasons.append(error.fact)
                continue
            if not proposal.refusals:
                self.ways[_key(move)] = way
                return self._with_downtime(situation, move, proposal)
            reasons.append(proposal.refusals[0].message)
        return _forbidding(situation, move, f"the plan refuses it: {reasons[-1]}")

    def _can_be_followed(self, name: str) -> bool:
        """Whether a job has left a checkpoint that can be copied while it runs. A job of Flink that
        has completed none would be waited for, and may never complete one.
        """
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

    def _with_downtime(self, situation: Situation, move: Move, proposal: Proposal) -> Situation:
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
            downtime = estimated.get(job.name)
            if job.name in move.jobs and not needs[job.name].is_measured and downtime:
                if restarts:  # what moves of other jobs took, in place of what is assumed
                    downtime = max(0.0, downtime - RESTART_SECONDS) + median(restarts)
                job = replace(job, downtime_seconds=downtime)
            jobs.append(job)
        return replace(situation, jobs=tuple(jobs))


def _key(move: Move) -> _Key:
    return move.jobs, move.target


def _forbidding(situation: Situation, move: Move, reason: str) -> Situation:
    """Return the situation in which a move is not possible."""
    jobs = []
    for job in situation.jobs:
        if job.name in move.jobs:
            job = replace(job, forbidden={**job.forbidden, move.target: reason})
        jobs.append(job)
    return replace(situation, jobs=tuple(jobs))
