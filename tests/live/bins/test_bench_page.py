"""The page of scripts/bench/live says of each goal whether it is reached; latencies are those of an open loop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[3] / "scripts" / "bench"
NAMES = ("counting", "curves", "ground", "latency", "live", "open_loop", "page", "pages", "parts")
NAMES += ("picture", "processes", "published")


@pytest.fixture(scope="module", autouse=True)
def modules() -> Iterator[None]:
    """Names like `page` are those of other benches, too: they are let go of behind this module."""
    places = [str(BENCH / "live.d"), str(BENCH)]
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    sys.path[:0] = places
    yield
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(before)
    for place in places:
        sys.path.remove(place)


def move(strategy: str, worst: float, p50: float = 0.3, form: str = "objects") -> dict[str, Any]:
    latency = {"p50": 0.3, "p90": 0.4, "p99": 0.5, "p99.9": 0.6, "max": 0.6, "rows": 270}
    more = 5.0 if form == "objects" else 0.1
    return {
        "part": "strategies",
        "form": form,
        "home": "driver",
        "keys": 1_200_000,
        "strategy": strategy,
        "rate": 9,
        "steps": 1,
        "moved_in": 9.0,
        "before": latency,
        "during": {**latency, "p50": p50, "max": worst},
        "work": {what: {"keys": 1_200_000, "more": more} for what in ("given", "taken")},
        "memory": {who: {"before": 10, "peak": 30, "after": 25} for who in ("giver", "taker")},
        "exactly_once": True,
        "load": 1.0,
        "at": "2026-01-01 00:00",
    }


def page(*figures: dict[str, Any]) -> str:
    from page import as_page

    return "\n".join(as_page(figures))


def test_a_goal_that_is_reached_and_one_that_is_not_are_told_apart() -> None:
    good = page(move("all-at-once", 10.6), move("fluid", 1.1))
    assert "excess, all-at-once ÷ fluid = 20.00 (goal: at least 10, reached)" in good
    assert "maxima, all-at-once ÷ fluid = 9.64 (goal: at least 6, reached)" in good
    bad = page(move("all-at-once", 3.6), move("fluid", 1.6, p50=0.6))
    assert "excess, all-at-once ÷ fluid = 3.00 (goal: at least 10, NOT reached)" in bad
    assert "p50, during ÷ before, fluid = 2.00 (goal: at most 1.3, NOT reached)" in bad


def test_an_excess_that_cannot_be_told_from_none_counts_as_the_least_that_can() -> None:
    told = page(move("all-at-once", 2.6), move("fluid", 0.5))
    assert "excess, all-at-once ÷ fluid = 20.0" in told
    assert "below 0.1 s it counts as that" in told


def test_of_several_rounds_the_medians_are_told() -> None:
    once = [move("all-at-once", 0.6 + worst) for worst in (1.0, 5.0, 3.0)]
    fluid = [move("fluid", 0.6 + worst) for worst in (0.2, 0.9, 0.1)]
    rounds = [one | {"round": number} for each in (once, fluid) for number, one in enumerate(each)]
    told = page(*rounds)
    assert (
        "| all-at-once | 1 | 9.0 | 0.30 / 0.60 | 0.30 / 0.50 / 3.60 | 3.00 (1.00 / 5.00) |" in told
    )
    assert "excess, all-at-once ÷ fluid = 15.00 (goal: at least 10, reached)" in told
    assert told.count("| fluid |") == 2  # latencies, and memory
    late = rounds[1] | {"exactly_once": False}
    assert "3.00 (1.00 / 5.00) | NO | 1.0 | 3 |" in page(rounds[0], late, *rounds[2:])


def test_a_time_before_that_was_shorter_is_said() -> None:
    assert "*Before* is" not in page(move("fluid", 1.0))
    short = move("fluid", 1.0) | {"rate": 27}
    assert "*Before* is 10 s here." in page(short)


def test_columns_are_held_against_objects_by_what_a_key_costs() -> None:
    told = page(move("all-at-once", 9.0), move("all-at-once", 0.7, form="columns"))
    assert "1,200,000 keys, driver: columns ÷ objects = 0.020" in told
    assert "| 1,200,000 | objects | driver | 4.17 | 4.17 | 8.33 |" in told


def test_the_forms_of_a_state_are_compared_within_a_round() -> None:
    rows = [
        {"part": "forms", "form": form, "keys": 1000, "round": number, "at": "x y"}
        | {"given": given, "taken": 0.5, "bytes": 56.0}
        for number, costs in enumerate([(9.5, 0.0), (0.5, 0.0), (99.5, 0.0)])
        for form, given in zip(("objects", "columns"), costs, strict=True)
    ]
    told = page(*rows)
    assert "* columns ÷ objects = 0.050 (goal: at most 1/20 = 0.05, reached)" in told
    assert "| objects | 56 | 9.500 | 0.500 | 10.000 (1.000 / 100.000) | 3 |" in told


def test_a_part_that_was_not_measured_says_so() -> None:
    told = page(move("all-at-once", 9.0))
    assert "Not measured yet: `./scripts/bench/live --parts load`." in told


def test_memory_is_that_of_the_moves_where_it_was_not_measured_by_itself() -> None:
    told = page(move("all-at-once", 9.0))
    assert "| 1,200,000 | all-at-once | 10 / 30 / 25 | 10 / 30 / 25 | 5 | 5 |" in told


def test_throughput_is_compared_within_a_round() -> None:
    rows = [
        {"part": "throughput", "way": way, "round": number, "batch": 1.0, "cpu": 2.0, "at": "x y"}
        | {"rows_a_second": rate, "load": 1.0}
        for number, rates in enumerate([(100, 150), (50, 100), (200, 220)])
        for way, rate in zip(("native", "objects, driver"), rates, strict=True)
    ]
    assert "objects, driver ÷ native = 1.50 (goal: at least 1, reached)" in page(*rows)


def test_latencies_are_counted_from_when_records_were_due() -> None:
    from latency import latencies, summary, timeline
    from open_loop import Rates

    rates = Rates(((100.0, 10.0), (101.0, 100.0)))  # 0 to 9, then 10 and on
    came = [(102.0, [0, 9, 10, 110]), (103.5, [5])]
    found = latencies([np.array([round(at * 1e6), *rows]) for at, rows in came], rates)
    assert found.seconds.round(3).tolist() == [2.0, 3.0, 1.1, 1.0, 0.0]
    assert summary(found)["max"] == 3.0
    assert timeline(found, 100.0) == [[0.0, 2.0], [0.5, 3.0], [0.75, 1.1], [1.0, 1.0], [2.0, 0.0]]
    assert len(found.between(100.4, 101.0)) == 2
    assert [rates.due(number) for number in (0, 5, 10, 110)] == [100.0, 100.5, 101.0, 102.0]


def test_what_was_measured_is_not_measured_again() -> None:
    from live import Kept

    figures = Kept(is_quick=True, again=False)
    figures.every = [move("fluid", 1.0)]
    figures.old = {tuple(one) for one in map(_case, figures.every)}
    setup = {"part": "strategies", "form": "objects", "home": "driver", "keys": 1_200_000}
    assert not figures.is_missing(**setup, strategy="fluid")
    assert figures.is_missing(**setup, strategy="warm")
    figures.add(move("fluid", 2.0))
    assert [one["during"]["max"] for one in figures.every] == [2.0]


def _case(figures: dict[str, Any]) -> tuple[Any, ...]:
    from parts import case_of

    return case_of(figures)


def test_a_load_says_what_moves_add_to_the_worst_latency_and_which_rate_is_too_much() -> None:
    moves = [move("all-at-once", 3.1), move("fluid", 0.7)]
    at_rate = [one | {"part": "load", "rate": 1000} for one in moves]
    steady = {"part": "load", "keys": 1_200_000, "strategy": "steady", "at": "2026-01-01 00:00"}
    during = {"p50": 0.3, "p99": 0.5, "max": 0.6}
    still = steady | {"rate": 1000, "saturated": False, "during": during}
    too_much = steady | {"rate": 8000, "saturated": True, "during": during}
    told = page(still, *at_rate, too_much)
    assert (
        "| 1,000 | 0.30 / 0.50 / 0.60 | 0.50 / 3.10 | 0.50 / 0.70 | 2.50, 0.10 | 25.0 | 4.4 |"
        in told
    )
    assert "| 8,000 | later and later | | | | | |" in told
    assert "keep up with 1,000 records a second; 8,000 are too many" in told
