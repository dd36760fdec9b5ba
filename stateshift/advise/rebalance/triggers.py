"""When something is done at all: a cluster is too full run after run, or is to be emptied.

Two bounds keep it calm. What triggers is wider than what is aimed for, and it must hold in several
runs in a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.policy import Policy
from stateshift.advise.rebalance.situation import Situation, mean_of


@dataclass(frozen=True, slots=True)
class Trigger:
    """Why a cluster is too full, and in how many runs in a row it was. `counted_at` is when the
    last of them was; `too_old` is when one was that is too long ago to count, None of none.
    """

    cluster: str
    reason: str
    runs: int
    is_due: bool
    counted_at: float = 0.0
    too_old: float | None = None


def triggers_of(
    situation: Situation, loads: Mapping[str, float], policy: Policy, memory: Memory
) -> tuple[Trigger, ...]:
    """Return the clusters that are too full now. `memory` says for how many runs they were before
    this one.
    """
    mean = mean_of(situation.clusters, loads)
    late = {job.cluster: job.name for job in situation.jobs if not job.keeps_up}
    found = []
    for cluster in situation.clusters:
        name = cluster.name
        reason = _reason(loads[name] / cluster.capacity, mean, policy, late.get(name))
        if cluster.is_draining:
            found.append(Trigger(name, "it is to be emptied", 1, is_due=True))
        elif reason:
            found.append(_counted(name, reason, situation.at, policy, memory))
    return tuple(found)


def _counted(cluster: str, reason: str, at: float, policy: Policy, memory: Memory) -> Trigger:
    """Return in how many runs a cluster was too full. A run shortly behind another one is no other
    run: somebody has called it twice. One long behind is none in a row. A clock may be set back.
    """
    runs, counted_at, too_old = memory.counts.get(cluster, 0), at, None
    last = memory.counted.get(cluster)
    if runs > 0 and last is not None and abs(at - last) > policy.runs_within_seconds:
        runs, too_old = 0, last
    if runs > 0 and last is not None and 0 <= at - last < policy.runs_apart_seconds:
        counted_at = last
    else:
        runs += 1
    return Trigger(cluster, reason, runs, runs >= policy.runs, counted_at, too_old)


def _reason(ratio: float, mean: float, policy: Policy, late: str | None) -> str:
    if ratio > policy.load_max:
        return f"its load is {ratio:.0%}, above {policy.load_max:.0%}"
    if ratio > policy.trigger * mean and ratio > policy.idle_below:
        return f"its load is {ratio:.0%}, above {policy.trigger:g} times the mean of {mean:.0%}"
    if late is not None:
        return f"{late} cannot keep up there"
    return ""
