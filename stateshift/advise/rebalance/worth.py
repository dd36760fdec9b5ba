"""The cost and the gain of a move, both in records that wait.

    cost   records that come while the job is down, and while it catches up
    gain   records that need not wait, over the horizon

A server that is busy for a part of the time makes that part of its records wait (M/M/1). Nine of
ten wait on a cluster at 90 %, and evening out two clusters lessens the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stateshift.advise.rebalance.situation import Cluster, Job, Unit

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
    """Return the number of records that wait for a move of these jobs. All of them are down as long
    as the one that takes longest.
    """
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
    """Return the records that wait on a cluster in a second. Above its capacity they are more than
    come: each makes later ones wait.
    """
    return flows.rates[cluster.name] * flows.loads[cluster.name] / cluster.capacity


def rates_of(jobs: Iterable[Job], clusters: Iterable[Cluster]) -> dict[str, float]:
    """Return the records a second that come to each cluster."""
    rates = dict.fromkeys((cluster.name for cluster in clusters), 0.0)
    for job in jobs:
        if job.cluster in rates:
            rates[job.cluster] += job.rate
    return rates
