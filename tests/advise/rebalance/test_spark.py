"""Queries of Spark, moved between clusters by what their checkpoints tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.advise.rebalance.clusters import LOADS, SparkClusters, moved

pytestmark = pytest.mark.row("IF-19", "W-12", on="Spark")


@pytest.mark.long
def test_queries_are_spread_by_their_batch_times(tmp_path: Path) -> None:
    ground = SparkClusters(tmp_path)
    done = [ground.document("--yes") for _ in range(8)]
    before = {cluster["name"]: cluster["before"] for cluster in done[0]["clusters"]}
    assert before == {"west": pytest.approx(6.4, rel=0.02), "east": 0.0}
    assert [moved(document) for document in done if document["moves"]] == [
        [("orders", "east", "finished")],
        [("fraud", "east", "finished")],
    ]
    assert (ground.on("west"), ground.on("east")) == (["audit", "payments"], ["fraud", "orders"])
    assert done[1]["moves"][0]["bytes"] > 0
    assert ground.disk.snapshot("file:///east/moved/orders/1")


def test_memory_that_is_taken_forbids_a_move(tmp_path: Path) -> None:
    ground = SparkClusters(tmp_path, section={"runs": 1})
    ground.capacity = {"cores": 4, "memory": "3g"}
    document = ground.document("--yes")
    assert not document["moves"]
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert "its memory is taken: 1,024 MiB too few are free" in stays["orders"]
    assert ground.on("west") == sorted(LOADS)


@pytest.mark.long
def test_memory_that_our_own_jobs_have_is_taken_where_only_the_spec_tells_it(
    tmp_path: Path,
) -> None:
    ground = SparkClusters(tmp_path, section={"runs": 1})
    ground.capacity = {"cores": 4, "memory": "7g"}  # each job takes 4g
    done = [ground.document("--yes") for _ in range(4)]
    assert [moved(document) for document in done if document["moves"]] == [
        [("orders", "east", "finished")]
    ]
    stays = {stay["job"]: stay["reason"] for stay in done[-1]["stay"]}
    assert "its memory is taken: 1,024 MiB too few are free" in stays["fraud"]


def test_a_query_that_stands_still_cannot_be_told(tmp_path: Path) -> None:
    ground = SparkClusters(tmp_path, section={"runs": 1, "age_max": "10m"})
    ground.clock.time += 3600
    document = ground.document("--yes")
    assert document["reason"].startswith("cannot tell: of 4 of 4 jobs")
    assert not document["moves"]


def test_a_query_is_not_moved_that_its_cluster_does_not_know(tmp_path: Path) -> None:
    ground = SparkClusters(tmp_path)
    twin = ground.clusters["west"]
    twin.jobs = [job for job in twin.jobs if job.job != "fraud"]
    document = ground.document("--drain", "west", code=4)
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert "it does not run on west, nor elsewhere" in stays["fraud"]


def test_most_of_an_image_is_copied_while_the_query_runs(tmp_path: Path) -> None:
    ground = SparkClusters(tmp_path, section={"runs": 1, "warm": True})
    document = ground.document("--yes")
    assert moved(document) == [("orders", "east", "finished")]
    journal = (tmp_path / "state" / "runs" / "0001-orders" / "journal").read_text()
    assert '"warm"' in journal


def test_a_cluster_with_an_older_spark_is_none_to_move_to(tmp_path: Path) -> None:
    ground = SparkClusters(tmp_path, section={"runs": 1}, versions={"east": "3.3.0"})
    document = ground.document("--yes")
    assert not document["moves"]
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert "east: the plan refuses it" in stays["orders"]
    assert "3.3" in stays["orders"]
    assert ground.on("west") == sorted(LOADS)


@pytest.mark.long
def test_only_the_query_moves_where_both_clusters_reach_its_checkpoint(tmp_path: Path) -> None:
    ground = SparkClusters(tmp_path, section={"runs": 1}, shares=True)
    done = [ground.document("--yes") for _ in range(4)]
    assert [moved(document) for document in done if document["moves"]] == [
        [("orders", "east", "finished")],
        [("fraud", "east", "finished")],
    ]
    (submission, _) = ground.clusters["east"].submissions
    assert submission.location == "file:///west/orders"
    assert ground.on("east") == ["fraud", "orders"]
