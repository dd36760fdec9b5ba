"""The figures and tables of the Fries paper: which operators change together."""

from __future__ import annotations

import pytest

from stateshift.dataflow.schedulers import (
    SCHEDULERS,
    epoch_barrier,
    fries,
    multi_version,
    naive,
    schedule,
)
from tests.dataflow.samples import (
    FIGURE_6,
    FIGURE_8,
    FIGURE_9_I,
    FIGURE_9_III,
    UNSOUND,
    W2,
    W3,
    W4,
    W5,
    drawn,
    names,
    sets,
)


@pytest.mark.row("F-8", "F-9", "F-10")
def test_the_covering_sub_dag_of_figure_6_has_two_components_with_heads_c_and_g() -> None:
    found = fries(FIGURE_6, names("C, F, G"))
    assert sets(found) == [set("CDEF"), set("G")]
    assert set(found.edges) == {("C", "D"), ("C", "E"), ("D", "F"), ("E", "F")}
    assert found.heads == ("C", "G")
    assert found.untouched == ("A", "B")


@pytest.mark.row("F-2", "F-10")
def test_when_every_operator_changes_fries_is_the_epoch_barrier() -> None:
    assert fries(FIGURE_6, FIGURE_6.names).components == epoch_barrier(FIGURE_6, ("C",)).components
    assert epoch_barrier(FIGURE_6, ("C",)).untouched == ()


@pytest.mark.row("F-11", "F-7")
def test_the_one_to_many_join_of_figure_8_joins_its_target() -> None:
    found = fries(FIGURE_8, ["FMX"])
    assert sets(found) == [{"J", "SP", "FMX"}]
    assert found.heads == ("J",)
    assert sets(fries(drawn("FC -> J -> SP -> FMX, FMY -> U"), ["FMX"])) == [{"FMX"}], (
        "were it one-to-one"
    )


@pytest.mark.row("F-12")
def test_edge_wise_one_to_one_is_pruned_only_where_one_edge_leads_to_targets() -> None:
    assert sets(fries(FIGURE_9_I, ["T"])) == [{"T"}]
    assert [(p.operator, p.rule, p.by) for p in fries(FIGURE_9_I, ["T"]).pruned] == [
        ("R", "edge-wise", "B")
    ]
    assert sets(fries(FIGURE_9_I, ["T"], "none")) == [{"R", "B", "T"}]
    assert sets(fries(FIGURE_9_I, ["T", "C"])) == [{"R", "B", "C", "T"}], (
        "II: a second target on the other edge"
    )
    assert sets(fries(FIGURE_9_III, ["T"])) == [{"R", "B", "C", "T"}], (
        "III: both replicas meet in the target"
    )


@pytest.mark.row("F-13")
def test_the_published_uniqueness_rule_parts_what_one_tuple_meets_and_the_sound_one_does_not() -> (
    None
):
    assert sets(fries(UNSOUND, ["o1", "o2"], "published")) == [{"o1"}, {"o2"}]
    assert sets(fries(UNSOUND, ["o1", "o2"])) == [{"FL", "U1", "o1", "U2", "o2"}]
    assert sets(fries(UNSOUND, ["o1"])) == [{"o1"}], (
        "a single target has one unique operator before it"
    )


@pytest.mark.row("F-13")
def test_one_unique_operator_on_all_ways_prunes_all_above_it() -> None:
    dataflow = drawn("A -> B, C -> U -> D -> t1, t2", many="A, B", unique="U")
    found = fries(dataflow, ["t1", "t2"])
    assert sets(found) == [{"t1"}, {"t2"}]
    assert {(p.operator, p.by) for p in found.pruned} == {("A", "U"), ("B", "U")}
    assert sets(fries(dataflow, ["U"])) == [{"A", "B", "C", "U"}], (
        "the target itself lets nothing pass before"
    )
    assert sets(fries(dataflow, ["t1", "C"])) == [{"A", "B", "C", "U", "D", "t1"}], (
        "a way to C goes past U"
    )


