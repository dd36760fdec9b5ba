"""What to expect of each scheduler: whether it is consistent here, and its delay, simulated under
the load that the dataflow tells, or under an assumed one.

What operators do not say is assumed and named: a tuple costs a millisecond, and sources read as
much as keeps the busiest operator at work for 80 % of the time. Seconds, then, compare schedulers,
and promise nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stateshift.dataflow.consistency import consistent
from stateshift.dataflow.graph import graph_of, topological
from stateshift.dataflow.operators import Dataflow, with_replicates
from stateshift.dataflow.pruning import Rule
from stateshift.dataflow.schedulers import SCHEDULERS, Scheduler, schedule
from stateshift.dataflow.simulation import Chance, Load, simulate

COST_SECONDS = 0.001
BUSY = 0.8
SECONDS_BEFORE = 10.0
EVENTS_MAX = 40_000
WORKERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Busiest:
    """The operator with the most to do: tuples that reach it in a second, and how many it can
    work.
    """

    name: str
    reached_per_second: float
    able_per_second: float

    @property
    def busy(self) -> float:
        """What part of the time it is at work; from 1 on, it falls behind."""
        return self.reached_per_second / self.able_per_second


@dataclass(frozen=True, slots=True)
class Expected:
    """`consistent` and `seconds` by scheduler; `rule` is how Fries prunes. `rates` are what sources
    read in a second. `no_figure` says why there are no seconds: the dataflow is too large to be
    simulated at once, or an operator falls behind. Its queue grows without end, and a delay would
    only tell how long was simulated.
    """

    rule: Rule
    consistent: Mapping[Scheduler, bool]
    seconds: Mapping[Scheduler, float | None]
    assumed: tuple[str, ...]
    rates: Mapping[str, float]
    busiest: Busiest
    no_figure: str | None = None


def expected(
    dataflow: Dataflow, targets: tuple[str, ...], rule: Rule, chance: Callable[[], Chance]
) -> Expected:
    """`chance` gives each scheduler the same start."""
    dataflow = with_replicates(dataflow)
    load, assumed = load_of(dataflow)
    rates = {name: steps[0][1] for name, steps in load.rates.items()}
    busiest = _busiest(dataflow, rates, load.costs)
    schedules = {one: schedule(dataflow, targets, one, rule) for one in SCHEDULERS}
    kept = {one: consistent(made) for one, made in schedules.items()}
    if why := _no_figure(dataflow, busiest):
        return Expected(rule, kept, dict.fromkeys(SCHEDULERS), assumed, rates, busiest, why)
    runs = {
        one: simulate(made, load, chance(), until_changed=True) for one, made in schedules.items()
    }
    return Expected(
        rule, kept, {one: run.delay_seconds for one, run in runs.items()}, assumed, rates, busiest
    )


def _no_figure(dataflow: Dataflow, busiest: Busiest) -> str | None:
    if sum(operator.workers for operator in dataflow.operators) > WORKERS_MAX:
        return f"more than {WORKERS_MAX:,} workers are not simulated"
    if busiest.busy < 1:
        return None
    return (
        f"{busiest.name} falls behind: {rounded(busiest.reached_per_second)} tuples a "
        "second reach it, and it can "
        f"work {rounded(busiest.able_per_second)}"
    )


def load_of(dataflow: Dataflow) -> tuple[Load, tuple[str, ...]]:
    """The load that the operators tell of, and what had to be assumed."""
    costs = {
        one.name: COST_SECONDS if one.cost_seconds is None else one.cost_seconds
        for one in dataflow.operators
    }
    told = {
        name: rate
        for name in dataflow.sources
        if (rate := dataflow[name].rate_per_second) is not None
    }
    rates = told | dict.fromkeys(
        (name for name in dataflow.sources if name not in told), _rate(dataflow, told, costs)
    )
    each_second = sum(flows(dataflow, rates).values()) or 1.0
    before = min(SECONDS_BEFORE, EVENTS_MAX / each_second)
    load = Load({name: ((0.0, rate),) for name, rate in rates.items()}, costs, before, 3 * before)
    return load, tuple(_assumed(dataflow, told, rates))


def flows(dataflow: Dataflow, rates: Mapping[str, float]) -> dict[str, float]:
    """Tuples a second at each operator, as the simulator sends them on."""
    graph = graph_of(dataflow, cut=True)
    order = topological(graph)
    assert order is not None, "a dataflow with a cycle"
    flow = dict.fromkeys(dataflow.names, 0.0) | dict(rates)
    copies = {
        edge.ends: dataflow[edge.downstream].workers
        for edge in dataflow.edges
        if edge.way == "broadcast"
    }
    most = sum(rates.values())
    for here in order:
        operator = dataflow.operators[here]
        out = min(flow[operator.name], most) if operator.unique else flow[operator.name]
        after = [graph.names[other] for other in graph.after[here]]
        for name in after:
            part = (
                out if operator.kind == "one-to-many" and not operator.unique else out / len(after)
            )
            flow[name] += part * copies.get((operator.name, name), 1)
    return flow


def _busiest(dataflow: Dataflow, rates: Mapping[str, float], costs: Mapping[str, float]) -> Busiest:
    flow = flows(dataflow, rates)
    able = {
        one.name: one.workers / costs[one.name] if costs[one.name] else math.inf
        for one in dataflow.operators
    }
    return max(
        (Busiest(name, flow[name], able[name]) for name in dataflow.names), key=lambda one: one.busy
    )


def _rate(dataflow: Dataflow, told: Mapping[str, float], costs: Mapping[str, float]) -> float:
    """What the other sources read; where none says, as much as the busiest operator can do in
    its part of the time.
    """
    if told:
        return sum(told.values()) / len(told)
    flow = flows(dataflow, dict.fromkeys(dataflow.sources, 1.0))
    most = max(flow[one.name] * costs[one.name] / one.workers for one in dataflow.operators)
    return BUSY / most if most else 1.0


def _assumed(
    dataflow: Dataflow, told: Mapping[str, float], rates: Mapping[str, float]
) -> list[str]:
    found = []
    without = [one.name for one in dataflow.operators if one.cost_seconds is None]
    if without:
        found.append(f"{COST_SECONDS * 1000:g} ms a tuple at {_several(without)} (cost_seconds)")
    silent = [name for name in dataflow.sources if name not in told]
    if silent:
        found.append(
            f"{rounded(rates[silent[0]])} tuples a second at {_several(silent)} (rate_per_second)"
        )
    return found


def rounded(rate: float) -> str:
    """Three digits of a rate: `1,230,000`, `0.25`."""
    return f"{float(f'{rate:.3g}'):,.0f}" if rate >= 100 else f"{rate:.3g}"


def _several(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} operators"
