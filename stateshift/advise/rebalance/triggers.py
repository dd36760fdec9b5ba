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
    last of them was.
    """

    cluster: str
    reason: str
    runs: int
    is_due: bool
    counted_at: float = 0.0


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
            runs, counted_at = _counted(name, situation.at, policy, memory)
            found.append(Trigger(name, reason, runs, runs >= policy.runs, counted_at))
    return tuple(found)


def _counted(cluster: str, at: float, policy: Policy, memory: Memory) -> tuple[int, float]:
    """Return in how many runs a cluster was too full, and when the last of them was. A run shortly
    behind another one is no other run: somebody has called it twice. A clock may be set back.
    """
    runs = memory.counts.get(cluster, 0)
    last = memory.counted.get(cluster)
    if runs > 0 and last is not None and 0 <= at - last < policy.runs_apart_seconds:
        return runs, last
    return runs + 1, at


def _reason(ratio: float, mean: float, policy: Policy, late: str | None) -> str:
    if ratio > policy.load_max:
        return f"its load is {ratio:.0%}, above {policy.load_max:.0%}"
    if ratio > policy.trigger * mean and ratio > policy.idle_below:
        return f"its load is {ratio:.0%}, above {policy.trigger:g} times the mean of {mean:.0%}"
    if late is not None:
        return f"{late} cannot keep up there"
    return ""
