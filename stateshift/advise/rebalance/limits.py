"""The limits that forbid a move, each by name. A move that one of them forbids is never made,
whatever it would bring.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.policy import Policy
from stateshift.advise.rebalance.situation import Cluster, Situation, Unit


@dataclass(frozen=True, slots=True)
class Movable:
    """A unit, and the clusters that may have it; none, and the reasons, if it stays. One that is
    light could move, but takes too little off its cluster.
    """

    unit: Unit
    targets: tuple[str, ...]
    reasons: tuple[str, ...]
    is_light: bool = False


def movable(
    situation: Situation, units: Sequence[Unit], policy: Policy, memory: Memory
) -> tuple[Movable, ...]:
    """Return the targets of each unit, by all but its load: that depends on the other moves."""
    return tuple(_movable(situation, unit, policy, memory) for unit in units)


def _movable(situation: Situation, unit: Unit, policy: Policy, memory: Memory) -> Movable:
    staying = tuple(_keeping(unit, situation, policy))
    if staying:
        return Movable(unit, (), staying)
    draining = [cluster.name for cluster in situation.clusters if cluster.is_draining]
    if unit.load < policy.relief_min and unit.cluster not in draining:
        least = f"a move takes at least {policy.relief_min:g} off its cluster"
        return Movable(unit, (), (f"its load is {unit.load:.2g} workers: {least}",), is_light=True)
    targets, reasons = [], []
    for cluster in situation.clusters:
        if cluster.name == unit.cluster:
            continue
        forbidden = tuple(_forbidden(unit, cluster, memory))
        if forbidden:
            reasons += [f"{cluster.name}: {reason}" for reason in forbidden]
        else:
            targets.append(cluster.name)
    if not targets and not reasons:
        reasons.append("there is no other cluster")
    return Movable(unit, tuple(targets), tuple(reasons))


def _keeping(unit: Unit, situation: Situation, policy: Policy) -> Iterator[str]:
    """Yield the reasons that keep a unit where it is, wherever it could go. A cluster that is to be
    emptied is left without a cool-down. A move that is longer ahead than that was made by a clock
    that was set back since: it keeps nothing.
    """
    at = situation.at
    draining = {cluster.name for cluster in situation.clusters if cluster.is_draining}
    for job in unit.jobs:
        named = f"{job.name}: " if len(unit.jobs) > 1 else ""
        if job.pinned:
            yield f"{named}it is pinned"
        if job.paused:
            yield f"{named}it is paused"
        if job.load is None:
            yield f"{named}{job.why_unknown}"
        if job.moved_at is None or job.cluster in draining:
            continue
        since = at - job.moved_at
        seconds = policy.cool_down_seconds - max(0.0, since)
        if abs(since) < policy.cool_down_seconds:
            minutes = max(1, round(seconds / 60))
            more = "1 more minute" if minutes == 1 else f"{minutes} more minutes"
            yield f"{named}it was moved a short time ago, and stays for {more}"


def _forbidden(unit: Unit, cluster: Cluster, memory: Memory) -> Iterator[str]:
    """Yield the reasons that keep a unit from one cluster."""
    if cluster.is_draining:
        yield "it is to be emptied, and nothing moves there"
    elif cluster.is_cordoned:
        yield "it is cordoned: nothing moves there"
    for job in unit.jobs:
        if cluster.name in job.forbidden:
            yield job.forbidden[cluster.name]
    names = tuple(job.name for job in unit.jobs)
    failed = memory.forbids(names, cluster.name)
    if failed is not None:
        yield "a move there did not bring what it promised"


def has_room(cluster: Cluster, load: float, policy: Policy) -> bool:
    """Whether a cluster may have so much load in all."""
    return load <= policy.load_max * cluster.capacity * (1 + 1e-9)
