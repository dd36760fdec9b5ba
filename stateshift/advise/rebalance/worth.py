"""What a move costs and what it brings, both in records that wait.

    cost   records that come while the job is down, and while it catches up
    gain   records that need not wait, over the horizon

Of the records that come to a server which is busy for a part of the time, that part has to wait
(M/M/1). So on a cluster at 90 % nine of ten wait, and evening out two clusters lessens the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stateshift.advise.rebalance.situation import Cluster, Job, Unit

# Where it is not known how fast a job could go, it is taken to catch up at twice its rate.
CATCH_UP_FACTOR = 2.0
# It never catches up: as many records as come within a day wait.
NEVER_SECONDS = 86400.0
# What is left of a cluster's load once its last job has gone: sums of fractions are not exact.
NO_LOAD = 1e-9


@dataclass(frozen=True, slots=True)
class Worth:
    """Cost and gain of a move, in records that wait."""

    cost: float
    gain: float

    @property
    def ratio(self) -> float:
        """How often the cost is in the gain."""
        if self.cost <= 0:
            return float("inf") if self.gain > 0 else 0.0
        return self.gain / self.cost


def cost_of(unit: Unit) -> float:
    """Return how many records wait for a move of these jobs. All of them are down as long as the
    one that takes longest.
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
    """What is on each cluster: the load of its jobs, and the records a second that come to them."""

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
    """Return how many records need not wait, over the horizon, if a unit is moved."""
    after = Flows(dict(flows.loads), dict(flows.rates))
    after.shift(unit, target.name)
    saved = 0.0
    for cluster in (source, target):
        saved += _waiting_on(cluster, flows) - _waiting_on(cluster, after)
    return saved * horizon_seconds


def _waiting_on(cluster: Cluster, flows: Flows) -> float:
    """Return how many records a second wait on a cluster. Above its capacity it is more than come:
    each makes later ones wait.
    """
    return flows.rates[cluster.name] * flows.loads[cluster.name] / cluster.capacity


def rates_of(jobs: Iterable[Job], clusters: Iterable[Cluster]) -> dict[str, float]:
    """Return the records a second that come to each cluster."""
    rates = dict.fromkeys((cluster.name for cluster in clusters), 0.0)
    for job in jobs:
        if job.cluster in rates:
            rates[job.cluster] += job.rate
    return rates