@pytest.mark.row("F-22")
@pytest.mark.parametrize(
    ("dataflow", "targets", "expected"),
    [
        (W2, "J1", ["J1"]),
        (W2, "J2", ["J2"]),
        (W2, "J1, J3", ["J1, J2, J3"]),
        (W2, "J1, J4", ["J1, J2, J3, J4"]),
        (W2, "J3, J4", ["J3, J4"]),
        (W3, "J5", ["J5"]),
        (W3, "J5, J6", ["J5", "J6"]),
        (W3, "J5, J6, J7, J8", ["J5, J6, J7, U1, J8"]),
        (W3, "J5, J6, J7, J9", ["J5, J6, J7, U1, J8, J9"]),
        (W3, "J7, J8, J9", ["J7, U1, J8, J9"]),
    ],
)
def test_the_sets_of_table_3(dataflow: object, targets: str, expected: list[str]) -> None:
    assert sets(fries(dataflow, names(targets))) == [set(names(one)) for one in expected]  # type: ignore[arg-type]


@pytest.mark.row("F-23")
@pytest.mark.parametrize(
    ("targets", "expected"), [("F1, U2", "F1, U2"), ("FD1", "U2, FD1"), ("F2", "U2, FD1, FD2, F2")]
)
def test_the_sets_of_table_4(targets: str, expected: str) -> None:
    assert sets(fries(W4, names(targets))) == [set(names(expected))]


@pytest.mark.row("F-24")
@pytest.mark.parametrize(
    ("targets", "pruned", "unpruned"),
    [("FD4", 0, 2), ("F3", 0, 3), ("F4", 0, 1), ("FD3, FD4", 3, 3), ("E1", 0, 8)],
)
def test_the_edges_of_table_5_with_and_without_pruning(
    targets: str, pruned: int, unpruned: int
) -> None:
    assert len(fries(W5, names(targets)).edges) == pruned
    assert len(fries(W5, names(targets), "published").edges) == pruned
    assert len(fries(W5, names(targets), "none").edges) == unpruned


@pytest.mark.row("F-14")
def test_a_blocking_operator_parts_what_is_before_it_from_what_is_behind() -> None:
    dataflow = drawn("A -> B -> S -> C -> D", blocking="S", many="A")
    assert sets(fries(dataflow, ["B", "D"])) == [{"A", "B"}, {"D"}]
    assert sets(fries(drawn("A -> B -> S -> C -> D", many="A"), ["B", "D"])) == [set("ABSCD")]
    assert sets(fries(dataflow, ["S"])) == [set("ABS")], "what it reads is what is before it"


@pytest.mark.row("F-15")
def test_a_broadcast_to_several_workers_is_a_one_to_many_operator() -> None:
    dataflow = drawn("A -> B -> C", broadcast="A", workers={"A": 2, "B": 3})
    assert sets(fries(dataflow, ["B"])) == [{"replicate A to B", "B"}]
    assert fries(dataflow, ["B"]).dataflow["replicate A to B"].workers == 2
    assert sets(fries(drawn("A -> B -> C", broadcast="A"), ["B"])) == [{"B"}], (
        "to one worker it is no different"
    )
    expanded = fries(dataflow, ["B"]).dataflow
    assert fries(expanded, ["B"]).dataflow == expanded


@pytest.mark.row("F-2")
def test_naive_and_multi_version_tell_each_target_on_its_own() -> None:
    assert sets(naive(W2, ["J1", "J3"])) == [{"J1"}, {"J3"}]
    assert naive(W2, ["J1", "J3"]).edges == frozenset()
    assert multi_version(W3, ["J8"]).tagging == ("J5", "J6", "J7")
    assert "J9" in multi_version(W3, ["J8"]).untouched


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_has_its_name(scheduler: str) -> None:
    assert schedule(W3, ["J8"], scheduler).scheduler == scheduler  # type: ignore[arg-type]


def test_without_an_edge_its_downstream_is_told_or_waits_for_the_others() -> None:
    found = fries(FIGURE_6, ["C", "F"])
    assert found.without(("C", "D")).heads == ("C", "D")
    assert found.without(("D", "F")).heads == ("C",)
