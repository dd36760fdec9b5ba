"""The formulas of the Flink operator's autoscaler (DS2 made fit for production), a function each.

    source       lambda   = max(0, input_rate + lag_rate)
                 catchup  = lag / catch_up_duration
    downstream   lambda   = sum over inputs u of lambda_u * ratio(u, v); catchup alike
                 ratio    = edge_rate(u, v) / input_rate(u)
    capacity     (U, with restart) = round(catchup + [lambda * restart / catch_up] + lambda / U)
    TPR          = input_rate / busy; of a source what was observed, where that is much less
    up           = capacity(U_max, without restart)      too little: TPR < up
    down         = capacity(U_min, with restart)         too much:   TPR > down
    factor       = capacity(U_target, with restart) / TPR, clamped
    p'           = ceil(factor * p), clamped, aligned to key groups or partitions

Source: apache/flink-kubernetes-operator 1.16, `ScalingMetricEvaluator`, `AutoScalerUtils`,
`JobVertexScaler`. Nothing changes unless at least one vertex that would change is outside; then
every vertex changes whose p' is another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.settings import Settings

# What a keyed vertex's records come by.
_HASH: Final = "HASH"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What forbids more subtasks, and how many it allows."""

    what: str  # "partitions", "max parallelism", "vertex.max-parallelism"
    count: int


@dataclass(frozen=True, slots=True)
class VertexDecision:
    """What the formulas say of a vertex. An infinite rate is None: nothing came in, or it was not
    busy; and without an upper threshold there is no `down`.
    """

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

    @property
    def is_outside(self) -> bool:
        return self.is_below or self.is_above

    @property
    def utilization(self) -> float:
        """Return the share of its capacity that what comes in takes."""
        if self.true_rate is None:
            return 0.0
        return self.target_rate / self.true_rate


def decide(
    loads: Sequence[VertexLoad], settings: Settings, restart_seconds: float
) -> tuple[VertexDecision, ...]:
    """Return the decision of each vertex, in the order of the loads."""
    backlog = is_backlog(loads, settings)
    targets = target_rates(loads, settings)
    return tuple(
        _decide(load, targets[load.id], _Surroundings(settings, restart_seconds, backlog))
        for load in loads
    )


def is_backlog(loads: Sequence[VertexLoad], settings: Settings) -> bool:
    """Whether a source has so much before it that the job is catching up."""
    sources = [load for load in loads if load.is_source]
    threshold = settings.backlog_lag_threshold
    return any((load.lag or 0.0) > threshold * load.input_rate for load in sources if load.lag)


@dataclass(frozen=True, slots=True)
class Target:
    """What a vertex has to take in a second: what arrives, and what catches up."""

    rate: float
    catchup: float


def target_rates(loads: Sequence[VertexLoad], settings: Settings) -> dict[str, Target]:
    """Return what each vertex has to take in, from the sources down."""
    by_id = {load.id: load for load in loads}
    targets: dict[str, Target] = {}
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
    targets: Mapping[str, Target],
    by_id: Mapping[str, VertexLoad],
    settings: Settings,
) -> Target:
    if load.is_source:
        arrives = max(0.0, load.input_rate + load.lag_rate)
        waits = load.lag or 0.0
        duration = settings.catch_up_duration
        return Target(arrives, waits / duration if duration > 0 else 0.0)
    rate, catchup = 0.0, 0.0
    for upstream in _upstream(load):
        ratio = output_ratio(by_id[upstream], load, by_id)
        rate += targets[upstream].rate * ratio
        catchup += targets[upstream].catchup * ratio
    return Target(rate, catchup)


def _upstream(load: VertexLoad) -> list[str]:
    """Return the vertices that a vertex reads from, each once: a join of a stream with itself has
    two edges from one vertex, and its records come over both.
    """
    return list(dict.fromkeys(edge.vertex for edge in load.inputs))


def output_ratio(
    upstream: VertexLoad, downstream: VertexLoad, by_id: Mapping[str, VertexLoad]
) -> float:
    """Return how many records of an edge come of one that its upstream vertex takes in."""
    if upstream.input_rate <= 0:
        return 0.0
    return _edge_rate(upstream, downstream, by_id) / upstream.input_rate


def _edge_rate(
    upstream: VertexLoad, downstream: VertexLoad, by_id: Mapping[str, VertexLoad]
) -> float:
    """Return the records a second on an edge, by the most reliable way there is."""
    others = [by_id[id] for id in _upstream(downstream) if id != upstream.id]
    if not others:
        return downstream.input_rate
    if all(_outputs(other, by_id) == 1 for other in others):
        return max(0.0, downstream.input_rate - sum(other.output_rate for other in others))
    return upstream.output_rate


