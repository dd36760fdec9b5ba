"""What a job needs to keep up, by the verdict on it. Pure.

Flink   the widest vertex: its subtasks' busy time together, at the rate of what arrives; with slot
        sharing a slot holds a subtask of each vertex
Spark   cores * (batch time / time between batches), of all its queries
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stateshift.advise.evaluate.flink_formulas import VertexDecision
from stateshift.advise.evaluate.inputs import RESTART_SECONDS
from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.verdicts import Verdict, hides_its_backlog

NO_CORES = (
    "nobody tells how many cores it runs on: driver_ui, spark.cores.max, or "
    "spark.executor.instances and spark.executor.cores would, the last three in its submit's conf"
)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job needs. `load` is None where that cannot be told, and `unknown` says why; `width`
    is how many slots or cores it has taken; `is_measured` is whether something has measured how
    long a restart takes. `estimated_because` says why it was not measured, but known from before.
    `wanted` is the parallelism that is advised.
    """

    load: float | None = None
    width: float = 0.0
    rate: float = 0.0
    capacity_rate: float | None = None
    downtime_seconds: float = RESTART_SECONDS
    is_measured: bool = False
    keeps_up: bool = True
    unknown: str = ""
    estimated_because: str = ""
    wanted: int | None = None


def needs_of(verdicts: Sequence[Verdict]) -> Needs:
    """Return what a job needs that these verdicts are on: one, or one of each query."""
    if not verdicts:
        return Needs(unknown="nothing of it was measured")
    unknown = [verdict for verdict in verdicts if verdict.word == "unknown"]
    if unknown:
        return Needs(unknown=unknown[0].reasons[0])
    if any(verdict.parallelism is None for verdict in verdicts):
        return Needs(unknown=NO_CORES)
    rate = sum(map(_rate, verdicts))
    used = max(map(_used, verdicts))
    return Needs(
        load=sum(map(_load, verdicts)),
        width=max(verdict.parallelism or 0 for verdict in verdicts),
        rate=rate,
        capacity_rate=rate / used if used > 0 else None,
        downtime_seconds=max(verdict.restart.seconds for verdict in verdicts),
        is_measured=any(verdict.restart.source != "default" for verdict in verdicts),
        keeps_up=not any(map(_falls_behind, verdicts)),
        wanted=max((verdict.wanted or 0 for verdict in verdicts), default=0) or None,
    )


def _load(verdict: Verdict) -> float:
    pairs = zip(verdict.decisions, verdict.loads, strict=True)
    return max((_busy_subtasks(decision, load) for decision, load in pairs), default=0.0)


def _busy_subtasks(decision: VertexDecision, load: VertexLoad) -> float:
    """Return how many subtasks a vertex would keep busy. A verdict goes by the busiest; the others
    take less of their slots.
    """
    share = 1.0
    if load.busy > 0 and load.busy_mean is not None and not decision.rate_is_observed:
        share = load.busy_mean / load.busy
    return decision.parallelism * decision.utilization * share


def _used(verdict: Verdict) -> float:
    return max((decision.utilization for decision in verdict.decisions), default=0.0)


def _rate(verdict: Verdict) -> float:
    """Return the records a second that come to a job's sources."""
    pairs = zip(verdict.decisions, verdict.loads, strict=True)
    return sum(decision.target_rate for decision, load in pairs if load.is_source)


def _falls_behind(verdict: Verdict) -> bool:
    """Whether a job cannot keep up with the workers that it has: a vertex that is advised more of
    them can take in too little, or holds back more than the formulas can see.
    """
    changes = verdict.changes
    up = [each for each in verdict.decisions if changes.get(each.id, 0) > each.parallelism]
    if verdict.engine == "flink" and up and hides_its_backlog(verdict.loads, verdict.decisions):
        return True
    return any(decision.is_below for decision in up)
