"""A day of a thousand jobs on fifty clusters: who needs how much when. Made of a seed alone."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from stateshift.advise.rebalance.situation import Cluster, Job

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
STEP = 15 * MINUTE
STEPS = int(DAY / STEP)
GB = 1 << 30
# A job's share of a worker for a thousand records a second.
WORKER_RATE = 1000.0


@dataclass(frozen=True)
class Surge:
    """For some time a job has several times as much to do."""

    begin: float
    end: float
    factor: float


@dataclass(frozen=True)
class Pattern:
    """What a job needs over the day: a wave with its own height and hour, and surges."""

    name: str
    base: float
    height: float
    hour: float
    surges: tuple[Surge, ...]
    bytes: int
    downtime_seconds: float

    def load(self, time: float) -> float:
        """Return what it needs to keep up, in workers."""
        wave = 1 + self.height * math.sin((time - self.hour) / DAY * 2 * math.pi)
        factor = max((one.factor for one in self.surges if one.begin <= time < one.end), default=1)
        return self.base * wave * factor


@dataclass(frozen=True)
class Fleet:
    """Clusters, jobs, and where each job is in the morning."""

    clusters: tuple[Cluster, ...]
    patterns: tuple[Pattern, ...]
    places: tuple[str, ...]


def fleet(seed: int, jobs: int, clusters: int, fullness: float = 0.55) -> Fleet:
    """Return a fleet whose clusters are at `fullness` in the mean, some much more than others."""
    chance = random.Random(seed)
    patterns = tuple(_pattern(chance, number) for number in range(jobs))
    capacity = sum(one.base for one in patterns) / fullness / clusters
    made = tuple(
        Cluster(f"c{number:02}", round(capacity * chance.choice((0.75, 1.0, 1.25)), 1))
        for number in range(clusters)
    )
    # Clusters that were there first have got more jobs.
    weights = [one.capacity * chance.uniform(0.4, 1.6) for one in made]
    places = chance.choices([one.name for one in made], weights, k=jobs)
    return Fleet(made, patterns, tuple(places))


def _pattern(chance: random.Random, number: int) -> Pattern:
    surges = []
    while chance.random() < 0.25:
        begin = chance.uniform(0, DAY)
        surges.append(Surge(begin, begin + chance.uniform(1, 3) * HOUR, chance.uniform(1.5, 4)))
    size = int(chance.lognormvariate(0, 1.5) * 2 * GB)
    return Pattern(
        name=f"j{number:04}",
        base=chance.lognormvariate(0, 0.8),
        height=chance.uniform(0.1, 0.6),
        hour=chance.gauss(8 * HOUR, 3 * HOUR),
        surges=tuple(surges),
        bytes=size,
        downtime_seconds=3 + size / (200 << 20),
    )


def jobs_at(
    of: Fleet, places: Sequence[str], moved_at: Sequence[float | None], time: float
) -> tuple[Job, ...]:
    """Return all jobs as they are measured at a time."""
    jobs = []
    for pattern, place, moved in zip(of.patterns, places, moved_at, strict=True):
        load = pattern.load(time)
        jobs.append(
            Job(
                pattern.name,
                place,
                load,
                rate=load * WORKER_RATE,
                bytes=pattern.bytes,
                downtime_seconds=pattern.downtime_seconds,
                moved_at=moved,
            )
        )
    return tuple(jobs)
