"""How much a cluster has, and how much of it is taken: slots of Flink, cores of Spark, and memory.

A cluster that makes more when they are needed, or that does not tell, has no capacity to decide by:
the spec has to name one. What is taken of it is known all the same.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.cluster import FlinkRest
from stateshift.clusters.opening import check_cluster
from stateshift.clusters.standalone.calls import StandaloneCalls
from stateshift.errors import StateshiftError
from stateshift.specification.model import ClusterSpec

# What to do about a cluster that cannot tell.
SAY_CAPACITY = 'give it a "capacity" in "rebalance" of the spec'

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a cluster tells of itself. `memory` is None where it does not tell; `unknown` says why
    nothing can be told.
    """

    all: float = 0.0
    used: float = 0.0
    memory: int | None = None
    memory_used: int = 0
    unknown: str = ""

    @property
    def memory_of_worker(self) -> int | None:
        """Return the memory of one slot or core, all of which have the same."""
        if self.memory is None or self.all <= 0:
            return None
        return int(self.memory / self.all)


def capacity_of(cluster: ClusterSpec) -> Capacity:
    """Return what a cluster tells of itself; why not, if it cannot be asked."""
    try:
        match cluster.kind:
            case "flink_rest":
                return _of_flink(cluster)
            case "spark_standalone":
                return _of_standalone(cluster)
    except StateshiftError as error:
        return Capacity(unknown=error.fact)
    fact = f"a cluster of kind {cluster.kind} does not tell its capacity"
    return Capacity(unknown=f"{fact}: {SAY_CAPACITY}")


def _of_flink(cluster: ClusterSpec) -> Capacity:
    options = check_cluster(cluster)
    slots = FlinkRest(cluster.name, Path(), options).slots()
    if slots is None:
        return Capacity(unknown=f"it does not tell its slots: {SAY_CAPACITY}")
    if slots.on_demand:
        made = f"it makes slots when they are needed: {SAY_CAPACITY}"
        return Capacity(used=slots.all - slots.free, unknown=made)
    if slots.all <= 0:
        return Capacity(unknown="it has no slots")
    calls = FlinkCalls(cluster.name, str(cluster.options.get("url")), options)
    memory = _memory_of_flink(calls)
    if memory is None:
        return Capacity(slots.all, slots.all - slots.free)
    every, free = memory
    return Capacity(slots.all, slots.all - slots.free, every, every - free)


def _memory_of_flink(calls: FlinkCalls) -> tuple[int, int] | None:
    """Return the bytes that tasks have, in all and free; None where Flink does not tell."""
    try:
        return calls.memory()
    except StateshiftError as error:
        _log.debug("%s does not tell its memory: %s", calls.cluster, error)
        return None


def _of_standalone(cluster: ClusterSpec) -> Capacity:
    url = str(cluster.options.get("url"))
    has = StandaloneCalls(cluster.name, url, check_cluster(cluster)).resources()
    if has.cores <= 0:
        return Capacity(unknown="no worker is alive")
    return Capacity(has.cores, has.cores_used, has.memory, has.memory_used)
