"""The measures of clusters and jobs that `rebalance` takes, in its units: capacity, needs, bytes.

Capacity is slots of Flink, cores of Spark, and memory. A cluster that makes more when they are
needed, or that does not tell, has no capacity to decide by: the spec has to name one. The part of
it that is taken is known all the same.

The needs of a job, by the verdict on it:

    Flink   the widest vertex: its subtasks' busy time together, at the rate of its input; with slot
            sharing a slot holds a subtask of each vertex
    Spark   cores * (batch time / time between batches), of all its queries
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, cast

from stateshift.advise.evaluate.inputs import RESTART_SECONDS
from stateshift.advise.evaluate.verdicts import Verdict, hides_its_backlog
from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.cluster import FlinkRest
from stateshift.clusters.kind import check_cluster, open_cluster
from stateshift.clusters.standalone.calls import StandaloneCalls
from stateshift.clusters.yarn.calls import YarnCalls
from stateshift.errors import StateshiftError
from stateshift.specification.model import ClusterSpec
from stateshift.storage.protocol import Storage

# The way out for a cluster that cannot tell.
SAY_CAPACITY = 'give it a "capacity" in "rebalance" of the spec'

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Capacity:
    """A cluster's capacity. `memory`: None if it does not tell; `unknown`: why nothing is known."""

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
    """Return the capacity of a cluster, as far as it tells."""
    try:
        match cluster.kind:
            case "flink_rest":
                return _of_flink(cluster)
            case "spark_standalone":
                return _of_standalone(cluster)
            case "yarn":
                return _of_yarn(cluster)
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
    try:
        memory = calls.memory()
    except StateshiftError as error:
        _log.debug("%s does not tell its memory: %s", calls.cluster, error)
        memory = None
    if memory is None:
        return Capacity(slots.all, slots.all - slots.free)
    every, free = memory
    return Capacity(slots.all, slots.all - slots.free, every, every - free)


def _of_standalone(cluster: ClusterSpec) -> Capacity:
    url = str(cluster.options.get("url"))
    has = StandaloneCalls(cluster.name, url, check_cluster(cluster)).resources()
    if has.cores <= 0:
        return Capacity(unknown="no worker is alive")
    return Capacity(has.cores, has.cores_used, has.memory, has.memory_used)


def _of_yarn(cluster: ClusterSpec) -> Capacity:
    room = YarnCalls(cluster.name, check_cluster(cluster)).room()
    if room.cores <= 0:
        return Capacity(unknown="no node is alive")
    used, memory_used = room.cores - room.cores_free, room.memory - room.memory_free
    return Capacity(room.cores, used, room.memory << 20, memory_used << 20)


NO_CORES = (
    "nobody tells how many cores it runs on: driver_ui, spark.cores.max, or "
    "spark.executor.instances and spark.executor.cores would, the last three in its submit's conf"
)


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of a job. `load` is None where that cannot be told, and `unknown` is the reason;
    `width` is the number of slots or cores that it has taken; `is_measured` is whether the time of
    a restart was measured. `estimated_because` is the reason for which it was not measured, but
    known from before. `wanted` is the parallelism that is advised.
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
    """Return the needs of the job that these verdicts are on: one, or one of each query."""
    if not verdicts:
        return Needs(unknown="nothing of it was measured")
    unknown = [verdict for verdict in verdicts if verdict.word == "unknown"]
    if unknown:
        return Needs(unknown=unknown[0].reasons[0])
    if any(verdict.parallelism is None for verdict in verdicts):
        return Needs(unknown=NO_CORES)
    loads, rates, used = [], [], 0.0
    for verdict in verdicts:
        pairs = list(zip(verdict.decisions, verdict.loads, strict=True))
        rates.append(sum(decision.target_rate for decision, load in pairs if load.is_source))
        widest = 0.0
        for decision, load in pairs:
            used = max(used, decision.utilization)
            # A verdict goes by the busiest subtask; the others take less of their slots.
            share = 1.0
            if load.busy > 0 and load.busy_mean is not None and not decision.rate_is_observed:
                share = load.busy_mean / load.busy
            widest = max(widest, decision.parallelism * decision.utilization * share)
        loads.append(widest)
    rate = sum(rates)
    return Needs(
        load=sum(loads),
        width=max(verdict.parallelism or 0 for verdict in verdicts),
        rate=rate,
        capacity_rate=rate / used if used > 0 else None,
        downtime_seconds=max(verdict.restart.seconds for verdict in verdicts),
        is_measured=any(verdict.restart.source != "default" for verdict in verdicts),
        keeps_up=not any(map(_falls_behind, verdicts)),
        wanted=max((verdict.wanted or 0 for verdict in verdicts), default=0) or None,
    )


def _falls_behind(verdict: Verdict) -> bool:
    """Whether a job cannot keep up: a vertex takes in too little, or hides what it holds back."""
    changes = verdict.changes
    up = [each for each in verdict.decisions if changes.get(each.id, 0) > each.parallelism]
    if verdict.engine == "flink" and up and hides_its_backlog(verdict.loads, verdict.decisions):
        return True
    return any(decision.is_below for decision in up)


Where: TypeAlias = Callable[[str, bool], tuple[FlinkCalls, str]]


class _TellsWhere(Protocol):
    def where(self, job: str, is_id: bool) -> tuple[FlinkCalls, str]: ...


def where_on(cluster: ClusterSpec) -> Where:
    """Return the way from the id or name of a job to its JobManager, and its id there."""
    return cast(_TellsWhere, open_cluster(cluster, "")).where


def size_on_flink(cluster: ClusterSpec, job: str) -> int:
    """Return the bytes of a job's last checkpoint; 0 where Flink does not tell."""
    try:
        calls, id = where_on(cluster)(job, True)
        return calls.state_size(id) or 0
    except StateshiftError:
        return 0


def size_of_checkpoint(open_storage: Callable[[str], Storage], location: str) -> int:
    """Return the bytes of all files of a checkpoint of Spark; 0 where they cannot be listed."""
    try:
        return sum(file.size for file in open_storage(location).list())
    except StateshiftError:
        return 0
