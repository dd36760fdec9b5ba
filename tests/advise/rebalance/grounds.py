"""Clusters and jobs for tests, and what becomes of them when a decision is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from stateshift.advise.rebalance.decision import Decision
from stateshift.advise.rebalance.situation import Cluster, Job, Situation

GB = 1 << 30
MINUTES = 60.0


def job(name: str, cluster: str, load: float | None, **more: Any) -> Job:
    """A job of a thousand records a second, a gigabyte, ten seconds of downtime."""
    keys = {"rate": 1000.0, "capacity_rate": 4000.0, "bytes": GB, "downtime_seconds": 10.0}
    return Job(name, cluster, load, **{**keys, **more})


def situation(
    clusters: dict[str, float], jobs: Sequence[Job], at: float = 0.0, **more: Any
) -> Situation:
    made = tuple(Cluster(name, capacity) for name, capacity in clusters.items())
    return Situation(at, made, tuple(jobs), **more)


def carried_out(before: Situation, decision: Decision, minutes: float = 15) -> Situation:
    """The situation at the next run, in which everything else is as it was."""
    to = {name: move.target for move in decision.moves for name in move.jobs}
    jobs = tuple(
        replace(one, cluster=to[one.name], moved_at=before.at) if one.name in to else one
        for one in before.jobs
    )
    return replace(before, at=before.at + minutes * MINUTES, jobs=jobs)


def ratios(of: Situation) -> dict[str, float]:
    return {
        cluster.name: sum(one.load or 0.0 for one in of.jobs if one.cluster == cluster.name)
        / cluster.capacity
        for cluster in of.clusters
    }


@st.composite
def situations(draw: st.DrawFn, jobs_max: int = 6, clusters_max: int = 3) -> Situation:
    names = [f"c{number}" for number in range(draw(st.integers(2, clusters_max)))]
    clusters = tuple(Cluster(name, draw(st.sampled_from([4.0, 8.0, 16.0]))) for name in names)
    jobs = []
    for number in range(draw(st.integers(1, jobs_max))):
        where = draw(st.sampled_from(names))
        others = [name for name in names if name != where]
        forbidden = draw(st.sets(st.sampled_from(others), max_size=1))
        jobs.append(
            job(
                f"j{number}",
                where,
                draw(st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0])),
                bytes=draw(st.sampled_from([1, 3, 7])) * GB,
                downtime_seconds=draw(st.sampled_from([2.0, 10.0])),
                pinned=draw(st.sampled_from([False, False, False, True])),
                forbidden=dict.fromkeys(forbidden, "it has another version"),
            )
        )
    return Situation(0.0, clusters, tuple(jobs))
