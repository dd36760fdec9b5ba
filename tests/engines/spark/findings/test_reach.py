"""Can the target cluster reach what the job is handed? As far as it is known before anything
moves.
"""

from __future__ import annotations

from typing import Any

import pytest

from stateshift.plan import Plan
from stateshift.survey import ClusterFacts, FileInfo, Survey
from tests.support.checkpoints import Checkpoint
from tests.support.ground import empty, facts_of, plan_of, spec_of, surveyed


def planned(
    target: str,
    kind: str = "livy",
    host: str | None = "far",
    reaches: bool | None = None,
    **keys: Any,
) -> Plan:
    theirs = ClusterFacts("theirs", kind, "3.5.9", "unknown", host=host, reaches=reaches)
    spec = spec_of(
        target=target,
        target_cluster="theirs",
        spec_clusters={"theirs": {"kind": "livy", "url": "http://far:8998"}},
        submit={"application": "hdfs://nn/job.py", **keys.pop("submit", {})},
        **keys,
    )
    return plan_of(spec, facts_of(surveyed(Checkpoint()), empty(target), target_cluster=theirs))


def of_reach(plan: Plan, level: str) -> str:
    return "\n".join(
        f.message for f in plan.findings if f.level == level and f.waive in (None, "target-reach")
    )


def test_a_local_disk_and_a_cluster_elsewhere_do_not_fit_unless_the_disk_is_shared() -> None:
    (finding,) = planned("file:///there/orders").refusals
    assert "is on a disk of this machine, and theirs runs jobs elsewhere (far)" in finding.message
    assert finding.waive == "target-reach"
    assert not planned("file:///there/orders", waive=["target-reach"]).refusals


@pytest.mark.parametrize(("host", "reaches"), [("", None), (None, None), ("far", True)])
def test_a_local_disk_fits_a_cluster_here_and_one_that_says_so(
    host: str | None, reaches: bool | None
) -> None:
    assert not planned("file:///there/orders", host=host, reaches=reaches).refusals


@pytest.mark.parametrize("kind", ["livy", "spark_standalone", "spark_submit"])
def test_s3_without_the_a_is_no_file_system_of_sparks(kind: str) -> None:
    (finding,) = planned("s3://bucket/orders", kind).refusals
    assert "Spark has no file system for s3://" in finding.message
    assert "s3a://" in (finding.hint or "")
    assert not planned("s3a://bucket/orders", kind).refusals
    assert not planned("s3://bucket/orders", kind, waive=["target-reach"]).refusals
    set_by_hand = {"conf": {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}}
    assert not planned("s3://bucket/orders", kind, submit=set_by_hand).refusals


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("s3a://bucket/orders", "it needs hadoop-aws, which is not part of Spark"),
        ("hdfs://shop/orders", "its Hadoop configuration has to know shop, too"),
        ("hdfs://nn.example:8020/orders", "it needs a way there"),
    ],
)
def test_what_could_not_be_asked_is_said_with_what_it_takes(target: str, told: str) -> None:
    found = of_reach(planned(target), "note")
    assert f"whether theirs reaches {target} was not asked: {told}" in found
    assert "theirs reaches" not in of_reach(planned(target, reaches=True), "note")


def test_a_cluster_that_says_no_is_believed() -> None:
    (finding,) = planned("hdfs://shop/orders", reaches=False).refusals
    assert "theirs says that it does not reach hdfs://shop/orders" in finding.message
    assert not planned("hdfs://shop/orders", reaches=False, waive=["target-reach"]).refusals


def test_data_that_moves_along_has_to_be_reached_too() -> None:
    data = [{"source": "file:///in", "target": "file:///new", "copy": True}]
    theirs = ClusterFacts("theirs", "livy", "3.5.9", "unknown", host="far")
    spec = spec_of(
        target="hdfs://shop/orders",
        target_cluster="theirs",
        data=data,
        spec_clusters={"theirs": {"kind": "livy", "url": "http://far:8998"}},
        submit={"application": "hdfs://nn/job.py"},
    )
    here = Survey("file:///in", None, "data", (FileInfo("f", 1),))
    facts = facts_of(
        surveyed(Checkpoint()),
        empty("hdfs://shop/orders"),
        target_cluster=theirs,
        data=((here, empty("file:///new")),),
    )
    assert "file:///new is on a disk of this machine" in plan_of(spec, facts).refusals[0].message
