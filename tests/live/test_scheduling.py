"""When each chain of a change begins to use its new functions."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stateshift.errors import PlanError, SpecError
from stateshift.live.protocol.chains import Declaration
from stateshift.live.scheduling import Target, choose
from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge


def target(
    name: str, query: str = "q", stamp: str | None = None, follow: str | None = None
) -> Target:
    return Target(Declaration(name, (), (), "", "3.11", "26", stamp, follow), frozenset((query,)))


def flow(*operators: DataflowOperator) -> Dataflow:
    edges = tuple(Edge(above.name, below.name) for above, below in pairwise(operators))
    return Dataflow(operators, edges)


def test_without_a_dataflow_a_change_is_by_batch() -> None:
    choice = choose([target("score")], None, None)
    assert (choice.scheduler, choice.when) == ("epoch", {"score": "batch"})


def test_a_target_that_no_query_runs_has_to_agree_with_nobody() -> None:
    alone = Target(target("score").declaration, frozenset())
    assert choose([alone], None, None).when == {"score": "batch"}


def test_one_target_behind_one_to_one_operators_may_change_at_once() -> None:
    dataflow = flow(DataflowOperator("read"), DataflowOperator("score"), DataflowOperator("write"))
    choice = choose([target("score")], dataflow, None)
    assert (choice.scheduler, choice.when) == ("fries", {"score": "message"})
    assert choose([target("score")], dataflow, "epoch").when == {"score": "batch"}


@pytest.mark.parametrize(
    "dataflow",
    [
        flow(DataflowOperator("read"), DataflowOperator("a"), DataflowOperator("b")),
        flow(DataflowOperator("a", kind="one-to-many"), DataflowOperator("b")),
    ],
)
def test_targets_that_a_record_can_meet_in_turn_change_by_batch(dataflow: Dataflow) -> None:
    targets = [target("a"), target("b")]
    assert choose(targets, dataflow, None).when == {"a": "batch", "b": "batch"}
    with pytest.raises(PlanError, match="no message may overtake"):
        choose(targets, dataflow, "fries")


def test_a_target_behind_a_one_to_many_operator_changes_by_batch() -> None:
    dataflow = flow(DataflowOperator("split", kind="one-to-many"), DataflowOperator("a"))
    assert choose([target("a")], dataflow, None).when == {"a": "batch"}


def test_a_message_needs_a_dataflow() -> None:
    with pytest.raises(PlanError, match="only where the dataflow is known") as refused:
        choose([target("a")], None, "fries")
    assert "--dataflow FILE" in str(refused.value.hint)


def test_targets_in_two_queries_need_a_column_between_them() -> None:
    with pytest.raises(PlanError, match="do not say which version they met"):
        choose([target("a", "q1"), target("b", "q2")], None, None)


def test_the_target_downstream_goes_by_the_column_that_the_one_upstream_stamps() -> None:
    targets = [target("a", "q1", stamp="v"), target("b", "q2", follow="v")]
    assert choose(targets, None, None).when == {"a": "batch", "b": "column"}
    assert choose(targets[::-1], None, None).when == {"a": "batch", "b": "column"}


def test_two_targets_that_follow_one_column_both_go_by_it() -> None:
    targets = [target("b", "q2", follow="v"), target("c", "q3", follow="v")]
    assert choose(targets, None, None).when == {"b": "column", "c": "column"}


def test_a_target_alone_goes_by_its_batches_though_it_follows_a_column() -> None:
    assert choose([target("b", "q2", follow="v")], None, None).when == {"b": "batch"}


def test_queries_that_the_dataflow_keeps_apart_need_no_column() -> None:
    apart = Dataflow((DataflowOperator("a"), DataflowOperator("b")), ())
    choice = choose([target("a", "q1"), target("b", "q2")], apart, "epoch")
    assert choice.when == {"a": "batch", "b": "batch"}


def test_a_dataflow_without_the_chain_is_refused_with_what_it_has() -> None:
    with pytest.raises(SpecError) as refused:
        choose([target("score")], flow(DataflowOperator("read")), None)
    assert "there are: read" in str(refused.value.hint)


def test_the_naive_scheduler_asks_nobody() -> None:
    choice = choose([target("a", "q1"), target("b", "q2")], None, "naive")
    assert choice.when == {"a": "message", "b": "message"}
