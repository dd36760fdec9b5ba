"""One day under one way of deciding: how full clusters got, how many records waited for it."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field, replace

from day import STEP, STEPS, Fleet, jobs_at

from stateshift.advise.rebalance.decision import decide
from stateshift.advise.rebalance.limits import cost_of, rates_of
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.situation import Policy, Situation, Unit, loads_of

# Whoever moves at each trigger: at once, to the mean, whatever it costs, as often as it likes.
EACH_TRIGGER = Policy(
    trigger=1.05,
    aim=1.0,
    runs=1,
    gain_min=0.0,
    cool_down_seconds=0.0,
    remembered_seconds=0.0,
    moves_max=1000,
)
WAYS: dict[str, Policy | None] = {
    "nobody moves": None,
    "at each trigger": EACH_TRIGGER,
    "ours": Policy(),
}


@dataclass
class Day:
    """What came of a day; times and loads run by run."""

    fullest: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    moves: int = 0
    bytes: int = 0
    waited_for_moves: float = 0.0
    late: float = 0.0
    seconds: list[float] = field(default_factory=list)


def lived(of: Fleet, policy: Policy | None) -> Day:
    """Live through a day, with a run each quarter of an hour."""
    day, memory = Day(), Memory()
    places, moved_at = list(of.places), [None] * len(of.places)
    index = {pattern.name: number for number, pattern in enumerate(of.patterns)}
    for step in range(STEPS):
        time = step * STEP
        jobs = jobs_at(of, places, moved_at, time)
        if policy is not None:
            # What a run measures is the quarter of an hour before it.
            seen = Situation(time, of.clusters, jobs_at(of, places, moved_at, time - STEP))
            began = clock.perf_counter()
            decision = decide(seen, policy, memory)
            day.seconds.append(clock.perf_counter() - began)
            memory = decision.memory
            day.bounds.append(decision.bound)
            by_name = {job.name: job for job in jobs}
            for move in decision.moves:
                day.moves += len(move.jobs)
                day.bytes += move.bytes
                day.waited_for_moves += cost_of(Unit(tuple(by_name[name] for name in move.jobs)))
                for name in move.jobs:
                    places[index[name]], moved_at[index[name]] = move.target, time
            jobs = tuple(replace(job, cluster=places[index[job.name]]) for job in jobs)
        _live(day, Situation(time, of.clusters, jobs))
    return day


def _live(day: Day, now: Situation) -> None:
    """Let a quarter of an hour pass: what a cluster cannot do is late."""
    loads, rates = loads_of(now), rates_of(now.jobs, now.clusters)
    day.fullest.append(max(loads[one.name] / one.capacity for one in now.clusters))
    for one in now.clusters:
        load = loads[one.name]
        if load > one.capacity:
            day.late += rates[one.name] * (1 - one.capacity / load) * STEP
