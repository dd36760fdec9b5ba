"""The autoscaler's formulas: worked values, and a reference written from the formulas alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from stateshift.advise.evaluate.flink_formulas import align, decide
from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.samples import Input
from stateshift.advise.evaluate.settings import Settings
from tests.advise.making import keyed, load
from tests.advise.reference import reference, told

pytestmark = pytest.mark.row("IF-19", "W-11", on="Flink")
DEFAULT = Settings()
SEEDS = range(400)


@dataclass(frozen=True)
class Worked:
    """A line of the table: what goes in, and what comes out."""

    parallelism: int
    rate: float
    busy: float
    lag: float
    lag_rate: float
    target_rate: float
    true_rate: float
    up: float
    down: float | None
    capacity: float
    factor: float
    wanted: int
    below: bool
    above: bool


WORKED = {
    "half used": Worked(4, 1000, 0.5, 0, 0, 1000, 2000, 1000, 2667, 1595, 0.7975, 4, False, False),
    "at 95 %, inside the band": Worked(
        4, 1000, 0.95, 0, 0, 1000, 1052.6, 1000, 2667, 1595, 1.5152, 7, False, False
    ),
    "behind, and falling back": Worked(
        4, 1000, 1.0, 60_000, 200, 1200, 1000, 1233, 3233, 1948, 1.948, 8, True, False
    ),
    "a backlog": Worked(
        4, 1000, 1.0, 900_000, 0, 1000, 1000, 1500, None, 2095, 2.095, 9, True, False
    ),
    "a tenth used": Worked(
        10, 1000, 0.1, 0, 0, 1000, 10_000, 1000, 2667, 1595, 0.4, 4, False, True
    ),
    "catching up": Worked(
        10, 1000, 0.3, 400_000, -500, 500, 3333, 722, None, 1020, 0.4, 4, False, False
    ),
}


@pytest.mark.parametrize("worked", WORKED.values(), ids=WORKED)
def test_the_worked_values_come_out(worked: Worked) -> None:
    source = load(
        worked.parallelism, worked.rate, worked.busy, lag=worked.lag, lag_rate=worked.lag_rate
    )
    (decision,) = decide([source], DEFAULT, 300.0)
    assert decision.target_rate == pytest.approx(worked.target_rate)
    assert decision.true_rate == pytest.approx(worked.true_rate, rel=1e-3)
    assert decision.up == pytest.approx(worked.up, abs=0.5)
    assert decision.down == pytest.approx(worked.down, abs=0.5)
    assert decision.capacity == pytest.approx(worked.capacity, abs=0.5)
    assert decision.factor == pytest.approx(worked.factor, abs=1e-3)
    assert decision.wanted == worked.wanted
    assert (decision.is_below, decision.is_above) == (worked.below, worked.above)


def test_what_nothing_comes_into_has_no_bound_of_its_rate() -> None:
    (decision,) = decide([load(10, 0.0, 0.0)], DEFAULT, 300.0)
    assert decision.true_rate is None
    assert decision.is_above
    assert decision.wanted == 4


def test_a_source_that_was_observed_to_read_less_is_judged_by_that() -> None:
    (decision,) = decide([load(4, 1000, 0.2, lag=90_000, observed=2000)], DEFAULT, 300.0)
    assert decision.true_rate == 2000
    assert decision.rate_is_observed
    (decision,) = decide([load(4, 1000, 0.45, lag=90_000, observed=2000)], DEFAULT, 300.0)
    assert not decision.rate_is_observed, "within 15 % the busy time counts"


def test_downstream_targets_follow_what_each_record_becomes() -> None:
    source = load(1, 1000, 0.1, id="s", lag=0, lag_rate=500)
    split = load(2, 3000, 0.2, id="m", inputs=keyed("s", "REBALANCE"))
    count = load(2, 1500, 0.2, id="c", inputs=keyed("m"))
    _, second, third = decide([source, split, count], DEFAULT, 300.0)
    assert second.target_rate == pytest.approx(4500)
    assert third.target_rate == pytest.approx(2250)


def test_an_edge_of_a_join_is_what_the_other_input_leaves() -> None:
    left, right = load(1, 100, 0.1, id="l"), load(1, 50, 0.1, id="r", output_rate=40)
    join = load(1, 140, 0.5, id="j", inputs=(Input("l", "HASH"), Input("r", "HASH")))
    decisions = decide([left, right, join], DEFAULT, 300.0)
    assert decisions[-1].target_rate == pytest.approx(100 * 100 / 100 + 50 * 40 / 50)


def test_two_edges_from_one_vertex_bring_its_records_once() -> None:
    source = load(1, 100, 0.1, id="s", output_rate=200)
    other = load(1, 50, 0.1, id="o", output_rate=50)
    twice = (Input("s", "HASH"), Input("s", "HASH"))
    itself = load(1, 200, 0.5, id="j", inputs=twice)
    assert decide([source, itself], DEFAULT, 300.0)[-1].target_rate == pytest.approx(200)
    both = load(1, 250, 0.5, id="j", inputs=(*twice, Input("o", "HASH")))
    assert decide([source, other, both], DEFAULT, 300.0)[-1].target_rate == pytest.approx(250)


def test_a_source_never_gets_more_subtasks_than_partitions() -> None:
    (decision,) = decide([load(4, 1000, 1.0, lag=900_000, partitions=6)], DEFAULT, 300.0)
    assert (decision.unclamped, decision.wanted) == (9, 6)
    assert decision.ceiling is not None
    assert (decision.ceiling.what, decision.ceiling.count) == ("partitions", 6)


def test_a_keyed_vertex_is_aligned_to_its_key_groups() -> None:
    source = load(1, 1000, 0.1, id="s", lag=0, lag_rate=600)
    count = load(4, 1000, 1.0, id="c", inputs=keyed("s"))
    rebalanced = replace(count, id="r", inputs=keyed("s", "REBALANCE"))
    _, hashed, other = decide([source, count, rebalanced], DEFAULT, 300.0)
    assert (hashed.unclamped, hashed.wanted) == (11, 12)
    assert other.wanted == 11


@pytest.mark.parametrize(
    ("wanted", "now", "groups", "mode", "expected"),
    [
        (7, 4, 128, "BALANCED", 8),
        (7, 4, 128, "EVENLY_SPREAD", 8),
        (7, 4, 128, "OFF", 7),
        (9, 4, 128, "EVENLY_SPREAD", 16),
        (9, 4, 128, "BALANCED", 10),
        (5, 10, 128, "EVENLY_SPREAD", 8),
        (65, 4, 128, "BALANCED", 128),
        (65, 4, 100, "EVENLY_SPREAD", 100),
        (5, 7, 13, "EVENLY_SPREAD", 5),
    ],
)
def test_a_parallelism_is_aligned(
    wanted: int, now: int, groups: int, mode: Any, expected: int
) -> None:
    assert align(wanted, now, groups, replace(DEFAULT, alignment=mode), 200) == expected


# ------------------------------------------------------------------------- against a reference


def some_job(chance: random.Random) -> list[VertexLoad]:
    loads = []
    for number in range(chance.randint(1, 5)):
        is_source = number == 0 or chance.random() < 0.2
        inputs = ()
        if not is_source:
            strategy = chance.choice(["HASH", "REBALANCE", "FORWARD"])
            inputs = keyed(f"v{chance.randrange(number)}", strategy)
        lag = chance.choice([None, 0, chance.uniform(0, 1e6)]) if is_source else None
        loads.append(
            load(
                chance.randint(1, 60),
                chance.choice([0.0, chance.uniform(0.1, 1e5)]),
                chance.choice([0.0, 1.0, chance.random()]),
                id=f"v{number}",
                inputs=inputs,
                parallelism_max=chance.choice([128, 256, 97]),
                lag=lag,
                lag_rate=chance.uniform(-500, 500) if lag is not None else 0.0,
                observed=chance.choice([None, chance.uniform(1, 1e5)]) if is_source else None,
            )
        )
    return loads


def some_settings(chance: random.Random) -> Settings:
    target = chance.uniform(0.3, 0.9)
    return Settings(
        utilization_target=target,
        utilization_boundary=chance.uniform(0, 0.3),
        catch_up_duration=chance.choice([0.0, 600.0, 1800.0]),
        scale_down_max_factor=chance.choice([0.2, 0.6, 1.0]),
        vertex_min_parallelism=chance.choice([1, 3]),
        vertex_max_parallelism=chance.choice([30, 200]),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_decisions_are_those_of_the_formulas(seed: int) -> None:
    chance = random.Random(seed)
    loads, settings = some_job(chance), some_settings(chance)
    restart = chance.choice([0.0, 120.0, 300.0])
    decisions = decide(loads, settings, restart)
    assert [told(each) for each in decisions] == reference(loads, settings, restart)
