"""Our own JSON of a dataflow: what it says, and everything that is wrong with one, at once and
by pointer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stateshift.cli.views.documents import schema_text
from stateshift.dataflow.schedulers import fries
from stateshift.errors import SpecError
from stateshift.specification.dataflow.document import to_plain
from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge
from stateshift.specification.dataflow.parse import (
    dataflow_of,
    parse_dataflow,
    parse_request,
    problems,
)
from stateshift.specification.schema import dataflow_schema
from tests.specification.dataflow.plans import FLINK, SPARK

CONFIGS = Path(__file__).resolve().parents[3] / "configs"


def read(document: Any, *targets: str, files: dict[str, str] | None = None) -> Dataflow:
    return parse_request(json.dumps(document), targets, _opened(files or {}))[0]


def _opened(files: dict[str, str]) -> Any:
    def opened(name: str) -> str:
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return opened


def refused(document: Any, *targets: str) -> dict[str, str]:
    """The complaints, by pointer."""
    with pytest.raises(SpecError) as caught:
        read(document, *targets)
    return {one.pointer: one.message for one in caught.value.complaints}


def operators(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def test_a_document_says_all_that_a_dataflow_holds() -> None:
    dataflow = read(
        {
            "version": 1,
            "name": "payments",
            "operators": [
                {
                    "name": "read",
                    "one_per_edge": ["score"],
                    "rate per second": 500,
                    "cluster": "east",
                },
                {
                    "name": "score",
                    "kind": "One-To-Many",
                    "workers": "4",
                    "costSeconds": 0.002,
                    "job": "fraud",
                },
                {"name": "join", "unique": True},
            ],
            "edges": [
                "read -> score -> join",
                {"from": "read", "to": "join", "way": "partitioned"},
            ],
        }
    )
    assert dataflow == Dataflow(
        (
            DataflowOperator("read", "one-to-many", rate_per_second=500, cluster="east"),
            DataflowOperator("score", "one-to-many", workers=4, cost_seconds=0.002, job="fraud"),
            DataflowOperator("join", unique=True),
        ),
        (
            Edge("read", "score", one_per_tuple=True),
            Edge("score", "join"),
            Edge("read", "join", "partitioned"),
        ),
        "payments",
    )


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = refused(
        {
            "operators": [
                {"name": "read", "one_per_edge": ["scoer"]},
                {"name": "score", "kind": "sideways", "workers": 0},
                {"name": "score", "colour": "red"},
            ],
            "edges": ["read -> scroe", "read", {"from": "read"}, "read -> score", "read -> score"],
        },
        "Score",
        "nobody",
    )
    assert found["/operators/0/one_per_edge/0"].startswith(
        "there is no edge from 'read' to 'scoer', did you mean"
    )
    assert "sideways" in found["/operators/1/kind"]
    assert "0" in found["/operators/1/workers"]
    assert found["/operators/2"] == "two operators are called 'score'"
    assert "colour" in found["/operators/2/colour"]
    assert found["/edges/0"] == "no operator 'scroe', did you mean 'score'?"
    assert {"/edges/1", "/edges/2"} < found.keys()
    assert found["/edges/4"] == "the edge read -> score stands twice"
    assert found["--targets"] == "no operator 'nobody'"


@pytest.mark.parametrize("kind", ["one-to-one", "blocking", "One to One"])
@pytest.mark.parametrize("flag", [True, ["b"]])
def test_a_kind_that_contradicts_one_per_edge_is_refused(kind: str, flag: object) -> None:
    document = {
        "operators": [{"name": "a", "kind": kind, "one_per_edge": flag}, {"name": "b"}],
        "edges": ["a -> b"],
    }
    (complaint,) = refused(document).items()
    assert complaint[0] == "/operators/0/kind"
    assert "contradicts one_per_edge" in complaint[1]


@pytest.mark.parametrize("key", ["rate_per_second", "cost_seconds", "workers"])
def test_a_number_that_is_too_large_is_told_with_the_bound(key: str) -> None:
    with pytest.raises(SpecError) as caught:
        read({"operators": [{"name": "a", key: 10**400}]})
    (one,) = caught.value.complaints
    assert (one.pointer, one.message, one.expected) == (
        f"/operators/0/{key}",
        "too large",
        "at most 1e+15",
    )
    assert read({"operators": [{"name": "a", key: 1e15}]})
    assert (
        "above 0"
        in refused({"operators": [{"name": "a", "rate_per_second": 0}]})[
            "/operators/0/rate_per_second"
        ]
    )


def test_a_kind_beside_one_per_edge_is_taken_where_it_fits() -> None:
    for said in (
        {"kind": "one-to-many", "one_per_edge": True},
        {"kind": "one-to-one", "one_per_edge": False},
        {"kind": None, "one_per_edge": True},
    ):
        assert read({"operators": [{"name": "a", **said}, {"name": "b"}], "edges": ["a -> b"]})
    assert list(
        refused({"operators": [{"name": "a", "kind": "sideways", "one_per_edge": True}]})
    ) == ["/operators/0/kind"]


def test_a_kind_said_beside_a_plan_is_believed_instead_of_what_the_plan_knows_of_its_edges() -> (
    None
):
    """A map of one edge to targets would be spared: it is known to send one tuple."""
    said = {"name": "Source: payments", "kind": "one-to-many"}
    job = {"name": "j", "plan": json.loads(FLINK), "operators": [said]}
    assert not any(edge.one_per_tuple for edge in read({"jobs": [job]}).edges)
    assert any(edge.one_per_tuple for edge in read({"jobs": [job | {"operators": []}]}).edges)


def test_the_document_of_a_dataflow_is_read_again_as_the_same_one() -> None:
    dataflow = parse_dataflow(FLINK)
    again = dataflow_of(to_plain(dataflow))
    for targets in (["Sink: archive"], ["Sink: alerts", "Sink: archive"], dataflow.names):
        assert fries(again, targets).components == fries(dataflow, targets).components


def test_an_operator_of_other_letters_is_meant_but_not_taken() -> None:
    assert refused({"operators": operators("score")}, "Score")["--targets"] == (
        "no operator 'Score', did you mean 'score'?"
    )


@pytest.mark.parametrize(
    ("edges", "pointer", "message"),
    [
        (["a -> b -> c", "c -> a"], "/edges/1", "a cycle: a -> b -> c -> a"),
        (["a -> b", "b -> b"], "/edges/1", "a cycle: b -> b"),
        (["a -> b -> c -> b"], "/edges/0", "a cycle: b -> c -> b"),
    ],
)
def test_a_cycle_is_named(edges: list[str], pointer: str, message: str) -> None:
    assert refused({"operators": operators("a", "b", "c"), "edges": edges}) == {pointer: message}


def test_each_knot_of_edges_is_told_by_one_cycle() -> None:
    edges = ["a -> b -> a", "c -> d -> e -> c", "d -> c", "b -> c", "e -> f", "g -> g"]
    assert refused({"operators": operators(*"abcdefg"), "edges": edges}) == {
        "/edges/0": "a cycle: a -> b -> a",
        "/edges/1": "a cycle: c -> d -> e -> c",
        "/edges/5": "a cycle: g -> g",
    }


def test_topics_that_lead_in_a_circle_are_a_cycle() -> None:
    document = {
        "operators": [
            {"name": "a", "reads": "one", "writes": "two"},
            {"name": "b", "reads": "two", "writes": "one"},
        ]
    }
    assert refused(document) == {"": "a cycle: a -> b -> a"}


def test_an_edge_to_an_operator_that_could_not_be_read_is_not_complained_of() -> None:
    assert list(
        refused({"operators": [{"name": "a"}, {"title": "b"}], "edges": ["a -> b"]}, "b")
    ) == [
        "/operators/1/title",
        "/operators/1",
    ]


@pytest.mark.parametrize(
    "document", [[], 7, {}, {"operators": 7}, {"operators": [7]}, {"jobs": [{}]}]
)
def test_what_is_no_document_is_refused_and_not_a_bug_of_ours(document: Any) -> None:
    assert refused(document)


@pytest.mark.parametrize(
    ("document", "pointer", "message"),
    [
        ({"operators": [], "edges": []}, "/operators", "no operator"),
        ({"Operators": []}, "/Operators", "no operator"),
        ({"jobs": []}, "", "no operator"),
        ({"plan": {"jid": "f1", "name": "j", "nodes": []}}, "/plan/nodes", "no node"),
        ({"nodes": []}, "/nodes", "no node"),
        ({"jobs": [{"name": "j", "plan": {"nodes": []}}]}, "/jobs/0/plan/nodes", "no node"),
    ],
)
def test_a_dataflow_without_an_operator_is_told_once_and_where(
    document: Any, pointer: str, message: str
) -> None:
    assert refused(document, "a") == {pointer: message}


TROUBLE = {
    "errors": [
        (
            "org.apache.flink.runtime.rest.NotFoundException: Job f19a not found\n\tat "
            "org.apache.flink…"
        ),
        "<Exception on server side:\njava.lang.Error",
    ]
}


def test_an_error_of_flink_is_told_as_one() -> None:
    told = (
        "Flink's answer is an error and no plan: "
        "org.apache.flink.runtime.rest.NotFoundException: Job f19a not found"
    )
    assert refused(TROUBLE, "a") == {"/errors": told}
    assert refused({"jobs": [{"name": "j", "plan": TROUBLE}]}, "a") == {"/jobs/0/plan": told}
    assert refused({"errors": []}, "a")["/errors"].endswith("it does not say which")
    assert "unknown key" in refused({"errors": [], "operators": []})["/errors"]


def test_jobs_tell_their_own_operators_and_topics_join_them() -> None:
    dataflow = read(
        {
            "operators": [{"name": "gateway", "writes": ["orders"]}, {"name": "ledger"}],
            "jobs": [
                {
                    "name": "shop",
                    "cluster": "north",
                    "plan": "shop.txt",
                    "operators": [{"name": "WriteToDataSourceV2", "writes": ["counts"]}],
                },
                {
                    "name": "fraud",
                    "cluster": "east",
                    "plan": json.loads(FLINK),
                    "operators": [
                        {"name": "Source: payments", "reads": ["counts"]},
                        {"name": "Score", "kind": "one-to-one"},
                    ],
                },
            ],
            "edges": ["fraud/Sink: alerts -> ledger"],
        },
        files={"shop.txt": SPARK},
    )
    assert ("gateway", "shop/MicroBatchScan") in {edge.ends for edge in dataflow.edges}
    assert ("shop/WriteToDataSourceV2", "fraud/Source: payments -> Map") in {
        edge.ends for edge in dataflow.edges
    }
    score = dataflow.called("Score")[0]
    assert (score.name, score.kind) == ("fraud/Score -> Filter", "one-to-one")
    assert (score.job, score.cluster) == ("fraud", "east")
    found = fries(dataflow, ["shop/StateStoreSave", score.name])
    assert len(found.components) == 1, "a count may be met by both"


def test_a_topic_that_several_read_hands_each_of_them_every_tuple() -> None:
    dataflow = read(
        {
            "operators": [
                {"name": "w", "writes": "t"},
                {"name": "x", "reads": "t"},
                {"name": "y", "reads": "t"},
            ]
        }
    )
    assert dataflow["topic t"].kind == "one-to-many"
    assert [set(one.operators) for one in fries(dataflow, ["x", "y"]).components] == [
        {"topic t", "x", "y"}
    ]
    assert [set(one.operators) for one in fries(dataflow, ["x"]).components] == [{"x"}], (
        "and one each"
    )


def test_two_jobs_of_one_name_are_all_that_is_told_of_them() -> None:
    jobs = [{"name": "fl", "plan": json.loads(FLINK)}, {"name": "fl", "plan": json.loads(FLINK)}]
    document = {"jobs": jobs, "operators": operators("x"), "edges": ["fl/Score -> x"]}
    assert refused(document, "Sink: alerts", "nobody") == {"/jobs/1/name": "two jobs are called fl"}
    assert "are called" not in str(
        refused({"jobs": [{"name": [], "plan": "x"}, {"name": [], "plan": "x"}]})
    )


def test_a_plan_that_is_not_there_and_one_that_is_none_are_told_by_their_pointers() -> None:
    jobs = [{"name": "a", "plan": "gone.json"}, {"name": "b", "plan": {"x": 1}}]
    found = refused({"jobs": jobs})
    assert found["/jobs/0/plan"] == "gone.json cannot be read: No such file or directory"
    assert found["/jobs/1/plan"] == "no plan of a job"


def test_what_a_document_says_of_an_operator_its_plan_does_not_have_is_a_complaint() -> None:
    jobs = [
        {"name": "a", "plan": json.loads(FLINK), "operators": [{"name": "Scoer", "unique": True}]}
    ]
    assert (
        refused({"jobs": jobs})["/jobs/0/operators/0"]
        == "no operator 'Scoer', did you mean 'Score'?"
    )


def test_a_dataflow_that_a_program_made_is_held_against_the_same_rules() -> None:
    wrong = Dataflow(
        (DataflowOperator("a"), DataflowOperator("a"), DataflowOperator("b")),
        (Edge("a", "c"), Edge("a", "b"), Edge("b", "a")),
    )
    assert [(one.pointer, one.message) for one in problems(wrong)] == [
        ("/operators/1", "two operators are called 'a'"),
        ("/edges/0", "no operator 'c'"),
        ("/edges/2", "a cycle: a -> b -> a"),
    ]
    assert problems(parse_dataflow(FLINK)) == ()


def test_the_schema_is_the_one_that_is_checked_in() -> None:
    """To renew it: stateshift schema --of dataflow > configs/dataflow.schema.json"""
    assert (CONFIGS / "dataflow.schema.json").read_text("utf-8") == schema_text(dataflow_schema())
    jsonschema.Draft202012Validator.check_schema(dataflow_schema())


@pytest.mark.parametrize(
    ("document", "valid"),
    [
        ({"operators": [{"name": "a", "oneParEdge": True}]}, False),
        (
            {
                "operators": [{"name": "a", "onePerEdge": True}],
                "edges": ["a -> b", {"From": "a", "to": "c"}],
            },
            True,
        ),
        ({"operators": [{"name": "a", "kind": "sideways"}]}, False),
        ({"operators": [{"name": "a", "workers": 0}]}, False),
        ({"edges": ["a"]}, False),
        ({"jobs": [{"name": "a", "plan": {"nodes": []}}]}, True),
    ],
)
def test_the_schema_takes_what_has_the_right_shape(document: Any, valid: bool) -> None:
    assert jsonschema.Draft202012Validator(dataflow_schema()).is_valid(document) is valid
