"""INFORE's Flink dialect (IF-1), and how its engine is recognised."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stateshift.errors import SpecError
from stateshift.specification import ClusterSpec, FlinkJob, JobSpec, Spec, parse_spec, to_plain_spec

TAKEN = {
    "job name": "a",
    "job ids": "1, 2",
    "host": "h",
    "port": "8081",
    "target directory": "/savepoints",
}
EXISTING = {
    "job name": "a",
    "existing savepoint paths": ["/old/1", "/old/2"],
    "new savepoint path": "/new",
}


def read(spec: Any) -> Spec:
    return parse_spec(json.dumps(spec))


def complaints(spec: Any) -> list[tuple[str, str]]:
    with pytest.raises(SpecError) as error:
        read(spec)
    return [(complaint.pointer, complaint.message) for complaint in error.value.complaints]


@pytest.mark.row("IF-1")
def test_the_keys_of_d5_2_are_read() -> None:
    spec = read(
        {
            "restart": "true",
            "fromExistingSavepoint": "false",
            "AllowNonRestoreStates": "true",
            "cancel job": True,
            "checkpoint dir": "hdfs://nn/checkpoints",
            "jobs": [{**TAKEN, "job ids": ["1", "2"], "new savepoint path": "/savepoints/new"}],
        }
    )
    flink = FlinkJob(
        job_ids=("1", "2"),
        new_savepoint="file:///savepoints/new",
        host="h",
        port=8081,
        target_directory="file:///savepoints",
        allow_non_restored_state=True,
        cancel_job=True,
        checkpoint_dir="hdfs://nn/checkpoints",
    )
    job = JobSpec(
        "a", "file:///savepoints", "file:///savepoints/new", source_cluster="h:8081", flink=flink
    )
    assert spec == Spec(
        "flink", (job,), clusters=(ClusterSpec("h:8081", "flink_rest", {"url": "http://h:8081"}),)
    )
    assert parse_spec(json.dumps(to_plain_spec(spec))) == spec


@pytest.mark.row("IF-1")
def test_lists_and_texts_with_commas_are_the_same() -> None:
    text = {**EXISTING, "existing savepoint paths": "/old/1,/old/2"}
    assert read({"jobs": [text]}) == read({"jobs": [EXISTING]})
    assert read({"jobs": [{**TAKEN, "port": 8081, "job ids": ["1", "2"]}]}) == read(
        {"jobs": [TAKEN]}
    )


@pytest.mark.row("IF-1")
def test_the_first_existing_savepoint_is_the_source_and_all_are_kept() -> None:
    job = read({"jobs": [EXISTING]}).jobs[0]
    assert (job.source, job.target) == ("file:///old/1", "file:///new")
    assert job.flink is not None and job.flink.from_existing_savepoint
    assert job.flink.existing_savepoints == ("file:///old/1", "file:///old/2")


@pytest.mark.row("IF-1")
def test_existing_savepoints_are_off_where_the_switch_is_false() -> None:
    job = read({"fromExistingSavepoint": False, "jobs": [{**TAKEN, **EXISTING}]}).jobs[0]
    assert job.flink is not None and job.flink.existing_savepoints == ()
    assert job.source == "file:///savepoints"


@pytest.mark.row("IF-1")
def test_two_jobs_may_start_from_one_savepoint() -> None:
    spec = read({"jobs": [EXISTING, {**EXISTING, "job name": "b", "new savepoint path": "/new-b"}]})
    assert [job.source for job in spec.jobs] == ["file:///old/1", "file:///old/1"]


def test_our_names_of_source_and_target_serve_flink_too() -> None:
    job = {"name": "a", "checkpoint_location": "/old/1", "remote_location": "/new"}
    read_job = read({"version": 1, "engine": "flink", "jobs": [job]}).jobs[0]
    assert (read_job.source, read_job.target) == ("file:///old/1", "file:///new")
    assert read_job.flink == FlinkJob(
        existing_savepoints=("file:///old/1",), from_existing_savepoint=True
    )


def test_the_engine_is_spark_unless_flinks_keys_are_used() -> None:
    assert read({"jobs": [{"name": "a", "checkpoint_location": "/a"}]}).engine == "spark"
    assert read({"cancel job": False, "jobs": [EXISTING]}).engine == "flink"


def test_keys_of_both_engines_are_refused_with_one_complaint() -> None:
    found = complaints({"jobs": [{**EXISTING, "merge": True}]})
    assert found == [
        (
            "/jobs/0/existing savepoint paths",
            "keys of two engines: 'merge' is Spark's, 'existing savepoint paths' is Flink's",
        ),
    ]


def test_a_key_of_the_other_engine_is_refused_where_the_engine_is_named() -> None:
    job = {"name": "a", "checkpoint_location": "/a", "job_ids": ["1"]}
    assert complaints({"engine": "spark", "cancel_job": True, "jobs": [job]}) == [
        ("/cancel_job", "'cancel_job' is a key of Flink's jobs"),
        ("/jobs/0/job_ids", "'job_ids' is a key of Flink's jobs"),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"job ids": []}, "neither 'existing_savepoint_paths' nor 'job_ids'"),
        ({"target directory": ""}, "'target_directory' is missing"),
        ({"host": None}, "'port' without 'host'"),
        ({"port": "http"}, '"http" is not a port, from 1 to 65535'),
        (
            {"new savepoint path": "/n", "remote_location": "/m"},
            "'remote_location' and 'new_savepoint_path' differ",
        ),
    ],
)
def test_what_flink_needs_to_take_a_savepoint_has_to_be_there(
    change: dict[str, Any], message: str
) -> None:
    assert message in [
        text for _, text in complaints({"engine": "flink", "jobs": [{**TAKEN, **change}]})
    ]
