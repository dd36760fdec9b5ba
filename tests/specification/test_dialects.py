"""One request in every spelling, and what the switches of each dialect mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stateshift.errors import SpecError
from stateshift.specification import (
    DataSpec,
    HashProfile,
    JobSpec,
    OperatorSpec,
    Spec,
    SubmitSpec,
    parse_spec,
)
from stateshift.specification.transform import Compact

JOB = {"name": "orders", "checkpoint_location": "/data/orders"}


def read(spec: Any, **more: Any) -> Spec:
    return parse_spec(json.dumps(spec), **more)


def read_job(job: dict[str, Any], **top: Any) -> JobSpec:
    return read({"version": 1, **top, "jobs": [{**JOB, **job}]}).jobs[0]


def pointers(spec: Any, **more: Any) -> list[str]:
    with pytest.raises(SpecError) as error:
        read(spec, **more)
    return [complaint.pointer for complaint in error.value.complaints]


INFORE = {
    "name": "Traffic",
    "checkpoint location": "hdfs://a:8020/traffic",
    "merge": "true",
    "merge jobs": "hdfs://a:8020/buses, hdfs://a:8020/trams",
    "remote": "TRUE",
    "remote connection": "chania:7077",
    "remote location": "hdfs://b:8020/traffic",
}


def _camel(key: str) -> str:
    first, *rest = key.split(" ")
    return first + "".join(word.capitalize() for word in rest)


@pytest.mark.row("IS-2")
@pytest.mark.parametrize(
    "spell",
    [
        str,
        _camel,
        str.title,
        str.upper,
        lambda key: key.replace(" ", "_"),
        lambda key: key.replace(" ", "-"),
    ],
)
def test_every_spelling_of_the_keys_reads_the_same(spell: Any) -> None:
    spec = read(
        {
            spell("restart"): True,
            spell("jobs"): [{spell(key): value for key, value in INFORE.items()}],
        }
    )
    assert spec == Spec(
        engine="spark",
        jobs=(
            JobSpec(
                name="Traffic",
                source="hdfs://a:8020/traffic",
                target="hdfs://b:8020/traffic",
                merge_locations=("hdfs://a:8020/buses", "hdfs://a:8020/trams"),
                connection="chania:7077",
            ),
        ),
    )


@pytest.mark.row("IS-1")
@pytest.mark.parametrize(
    ("value", "restart"),
    [(True, True), (False, False), ("true", True), ("False", False), (None, True)],
)
def test_restart_is_a_boolean_or_its_name(value: Any, restart: bool) -> None:
    assert read({"restart": value, "jobs": [JOB]}).restart is restart


@pytest.mark.row("IS-2")
def test_jobs_are_a_list_or_a_map_by_name_in_the_same_order() -> None:
    jobs = [{"name": name, "checkpoint_location": f"/data/{name}"} for name in ("b", "a")]
    by_name = {
        "b": {"checkpoint_location": "/data/b"},
        "a": {"name": "a", "checkpoint_location": "/data/a"},
    }
    assert read({"jobs": by_name}) == read({"jobs": jobs})
    assert [job.name for job in read({"jobs": by_name}).jobs] == ["b", "a"]


@pytest.mark.row("IS-2")
def test_merge_jobs_in_one_text_are_parted_at_commas_and_in_a_list_are_not() -> None:
    assert read_job({"merge_jobs": "/a , /b,"}).merge_locations == ("file:///a", "file:///b")
    assert read_job({"merge_jobs": ["/a, b"]}).merge_locations == ("file:///a, b",)


@pytest.mark.row("IS-4")
@pytest.mark.parametrize(
    ("version", "merge", "merged"),
    [
        (1, None, True),
        (1, True, True),
        (1, False, False),
        (None, None, False),
        (None, True, True),
        (None, False, False),
    ],
)
def test_merge_jobs_are_off_without_their_switch_in_infores_dialect_alone(
    version: int | None, merge: bool | None, merged: bool
) -> None:
    job = read(
        {"version": version, "jobs": [{**JOB, "merge": merge, "merge_jobs": ["/data/more"]}]}
    ).jobs[0]
    assert job.merge_locations == (("file:///data/more",) if merged else ())


@pytest.mark.row("IS-4")
@pytest.mark.parametrize(
    ("version", "remote", "on"),
    [(1, None, True), (1, False, False), (None, None, False), (None, True, True)],
)
def test_a_connection_follows_its_switch(
    version: int | None, remote: bool | None, on: bool
) -> None:
    job = read(
        {"version": version, "jobs": [{**JOB, "remote": remote, "remote_connection": "h:7077"}]}
    ).jobs[0]
    assert job.connection == ("h:7077" if on else None)


@pytest.mark.row("IS-5")
@pytest.mark.parametrize("blank", ["", "  ", None])
def test_a_blank_remote_location_leaves_the_job_where_it_is(blank: str | None) -> None:
    job = read(
        {
            "jobs": [
                {**JOB, "remote location": blank, "merge jobs": blank, "remote connection": blank}
            ]
        }
    ).jobs[0]
    assert (job.target, job.destination) == (None, "file:///data/orders")


@pytest.mark.row("IS-5")
@pytest.mark.parametrize(
    "target",
    ["/data/orders", "file:/data/orders/", "/data/orders/new", "/data", "/x/../data/orders"],
)
def test_a_remote_location_in_or_around_the_checkpoint_is_refused(target: str) -> None:
    assert pointers({"version": 1, "jobs": [{**JOB, "Remote Location": target}]}) == [
        "/jobs/0/Remote Location"
    ]


def test_a_neighbour_with_the_same_beginning_is_another_place() -> None:
    assert read_job({"remote_location": "/data/orders-2"}).target == "file:///data/orders-2"


@pytest.mark.parametrize(
    "connection",
    ["h:1", "h:65535", "[::1]:7077", "spark://h:7077", "spark://a:1,b:2", "http://h:8998/livy"],
)
def test_connections_name_a_host_and_a_port(connection: str) -> None:
    assert read_job({"remote_connection": connection}).connection == connection


@pytest.mark.parametrize(
    "connection",
    ["h", "h:", "h:0", "h:65536", ":1", "a b:1", "a:1,b:2", "h:1/x", "spark://h", 7077, "me@h:1"],
)
def test_anything_else_is_no_connection(connection: Any) -> None:
    found = pointers({"version": 1, "jobs": [{**JOB, "remote_connection": connection}]})
    assert found == ["/jobs/0/remote_connection"]


def test_keys_for_all_jobs_stand_beside_them_and_give_way_to_a_jobs_own() -> None:
    jobs = [{**JOB, "verify": "none"}, {"name": "b", "checkpoint_location": "/b"}]
    spec = read(
        {
            "version": 1,
            "verify": "digests",
            "plannedBatch": "drop",
            "stop": {"tag": "t"},
            "jobs": jobs,
        }
    )
    assert [(job.verify, job.planned_batch, job.stop) for job in spec.jobs] == [
        ("none", "drop", {"tag": "t"}),
        ("digests", "drop", {"tag": "t"}),
    ]


def test_what_is_wrong_with_a_key_for_all_jobs_is_told_once() -> None:
    jobs = [JOB, {"name": "b", "checkpoint_location": "/b"}]
    assert pointers({"version": 1, "verify": "all", "jobs": jobs}) == ["/verify"]


@pytest.mark.row("IS-7")
@pytest.mark.parametrize(
    "operators",
    [
        ["A (1)", {"name": "B", "directory": "9123223_mytest"}],
        {"A (1)": None, "B": "9123223_mytest"},
    ],
)
def test_operators_are_names_with_or_without_a_directory(operators: Any) -> None:
    assert read_job({"operators": operators}).operators == (
        OperatorSpec("A (1)"),
        OperatorSpec("B", "9123223_mytest"),
    )


@pytest.mark.row("IS-7")
def test_operator_names_are_unique_over_all_jobs() -> None:
    jobs = [
        {**JOB, "operators": ["A"]},
        {"name": "b", "checkpoint_location": "/b", "operators": ["A"]},
    ]
    assert pointers({"version": 1, "jobs": jobs}) == ["/jobs/1/operators/0"]


@pytest.mark.row("IS-9")
@pytest.mark.parametrize(
    "directory", ["a/b", "..", ".", ".hidden", "a\\b", "a\nb", "", "x" * 256, "_stateshift", 5]
)
def test_a_directory_that_leads_elsewhere_is_refused(directory: Any) -> None:
    spec = {"version": 1, "jobs": [{**JOB, "operators": [{"name": "A", "directory": directory}]}]}
    assert pointers(spec) == ["/jobs/0/operators/0/directory"]


@pytest.mark.row("IS-10")
@pytest.mark.parametrize(
    ("given", "profile"),
    [
        ("default", HashProfile()),
        ("Java Signed", HashProfile("java-signed", signed=True)),
        (
            {"p": 53, "m": "97", "offset": 0, "signed": "true"},
            HashProfile("custom", 53, 97, 0, True),
        ),
        ({"offset": -1}, HashProfile("custom", offset=-1)),
    ],
)
def test_a_hash_is_a_profile_or_its_constants(given: Any, profile: HashProfile) -> None:
    spec = read({"version": 1, "uidHash": given, "production": "true", "jobs": [JOB]})
    assert (spec.uid_hash, spec.production) == (profile, True)


def test_what_a_cluster_takes_is_carried_as_given() -> None:
    options = {
        "application": "a.py",
        "arguments": ["--x"],
        "conf": {"spark.a": "b"},
        "someOption": 1,
    }
    submit = {**options, "environment": {"A": "b"}, "secondsMax": "20"}
    clusters = {"c": {"Kind": "spark_submit", "master": "local[2]", "stateDir": "/s"}}
    spec = read(
        {
            "version": 1,
            "clusters": clusters,
            "jobs": [{**JOB, "target_cluster": "c", "submit": submit}],
        }
    )
    assert spec.jobs[0].submit == SubmitSpec(options, {"A": "b"}, 20.0)
    assert spec.cluster("c").options == {"master": "local[2]", "stateDir": "/s"}


def test_data_throttle_and_the_rest_are_read() -> None:
    data = [
        {"source": "in", "target": "s3://b/in"},
        {"source": "/out", "target": "/new", "copy": "false"},
    ]
    changes = [{"Kind": "Compact"}]
    job = {
        **JOB,
        "data": data,
        "remote_location": "/there",
        "transform": changes,
        "waive": "paths-stay, older-target",
    }
    spec = read(
        {"version": 1, "throttle": {"bytesPerSecond": 1.5}, "parallel": 2, "jobs": [job]},
        base="/specs",
    )
    assert spec.jobs[0].data == (
        DataSpec("file:///specs/in", "s3://b/in"),
        DataSpec("file:///out", "file:///new", copy=False),
    )
    assert (spec.bytes_per_second, spec.operations_per_second, spec.parallel) == (1.5, None, 2)
    assert (spec.jobs[0].waive, spec.jobs[0].transform) == (
        ("paths-stay", "older-target"),
        (Compact(),),
    )


def test_a_job_is_synced_unless_a_fork_says_otherwise() -> None:
    fork = {**JOB, "mode": "fork", "remote_location": "/test"}
    assert read({"version": 1, "jobs": [fork]}).jobs[0].sync
    assert not read({"version": 1, "jobs": [{**fork, "sync": False}]}).jobs[0].sync
    assert not read({"version": 1, "sync": False, "jobs": [fork]}).jobs[0].sync


def test_what_a_job_goes_on_from_is_synced() -> None:
    moves = {**JOB, "remote_location": "/test", "sync": False}
    warm = {**moves, "mode": "warm", "source_cluster": "a", "rounds": 2}
    clusters = {"a": {"kind": "manual"}}
    for job in (moves, warm):
        asked = {"version": 1, "clusters": clusters, "jobs": [job]}
        assert pointers(asked) == ["/jobs/0/sync"]
    for_all = {"version": 1, "sync": False, "jobs": [{**JOB, "remote_location": "/test"}]}
    assert pointers(for_all) == ["/sync"]


def test_a_fork_that_merges_is_refused() -> None:
    job = {**JOB, "mode": "fork", "merge_jobs": ["/data/more"], "remote_location": "/test"}
    assert pointers({"version": 1, "jobs": [job]}) == ["/jobs/0/mode"]


def test_a_waiver_that_waives_nothing_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(SpecError) as caught:
        read({"jobs": [{**JOB, "waive": ["paths-sty"]}]})
    (complaint,) = caught.value.complaints
    assert complaint.pointer == "/jobs/0/waive"
    assert "did you mean 'paths-stay'?" in complaint.message


@pytest.mark.parametrize("key", ["source_cluster", "target_cluster"])
def test_a_cluster_is_named_in_a_job_and_described_at_the_top(key: str) -> None:
    job = {**JOB, key: {"kind": "flink_rest", "url": "http://new:8081"}}
    with pytest.raises(SpecError) as error:
        read({"version": 1, "jobs": [job]})
    (complaint,) = error.value.complaints
    assert complaint.pointer == f"/jobs/0/{key}"
    assert complaint.message == (
        'an object is not the name of a cluster, which "clusters" at the top of the spec describes'
    )
