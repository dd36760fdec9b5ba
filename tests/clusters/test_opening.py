"""Clusters of a spec, opened or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.clusters.kind import check_submit, open_cluster
from stateshift.errors import SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import CLUSTER_KINDS


@pytest.mark.parametrize("kind", sorted(CLUSTER_KINDS))
def test_every_kind_opens_and_knows_its_name(kind: str, tmp_path: Path) -> None:
    reached = {
        over_http: {"url": "http://h:1"}
        for over_http in ("livy", "spark_standalone", "yarn", "flink_yarn", "flink_rest")
    }
    options = {"command": {"submit": "true"}, **reached}.get(kind, {})
    cluster = open_cluster(ClusterSpec("a", kind, options), str(tmp_path))
    assert (cluster.name, cluster.kind) == ("a", kind)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"unknown kind 'spark-submit' \(did you mean 'spark_submit'\?\)"
    ) as raised:
        open_cluster(ClusterSpec("a", "spark-submit"), str(tmp_path))
    assert raised.value.complaints[0].pointer == "/clusters/a/kind"


def test_all_that_is_wrong_with_the_options_is_said_at_once(tmp_path: Path) -> None:
    options = {"find": [], "stopp": "x", "seconds_max": "10", "environment": {"A": ["x"]}}
    with pytest.raises(SpecError) as raised:
        open_cluster(ClusterSpec("a/b", "command", options), str(tmp_path))
    assert {(c.pointer, c.message) for c in raised.value.complaints} == {
        ("/clusters/a~1b/submit", "is needed and not there"),
        ("/clusters/a~1b/find", "does not fit"),
        ("/clusters/a~1b/stopp", "unknown option 'stopp' (did you mean 'stop'?)"),
        ("/clusters/a~1b/seconds_max", "does not fit"),
        ("/clusters/a~1b/environment", "does not fit"),
    }


def test_two_clusters_of_one_run_keep_apart_what_they_remember(tmp_path: Path) -> None:
    from stateshift.clusters.protocol import JobState, Submission

    a, b = (
        open_cluster(ClusterSpec(name, "command", {"submit": "true"}), str(tmp_path))
        for name in "ab"
    )
    a.submit(Submission("run.orders", "orders", "/x"))
    assert b.find("run.orders").state is JobState.ABSENT


def test_how_a_job_is_submitted_can_be_checked_before_anything_moves(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("")
    there = {"application": "x.py", "cwd": str(tmp_path), "arguments": ["a", 1]}
    check_submit(ClusterSpec("a", "spark_submit"), there, "/jobs/0/submit")
    for elsewhere in ("hdfs://a/x.jar", "local:/opt/x.jar", f"file://{tmp_path}/x.py"):
        check_submit(ClusterSpec("a", "spark_submit"), {"application": elsewhere}, "/jobs/0/submit")
    with pytest.raises(SpecError, match="/jobs/0/submit/application: there is no such file"):
        check_submit(
            ClusterSpec("a", "spark_submit"), {**there, "application": "y.py"}, "/jobs/0/submit"
        )
    check_submit(ClusterSpec("a", "livy"), {"application": "y.py"}, "/jobs/0/submit")
    check_submit(ClusterSpec("a", "command"), {"anything": {"goes": 1}}, "/jobs/0/submit")
    with pytest.raises(SpecError) as raised:
        check_submit(ClusterSpec("a", "spark_submit"), {"arguments": "a"}, "/jobs/0/submit")
    assert [c.pointer for c in raised.value.complaints] == [
        "/jobs/0/submit/application",
        "/jobs/0/submit/arguments",
    ]
