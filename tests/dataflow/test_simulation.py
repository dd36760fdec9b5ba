"""How long schedules take: the paper's section 8 in small, by its tendencies."""

from __future__ import annotations

from random import Random
from statistics import linear_regression

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.dataflow.schedulers import SCHEDULERS, Scheduler, schedule
from stateshift.dataflow.simulation import Load, Run, simulate
from stateshift.specification.dataflow.operators import Dataflow
from tests.dataflow.random_dataflows import dataflows, with_targets
from tests.dataflow.samples import W2, drawn

Asked = tuple[Dataflow, tuple[str, ...]]


def pipeline(workers: int) -> Dataflow:
    """A source, an expensive operator on several workers, a join, a cheap target, a sink."""
    many = {"FD": workers, "J": workers, "T": workers}
    return drawn("S -> FD -> J -> T -> K", workers=many)


def loaded(
    rate: float = 60.0, cost: float = 0.02, workers: int = 2, scheduler: Scheduler = "fries"
) -> Run:
    costs = {"FD": cost, "J": 0.001, "T": 0.001}
    load = Load(
        {"S": ((0.0, rate),)},
        costs,
        request_seconds=10.0,
        seconds=60.0,
        shares={"FD": (0.75, *([0.25 / (workers - 1)] * (workers - 1)))},
    )
    return simulate(
        schedule(pipeline(workers), ["T"], scheduler), load, Random(7), until_changed=True
    )


def slope(xs: list[float], ys: list[float]) -> float:
    return linear_regression(xs, ys).slope


SWEEPS = {
    "rate": ([60.0, 80.0, 100.0, 120.0], lambda x, s: loaded(rate=x, scheduler=s)),
    "cost": ([0.02, 0.03, 0.04, 0.05], lambda x, s: loaded(cost=x, scheduler=s)),
    "workers": (
        [2.0, 3.0, 4.0, 6.0],
        lambda x, s: loaded(rate=40.0 * x, workers=int(x), scheduler=s),
    ),
}


@pytest.mark.row("F-3", "F-21")
@pytest.mark.parametrize("over", SWEEPS)
def test_the_delay_grows_less_with_fries_than_with_the_epoch_barrier(over: str) -> None:
    xs, run = SWEEPS[over]
    ours, theirs = ([run(x, s).delay_seconds for x in xs] for s in ("fries", "epoch"))  # type: ignore[arg-type]
    assert slope(xs, theirs) > 0
    assert slope(xs, ours) < slope(xs, theirs) / 10, f"{ours} against {theirs}"
    assert max(ours) < min(theirs)


def surge(scheduler: Scheduler) -> Run:
    """Twice the rate from second 20 on, a cheaper function from second 24 on; one worker has
    most of the keys.
    """
    dataflow = drawn("S -> FD -> K", workers={"FD": 4})
    load = Load(
        {"S": ((0.0, 100.0), (20.0, 200.0))},
        {"FD": 0.018},
        request_seconds=24.0,
        seconds=40.0,
        costs_after={"FD": 0.002},
        shares={"FD": (0.4, 0.2, 0.2, 0.2)},
    )
    return simulate(schedule(dataflow, ["FD"], scheduler), load, Random(11))


def falls_after(run: Run) -> float:
    """Seconds from the request until tuples take less than at the request, and go on doing so."""
    at_request = latency_max(run, 23.0, 24.0)
    worse = [
        second for second in range(24, 60) if latency_max(run, second, second + 1.0) > at_request
    ]
    return (worse[-1] + 1 - 24.0) if worse else 0.0


@pytest.mark.row("F-20")
def test_in_a_surge_latency_falls_at_once_with_fries_and_after_the_backlog_with_an_epoch_barrier() -> (
    None
):
    ours, theirs = surge("fries"), surge("epoch")
    assert ours.backlog_seconds == theirs.backlog_seconds > 1.0
    assert falls_after(ours) <= 1.0
    assert theirs.delay_seconds >= theirs.backlog_seconds * 0.9
    assert falls_after(theirs) > theirs.backlog_seconds
    assert ours.delay_seconds < 0.05


@pytest.mark.row("F-19")
def test_a_marker_waits_longest_behind_the_expensive_operator_and_behind_the_straggler() -> None:
    run = loaded(rate=110.0, scheduler="epoch")
    reached = {
        name: max(when for (one, _), when in run.through.items() if one == name)
        for name in ("FD", "J", "T")
    }
    between = {
        "FD": reached["FD"],
        "J": reached["J"] - reached["FD"],
        "T": reached["T"] - reached["J"],
    }
    assert between["FD"] > 10 * max(between["J"], between["T"])
    assert run.through["FD", 0] > 2 * run.through["FD", 1], (
        "three quarters of the keys are on the first"
    )


@pytest.mark.row("F-2", "F-3")
def test_delays_are_in_the_order_that_what_is_waited_for_suggests() -> None:
    naive, fries, epoch, versions = (
        loaded(110.0, scheduler=s).delay_seconds
        for s in ("naive", "fries", "epoch", "multi-version")
    )
    assert naive == fries < 0.02, "a single target above which nothing is one-to-many"
    assert fries * 20 < versions and fries * 20 < epoch


def test_within_a_component_fries_waits_for_what_is_queued_there_and_for_nothing_else() -> None:
    load = Load(
        {"J1": ((0.0, 90.0),)}, {"J1": 0.010, "J2": 0.0109}, request_seconds=20.0, seconds=40.0
    )
    both = simulate(schedule(W2, ["J2", "J4"], "fries"), load, Random(3), until_changed=True)
    alone = simulate(schedule(W2, ["J3", "J4"], "fries"), load, Random(3), until_changed=True)
    assert {name for name, _ in both.through} == {"J2", "J3", "J4"}
    assert alone.delay_seconds <= both.delay_seconds


def test_the_same_chance_gives_the_same_run_and_another_one_another() -> None:
    one, other = (loaded(rate=100.0, scheduler="epoch") for _ in range(2))
    assert one == other
    load = Load({"J1": ((0.0, 50.0),)}, {"J2": 0.01}, request_seconds=1.0, seconds=3.0)
    runs = [
        simulate(schedule(W2, ["J2"], "epoch"), load, Random(seed)).latencies for seed in (1, 2)
    ]
    assert runs[0] != runs[1]


@settings(max_examples=60, deadline=None)
@given(with_targets(dataflows(size_max=7, workers_max=3)), st.integers(0, 1 << 30))
@pytest.mark.row("F-15")
def test_every_target_changes_whatever_the_dataflow(asked: Asked, seed: int) -> None:
    dataflow, targets = asked
    load = Load(
        dict.fromkeys(dataflow.sources, ((0.0, 20.0),)),
        dict.fromkeys(dataflow.names, 0.001),
        request_seconds=0.5,
        seconds=1.0,
    )
    for scheduler in SCHEDULERS:
        run = simulate(schedule(dataflow, targets, scheduler), load, Random(seed))
        assert {name for name, _ in run.through} >= set(targets)
        assert run.delay_seconds >= 0


def latency_max(run: Run, since: float, until: float) -> float:
    """Return the longest that a tuple took which came to its end in between; 0 where none did."""
    took = [seconds for when, seconds in run.latencies if since <= when < until]
    return max(took, default=0.0)
