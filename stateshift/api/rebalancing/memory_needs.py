"""How much memory a job takes, and which moves a cluster has no memory for. Pure.

Spark   its executors', as far as its submission says
Flink   that of the slots which it has taken where it is now
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateshift.advise.measuring import Capacity
from stateshift.advise.rebalance.decision import Decision, JobMove
from stateshift.specification import JobSpec, RebalancedCluster
from stateshift.specification.values import size_of

# Spark's own default.
EXECUTOR_MEMORY = "1g"


def memory_of_job(job: JobSpec) -> int | None:
    """Return the bytes of a Spark job's executors; None where the number of them is not told."""
    conf = {} if job.submit is None else job.submit.options.get("conf", {})
    if not isinstance(conf, Mapping):
        return None
    count = _count(conf)
    each = size_of(str(conf.get("spark.executor.memory", EXECUTOR_MEMORY)))
    if count is None or each is None:
        return None
    return count * each


def _count(conf: Mapping[str, object]) -> int | None:
    instances = _number(conf.get("spark.executor.instances"))
    if instances is not None:
        return instances
    cores, each = _number(conf.get("spark.cores.max")), _number(conf.get("spark.executor.cores"))
    if cores is None or each is None:
        return None
    return -(-cores // each)


def _number(value: object) -> int | None:
    word = str(value)
    return int(word) if word.isdecimal() and int(word) > 0 else None


def memory_of_slots(width: float, told: Capacity | None) -> int | None:
    """Return the bytes of so many slots of a cluster; None where it does not tell its memory."""
    each = None if told is None else told.memory_of_worker
    return None if each is None or width <= 0 else int(width) * each


def without_memory(
    decision: Decision,
    needed_by: Mapping[str, int | None],
    clusters: Mapping[str, RebalancedCluster],
    told: Mapping[str, Capacity],
) -> Iterator[tuple[JobMove, str]]:
    """Yield the moves for which their target has not enough memory, and why."""
    free: dict[str, int] = {}
    for name, cluster in clusters.items():
        memory = cluster.memory or told[name].memory
        if memory is not None:
            free[name] = memory - told[name].memory_used
    for move in decision.moves:
        if move.source == move.target:  # what a slot has does not change
            continue
        needed = [needed_by[name] for name in move.jobs]
        known = [size for size in needed if size is not None]
        if move.target not in free or len(known) < len(needed):
            continue
        free[move.target] -= sum(known)
        if free[move.target] < 0:
            lacks = -free[move.target]
            free[move.target] += sum(known)
            yield move, f"its memory is taken: {lacks / (1 << 20):,.0f} MiB too few are free"
