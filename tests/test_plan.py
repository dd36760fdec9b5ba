"""Plans as values."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stateshift.errors import PlanError
from stateshift.plan import Estimate, Phase, Plan, decode_plan, encode_plan, phases_of
from stateshift.step import CopyFiles, FenceSource
from stateshift.survey import FileInfo, Finding

FENCE = FenceSource("halt/fence", "file:///a", ("commits/3",))
COPY = CopyFiles("copy/0", "file:///a", "file:///b", (FileInfo("x", 3),))
PLAN = Plan(
    "orders",
    "spark",
    "move",
    "file:///a",
    "file:///b",
    2,
    phases_of(Phase("halt", (FENCE,), ordered=True), Phase("copy", (COPY,)), Phase("publish", ())),
    (Finding("note", "read this"),),
    "facts",
)


def test_a_plan_comes_back_from_json_as_it_was() -> None:
    assert decode_plan(json.loads(json.dumps(encode_plan(PLAN)))) == PLAN


def test_empty_phases_are_left_out() -> None:
    assert [phase.name for phase in PLAN.phases] == ["halt", "copy"]


def test_the_estimate_and_the_findings_stand_outside_the_fingerprint() -> None:
    assert replace(PLAN, estimate=Estimate(1, 1, "x"), findings=()).fingerprint == PLAN.fingerprint
    assert replace(PLAN, facts="other").fingerprint != PLAN.fingerprint


def test_a_plan_changed_by_hand_is_refused() -> None:
    value = encode_plan(PLAN)
    value["phases"][1]["steps"][0]["target"] = "file:///elsewhere"
    with pytest.raises(PlanError, match="changed by hand"):
        decode_plan(value)


def test_a_plan_of_another_version_is_refused_with_the_way_out() -> None:
    with pytest.raises(PlanError, match="not a plan of this version") as caught:
        decode_plan({**encode_plan(PLAN), "stateshift_plan": 99})
    assert "stateshift plan" in (caught.value.hint or "")
