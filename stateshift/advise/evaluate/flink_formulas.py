"""The formulas of the Flink operator's autoscaler (DS2 made fit for production), a function each.

    source       lambda   = max(0, input_rate + lag_rate)
                 catchup  = lag / catch_up_duration
    downstream   lambda   = sum over inputs u of lambda_u * ratio(u, v)
                 catchup  alike, and what is queued before it / catch_up_duration
                 ratio    = edge_rate(u, v) / input_rate(u)
    capacity     (U, with restart) = catchup + [lambda * restart / catch_up] + lambda / U
    TPR          = input_rate / busy; of a source the observed rate, where that is much less
    up           = capacity(U_max, without restart)      too little: TPR < up
    down         = capacity(U_min, with restart)         too much:   TPR > down
    factor       = capacity(U_target, with restart) / TPR, clamped
    p'           = ceil(factor * p), clamped, aligned to key groups or partitions

Source: apache/flink-kubernetes-operator 1.16, `ScalingMetricEvaluator`, `AutoScalerUtils`,
`JobVertexScaler`. Nothing changes unless at least one vertex that would change is outside; then
every vertex changes whose p' is another.

Four things are ours. A rate on an edge is that of the writer: a queue that grows before a vertex
counts as arriving. The operator rounds capacities: at the edge, where TPR and `up` are the
same, the fraction would decide. A vertex that is busy all the time has too little there, and one
that had too little at the last look has until it is clearly below the edge. A vertex whose busiest
subtask has a key or a partition that is the limit is not helped by more subtasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.settings import Settings

# The unit in which the records of a vertex are dealt to its subtasks.
_HASH: Final = "HASH"
_BROADCAST: Final = "BROADCAST"
_DEALT_BY: Final[Mapping[str, Limit]] = {_HASH: "key", "CUSTOM": "key", "GLOBAL": "subtask"}
# From this share of its time on, a vertex is busy all the time.
SATURATED: Final = 0.99
# A vertex that had too little has enough once it is by so much below the edge.
HYSTERESIS: Final = 0.05

_NOTHING: Final[Mapping[str, State]] = MappingProxyType({})

State = Literal["short", "limited"]
Limit = Literal["key", "partition", "subtask", "operator"]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The bound that forbids more subtasks, and the number that it allows."""

    what: str  # "partitions", "max parallelism", "vertex.max-parallelism"
    count: int


@dataclass(frozen=True, slots=True)
class VertexDecision:
    """The formulas' result for a vertex. None is an infinite rate, or a missing threshold."""

    id: str
    name: str
    parallelism: int
    target_rate: float  # lambda
    catchup_rate: float
    true_rate: float | None
    rate_is_observed: bool
    up: float
    down: float | None
    capacity: float  # wanted: at the target utilization, with a restart
    factor: float
    unclamped: int
    wanted: int
    ceiling: Ceiling | None
    is_below: bool  # too little
    is_above: bool  # too much
    is_saturated: bool = False
    limit: Limit | None = None  # what more subtasks would not divide

    @property
    def is_outside(self) -> bool:
        return self.is_below or self.is_above

    @property
    def state(self) -> State | None:
        """Return the state of it for the next look."""
        if not self.is_below:
            return None
        return "short" if self.limit is None else "limited"

    @property
    def utilization(self) -> float:
        """Return the share of its capacity that its input takes."""
        if self.true_rate is None:
            return 0.0
        return self.target_rate / self.true_rate


def decide(
    loads: Sequence[VertexLoad],
    settings: Settings,
    restart_seconds: float,
    states: Mapping[str, State] = _NOTHING,
) -> tuple[VertexDecision, ...]:
    """Return each vertex's decision, in the loads' order; `states`: what the last look saw."""
    backlog = is_backlog(loads, settings)
    targets = target_rates(loads, settings)
    by_id = {load.id: load for load in loads}
    around = _Surroundings(settings, restart_seconds, backlog, states)
    decisions = []
    for load in loads:
        decision = _decide(load, targets[load.id], around)
        if decision.is_below:
            decision = replace(decision, limit=_limit(load, decision, by_id, around))
        decisions.append(decision)
    return tuple(decisions)


