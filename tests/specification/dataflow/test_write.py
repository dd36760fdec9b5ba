"""A dataflow written as a document, and read again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import SpecError
from stateshift.specification import parse_spec, parse_without_dataflow, to_plain_spec
from stateshift.specification.dataflow.document import settle, to_plain
from stateshift.specification.dataflow.operators import Dataflow, join_topics
from stateshift.specification.dataflow.parse import dataflow_of, parse_dataflow
from tests.dataflow.random_dataflows import dataflows
from tests.specification.dataflow.plans import FLINK, SPARK, SPARK_JOIN

SPEC = {
    "version": 1,
    "engine": "spark",
    "jobs": [{"name": "j", "checkpoint_location": "/here", "remote_location": "/there"}],
}
TOPICS = st.lists(st.sampled_from(["t", "u", "v"]), unique=True, max_size=2).map(tuple)


@settings(max_examples=200, deadline=None)
@given(dataflows(size_max=6, workers_max=2), st.data())
def test_a_settled_dataflow_is_the_one_that_is_read_from_its_document(
    flow: Dataflow, data: st.DataObject
) -> None:
    operators = [replace(one, writes=data.draw(TOPICS)) for one in flow.operators]
    operators[-1] = replace(operators[-1], writes=(), reads=data.draw(TOPICS))
    known = settle(join_topics(replace(flow, operators=tuple(operators))))
    assert dataflow_of(to_plain(known)) == known
    assert settle(known) == known


@pytest.mark.parametrize("plan", [FLINK, SPARK, SPARK_JOIN])
def test_a_spec_with_the_plan_of_a_job_is_written_and_read_again_without_the_plan(
    plan: str,
) -> None:
    dataflow = {"jobs": [{"name": "j", "plan": "plan"}]}
    spec = parse_spec(json.dumps({**SPEC, "dataflow": dataflow}), opened=lambda name: plan)
    assert spec.dataflow is not None
    assert len(spec.dataflow.operators) == len(parse_dataflow(plan).operators)
    assert parse_spec(json.dumps(to_plain_spec(spec))) == spec


def test_a_named_file_is_refused_where_no_file_can_lie_beside_the_spec() -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec(json.dumps({**SPEC, "dataflow": "flow.json"}))
    (complaint,) = refused.value.complaints
    assert complaint.pointer == "/dataflow"
    assert "'flow.json' cannot be read: there is no place beside" in complaint.message


def test_a_job_that_asks_for_its_places_alone_reads_no_dataflow() -> None:
    text = json.dumps({**SPEC, "dataflow": "flow.json"})
    assert parse_without_dataflow(text) == parse_spec(json.dumps(SPEC))
