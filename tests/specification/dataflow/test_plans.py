"""A running job's own plan, read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateshift.dataflow.schedulers import fries
from stateshift.errors import SpecError
from stateshift.specification.dataflow.flink_plan import parts
from stateshift.specification.dataflow.operators import (
    Dataflow,
    DataflowOperator,
    Edge,
    join_topics,
)
from stateshift.specification.dataflow.parse import parse_dataflow, parse_request
from tests.specification.dataflow.plans import FLINK, SPARK, SPARK_JOIN


def ways(dataflow: Dataflow) -> set[tuple[str, str, str]]:
    return {(edge.upstream, edge.downstream, edge.way) for edge in dataflow.edges}


def test_a_flink_plan_becomes_operators_by_the_names_of_their_chains() -> None:
    dataflow = parse_dataflow(FLINK)
    assert dataflow.name == "fraud"
    assert {one.name: (one.kind, one.workers) for one in dataflow.operators} == {
        "Sink: alerts": ("one-to-one", 1),
        "Score -> Filter": ("one-to-many", 4),  # nobody knows what Score makes of a tuple
        "Source: payments -> Map": (
            "one-to-many",
            2,
        ),  # two read from it, and each gets every tuple
        "Source: rules": ("one-to-one", 1),
        "Sink: archive": ("one-to-one", 2),
    }
    assert ways(dataflow) == {
        ("Source: payments -> Map", "Score -> Filter", "partitioned"),
        ("Source: rules", "Score -> Filter", "broadcast"),
        ("Score -> Filter", "Sink: alerts", "partitioned"),
        ("Source: payments -> Map", "Sink: archive", "forward"),
    }
    assert {edge.upstream for edge in dataflow.edges if edge.one_per_tuple} >= {
        "Source: payments -> Map"
    }


def test_a_target_may_be_named_by_a_function_of_its_chain_or_by_its_id() -> None:
    assert parse_request(FLINK, ["Filter", "af009a75eaec1cf0bcc8ccfb8aa8d948"])[1] == (
        "Score -> Filter",
        "Sink: alerts",
    )


@pytest.mark.row("F-12", "F-15")
def test_rules_that_are_broadcast_change_together_with_all_that_read_them() -> None:
    found = fries(*parse_request(FLINK, ["Score"]))
    assert [set(one.operators) for one in found.components] == [
        {"Score -> Filter", "replicate Source: rules to Score -> Filter"}
    ]
    assert [(one.operator, one.rule) for one in found.pruned] == [
        ("Source: payments -> Map", "edge-wise")
    ]


@pytest.mark.parametrize(
    ("description", "chain"),
    [
        ("Keyed Aggregation -&gt; Sink: Unnamed", ("Keyed Aggregation", "Sink: Unnamed")),
        (
            "[3]:Calc(select=[a])<br/>:- [4]:Sink A<br/>+- [5]:Sink B<br/>",
            ("Calc(select=[a])", "Sink A", "Sink B"),
        ),
        ("Source: x -> (Map, Filter)", ("Source: x", "(Map, Filter)")),
    ],
)
def test_a_chain_is_taken_apart(description: str, chain: tuple[str, ...]) -> None:
    assert parts(description) == chain


def test_nodes_of_one_description_are_told_apart_by_their_ids() -> None:
    nodes = [{"id": "aaaaaaaaaa", "description": "Map"}, {"id": "bbbbbbbbbb", "description": "Map"}]
    dataflow = parse_dataflow(json.dumps({"nodes": nodes}))
    assert dataflow.names == ("Map (aaaaaaaa)", "Map (bbbbbbbb)")
    with pytest.raises(SpecError, match="2 operators go by 'Map'"):
        parse_request(json.dumps({"nodes": nodes}), ["Map"])


def test_a_node_that_is_read_from_twice_is_one_to_many_with_one_edge() -> None:
    nodes = [
        {"id": "a", "description": "Map"},
        {"id": "b", "description": "Filter", "inputs": [{"id": "a"}, {"id": "a"}]},
    ]
    dataflow = parse_dataflow(json.dumps({"nodes": nodes}))
    assert dataflow["Map"].kind == "one-to-many"
    assert dataflow.edges == (Edge("Map", "Filter", "partitioned", one_per_tuple=False),)


def test_what_is_wrong_with_a_flink_plan_is_told_all_at_once_by_pointer() -> None:
    nodes = [{"id": "a", "inputs": [{"id": "z"}]}, {"description": "no id"}, 7]
    with pytest.raises(SpecError) as caught:
        parse_dataflow(json.dumps({"plan": {"nodes": nodes}}))
    assert {one.pointer for one in caught.value.complaints} == {
        "/plan/nodes/0/inputs/0",
        "/plan/nodes/1",
        "/plan/nodes/2",
    }


def test_a_spark_plan_becomes_operators_from_the_sources_up() -> None:
    dataflow = parse_dataflow(SPARK)
    assert dataflow.names == (
        "MicroBatchScan",
        "Generate",
        "Project",
        "HashAggregate",
        "HashAggregate 2",
        "StateStoreRestore",
        "HashAggregate 3",
        "StateStoreSave",
        "HashAggregate 4",
        "WriteToDataSourceV2",
    )
    assert dataflow["MicroBatchScan"].reads == ("orders", "returns")
    assert {one.name for one in dataflow.operators if one.kind == "one-to-many"} == {"Generate"}
    assert (dataflow["HashAggregate"].workers, dataflow["HashAggregate 2"].workers) == (1, 8)
    assert dataflow["WriteToDataSourceV2"].workers == 8
    assert ("HashAggregate", "HashAggregate 2", "partitioned") in ways(dataflow)
    assert ("MicroBatchScan", "Generate", "forward") in ways(dataflow)


def test_both_sides_of_a_spark_join_lead_to_it() -> None:
    dataflow = parse_dataflow(SPARK_JOIN)
    assert dataflow.sources == ("StreamingRelation", "StreamingRelation 2")
    assert {
        one.upstream for one in dataflow.edges if one.downstream == "StreamingSymmetricHashJoin"
    } == {
        "Project",
        "Project 2",
    }
    assert dataflow["StreamingSymmetricHashJoin"].kind == "one-to-many"


def test_a_spark_plan_without_a_tree_is_refused() -> None:
    with pytest.raises(SpecError, match="no physical plan"):
        parse_dataflow("== Physical Plan ==\n\n")


def test_what_a_real_spark_prints_of_a_query_is_read_and_its_operators_are_told_apart() -> None:
    """Of Spark 4.3.0: a deduplication, then a count, both keyed by other columns; between two
    batches.
    """
    text = Path(__file__).with_name("spark-4.3.0.txt").read_text("utf-8")
    dataflow, targets = parse_request(text, ["Generate", "StreamingDeduplicate"])
    assert dataflow.names == (
        "LocalTableScan",
        "EventTimeWatermark",
        "Project",
        "Generate",
        "StreamingDeduplicate",
        "Project 2",
        "HashAggregate",
        "HashAggregate 2",
        "StateStoreRestore",
        "HashAggregate 3",
        "StateStoreSave",
        "HashAggregate 4",
        "WriteToDataSourceV2",
    )
    assert dataflow["Generate"].kind == "one-to-many"
    shuffles = {(up, down) for up, down, way in ways(dataflow) if way == "partitioned"}
    assert shuffles == {("Generate", "StreamingDeduplicate"), ("HashAggregate", "HashAggregate 2")}
    assert fries(dataflow, targets).paused == ("Generate", "StreamingDeduplicate")


def test_two_topics_never_share_the_operator_that_replicates() -> None:
    """One topic's name is what the other's becomes where an operator has its name already."""
    writer = DataflowOperator("w", writes=("a", "a'"))
    readers = [DataflowOperator(name, reads=("a", "a'")) for name in ("r1", "r2")]
    dataflow = join_topics(Dataflow((writer, DataflowOperator("topic a"), *readers), ()))
    replicates = [operator.name for operator in dataflow.operators if operator.replicate]
    assert len(set(replicates)) == len(replicates) == 2
