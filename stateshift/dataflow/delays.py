"""A forecast of each scheduler: whether it is consistent here, and its delay, simulated under the
load that the dataflow names, or under an assumed one.

Values that operators do not give are assumed and named: a tuple costs a millisecond, and sources
read as much as keeps the busiest operator at work for 80 % of the time. Seconds, then, compare
schedulers, and promise nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from stateshift.dataflow.components import Rule
from stateshift.dataflow.schedulers import SCHEDULERS, Scheduler, is_consistent, schedule
from stateshift.dataflow.simulation import Chance, Load, simulate
from stateshift.specification.dataflow.graph import graph_of, topological
from stateshift.specification.dataflow.operators import Dataflow, with_replicates

COST_SECONDS = 0.001
BUSY = 0.8
SECONDS_BEFORE = 10.0
EVENTS_MAX = 40_000
WORKERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Busiest:
    """The operator with the most to do: tuples that reach it in a second, and its capacity."""

    name: str
    reached_per_second: float
    able_per_second: float

    @property
    def busy(self) -> float:
        """The part of the time for which it is at work; from 1 on, it falls behind."""
        return self.reached_per_second / self.able_per_second


@dataclass(frozen=True, slots=True)
class Forecast:
    """`consistent` and `seconds` by scheduler; `rule` is how Fries prunes. `rates` are what sources
    read in a second. `no_figure` says why there are no seconds: the dataflow is too large to be
    simulated at once, or an operator falls behind. Its queue grows without end, and a delay would
    only say how long was simulated.
    """

    rule: Rule
    consistent: Mapping[Scheduler, bool]
    seconds: Mapping[Scheduler, float | None]
    assumed: tuple[str, ...]
    rates: Mapping[str, float]
    busiest: Busiest
    no_figure: str | None = None


def forecast(
    dataflow: Dataflow, targets: tuple[str, ...], rule: Rule, chance: Callable[[], Chance]
) -> Forecast:
    """Return the forecast of all schedulers. `chance` gives each of them the same start."""
    dataflow = with_replicates(dataflow)
    load, assumed = load_of(dataflow)
    rates = {name: steps[0][1] for name, steps in load.rates.items()}
    flow, loads = flows(dataflow, rates), []
    for operator in dataflow.operators:
        cost = load.costs[operator.name]
        able = operator.workers / cost if cost else math.inf
        loads.append(Busiest(operator.name, flow[operator.name], able))
    busiest = max(loads, key=lambda each: each.busy)
    no_figure = _no_figure(dataflow, busiest)
    kept: dict[Scheduler, bool] = {}
    seconds: dict[Scheduler, float | None] = {}
    for scheduler in SCHEDULERS:
        made = schedule(dataflow, targets, scheduler, rule)
        kept[scheduler] = is_consistent(made)
        seconds[scheduler] = None
        if no_figure is None:
            run = simulate(made, load, chance(), until_changed=True)
            seconds[scheduler] = run.delay_seconds
    return Forecast(rule, kept, seconds, assumed, rates, busiest, no_figure)


def _no_figure(dataflow: Dataflow, busiest: Busiest) -> str | None:
    if sum(operator.workers for operator in dataflow.operators) > WORKERS_MAX:
        return f"more than {WORKERS_MAX:,} workers are not simulated"
    if busiest.busy < 1:
        return None
    reached = round_rate(busiest.reached_per_second)
    able = round_rate(busiest.able_per_second)
    return (
        f"{busiest.name} falls behind: {reached} tuples a second reach it, and it can work {able}"
    )


def load_of(dataflow: Dataflow) -> tuple[Load, tuple[str, ...]]:
    """Return the load that the operators name, and the values that had to be assumed."""
    costs = {}
    for operator in dataflow.operators:
        cost = operator.cost_seconds
        costs[operator.name] = COST_SECONDS if cost is None else cost
    named = {}
    for name in dataflow.sources:
        rate = dataflow[name].rate_per_second
        if rate is not None:
            named[name] = rate
    silent = [name for name in dataflow.sources if name not in named]
    rates = named | dict.fromkeys(silent, _rate(dataflow, named, costs))
    each_second = sum(flows(dataflow, rates).values()) or 1.0
    before = min(SECONDS_BEFORE, EVENTS_MAX / each_second)
    load = Load({name: ((0.0, rate),) for name, rate in rates.items()}, costs, before, 3 * before)
    return load, tuple(_assumed(dataflow, silent, rates))


def flows(dataflow: Dataflow, rates: Mapping[str, float]) -> dict[str, float]:
    """Return the tuples a second at each operator, as the simulator sends them on."""
    graph = graph_of(dataflow, cut=True)
    order = topological(graph)
    assert order is not None, "a dataflow with a cycle"
    flow = dict.fromkeys(dataflow.names, 0.0) | dict(rates)
    broadcasts = [edge for edge in dataflow.edges if edge.way == "broadcast"]
    copies = {edge.ends: dataflow[edge.downstream].workers for edge in broadcasts}
    most = sum(rates.values())
    for here in order:
        operator, out = dataflow.operators[here], flow[dataflow.operators[here].name]
        if operator.unique:
            out = min(out, most)  # no more than the sources read
        if operator.unique or operator.kind != "one-to-many":
            out /= len(graph.after[here]) or 1  # each tuple goes along one of the edges
        for other in graph.after[here]:
            name = graph.names[other]
            flow[name] += out * copies.get((operator.name, name), 1)
    return flow


def _rate(dataflow: Dataflow, named: Mapping[str, float], costs: Mapping[str, float]) -> float:
    """Return the unnamed sources' rate: what the busiest operator can take in its share of time."""
    if named:
        return sum(named.values()) / len(named)
    flow = flows(dataflow, dict.fromkeys(dataflow.sources, 1.0))
    most = max(flow[one.name] * costs[one.name] / one.workers for one in dataflow.operators)
    return BUSY / most if most else 1.0


def _assumed(dataflow: Dataflow, silent: list[str], rates: Mapping[str, float]) -> Iterator[str]:
    without = [operator.name for operator in dataflow.operators if operator.cost_seconds is None]
    if without:
        yield f"{COST_SECONDS * 1000:g} ms a tuple at {_several(without)} (cost_seconds)"
    if silent:
        rate = round_rate(rates[silent[0]])
        yield f"{rate} tuples a second at {_several(silent)} (rate_per_second)"


def round_rate(rate: float) -> str:
    """Write a rate with three digits: `1,230,000`, `0.25`."""
    return f"{float(f'{rate:.3g}'):,.0f}" if rate >= 100 else f"{rate:.3g}"


def _several(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} operators"
