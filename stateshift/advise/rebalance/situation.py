"""Clusters and their jobs, as they were measured: the inputs of a decision.

Load and capacity are in one unit, a worker that is busy all the time: a slot of Flink, a core of
Spark. A job's load is what it needs to keep up, which may be more than it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How jobs are spread: the numbers that decide. The defaults are Cruise Control's, if any."""

    load_max: float = 0.8  # a cluster's load after a move into it, as a part of its capacity
    trigger: float = 1.1  # a cluster is too full above so many times the mean
    aim: float = 1.05  # and even enough below so many times the mean
    idle_below: float = 0.2  # no cluster below this part of its capacity is too full
    runs: int = 2  # a cluster must have been too full in so many runs, this one counted
    # a run that follows sooner sees what the one before it has seen, and does not count as another
    runs_apart_seconds: float = 60.0
    runs_within_seconds: float = 2 * HOUR  # and one that follows later does not count as in a row
    gain_min: float = 2.0  # a move must bring so many times what it costs
    relief_min: float = 0.1  # and take at least so much load off its cluster, in slots or cores
    horizon_seconds: float = HOUR  # for how long a move's gain is counted
    cool_down_seconds: float = HOUR  # a job that was moved stays for so long
    # a move that did not bring what it promised is not repeated for so long
    remembered_seconds: float = DAY
    moves_max: int = 1  # moves in one run from one cluster to another
    exact_units: int = 20  # up to so many, the best spread is looked for among all


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster and its capacity (0 if `unknown` says why). `other_load` is others'. Nothing moves
    to a cordoned one; all leave a draining one.
    """

    name: str
    capacity: float
    other_load: float = 0.0
    is_draining: bool = False
    unknown: str = ""
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job where it is."""

    name: str  # its name in the spec
    cluster: str  # where it runs
    # what it needs to keep up; None where that is not known. Behind a move that is what it was
    # before, until it can be measured again
    load: float | None
    rate: float = 0.0  # records a second that come in
    # records a second that it could take; None where that is not known
    capacity_rate: float | None = None
    bytes: int = 0  # its state
    downtime_seconds: float = 0.0  # how long a move stops it
    keeps_up: bool = True  # whether it does, where it is
    pinned: bool = False  # whether the spec keeps it where it is
    paused: bool = False  # whether the spec leaves it alone for now
    moved_at: float | None = None  # when it was last moved; None for never
    # clusters that cannot have it, and why
    forbidden: Mapping[str, str] = field(default_factory=dict)
    unknown: str = ""  # why its load cannot be told
    width: float = 0.0  # how many slots or cores it has taken
    wanted: int | None = None  # how many it is to have, wherever it is; None to leave that as it is

    @property
    def why_unknown(self) -> str:
        """Why its load is not known, as a sentence."""
        return f"its load cannot be told: {self.unknown or 'there are no samples'}"


@dataclass(frozen=True, slots=True)
class Situation:
    """All clusters and jobs at one time. Jobs of one of `together` are on one cluster, or are moved
    together: they hand records on to each other. `excluded` says why nothing moves at this time.
    `resumed` is from where to where this run has made moves already, which an earlier one began.
    """

    at: float
    clusters: tuple[Cluster, ...]
    jobs: tuple[Job, ...]
    together: tuple[tuple[str, ...], ...] = ()
    excluded: str = ""
    resumed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """Jobs of one cluster that move together, or not at all."""

    jobs: tuple[Job, ...]

    @property
    def name(self) -> str:
        return ", ".join(job.name for job in self.jobs)

    @property
    def cluster(self) -> str:
        return self.jobs[0].cluster

    @property
    def load(self) -> float:
        """The known part of its load."""
        return sum(job.load or 0.0 for job in self.jobs)

    @property
    def rate(self) -> float:
        return sum(job.rate for job in self.jobs)

    @property
    def bytes(self) -> int:
        return sum(job.bytes for job in self.jobs)

    @property
    def downtime_seconds(self) -> float:
        return max(job.downtime_seconds for job in self.jobs)


def units_of(situation: Situation) -> tuple[Unit, ...]:
    """Return the units that move together, in the order of their first jobs."""
    group_of: dict[str, int] = {}
    groups: list[frozenset[str]] = []  # of which no two share a job
    for group in map(frozenset, situation.together):
        apart = [other for other in groups if not other & group]
        shared = [other for other in groups if other & group]
        groups = [*apart, group.union(*shared)]
    for number, names in enumerate(groups):
        group_of.update(dict.fromkeys(names, number))
    parts: dict[tuple[str, object], list[Job]] = {}
    for job in situation.jobs:
        parts.setdefault((job.cluster, group_of.get(job.name, job.name)), []).append(job)
    return tuple(Unit(tuple(jobs)) for jobs in parts.values())


def loads_of(situation: Situation) -> dict[str, float]:
    """Return the load of each cluster, others' included."""
    loads = {cluster.name: cluster.other_load for cluster in situation.clusters}
    for job in situation.jobs:
        if job.cluster in loads:
            loads[job.cluster] += job.load or 0.0
    return loads


def mean_of(clusters: Sequence[Cluster], loads: Mapping[str, float]) -> float:
    """Return the mean load of clusters; one to be emptied has none, a cordoned one shares none."""
    draining = {one.name for one in clusters if one.is_draining}
    cordoned = {one.name for one in clusters if one.is_cordoned}
    apart, closed = cordoned - draining, cordoned | draining
    capacity = sum(one.capacity for one in clusters if one.name not in closed)
    load = sum(load for name, load in loads.items() if name not in apart)
    return load / capacity if capacity else float("inf")
