"""The spread that is found is the best of all, which are tried here one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings

from stateshift.advise.rebalance.limits import Movable, has_room, movable
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.placement import Cost, Placement, place
from stateshift.advise.rebalance.situation import Cluster, Policy, Situation, loads_of, units_of
from tests.advise.rebalance.grounds import GB, job, situation, situations

POLICY = Policy()


def placed(of: Situation, policy: Policy = POLICY) -> tuple[tuple[Movable, ...], Placement]:
    units = movable(of, units_of(of), policy, Memory())
    return units, place(of.clusters, units, loads_of(of), policy)


def every_spread(of: Situation, units: tuple[Movable, ...]) -> list[tuple[tuple[str, ...], Cost]]:
    """All spreads in which whoever gets something has room for all it has then."""
    clusters = {cluster.name: cluster for cluster in of.clusters}
    mean = sum(loads_of(of).values()) / sum(one.capacity for one in of.clusters)
    aim = min(POLICY.aim * mean, POLICY.load_max)
    found = []
    for places in itertools.product(*((one.unit.cluster, *one.targets) for one in units)):
        held = dict.fromkeys(clusters, 0.0)
        for one, name in zip(units, places, strict=True):
            held[name] += one.unit.load
        movable = [one for one in units if one.targets]
        moved = [one for one, name in zip(units, places, strict=True) if name != one.unit.cluster]
        into = {name for one, name in zip(units, places, strict=True) if name != one.unit.cluster}
        if not all(has_room(clusters[name], held[name], POLICY) for name in into):
            continue
        ratios = [max(aim, held[name] / one.capacity) for name, one in clusters.items()]
        cost = Cost(
            0,
            tuple(sorted((round(ratio, 2) for ratio in ratios), reverse=True)),
            sum(one.unit.bytes >> 20 for one in moved),
            sum(one.unit.downtime_seconds for one in moved),
            len(moved),
            tuple(map(movable.index, moved)),
        )
        found.append((places, cost))
    return found


@settings(deadline=None)
@given(situations())
def test_a_few_jobs_are_spread_in_the_best_way_there_is(of: Situation) -> None:
    units, found = placed(of)
    best = min(cost for _, cost in every_spread(of, units))
    assert found.cost == best
    assert found.is_best


@settings(deadline=None)
@given(situations(jobs_max=8, clusters_max=4))
def test_many_are_spread_within_the_limits_and_never_worse_than_now(of: Situation) -> None:
    units, found = placed(of, replace(POLICY, exact_units=0))
    spreads = dict(every_spread(of, units)) if len(of.jobs) < 6 else {found.places: found.cost}
    assert spreads[found.places] == found.cost
    if len(of.jobs) < 6:
        assert found.cost <= spreads[tuple(one.unit.cluster for one in units)]


@settings(deadline=None)
@given(situations())
def test_no_spread_is_below_the_bound(of: Situation) -> None:
    units, found = placed(of)
    for places, _ in every_spread(of, units):
        held = {cluster.name: 0.0 for cluster in of.clusters}
        for one, name in zip(units, places, strict=True):
            held[name] += one.unit.load
        assert max(held[one.name] / one.capacity for one in of.clusters) >= found.bound - 1e-9


def test_of_two_ways_that_are_as_even_the_one_with_fewer_bytes_is_taken() -> None:
    jobs = [job("large", "a", 2.0, bytes=9 * GB), job("small", "a", 2.0), job("third", "a", 4.0)]
    _, found = placed(situation({"a": 10, "b": 10}, [*jobs, job("there", "b", 4.0)]))
    assert found.places == ("a", "b", "a", "b")


@pytest.mark.parametrize("exact_units", [20, 0])
@pytest.mark.parametrize(
    ("figure", "noise"),
    [
        ("downtime_seconds", (10.0, 10.01)),
        ("bytes", (GB, GB + 4000)),
        ("load", (2.0, 2.001)),
        ("load", (2.0, 2.0 + 1e-12)),
    ],
)
def test_which_of_two_alike_jobs_is_moved_does_not_depend_on_noise(
    figure: str, noise: tuple[float, float], exact_units: int
) -> None:
    policy = replace(POLICY, exact_units=exact_units)
    spreads = set()
    for values in (noise, noise[::-1]):
        jobs = [job(name, "a", 2.0) for name in ("one", "two")]
        alike = [replace(one, **{figure: it}) for one, it in zip(jobs, values, strict=True)]
        _, found = placed(situation({"a": 10, "b": 10}, alike), policy)
        spreads.add(found.places)
    assert spreads == {("b", "a")}


@pytest.mark.parametrize("noise", [(4.0, 4.0 + 1e-9), (4.0 + 1e-9, 4.0), (4.0, 4.01), (4.01, 4.0)])
def test_where_one_of_many_jobs_goes_does_not_depend_on_noise(noise: tuple[float, float]) -> None:
    jobs = [job(f"job-{number}", "a", 1.0) for number in range(9)]
    of = situation({"a": 10, "b": 10, "c": 10}, jobs)
    clusters = [of.clusters[0]]
    for cluster, others in zip(of.clusters[1:], noise, strict=True):
        clusters.append(replace(cluster, other_load=others))
    _, found = placed(replace(of, clusters=tuple(clusters)), replace(POLICY, exact_units=0))
    assert found.places == ("b", "c", "b", *("a",) * 6)


def test_what_is_even_enough_is_left_as_it_is() -> None:
    jobs = [job("one", "a", 4.2), job("two", "b", 4.0)]
    _, found = placed(situation({"a": 10, "b": 10}, jobs))
    assert found.cost.moves == 0


def test_a_cluster_that_is_to_be_emptied_is_left_by_all_that_others_have_room_for() -> None:
    jobs = [job("one", "old", 4.0), job("two", "old", 4.0), job("three", "old", 5.0)]
    of = situation({"a": 5, "b": 10}, jobs)
    of = replace(of, clusters=(Cluster("old", 16.0, is_draining=True), *of.clusters))
    _, found = placed(of)
    assert found.cost.left_behind == 1
    assert sorted(found.places) == ["a", "b", "old"]


def test_what_stays_on_a_cluster_counts_when_room_is_looked_for() -> None:
    large = [job("one", "b", 3.0), job("two", "b", 3.0)]
    small = [job("three", "a", 0.5), job("four", "a", 0.5)]
    _, found = placed(situation({"a": 4, "b": 4}, [*large, *small]))
    assert found.places == ("b", "b", "a", "a")
