"""Runs one after the other: when they move something, what, and that they come to rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.advise.rebalance.decision import Decision, decide
from stateshift.advise.rebalance.memory import Memory, Moved
from stateshift.advise.rebalance.situation import Cluster, Policy, Situation
from tests.advise.rebalance.grounds import GB, carried_out, job, ratios, situation, situations

POLICY = Policy()
FOUR = [job(f"j{number}", "a", 2.0) for number in range(4)]


def runs(of: Situation, count: int, policy: Policy = POLICY) -> list[tuple[Situation, Decision]]:
    """So many runs, whose moves are all made."""
    memory, done = Memory(), []
    for _ in range(count):
        decision = decide(of, policy, memory)
        done.append((of, decision))
        memory = decision.memory
        of = carried_out(of, decision)
    return done


def moved(decision: Decision) -> list[tuple[str, str]]:
    return [(name, move.target) for move in decision.moves for name in move.jobs]


def why(decision: Decision, name: str) -> str:
    (stay,) = (one for one in decision.stays if one.job == name)
    return stay.reason


def test_a_cluster_must_be_too_full_twice_before_anything_moves() -> None:
    first, second = runs(situation({"a": 8, "b": 8}, FOUR), 2)
    assert not first[1].moves
    assert "in 1 of the 2 runs" in first[1].reason
    assert len(second[1].moves) == 1
    assert second[1].reason == "a: its load is 100%, above 80%"


def test_a_cluster_that_all_jobs_leave_has_no_load_at_all() -> None:
    loads = (0.8525, 0.6855, 0.5165, 0.3469)
    jobs = [job(f"j{number}", "a", load) for number, load in enumerate(loads)]
    of = situation({"a": 8, "b": 8}, jobs)
    emptied = replace(of.clusters[0], is_draining=True)
    decision = decide(replace(of, clusters=(emptied, *of.clusters[1:])), POLICY, Memory())
    assert decision.clusters[0].after == 0.0
    assert len(decision.moves) == len(jobs)


def test_a_cluster_that_was_well_in_between_begins_anew() -> None:
    of = situation({"a": 8, "b": 8}, FOUR)
    calm = replace(of, jobs=tuple(replace(one, load=0.1) for one in of.jobs))
    memory = decide(of, POLICY, Memory()).memory
    memory = decide(calm, POLICY, memory).memory
    assert not decide(of, POLICY, memory).moves


def test_four_jobs_of_one_cluster_are_spread_over_two_and_then_nothing_moves() -> None:
    done = runs(situation({"a": 8, "b": 8}, FOUR), 24)
    assert ratios(done[-1][0]) == {"a": 0.5, "b": 0.5}
    assert sum(len(decision.moves) for _, decision in done) == 2
    assert not any(decision.moves for _, decision in done[-10:])


@settings(deadline=None)
@given(situations(jobs_max=7))
def test_runs_come_to_rest_and_keep_every_limit(of: Situation) -> None:
    done = runs(of, 40)
    assert not any(decision.moves for _, decision in done[-10:])
    for before, decision in done:
        jobs = {one.name: one for one in before.jobs}
        assert {stay.job for stay in decision.stays} | {name for name, _ in moved(decision)} == set(
            jobs
        )
        for name, target in moved(decision):
            assert not jobs[name].pinned
            assert target not in jobs[name].forbidden
            assert ratios(carried_out(before, decision))[target] <= POLICY.load_max + 1e-9
        for move in decision.moves:
            assert move.worth.ratio >= POLICY.gain_min


@settings(deadline=None)
@given(situations(jobs_max=7))
def test_no_job_is_moved_twice_while_all_loads_stay_as_they_are(of: Situation) -> None:
    names = [name for _, decision in runs(of, 40) for name, _ in moved(decision)]
    assert len(names) == len(set(names))


def test_no_part_of_a_spread_is_made_whose_rest_is_not_worth_it() -> None:
    """One moved to c1 first, to make room there by a move that was not worth it; and then to c0."""
    jobs = [
        job("one", "c2", 1.0),
        job("two", "c1", 2.0),
        job("wide", "c1", 5.0, forbidden={"c0": "x"}),
        job("deep", "c1", 3.0, forbidden={"c0": "x"}),
        job("large", "c2", 5.0, bytes=7 * GB, forbidden={"c0": "x"}),
        job("many", "c0", 2.0, bytes=7 * GB, forbidden={"c1": "x"}),
        job("some", "c0", 1.0, bytes=3 * GB, forbidden={"c2": "x"}),
    ]
    done = runs(situation({"c0": 8, "c1": 16, "c2": 4}, jobs), 12)
    assert [move for _, decision in done for move in moved(decision)] == [("one", "c0")]


def too_full(of: Situation) -> list[str]:
    """The clusters that are too full, as the page has it."""
    loads = ratios(of)
    mean = sum(one.load or 0.0 for one in of.jobs) / sum(one.capacity for one in of.clusters)
    return [name for name, load in loads.items() if load > 0.8 or load > max(1.1 * mean, 0.2)]


@settings(deadline=None, max_examples=20)
@given(
    situations(jobs_max=5),
    st.lists(st.lists(st.sampled_from([0.5, 2.0, 5.0]), min_size=5, max_size=5), min_size=12),
)
def test_walks_of_the_load_move_no_more_than_the_model_lets_them(
    of: Situation, walk: list[list[float]]
) -> None:
    memory, streaks = Memory(), dict[str, int]()
    moved_at: dict[str, float] = {}
    for loads in walk:
        jobs = zip(of.jobs, loads, strict=False)
        of = replace(of, jobs=tuple(replace(one, load=load) for one, load in jobs))
        decision = decide(of, POLICY, memory)
        streaks = {name: streaks.get(name, 0) + 1 for name in too_full(of)}
        assert {trigger.cluster: trigger.runs for trigger in decision.triggers} == streaks
        if decision.moves:
            assert max(streaks.values()) >= POLICY.runs
            streaks = {}
        for name, _ in moved(decision):
            assert of.at - moved_at.get(name, -POLICY.cool_down_seconds) >= POLICY.cool_down_seconds
            moved_at[name] = of.at
        memory, of = decision.memory, carried_out(of, decision)


def test_a_job_that_is_pinned_paused_or_unknown_stays_and_says_so() -> None:
    jobs = [
        job("pinned", "a", 3.0, pinned=True),
        job("paused", "a", 3.0, paused=True),
        job("free", "a", 3.0),
    ]
    _, (_, decision) = runs(situation({"a": 10, "b": 10}, jobs), 2)
    assert moved(decision) == [("free", "b")]
    assert why(decision, "pinned") == "it is pinned"
    assert why(decision, "paused") == "it is paused"


def test_nothing_moves_while_the_load_of_some_is_not_known() -> None:
    jobs = [*FOUR, job("dark", "b", None, unknown="the cluster does not answer")]
    _, (_, decision) = runs(situation({"a": 8, "b": 8}, jobs), 2)
    assert not decision.moves
    assert decision.reason == "cannot tell: of 1 of 5 jobs the load is not known"
    assert why(decision, "dark") == "its load cannot be told: the cluster does not answer"


def test_a_run_that_knows_too_few_loads_is_not_one_of_those_that_a_trigger_takes() -> None:
    of = situation({"a": 8, "b": 8}, [*FOUR, job("dark", "b", None, unknown="it has just begun")])
    _, (_, blind) = runs(of, 2)
    assert not blind.triggers and not blind.memory.counts
    seen = replace(of, jobs=tuple(FOUR))
    first = decide(seen, POLICY, blind.memory)
    assert not first.moves and "in 1 of the 2 runs" in first.reason
    assert decide(replace(seen, at=900.0), POLICY, first.memory).moves


def test_what_a_move_brought_is_not_judged_while_too_few_loads_are_known() -> None:
    remembered = Memory({}, (Moved(("j0",), "a", "b", 0.0, 1.9, 1.0),), ())
    of = situation({"a": 8, "b": 8}, [*FOUR, job("dark", "b", None, unknown="it has just begun")])
    assert decide(of, POLICY, remembered).memory == remembered


def test_a_target_that_cannot_have_a_job_is_named_with_its_reason() -> None:
    jobs = [replace(one, forbidden={"b": "Spark 3.5 cannot read its state"}) for one in FOUR]
    _, (_, decision) = runs(situation({"a": 8, "b": 8}, jobs), 2)
    assert not decision.moves
    assert why(decision, "j0") == "b: Spark 3.5 cannot read its state"


def test_jobs_of_one_dataflow_move_together_or_not_at_all() -> None:
    of = situation({"a": 8, "b": 8}, FOUR, together=(("j0", "j1"),))
    policy = replace(POLICY, moves_max=4)
    _, (_, decision) = runs(of, 2, policy)
    assert sum(len(move.jobs) for move in decision.moves) == 2
    assert {move.jobs for move in decision.moves} in ({("j0", "j1")}, {("j2",), ("j3",)})


def test_what_costs_more_than_it_brings_is_not_moved() -> None:
    jobs = [replace(one, downtime_seconds=3600.0) for one in FOUR]
    _, (_, decision) = runs(situation({"a": 8, "b": 8}, jobs), 2)
    assert not decision.moves
    assert any("is not worth it" in stay.reason for stay in decision.stays)


def test_a_job_that_was_moved_stays_for_the_cool_down() -> None:
    jobs = [replace(one, moved_at=-600.0) for one in FOUR]
    of = situation({"a": 8, "b": 8}, jobs)
    decision = decide(of, POLICY, Memory(counts={"a": 1}))
    assert not decision.moves
    assert why(decision, "j0") == "it was moved a short time ago, and stays for 50 more minutes"


def test_a_move_that_brought_nothing_is_not_repeated_for_a_day() -> None:
    of = situation({"a": 8, "b": 8}, [job("hot", "a", 7.0), job("cool", "a", 0.5)])
    decision = decide(of, replace(POLICY, load_max=0.9), Memory(counts={"a": 1}))
    assert moved(decision) == [("hot", "b")]
    # It is moved back by hand, and is as hot as before.
    policy = replace(POLICY, load_max=0.9, cool_down_seconds=0.0)
    back = replace(of, at=900.0)
    later = decide(back, policy, replace(decision.memory, counts={"a": 2}))
    assert ("hot", "b") not in moved(later)
    assert why(later, "hot") == "b: a move there did not bring what it promised"
    next_day = decide(
        replace(of, at=2 * 86400.0), policy, replace(later.memory, moves=(), counts={"a": 2})
    )
    assert moved(next_day) == [("hot", "b")]


def test_a_cluster_that_is_to_be_emptied_is_left_by_all_at_once() -> None:
    of = situation({"a": 8, "b": 12}, [replace(one, downtime_seconds=1800.0) for one in FOUR])
    of = replace(of, clusters=(Cluster("a", 8.0, is_draining=True), of.clusters[1]))
    decision = decide(of, POLICY, Memory())
    assert [target for _, target in moved(decision)] == ["b"] * 4


def test_a_cluster_that_is_to_be_emptied_is_left_without_a_cool_down() -> None:
    of = situation({"a": 8, "b": 12}, [replace(one, moved_at=0.0) for one in FOUR], at=60.0)
    of = replace(of, clusters=(Cluster("a", 8.0, is_draining=True), of.clusters[1]))
    assert len(decide(of, POLICY, Memory()).moves) == 4


@pytest.mark.parametrize(("ahead", "moves"), [(5.0, False), (30 * 86400.0, True)])
def test_a_move_that_is_still_to_come_keeps_a_job_no_longer_than_its_cool_down(
    ahead: float, moves: bool
) -> None:
    """As after a clock was wrong when the move was made, and was set right since."""
    jobs = [replace(one, moved_at=ahead) for one in FOUR]
    decision = decide(situation({"a": 8, "b": 8}, jobs), Policy(runs=1), Memory())
    assert bool(decision.moves) == moves


@pytest.mark.parametrize(("ahead", "moves"), [(5.0, False), (30 * 86400.0, True)])
def test_a_failed_move_that_is_still_to_come_is_not_remembered_for_ever(
    ahead: float, moves: bool
) -> None:
    failed = Memory({}, (), (Moved(tuple(f"j{n}" for n in range(4)), "a", "b", ahead, 8.0, 4.0),))
    decision = decide(situation({"a": 8, "b": 8}, FOUR), Policy(runs=1), failed)
    assert bool(decision.moves) == moves


def test_the_last_minute_of_a_cool_down_is_one() -> None:
    of = situation({"a": 8, "b": 8}, [replace(one, moved_at=0.0) for one in FOUR], at=3590.0)
    decision = decide(of, Policy(runs=1), Memory())
    assert why(decision, "j0").endswith("stays for 1 more minute")


def test_a_new_cluster_is_filled() -> None:
    jobs = [job(f"{name}{number}", name, 1.0) for name in "ab" for number in range(6)]
    of = situation({"a": 10, "b": 10, "new": 10}, jobs)
    done = runs(of, 12)
    assert ratios(done[-1][0]) == {"a": 0.4, "b": 0.4, "new": 0.4}


def test_a_job_that_could_hardly_catch_up_does_not_keep_the_others_where_they_are() -> None:
    hot = job("hot", "a", 0.97, rate=80.0, capacity_rate=80.2, downtime_seconds=30.0)
    others = [
        job(name, "a", load, rate=60.0, capacity_rate=120.0, bytes=9 * GB)
        for name, load in (("orders", 0.5), ("payments", 0.45))
    ]
    of = situation({"a": 4, "b": 4}, [hot, *others])
    decision = decide(of, Policy(runs=1, moves_max=4), Memory())
    names = {name for name, _ in moved(decision)}
    assert names and "hot" not in names
    assert "a move to b is not worth it" in why(decision, "hot")
    assert not decision.is_best
    assert decision.bound == decide(of, Policy(runs=1, gain_min=0), Memory()).bound


def test_where_no_move_is_worth_it_that_is_said() -> None:
    jobs = [job(name, "a", 0.97, rate=80.0, capacity_rate=80.5) for name in ("one", "two")]
    decision = decide(situation({"a": 4, "b": 4}, jobs), Policy(runs=1), Memory())
    assert not decision.moves
    assert decision.reason.endswith("no move is worth what it costs")
    assert "a move to b is not worth it" in why(decision, "one")


def test_clusters_that_do_next_to_nothing_are_left_alone() -> None:
    jobs = [job("one", "a", 0.5), job("two", "a", 0.5)]
    done = runs(situation({"a": 8, "b": 8}, jobs), 3)
    assert [decision.reason for _, decision in done] == ["no cluster is too full"] * 3


def test_nothing_moves_while_a_clusters_capacity_cannot_be_told() -> None:
    of = situation({"a": 8, "b": 8}, FOUR)
    memory = decide(of, POLICY, Memory()).memory
    dumb = replace(of.clusters[1], capacity=0.0, unknown="it does not answer")
    decision = decide(replace(of, clusters=(of.clusters[0], dumb)), POLICY, memory)
    assert decision.reason == "cannot tell: b: it does not answer"
    assert not decision.moves
    assert [loaded.capacity for loaded in decision.clusters] == [8, None]
    assert decision.memory == memory


def test_nothing_moves_at_an_excluded_time_but_the_runs_count() -> None:
    of = situation({"a": 8, "b": 8}, FOUR)
    first = decide(replace(of, excluded="07:00-09:30 is excluded"), POLICY, Memory())
    assert first.reason == "07:00-09:30 is excluded"
    assert decide(replace(of, at=900.0), POLICY, first.memory).moves


def test_a_job_that_finds_no_room_says_so() -> None:
    of = situation({"a": 8, "b": 4}, [job("j0", "a", 4.0), job("j1", "a", 3.5)])
    decision = decide(of, Policy(runs=1), Memory())
    assert why(decision, "j0") == "no other cluster has room: with it, each would be above 80%"


def test_a_drained_job_whose_room_goes_to_others_says_so() -> None:
    of = situation({"a": 8, "b": 4}, [job("j0", "a", 3.0), job("j1", "a", 2.9)])
    clusters = (replace(of.clusters[0], is_draining=True), of.clusters[1])
    decision = decide(replace(of, clusters=clusters), Policy(), Memory())
    (left,) = decision.stays
    assert left.reason == "the room on b goes to other jobs"


def test_a_job_whose_load_is_not_known_stays_for_that_and_so_do_all_if_it_is_so_of_many() -> None:
    few = situation({"a": 8, "b": 8}, [job("one", "a", None), job("two", "a", 0.5)])
    assert {stay.kind for stay in decide(few, POLICY, Memory()).stays} == {"unknown"}
    others = [job(f"j{number}", "a", 0.1) for number in range(20)]
    many = situation({"a": 8, "b": 8}, [job("one", "a", None), *others])
    kinds = {stay.job: stay.kind for stay in decide(many, POLICY, Memory()).stays}
    assert kinds == {"one": "unknown", **dict.fromkeys((other.name for other in others), "idle")}


# ------------------------------------------------------------------------- age, least gain, cordons


@pytest.mark.parametrize(("hours", "moves"), [(1.9, 1), (2.1, 0), (26, 0), (-26, 0)])
def test_runs_that_are_too_far_apart_are_none_in_a_row(hours: float, moves: int) -> None:
    of = situation({"a": 8, "b": 8}, FOUR)
    memory = decide(of, POLICY, Memory()).memory
    later = decide(replace(of, at=of.at + hours * 3600), POLICY, memory)
    assert len(later.moves) == moves
    if not moves:
        apart = f"the one before it is {abs(hours):.1f} h apart, of 2 h at most"
        assert later.reason.endswith(f"in 1 of the 2 runs that it takes: {apart}")
        assert decide(replace(of, at=later.at + 900), POLICY, later.memory).moves


def test_a_job_of_almost_no_load_is_not_moved_however_cheap_that_is() -> None:
    cheap = job("cheap", "a", 0.018, bytes=1, downtime_seconds=0.01)
    of = situation({"a": 1, "b": 1}, [cheap, job("pinned", "a", 0.9, pinned=True)])
    decision = decide(of, replace(POLICY, runs=1), Memory())
    assert not decision.moves
    assert why(decision, "cheap") == (
        "its load is 0.018 workers: a move takes at least 0.1 off its cluster"
    )
    assert {stay.job: stay.kind for stay in decision.stays}["cheap"] == "worth"
    assert decide(of, replace(POLICY, runs=1, relief_min=0.0), Memory()).moves
    emptied = tuple(replace(one, is_draining=one.name == "a") for one in of.clusters)
    drained = decide(replace(of, clusters=emptied), POLICY, Memory())
    assert ("cheap", "b") in moved(drained)


@given(situations(), st.data())
def test_nothing_moves_to_a_cordoned_cluster(of: Situation, data: st.DataObject) -> None:
    names = [cluster.name for cluster in of.clusters]
    closed = data.draw(st.sets(st.sampled_from(names), min_size=1))
    emptied = data.draw(st.sets(st.sampled_from(names), max_size=1))
    clusters = tuple(
        replace(one, is_cordoned=one.name in closed, is_draining=one.name in emptied)
        for one in of.clusters
    )
    for _, decision in runs(replace(of, clusters=clusters), 3, replace(POLICY, runs=1)):
        assert not {move.target for move in decision.moves} & (closed | emptied)


def test_a_cordoned_cluster_takes_no_part_in_the_mean() -> None:
    """Empty, it would make all others too full; and those even out among themselves."""
    jobs = [job("j0", "a", 2.0), job("j1", "a", 2.0), job("j2", "b", 1.0)]
    of = situation({"a": 8, "b": 8, "c": 80}, jobs)
    clusters = tuple(replace(one, is_cordoned=one.name == "c") for one in of.clusters)
    decision = decide(replace(of, clusters=clusters), replace(POLICY, runs=1), Memory())
    assert decision.reason.endswith("above 1.1 times the mean of 31%")
    alone = decide(
        replace(of, clusters=clusters, jobs=(jobs[0], replace(jobs[2], load=2.0))),
        replace(POLICY, runs=1),
        Memory(),
    )
    assert alone.reason == "no cluster is too full"
