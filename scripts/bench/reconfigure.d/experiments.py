"""Section 8 of the Fries paper on the simulator: its workflows, with loads that a machine
simulates in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from random import Random

from stateshift.dataflow.schedulers import Scheduler, schedule
from stateshift.dataflow.simulation import Load, Run, simulate
from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge

REQUEST, SECONDS = 10.0, 120.0
SURGE_SECONDS, REPLACED_SECONDS = 20.0, 24.0


def drawn(
    text: str,
    workers: Mapping[str, int] | None = None,
    *,
    many: str = "",
    unique: str = "",
    one_per_tuple: str = "",
) -> Dataflow:
    """`A -> B -> D; C -> D`: ways that meet where names are the same. All edges of
    `one_per_tuple` are so.
    """
    ways = [[name.strip() for name in way.split("->")] for way in text.split(";")]
    names = dict.fromkeys(name for way in ways for name in way)
    workers = workers or {}
    return Dataflow(
        tuple(
            DataflowOperator(
                name,
                "one-to-many" if name == many else "one-to-one",
                name == unique,
                workers.get(name, 1),
            )
            for name in names
        ),
        tuple(
            Edge(one, other, "partitioned", one == one_per_tuple)
            for one, other in dict.fromkeys(pair for way in ways for pair in pairwise(way))
        ),
    )


JOINS = dict.fromkeys(("J1", "J2", "J3", "J4", "J5", "J6", "J7", "J8", "J9"), 4)
W2 = drawn("S1 -> J1 -> J2 -> J3 -> J4", JOINS)
W3 = drawn("S5 -> J5 -> U1; S6 -> J6 -> U1; S7 -> J7 -> U1 -> J8 -> J9", JOINS)


def joins(flow: Dataflow, targets: tuple[str, ...], scheduler: Scheduler, seed: int) -> Run:
    """Every join is at work for nine tenths of its time, and a third of the keys fall on one of its
    four workers: that one has more to do than it can, and a queue that grows.
    """
    expensive = [name for name in flow.names if name.startswith("J")]
    rate = 300.0 / len(flow.sources)
    each = {name: rate if name in ("J5", "J6", "J7") else 300.0 for name in expensive}
    costs = {name: 0.9 * 4 / each[name] for name in expensive}
    shares = dict.fromkeys(expensive, (0.34, 0.22, 0.22, 0.22))
    load = Load(dict.fromkeys(flow.sources, ((0.0, rate),)), costs, REQUEST, SECONDS, shares=shares)
    return simulate(schedule(flow, targets, scheduler), load, Random(seed), until_changed=True)


def pipeline(
    seed: int, scheduler: Scheduler, *, rate: float = 60.0, cost: float = 0.02, workers: int = 2
) -> Run:
    """An expensive operator, a cheap one, and the target behind them; three quarters of the keys
    on one worker.
    """
    flow = drawn("S -> FD -> J -> T -> K", {"FD": workers, "J": workers, "T": workers})
    shares = {"FD": (0.75, *([0.25 / (workers - 1)] * (workers - 1)))}
    load = Load(
        {"S": ((0.0, rate),)}, {"FD": cost, "J": 0.001, "T": 0.001}, REQUEST, SECONDS, shares=shares
    )
    return simulate(schedule(flow, ["T"], scheduler), load, Random(seed), until_changed=True)


Sweep = tuple[str, str, tuple[float, ...], Callable[[int, Scheduler, float], Run]]
SWEEPS: Mapping[str, Sweep] = {
    "rate": (
        "ingestion rate",
        "tuples/s",
        (60.0, 70.0, 80.0, 90.0, 100.0, 110.0, 120.0),
        lambda seed, by, x: pipeline(seed, by, rate=x),
    ),
    "cost": (
        "cost of a tuple",
        "ms",
        (20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0),
        lambda seed, by, x: pipeline(seed, by, cost=x / 1000),
    ),
    "workers": (
        "parallelism at 40 tuples/s for each",
        "workers",
        (2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
        lambda seed, by, x: pipeline(seed, by, rate=40 * x, workers=int(x)),
    ),
}


def surge(seed: int, scheduler: Scheduler) -> Run:
    """The rate doubles at second 20; at 24 the operator is replaced by one that costs a ninth."""
    flow = drawn("S -> FD -> K", {"FD": 4})
    rates = ((0.0, 100.0), (SURGE_SECONDS, 200.0))
    load = Load(
        {"S": rates},
        {"FD": 0.018},
        REPLACED_SECONDS,
        40.0,
        {"FD": 0.002},
        {"FD": (0.4, 0.2, 0.2, 0.2)},
    )
    return simulate(schedule(flow, ["FD"], scheduler), load, Random(seed))


def latencies(run: Run) -> list[tuple[float, float]]:
    """The longest of each second, from a little before the surge until all is well again."""
    seconds = range(int(SURGE_SECONDS) - 4, int(REPLACED_SECONDS) + 8)
    return [(float(second), latency_max(run, second, second + 1.0)) for second in seconds]


def falls_after(run: Run) -> float:
    """Seconds from the request until tuples take less than at the request, and go on doing so."""
    began = int(REPLACED_SECONDS)
    at_request = latency_max(run, began - 1.0, began)
    worse = [
        second for second in range(began, 80) if latency_max(run, second, second + 1.0) > at_request
    ]
    return (worse[-1] + 1.0 - began) if worse else 0.0


def latency_max(run: Run, since: float, until: float) -> float:
    """Return the longest that a tuple took which came to its end in between; 0 where none did."""
    took = [seconds for when, seconds in run.latencies if since <= when < until]
    return max(took, default=0.0)
