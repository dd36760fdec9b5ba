"""Every interleaving of small dataflows, some of larger ones: which schedules keep their
promise.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from stateshift.dataflow.schedulers import Schedule, epoch_barrier, fries, multi_version, naive
from stateshift.specification.dataflow.operators import Dataflow
from tests.dataflow.random_dataflows import ANY_KIND, ONE_TO_ONE, dataflows, with_targets
from tests.dataflow.samples import (
    FIGURE_4,
    FIGURE_8,
    FIGURE_9_I,
    FIGURE_9_III,
    UNSOUND,
    W4,
    W5,
    drawn,
    names,
)
from tests.models.history import check
from tests.models.interleavings import Explored, Machine, changed, explore, origins_of, walk

Asked = tuple[Dataflow, tuple[str, ...]]
CONSISTENT = (fries, epoch_barrier, multi_version)


def failing(schedule: Schedule, states_max: int = 100_000) -> Explored | None:
    """What is wrong with it, looked for wherever a source tuple may come from; None where
    nothing is.
    """
    for origin in origins_of(schedule):
        found = explore(schedule, [origin], states_max=states_max)
        assert found.complete, f"{found.states} states were not all there are"
        if found.failing is not None:
            assert not check(found.failing).serialisable, (
                "what the model calls failing, the checker does, too"
            )
            return found
    return None


@pytest.mark.row("F-6", "F-10", "F-11", "F-12", "F-13")
@pytest.mark.parametrize(
    ("dataflow", "targets"),
    [
        (FIGURE_4, "FM, MC"),
        (FIGURE_8, "FMX"),
        (FIGURE_8, "FMX, FMY"),
        (FIGURE_9_I, "T"),
        (FIGURE_9_I, "T, C"),
        (FIGURE_9_III, "T"),
        (UNSOUND, "o1, o2"),
        (W4, "F2"),
        (W5, "E1"),
        (W5, "FD3, FD4"),
    ],
)
def test_the_papers_dataflows_pass_with_all_schedulers_but_the_naive_one(
    dataflow: Dataflow, targets: str
) -> None:
    for scheduler in CONSISTENT:
        assert failing(scheduler(dataflow, names(targets))) is None, scheduler.__name__


@pytest.mark.row("F-6")
def test_the_naive_scheduler_fails_where_a_tuple_meets_two_targets_and_only_there() -> None:
    assert failing(naive(FIGURE_4, names("FM, MC"))) is not None
    assert failing(naive(FIGURE_4, names("FM"))) is None
    assert failing(naive(drawn("A -> B, C"), names("B, C"))) is None, (
        "one-to-one: B or C, never both"
    )
    assert failing(naive(FIGURE_8, names("FMX"))) is not None, "three descendants, two sides"


@pytest.mark.row("F-13")
def test_the_published_uniqueness_rule_is_found_unsound() -> None:
    found = failing(fries(UNSOUND, ["o1", "o2"], "published"))
    assert found is not None and found.failing is not None
    told = str(check(found.failing))
    assert told.startswith("not conflict-serialisable: t1 -> update -> t1")
    assert "o1" in told and "o2" in told
    assert failing(fries(UNSOUND, ["o1", "o2"], "sound")) is None


@pytest.mark.row("F-15")
def test_copies_of_a_broadcast_are_told_apart_from_one_another() -> None:
    dataflow = drawn("A -> B", broadcast="A", workers={"B": 2})
    assert failing(fries(dataflow, ["B"])) is None
    assert failing(naive(dataflow, ["B"])) is not None, (
        "one worker has changed, and the other has not"
    )


@settings(max_examples=300, deadline=None)
@given(with_targets(dataflows(size_max=5)))
@pytest.mark.row("F-6", "F-11", "F-12", "F-13", "F-14")
def test_no_interleaving_of_a_small_dataflow_fails_but_with_the_naive_scheduler(
    asked: Asked,
) -> None:
    for scheduler in CONSISTENT:
        assert failing(scheduler(*asked)) is None, scheduler.__name__
    assert failing(fries(*asked, "none")) is None


@settings(max_examples=40, deadline=None)
@given(with_targets(dataflows(size_max=3, workers_max=2)))
@pytest.mark.row("F-15")
def test_no_interleaving_of_several_workers_fails(asked: Asked) -> None:
    for scheduler in CONSISTENT:
        schedule = scheduler(*asked)
        for origin in origins_of(schedule):
            found = explore(schedule, [origin], states_max=10_000)
            event("all states" if found.complete else "ten thousand states, and there are more")
            assert found.failing is None, scheduler.__name__


@settings(max_examples=150, deadline=None)
@given(with_targets(dataflows(size_max=6, kinds=ONE_TO_ONE, flags=False)), st.data())
@pytest.mark.row("F-8", "F-10")
def test_without_any_one_synchronising_edge_an_interleaving_fails(
    asked: Asked, data: st.DataObject
) -> None:
    schedule = fries(*asked)
    assume(schedule.edges)
    edge = data.draw(st.sampled_from(sorted(schedule.edges)))
    assert failing(schedule) is None
    assert failing(schedule.without(edge)) is not None, f"{edge} is not needed"


@settings(max_examples=150, deadline=None)
@given(with_targets(dataflows(size_max=5)))
@pytest.mark.row("F-6")
def test_the_naive_scheduler_passes_exactly_where_fries_synchronises_nothing(asked: Asked) -> None:
    """Without pruning, Fries synchronises more than has to be: where it needs nothing, naive is
    enough.
    """
    if not fries(*asked, "none").edges:
        assert failing(naive(*asked)) is None
    elif all(
        operator.kind == "one-to-one" and not operator.unique for operator in asked[0].operators
    ):
        assert failing(naive(*asked)) is not None


@settings(max_examples=80, deadline=None)
@given(with_targets(dataflows(size_max=10, workers_max=2, kinds=ANY_KIND)), st.integers(0, 1 << 30))
@pytest.mark.row("F-6", "F-15")
def test_what_happens_by_chance_on_larger_dataflows_passes_and_changes_every_target(
    asked: Asked, seed: int
) -> None:
    for scheduler in CONSISTENT:
        schedule = scheduler(*asked)
        origins = (origins_of(schedule) * 3)[:4]
        machine = Machine(schedule, origins)
        history, end = walk(machine, Random(seed))
        event(f"{len(history) // 20 * 20} operations")
        verdict = check(history)
        assert verdict.serialisable, f"{scheduler.__name__}: {verdict}"
        assert changed(machine, end), f"{scheduler.__name__}: somebody waits for ever"


@settings(max_examples=150, deadline=None)
@given(with_targets(dataflows(size_max=6, workers_max=2)), st.integers(0, 1 << 30))
def test_the_model_and_the_checker_agree_on_what_failed(asked: Asked, seed: int) -> None:
    schedule = naive(*asked)
    machine = Machine(schedule, (origins_of(schedule) * 3)[:3])
    history, end = walk(machine, Random(seed))
    assert check(history).serialisable is all(met != 3 for met in end.met)


def test_an_exploration_that_was_cut_off_says_so() -> None:
    found = explore(fries(W5, ["E1"], "none"), ["RE"], states_max=50)
    assert (found.complete, found.failing) == (False, None)