def _limit(
    load: VertexLoad,
    decision: VertexDecision,
    by_id: Mapping[str, VertexLoad],
    around: _Surroundings,
) -> Limit | None:
    """Return the limit of a vertex that has too little, if more subtasks would not help: the part
    by which the busiest exceeds the others stays in one piece, and alone is too much for a subtask.
    """
    if load.parallelism_max == 1 and any(each.parallelism_max != 1 for each in by_id.values()):
        return "operator"
    dealt_by = _dealt_by(load, by_id)
    if dealt_by is None or load.parallelism < 2 or load.busy_mean is None:
        return None
    others = (load.parallelism * load.busy_mean - load.busy) / (load.parallelism - 1)
    grows = max(1.0, decision.target_rate / load.input_rate) if load.input_rate > 0 else 1.0
    may_have = around.settings.utilization_target
    if around.states.get(load.id) == "limited":
        may_have -= HYSTERESIS
    return dealt_by if (load.busy - others) * grows > may_have else None


def _dealt_by(load: VertexLoad, by_id: Mapping[str, VertexLoad]) -> Limit | None:
    """Return the unit in which records are dealt to subtasks; None where any may get each."""
    if load.is_source:
        return "partition"
    for edge in load.inputs:
        if edge.ship_strategy == "FORWARD":
            dealt_by = _dealt_by(by_id[edge.vertex], by_id)
        else:
            dealt_by = _DEALT_BY.get(edge.ship_strategy)
        if dealt_by is not None:
            return dealt_by
    return None


def is_backlog(loads: Sequence[VertexLoad], settings: Settings) -> bool:
    """Whether the lag of a source says that the job is catching up."""
    sources = [load for load in loads if load.is_source]
    threshold = settings.backlog_lag_threshold
    return any((load.lag or 0.0) > threshold * load.input_rate for load in sources if load.lag)


@dataclass(frozen=True, slots=True)
class TargetRate:
    """The records a second that a vertex has to take in: those that arrive, and catch up."""

    rate: float
    catchup: float


def target_rates(loads: Sequence[VertexLoad], settings: Settings) -> dict[str, TargetRate]:
    """Return the records that each vertex has to take in, from the sources down."""
    by_id = {load.id: load for load in loads}
    targets: dict[str, TargetRate] = {}
    pending = list(loads)
    while pending:
        ready = [load for load in pending if all(edge.vertex in targets for edge in load.inputs)]
        assert ready, "a job of Flink has no cycles, and its inputs are vertices of it"
        for load in ready:
            targets[load.id] = _target(load, targets, by_id, settings)
        pending = [load for load in pending if load.id not in targets]
    return targets


def _target(
    load: VertexLoad,
    targets: Mapping[str, TargetRate],
    by_id: Mapping[str, VertexLoad],
    settings: Settings,
) -> TargetRate:
    if load.is_source:
        arrives = max(0.0, load.input_rate + load.lag_rate)
        waits = load.lag or 0.0
        duration = settings.catch_up_duration
        return TargetRate(arrives, waits / duration if duration > 0 else 0.0)
    rate, catchup = 0.0, 0.0
    for upstream in _upstream(load):
        ratio = output_ratio(by_id[upstream], load, by_id)
        rate += targets[upstream].rate * ratio
        catchup += targets[upstream].catchup * ratio
    if settings.catch_up_duration > 0:
        catchup += load.queued / settings.catch_up_duration
    return TargetRate(rate, catchup)


def _upstream(load: VertexLoad) -> list[str]:
    """Return the vertices that a vertex reads from, each once: a self-join has two edges."""
    return list(dict.fromkeys(edge.vertex for edge in load.inputs))


def output_ratio(
    upstream: VertexLoad, downstream: VertexLoad, by_id: Mapping[str, VertexLoad]
) -> float:
    """Return the records of an edge for each one that its upstream vertex takes in."""
    if upstream.input_rate <= 0:
        return 0.0
    return _edge_rate(upstream, downstream, by_id) / upstream.input_rate


def _edge_rate(
    upstream: VertexLoad, downstream: VertexLoad, by_id: Mapping[str, VertexLoad]
) -> float:
    """Return the records a second on an edge, by the most reliable way there is. If vertices on
    both sides have other edges, each has the share that its upstream vertex has of all outputs.
    """
    others = [by_id[id] for id in _upstream(downstream) if id != upstream.id]
    if not others:
        return downstream.arriving
    read = [set(_upstream(load)) for load in by_id.values()]
    if all(sum(other.id in ids for ids in read) == 1 for other in others):
        strategies = {(edge.vertex, edge.ship_strategy) for edge in downstream.inputs}
        rates = []
        for other in others:  # each record goes to all subtasks of a broadcast
            is_broadcast = (other.id, _BROADCAST) in strategies
            rates.append(other.output_rate * (downstream.parallelism if is_broadcast else 1))
        return max(0.0, downstream.arriving - sum(rates))
    every = sum(other.output_rate for other in (upstream, *others))
    return downstream.arriving * upstream.output_rate / every if every > 0 else 0.0


