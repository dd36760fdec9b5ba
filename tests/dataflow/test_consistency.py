"""Which schedules are told to be consistent, held against every interleaving."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import event, given, settings

from stateshift.dataflow.schedulers import (
    SCHEDULERS,
    Schedule,
    fries,
    is_consistent,
    naive,
    schedule,
    unguarded_operators,
)
from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge
from tests.dataflow.random_dataflows import dataflows, with_targets
from tests.dataflow.samples import UNSOUND, W2, drawn
from tests.models.test_interleavings import failing

Asked = tuple[Dataflow, tuple[str, ...]]


@pytest.mark.row("F-13")
def test_the_published_rule_is_consistent_only_where_it_spares_no_more_than_it_may() -> None:
    assert unguarded_operators(fries(UNSOUND, ["o1", "o2"], "published")) == ("FL",)
    assert not is_consistent(fries(UNSOUND, ["o1", "o2"], "published"))
    assert is_consistent(fries(UNSOUND, ["o1"], "published"))
    assert is_consistent(fries(UNSOUND, ["o1", "o2"], "sound"))
    above = drawn("S -> FL -> U1 -> o1; FL -> U2 -> o2", many="FL", unique="U1, U2")
    assert is_consistent(fries(above, ["S", "o1", "o2"], "published")), (
        "on a way between others all the same"
    )


@pytest.mark.row("F-6")
def test_naive_is_consistent_where_no_tuple_meets_two_targets() -> None:
    assert is_consistent(naive(W2, ["J1"]))
    assert not is_consistent(naive(W2, ["J1", "J2"]))
    assert is_consistent(naive(drawn("A -> B, C"), ["B", "C"]))


@settings(max_examples=150, deadline=None)
@given(with_targets(dataflows(size_max=5)))
@pytest.mark.row("F-6", "F-13")
def test_what_is_told_to_be_consistent_is_what_no_interleaving_breaks(asked: Asked) -> None:
    for scheduler in SCHEDULERS:
        made = schedule(*asked, scheduler, "published")
        event(f"{scheduler}: {is_consistent(made)}")
        assert is_consistent(made) is (failing(made) is None), scheduler


@pytest.mark.long
@pytest.mark.row("F-13")
def test_where_the_published_rule_counts_several_unique_operators_it_is_told_whether_that_does_harm() -> (
    None
):
    for made in _counting_several(Random(5), 20):
        assert is_consistent(made) is (failing(made) is None)


def _counting_several(chance: Random, count: int) -> Iterator[Schedule]:
    """Schedules of random dataflows that the published rule prunes by more than one unique
    operator: they are rare.
    """
    while count:
        names, kinds = "abcde", ("one-to-one", "one-to-many")
        operators = [
            DataflowOperator(name, chance.choice(kinds), chance.random() < 0.5) for name in names
        ]  # type: ignore[arg-type]
        edges = [
            Edge(one, other, one_per_tuple=chance.random() < 0.4)
            for i, one in enumerate(names)
            for other in names[i + 1 :]
            if chance.random() < 0.4
        ]
        targets = [name for name in names if chance.random() < 0.4]
        dataflow = Dataflow(tuple(operators), tuple(edges))
        made = fries(dataflow, targets, "published")
        if made.members != fries(dataflow, targets).members:
            count -= 1
            yield made
