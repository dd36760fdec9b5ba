"""A key at the wrong place: the complaint says where it belongs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stateshift.errors import Complaint, SpecError
from stateshift.specification import parse_spec
from stateshift.specification.changes import TRANSFORMS
from stateshift.specification.job_keys import JOB, KAFKA, SINK
from stateshift.specification.model import Mode
from stateshift.specification.rebalancing import REBALANCE

MODES = ("move", "fork", "warm")


def complaints(spec: dict[str, Any]) -> dict[str, Complaint]:
    with pytest.raises(SpecError) as raised:
        parse_spec(json.dumps(spec))
    return {complaint.pointer: complaint for complaint in raised.value.complaints}


def spec_of(top: dict[str, Any], in_job: dict[str, Any]) -> dict[str, Any]:
    job = {"name": "orders", "checkpoint_location": "/from", "remote_location": "/to"}
    return {"version": 1, "jobs": [{**job, **in_job}], **top}


def test_a_change_that_is_spelled_as_a_key_is_shown_in_transform() -> None:
    for kind in TRANSFORMS:
        shown = f'inside a job, as "transform": [{{"kind": "{kind}", …}}]'
        at_top = complaints(spec_of({kind: 3}, {}))[f"/{kind}"].message
        assert shown in at_top or JOB.find(kind), kind
        if not JOB.find(kind):
            assert shown in complaints(spec_of({}, {kind: 3}))[f"/jobs/0/{kind}"].message


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_that_is_spelled_as_a_key_is_shown_as_the_value_of_mode(mode: Mode) -> None:
    for spec in (spec_of({mode: True}, {}), spec_of({}, {mode: True})):
        (complaint,) = complaints(spec).values()
        assert complaint.message.endswith(f'which belongs inside a job, as "mode": "{mode}"')


def test_the_keys_of_smaller_parts_are_known_wherever_they_stand() -> None:
    parts = {"'kafka' of a job": KAFKA, "'sink' of a job": SINK, "'rebalance'": REBALANCE}
    for where, keys in parts.items():
        for key in keys.all:
            is_ambiguous = key.name in ("kind", "location", "warm", "clusters", "runs")
            if not is_ambiguous:
                message = complaints(spec_of({key.name: "x"}, {}))[f"/{key.name}"].message
                assert f"which belongs inside {where}" in message, key.name


@pytest.mark.parametrize(
    ("top", "in_job", "hint"),
    [
        ({}, {"kafka": {"waves": []}}, "which belongs at the top, beside 'jobs'"),
        ({}, {"sink": {"kind": "delta", "mode": "fork"}}, "which belongs inside a job"),
        (
            {},
            {"transform": [{"kind": "rescale", "parallelism": 2, "fork": True}]},
            'which belongs inside a job, as "mode": "fork"',
        ),
        (
            {},
            {"partitions": 17},
            'which belongs inside a job, as "transform": [{"kind": "repartition", …}]',
        ),
        ({"throttle": {"parallel": 3}}, {}, "which belongs at the top, beside 'jobs'"),
        ({"delta": "/lake"}, {}, 'or inside one of a job\'s \'sources\', as "kind": "delta"'),
        # Near misses stay near misses.
        ({}, {"operator": ["A"]}, "did you mean 'operators'?"),
        ({}, {"location": "/from"}, "did you mean 'remote_location'?"),
        ({"job": []}, {}, "did you mean 'jobs'?"),
    ],
)
def test_a_key_inside_of_any_part_is_pointed_to_its_place(
    top: dict[str, Any], in_job: dict[str, Any], hint: str
) -> None:
    messages = [complaint.message for complaint in complaints(spec_of(top, in_job)).values()]
    assert any(message.endswith(hint) for message in messages), messages


def test_a_key_that_many_parts_have_is_not_guessed_at() -> None:
    message = complaints(spec_of({"kind": "delta"}, {}))["/kind"].message
    assert message == "unknown key 'kind'"
