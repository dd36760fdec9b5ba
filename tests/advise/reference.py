"""The autoscaler's decision, written from the table of its formulas alone; capacities are not
rounded, and a vertex that is busy all the time, and does not drain what waits, is outside.
"""

from __future__ import annotations

import math
from typing import Any

from stateshift.advise.evaluate.flink_formulas import VertexDecision
from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.settings import Settings


def reference(loads: list[VertexLoad], s: Settings, restart: float) -> list[dict[str, Any]]:
    """The table of formulas, line by line; only for sources and vertices of one input."""
    rate, catchup, told = {}, {}, []
    backlog = any(
        not v.inputs and (v.lag or 0) > 0 and v.lag > s.backlog_lag_threshold * v.input_rate  # type: ignore[operator]
        for v in loads
    )
    for v in loads:
        if v.inputs:
            u = next(each for each in loads if each.id == v.inputs[0].vertex)
            written = max(0, v.input_rate + v.queue_rate)
            ratio = written / u.input_rate if u.input_rate else 0
            rate[v.id], catchup[v.id] = rate[u.id] * ratio, catchup[u.id] * ratio
            catchup[v.id] += v.queued / s.catch_up_duration if s.catch_up_duration else 0
        else:
            rate[v.id] = max(0, v.input_rate + v.lag_rate)
            catchup[v.id] = (v.lag or 0) / s.catch_up_duration if s.catch_up_duration else 0
        lam, c = rate[v.id], catchup[v.id]
        tpr = v.input_rate / v.busy if v.busy > 0 and v.input_rate > 0 else math.inf
        if v.observed is not None and tpr > v.observed * (1 + s.observed_switch_threshold):
            tpr = v.observed
        extra = lam * restart / s.catch_up_duration if s.catch_up_duration else 0
        u_max, u_min = (1.0, 0.0) if backlog else (s.utilization_above, s.utilization_below)
        up = c + lam / u_max
        down = c + extra + lam / u_min if u_min > 0 else math.inf
        wanted = c + extra + lam / s.utilization_target
        factor = max(1 - s.scale_down_max_factor, min(wanted / tpr, 1 + s.scale_up_max_factor))
        p = math.ceil(factor * v.parallelism)
        p = max(p, min(v.parallelism, s.vertex_min_parallelism))
        p = min(p, v.parallelism_max or p, max(v.parallelism, s.vertex_max_parallelism))
        n = v.parallelism_max or 0
        if v.inputs and v.inputs[0].ship_strategy == "HASH" and n:
            limit = (
                v.parallelism
                if p < v.parallelism
                else min(n, max(v.parallelism, s.vertex_max_parallelism))
            )
            for q in range(p, limit + 1):
                if n % q == 0 or n // q < n // p:
                    p = q
                    break
        full = v.busy >= 0.99
        below = tpr < up or (full and lam >= 0.95 * tpr and s.utilization_above <= 1)
        above = tpr > down and not full
        told.append({"up": up, "down": down, "wanted": p, "outside": below or above})
    return told


def told(decision: VertexDecision) -> dict[str, Any]:
    down = math.inf if decision.down is None else decision.down
    return {
        "up": decision.up,
        "down": down,
        "wanted": decision.wanted,
        "outside": decision.is_outside,
    }
