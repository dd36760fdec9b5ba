"""The section `rebalance`: what is read, what is refused, and when nothing is moved."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from typing import Any

import pytest

from stateshift.advise.rebalance.situation import Policy
from stateshift.errors import SpecError
from stateshift.migration import jobs_of
from stateshift.specification import Rebalancing, Spec, parse_spec, to_plain_spec
from stateshift.specification.grammars import excluding, normal_excluded
from tests.support.examples import FOLDER

CLUSTERS = {name: {"kind": "flink_rest", "url": f"http://{name}:8081"} for name in ("a", "b")}
JOB = {"name": "orders", "target_directory": "/taken", "submit": {"jar": "jobs.jar"}}


def plain(section: dict[str, Any], **job: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "engine": "flink",
        "clusters": CLUSTERS,
        "source_cluster": "a",
        "rebalance": section,
        "jobs": [{**JOB, **job}],
    }


def parsed(section: dict[str, Any], **job: Any) -> Spec:
    return parse_spec(json.dumps(plain(section, **job)))


def complaints(section: dict[str, Any], **job: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as raised:
        parsed(section, **job)
    return {each.pointer: each.message for each in raised.value.complaints}


def test_the_example_is_read_and_written_as_it_is() -> None:
    spec = parse_spec((FOLDER / "rebalance.json").read_text())
    assert spec.rebalance is not None
    assert [cluster.name for cluster in spec.rebalance.clusters] == ["west", "east"]
    assert spec.job("audit-*") is not None
    assert parse_spec(json.dumps(to_plain_spec(spec))) == spec


def test_what_decides_has_the_defaults_of_the_policy() -> None:
    spec, policy = Rebalancing(), Policy()
    seconds = {
        "horizon": policy.horizon_seconds,
        "cool_down": policy.cool_down_seconds,
        "remembered": policy.remembered_seconds,
        "runs_within": policy.runs_within_seconds,
    }
    for name, value in seconds.items():
        assert getattr(spec, name) == value
    shared = {field.name for field in fields(Policy)} & {field.name for field in fields(spec)}
    bounds = {"load_max", "trigger", "aim", "idle_below", "runs", "moves_max"}
    assert shared == bounds | {"gain_min", "relief_min"}
    for name in shared:
        assert getattr(spec, name) == getattr(policy, name)


@pytest.mark.parametrize(
    ("written", "capacity", "memory"),
    [
        (16, 16.0, None),
        ("16", 16.0, None),
        ({"slots": 8}, 8.0, None),
        ({"cores": 8, "memory": "64g"}, 8.0, 64 << 30),
        ({"memory": 1024}, None, 1024),
    ],
)
def test_capacity_is_a_number_or_an_object(written: Any, capacity: Any, memory: Any) -> None:
    rebalance = parsed({"clusters": {"a": {"capacity": written}, "b": {}}}).rebalance
    assert rebalance is not None
    assert (rebalance.clusters[0].capacity, rebalance.clusters[0].memory) == (capacity, memory)


@pytest.mark.parametrize(
    ("written", "seconds"), [(300, 300), ("90s", 90), ("15 min", 900), ("1h", 3600), ("1d", 86400)]
)
def test_times_are_seconds_or_have_a_unit(written: Any, seconds: float) -> None:
    rebalance = parsed({"cool_down": written}).rebalance
    assert rebalance is not None
    assert rebalance.cool_down == seconds


def test_a_job_of_flink_needs_no_id() -> None:
    (job,) = parsed({}).jobs
    assert job.flink is not None
    assert (job.flink.job_ids, job.flink.existing_savepoints) == ((), ())


def test_a_checkpoint_location_is_no_savepoint_to_start_from() -> None:
    (job,) = parsed({}, checkpoint_location="/state").jobs
    assert job.flink is not None
    assert job.flink.existing_savepoints == ()


def test_a_job_has_no_target_and_names_no_image() -> None:
    said = complaints({}, target_cluster="b", remote_location="/moved", job_ids=["1"])
    assert set(said) == {"/jobs/0/target_cluster", "/jobs/0/remote_location", "/jobs/0/job_ids"}


def test_a_job_must_be_found_and_started() -> None:
    written = plain({}, submit=None)
    del written["source_cluster"]
    with pytest.raises(SpecError) as raised:
        parse_spec(json.dumps(written))
    assert {each.message for each in raised.value.complaints} == {
        "'source_cluster' is missing",
        "'submit' is missing",
    }


def test_a_pattern_that_names_no_job_is_refused() -> None:
    assert "/rebalance/pinned" in complaints({"pinned": ["order"]})
    assert "/rebalance/paused" in complaints({"paused": ["audit-*"]})
    assert "/rebalance/together" in complaints({"together": [["orders", "audit-1"]]})


def test_a_job_of_a_pattern_is_named_by_its_own_name() -> None:
    parsed({"pinned": ["orders-1"], "paused": ["*"]}, name="orders-*")


def test_images_are_told_apart_by_job_and_move() -> None:
    section = {"clusters": {"a": {"images": "/a/{job}"}, "b": {"images": "/b/{move}"}}}
    assert set(complaints(section)) == {
        "/rebalance/clusters/a/images",
        "/rebalance/clusters/b/images",
    }


def test_one_cluster_is_not_enough() -> None:
    assert "/rebalance/clusters" in complaints({"clusters": {"a": {}}})


@pytest.mark.row("IF-19")
def test_a_spec_without_targets_is_not_applied() -> None:
    with pytest.raises(SpecError, match="not where they go") as raised:
        jobs_of(parsed({}))
    assert "stateshift rebalance" in str(raised.value.hint)


# ---------------------------------------------------------------------------------- excluded

MONDAY = datetime(2026, 11, 23, 8, 15)
SUNDAY = datetime(2026, 11, 22, 8, 15)


@pytest.mark.parametrize(
    ("period", "moment", "is_excluded"),
    [
        ("07:00-09:30", MONDAY, True),
        ("08:15-08:16", MONDAY, True),
        ("07:00-08:15", MONDAY, False),
        ("22:00-09:00", MONDAY, True),
        ("* * * * *", MONDAY, True),
        ("* 8-17 * * 1-5", MONDAY, True),
        ("* 8-17 * * 1-5", SUNDAY, False),
        ("* * * * 7", SUNDAY, True),
        ("* * * * 0", SUNDAY, True),
        ("*/15 * * * *", MONDAY, True),
        ("1-59/15 * * * *", MONDAY, False),
        ("* * 23 * 2", MONDAY, True),
        ("* * 24 * 2", MONDAY, False),
        ("* * 1,23 11 *", MONDAY, True),
        ("* * * 12 *", MONDAY, False),
    ],
)
def test_a_period_holds_its_minutes(period: str, moment: datetime, is_excluded: bool) -> None:
    assert normal_excluded(period) == period
    assert excluding(["00:00-00:01", period], moment) == (period if is_excluded else None)


@pytest.mark.parametrize(
    "text",
    [
        *("", "07:00", "07:00-07:00", "24:00-25:00", "* * * *", "60 * * * *", "* * 0 * *"),
        *("a * * * *", "* * * * 8", "5-1 * * * *", "*/0 * * * *", "1,,2 * * * *", "* * * * * *"),
    ],
)
def test_what_is_no_period_is_refused(text: str) -> None:
    assert normal_excluded(text) is None
