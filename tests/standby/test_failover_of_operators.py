"""A job of spark_operator is started from its standby by another API server, after its own gives no
answer any more. (A job of flink_operator has no standby: it ends with a savepoint.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stateshift.api.failovers import standby_at
from stateshift.clusters.kubernetes.spark_operator import SparkOperator
from stateshift.errors import PlanError
from stateshift.report import Report
from stateshift.specification import Spec
from stateshift.standby.location import failover_spec
from tests.clusters import fake_kubernetes
from tests.clusters.fake_kubernetes import FakeKubernetes
from tests.migration.test_last_copy import unreachable
from tests.migration.test_warm import Ended, Standby
from tests.support.checkpoints import commit_next
from tests.support.ground import TARGET, spec_of

pytestmark = pytest.mark.row("W-19", "W-22")


def cluster_of(server: FakeKubernetes, ground: Standby, name: str) -> SparkOperator:
    folder = ground.folder / name
    options = {"kubeconfig": server.kubeconfig(folder), "settle_seconds": 0, "outage_seconds": 0.2}
    return SparkOperator(name, folder / "state", options, str(folder), ground.open)


def manifest(folder: Path) -> str:
    """The path of one by which the job is started in the standby's region."""
    with fake_kubernetes.serving() as server:
        server.apply("orders")
        resource = server.objects["sparkapplications", "orders"]
    kept = {key: resource[key] for key in ("apiVersion", "kind", "spec")}
    path = folder / "orders.yaml"
    path.write_text(json.dumps({**kept, "metadata": {"name": "orders"}}))
    return str(path)


def standby_spec(folder: Path) -> Spec:
    return spec_of(
        spec_clusters={
            name: {"kind": "spark_operator", "kubeconfig": name} for name in ("far", "near")
        },
        source_cluster="far",
        target_cluster="near",
        mode="warm",
        cutover="never",
        waive=["target-reach"],  # the disk is in memory
        submit={"manifest": manifest(folder), "seconds_max": 3},
    )


@pytest.fixture
def near() -> Iterator[FakeKubernetes]:
    with fake_kubernetes.serving() as server:
        yield server


@pytest.fixture
def ground(tmp_path: Path, near: FakeKubernetes) -> Standby:
    """There is a standby, and the API server of its source is gone."""
    region = ExitStack()

    def lost() -> None:
        ground.job.running = False
        region.close()

    ground = Standby(tmp_path, 1, 60, at_30=lost)
    ground.job.moods, ground.job.retained = {}, 100

    def begin(driver: dict[str, Any]) -> None:
        commit_next(ground.disk.open(TARGET))

    near.on_driver = begin
    with region:
        far = region.enter_context(fake_kubernetes.serving())
        far.apply("orders")
        far.turns(2)
        ground.clusters = {
            "far": cluster_of(far, ground, "far"),
            "near": cluster_of(near, ground, "near"),
        }
        with pytest.raises(Ended):
            ground.apply(standby_spec(tmp_path))
    ground.look = lambda: None  # type: ignore[method-assign]
    ground.looks = 10**6
    return ground


def fail_over(ground: Standby, primary_is_down: bool) -> Report:
    spec = failover_spec(standby_at(TARGET, ground.adapters), primary_is_down)
    return ground.apply(spec, "failover")


@pytest.mark.parametrize("primary_is_down", [False, True])
def test_the_job_is_started_by_the_other_api_server(
    ground: Standby, near: FakeKubernetes, primary_is_down: bool
) -> None:
    """Without a word of its API server the source is fenced by its files."""
    assert fail_over(ground, primary_is_down).state == "finished"
    assert (near.applications, near.runs["orders"]) == (["orders"], 1)
    conf = near.objects["sparkapplications", "orders"]["spec"]["sparkConf"]
    assert conf["spark.stateshift.checkpoint"] == TARGET


def test_where_the_files_are_gone_as_well_somebody_has_to_say_that_it_is_down(
    ground: Standby, near: FakeKubernetes
) -> None:
    unreachable(ground)
    with pytest.raises(PlanError) as caught:
        fail_over(ground, primary_is_down=False)
    assert "--primary-is-down" in (caught.value.hint or "")
    assert near.applications == []
    assert fail_over(ground, primary_is_down=True).state == "finished"
    assert near.applications == ["orders"]