def true_processing_rate(load: VertexLoad, settings: Settings) -> tuple[float, bool]:
    """Return the rate that a vertex could take, and whether it was observed, not computed."""
    idle = load.input_rate <= 0 or load.busy <= 0
    by_busy = math.inf if idle else load.input_rate / load.busy
    if load.observed is None:
        return by_busy, False
    if by_busy > load.observed * (1 + settings.observed_switch_threshold):
        return load.observed, True
    return by_busy, False


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """The inputs that are the same for all vertices of a job."""

    settings: Settings
    restart_seconds: float
    backlog: bool
    states: Mapping[str, State]


def capacity(
    target: TargetRate, utilization: float, settings: Settings, restart_seconds: float
) -> float:
    """Return the rate for a used share (infinite for none); with `restart_seconds`, what arrives
    during a restart is caught up, too.
    """
    if utilization <= 0:
        return math.inf
    duration = settings.catch_up_duration
    after_restart = target.rate * restart_seconds / duration if duration > 0 else 0.0
    return target.catchup + after_restart + target.rate / utilization


def _decide(load: VertexLoad, target: TargetRate, around: _Surroundings) -> VertexDecision:
    settings, restart = around.settings, around.restart_seconds
    above = 1.0 if around.backlog else settings.utilization_above
    below = 0.0 if around.backlog else settings.utilization_below
    rate, observed = true_processing_rate(load, settings)
    slack = HYSTERESIS if load.id in around.states else 0.0
    up = capacity(target, above - min(slack, above / 2), settings, 0.0)
    is_full = load.busy >= SATURATED - slack
    drains = target.rate < (1 - HYSTERESIS) * rate
    is_saturated = is_full and not drains and settings.utilization_above <= 1
    down = capacity(target, below, settings, restart)
    needed = capacity(target, settings.utilization_target, settings, restart)
    least = 1 - settings.scale_down_max_factor
    most = 1 + settings.scale_up_max_factor
    wanted = most if rate <= 0 else needed / rate
    factor = min(max(wanted, least), most)
    unclamped = math.ceil(factor * load.parallelism)
    ceiling = ceiling_of(load, settings)
    return VertexDecision(
        id=load.id,
        name=load.name,
        parallelism=load.parallelism,
        target_rate=target.rate,
        catchup_rate=target.catchup,
        true_rate=rate if math.isfinite(rate) else None,
        rate_is_observed=observed,
        up=up,
        down=down if math.isfinite(down) else None,
        capacity=needed,
        factor=factor,
        unclamped=unclamped,
        wanted=_wanted(load, unclamped, ceiling, settings),
        ceiling=ceiling if ceiling is not None and unclamped > ceiling.count else None,
        is_below=rate < up or is_saturated,
        is_above=rate > down and not is_full,
        is_saturated=is_saturated,
    )


def _wanted(load: VertexLoad, unclamped: int, ceiling: Ceiling | None, settings: Settings) -> int:
    lowest = min(load.parallelism, settings.vertex_min_parallelism)
    highest = max(load.parallelism, settings.vertex_max_parallelism)
    if ceiling is not None:
        highest = min(highest, ceiling.count)
    within = min(max(unclamped, lowest), highest)
    # The subtasks divide partitions or key groups among themselves.
    is_keyed = any(edge.ship_strategy == _HASH for edge in load.inputs)
    groups = load.partitions if load.is_source else load.parallelism_max
    if groups is None or not (load.is_source or is_keyed):
        return within
    return align(within, load.parallelism, groups, settings, highest)


def ceiling_of(load: VertexLoad, settings: Settings) -> Ceiling | None:
    """Return the lowest bound of the parallelism of a vertex."""
    highest = max(load.parallelism, settings.vertex_max_parallelism)
    bounds = [Ceiling("vertex.max-parallelism", highest)]
    if load.parallelism_max is not None and load.parallelism_max > 0:
        bounds.append(Ceiling("max parallelism", load.parallelism_max))
    if load.is_source and load.partitions:
        bounds.append(Ceiling("partitions", load.partitions))
    return min(bounds, key=lambda bound: bound.count)


def align(wanted: int, now: int, groups: int, settings: Settings, highest: int) -> int:
    """Return a parallelism near `wanted` that divides `groups` better, by the settings' mode."""
    if settings.alignment == "OFF":
        return wanted
    last = now if wanted < now else min(groups, highest)
    for count in range(wanted, last + 1):
        if groups % count == 0:  # all subtasks get the same number of groups
            return count
        if settings.alignment == "BALANCED" and groups // count < groups // wanted:
            return count  # the busiest gets fewer
    return wanted
