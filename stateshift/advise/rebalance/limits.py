"""The limits that forbid a move, each by name: it is never made, whatever it would bring. And the
cost and the gain of a move, both in records that wait:

    cost   records that come while the job is down, and while it catches up
    gain   records that need not wait, over the horizon

A server that is busy for a part of the time makes that part of its records wait (M/M/1). Nine of
ten wait on a cluster at 90 %, and evening out two clusters lessens the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.situation import Cluster, Job, Policy, Situation, Unit


@dataclass(frozen=True, slots=True)
class Movable:
    """A unit, and the clusters that may have it; or the reasons for which it stays."""

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
    """Yield the reasons that keep a unit where it is. Clusters to be emptied know no cool-down. A
    move in the future was made by a clock set back since.
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


# A job whose capacity is not known is taken to catch up at twice its rate.
CATCH_UP_FACTOR = 2.0
# It never catches up: as many records as come within a day wait.
NEVER_SECONDS = 86400.0
# The load of a cluster once its last job has gone: sums of fractions are not exact.
NO_LOAD = 1e-9


@dataclass(frozen=True, slots=True)
class Worth:
    """Cost and gain of a move, in records that wait."""

    cost: float
    gain: float

    @property
    def ratio(self) -> float:
        """The gain, in times the cost."""
        if self.cost <= 0:
            return float("inf") if self.gain > 0 else 0.0
        return self.gain / self.cost


def cost_of(unit: Unit) -> float:
    """Return the records that wait for a move: all jobs are down as long as the slowest is."""
    return sum(_waiting(job, unit.downtime_seconds) for job in unit.jobs)


def _waiting(job: Job, downtime: float) -> float:
    missed = job.rate * downtime
    fast = job.rate * CATCH_UP_FACTOR if job.capacity_rate is None else job.capacity_rate
    if missed <= 0:
        return 0.0
    if fast <= job.rate:
        return job.rate * (downtime + NEVER_SECONDS)
    return missed + job.rate * missed / (fast - job.rate)


@dataclass
class Flows:
    """The load of the jobs on each cluster, and the records a second that come to them."""

    loads: dict[str, float]
    rates: dict[str, float]

    def shift(self, unit: Unit, target: str) -> None:
        """Move a unit."""
        left = self.loads[unit.cluster] - unit.load
        self.loads[unit.cluster] = left if left > NO_LOAD else 0.0
        self.loads[target] += unit.load
        self.rates[unit.cluster] -= unit.rate
        self.rates[target] += unit.rate


def gain_of(
    unit: Unit, source: Cluster, target: Cluster, flows: Flows, horizon_seconds: float
) -> float:
    """Return the number of records that need not wait, over the horizon, if a unit is moved."""
    after = Flows(dict(flows.loads), dict(flows.rates))
    after.shift(unit, target.name)
    saved = 0.0
    for cluster in (source, target):
        saved += _waiting_on(cluster, flows) - _waiting_on(cluster, after)
    return saved * horizon_seconds


def _waiting_on(cluster: Cluster, flows: Flows) -> float:
    """Return the records that wait on a cluster in a second; above its capacity, ever more."""
    return flows.rates[cluster.name] * flows.loads[cluster.name] / cluster.capacity


def rates_of(jobs: Iterable[Job], clusters: Iterable[Cluster]) -> dict[str, float]:
    """Return the records a second that come to each cluster."""
    rates = dict.fromkeys((cluster.name for cluster in clusters), 0.0)
    for job in jobs:
        if job.cluster in rates:
            rates[job.cluster] += job.rate
    return rates