def _outputs(vertex: VertexLoad, by_id: Mapping[str, VertexLoad]) -> int:
    return sum(vertex.id in _upstream(load) for load in by_id.values())


def true_processing_rate(load: VertexLoad, settings: Settings) -> tuple[float, bool]:
    """Return what a vertex could take in a second at its parallelism, and whether that was observed
    of a source that is held back, rather than computed from how busy it was.
    """
    idle = load.input_rate <= 0 or load.busy <= 0
    by_busy = math.inf if idle else load.input_rate / load.busy
    if load.observed is None:
        return by_busy, False
    if by_busy > load.observed * (1 + settings.observed_switch_threshold):
        return load.observed, True
    return by_busy, False


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What is the same for all vertices of a job."""

    settings: Settings
    restart_seconds: float
    backlog: bool


def capacity(
    target: Target, utilization: float, settings: Settings, restart_seconds: float
) -> float:
    """Return the rate that a vertex needs so that it is used to a share. With `restart_seconds`,
    what arrives during a restart is caught up as well. Infinite where nothing may be used.
    """
    if utilization <= 0:
        return math.inf
    duration = settings.catch_up_duration
    after_restart = target.rate * restart_seconds / duration if duration > 0 else 0.0
    rate = target.catchup + after_restart + target.rate / utilization
    return float(math.floor(rate + 0.5))  # as Java rounds


def _decide(load: VertexLoad, target: Target, around: _Surroundings) -> VertexDecision:
    settings, restart = around.settings, around.restart_seconds
    above = 1.0 if around.backlog else settings.utilization_above
    below = 0.0 if around.backlog else settings.utilization_below
    rate, observed = true_processing_rate(load, settings)
    up = capacity(target, above, settings, 0.0)
    down = capacity(target, below, settings, restart)
    needed = capacity(target, settings.utilization_target, settings, restart)
    factor = clamped_factor(needed, rate, settings)
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
        is_below=rate < up,
        is_above=rate > down,
    )


def clamped_factor(needed: float, rate: float, settings: Settings) -> float:
    """Return by how much the parallelism is to change, within what one step may do."""
    least = 1 - settings.scale_down_max_factor
    most = 1 + settings.scale_up_max_factor
    wanted = most if rate <= 0 else needed / rate
    return min(max(wanted, least), most)


def _wanted(load: VertexLoad, unclamped: int, ceiling: Ceiling | None, settings: Settings) -> int:
    lowest = min(load.parallelism, settings.vertex_min_parallelism)
    highest = max(load.parallelism, settings.vertex_max_parallelism)
    if ceiling is not None:
        highest = min(highest, ceiling.count)
    within = min(max(unclamped, lowest), highest)
    groups = _groups(load)
    if groups is None:
        return within
    return aligned(within, load.parallelism, groups, settings, highest)


def ceiling_of(load: VertexLoad, settings: Settings) -> Ceiling | None:
    """Return what bounds the parallelism of a vertex, the lowest bound first."""
    bounds = [
        Ceiling("vertex.max-parallelism", max(load.parallelism, settings.vertex_max_parallelism))
    ]
    if load.parallelism_max is not None and load.parallelism_max > 0:
        bounds.append(Ceiling("max parallelism", load.parallelism_max))
    if load.is_source and load.partitions:
        bounds.append(Ceiling("partitions", load.partitions))
    return min(bounds, key=lambda bound: bound.count)


def _groups(load: VertexLoad) -> int | None:
    """Return what a vertex's subtasks divide among themselves: partitions, or key groups."""
    if load.is_source:
        return load.partitions
    is_keyed = any(edge.ship_strategy == _HASH for edge in load.inputs)
    return load.parallelism_max if is_keyed else None


def aligned(wanted: int, now: int, groups: int, settings: Settings, highest: int) -> int:
    """Return the parallelism near `wanted` that divides `groups` better, as the settings' mode
    says; `wanted` itself where there is none.
    """
    last = now if wanted < now else min(groups, highest)
    match settings.alignment:
        case "OFF":
            return wanted
        case "EVENLY_SPREAD":
            better = _dividing(wanted, last, groups)
        case "BALANCED":
            better = _balanced(wanted, last, groups)
    return next(better, wanted)


def _dividing(wanted: int, last: int, groups: int) -> Iterator[int]:
    """Yield the counts that give each subtask the same number of groups."""
    for count in range(wanted, last + 1):
        if groups % count == 0:
            yield count


def _balanced(wanted: int, last: int, groups: int) -> Iterator[int]:
    """Yield the counts that give the busiest subtask fewer groups, or all the same number."""
    for count in range(wanted, last + 1):
        if groups % count == 0 or groups // count < groups // wanted:
            yield count
