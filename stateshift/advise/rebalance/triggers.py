"""When something is done at all: a cluster is too full run after run, or is to be emptied.

Two bounds keep it calm. What triggers is wider than what is aimed for, and it must hold in several
runs in a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stateshift.advise.rebalance.policy import Policy
from stateshift.advise.rebalance.situation import Situation, mean_of


@dataclass(frozen=True, slots=True)
class Trigger:
    """Why a cluster is too full, and in how many runs in a row it was."""

    cluster: str
    reason: str
    runs: int
    is_due: bool


def triggers_of(
    situation: Situation, loads: Mapping[str, float], policy: Policy, counts: Mapping[str, int]
) -> tuple[Trigger, ...]:
    """Return the clusters that are too full now. `counts` says for how many runs they were before
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
            runs = counts.get(name, 0) + 1
            found.append(Trigger(name, reason, runs, is_due=runs >= policy.runs))
    return tuple(found)


def _reason(ratio: float, mean: float, policy: Policy, late: str | None) -> str:
    if ratio > policy.load_max:
        return f"its load is {ratio:.0%}, above {policy.load_max:.0%}"
    if ratio > policy.trigger * mean and ratio > policy.idle_below:
        return f"its load is {ratio:.0%}, above {policy.trigger:g} times the mean of {mean:.0%}"
    if late is not None:
        return f"{late} cannot keep up there"
    return ""
