"""A real YARN in a Kerberos realm runs the demo's job: whoever holds a ticket moves it and ends it.
Without one, nothing is stopped, and what is under way waits for the next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import JobState
from stateshift.clusters.yarn.cluster import Yarn as YarnCluster
from stateshift.specification.model import ClusterSpec
from tests.servers.test_yarn import Ground, cluster_options
from tests.support.moving import killed_at
from tests.support.servers import Place, Servers, group, kerberos

pytestmark = [pytest.mark.servers, pytest.mark.spark]
SHOWN_ON = "Spark, YARN with Kerberos"
NAME = "yarn-kerberos"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("yarn"), NAME) as servers:
        yield servers


@dataclass(frozen=True)
class Secured(Ground):
    """Containers know the realm, and have tokens in place of tickets."""

    @property
    def options(self) -> dict[str, Any]:
        options = cluster_options(self.servers, self.folder, "STATESHIFT_YARN_KERBEROS")
        java = kerberos.client(self.place, "us")["JAVA_TOOL_OPTIONS"]
        realm = {
            "spark.yarn.appMasterEnv.JAVA_TOOL_OPTIONS": java,
            "spark.executorEnv.JAVA_TOOL_OPTIONS": java,
        }
        return {**options, "auth": "kerberos", "conf": {**options["conf"], **realm}}

    @property
    def place(self) -> Place:
        return self.servers.place(NAME)

    @property
    def cluster(self) -> YarnCluster:
        cluster = open_cluster(ClusterSpec("yarn", "yarn", self.options), str(self.folder))
        assert isinstance(cluster, YarnCluster)
        return cluster

    def alive(self) -> list[dict[str, Any]]:
        return [{"id": each.id, "state": each.state} for each in self.cluster.calls.alive()]


@pytest.fixture
def ground(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    made = Secured(servers, tmp_path)
    packages = str(kerberos.packages())
    monkeypatch.setattr(sys, "path", [*sys.path, packages])
    monkeypatch.setenv("PYTHONPATH", packages)
    for name, value in kerberos.client(made.place, "us").items():
        monkeypatch.setenv(name, value)
    kerberos.kinit(made.place, "us")
    yield made
    kerberos.kinit(made.place, "us")
    for application in made.cluster.calls.alive():
        made.cluster.calls.kill(application.id)


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_a_job_moves_by_tickets_and_waits_for_one_that_is_lost(ground: Secured) -> None:
    ground.started()
    there, workdir = ground.spec("there", "a", "b"), ground.folder / "runs" / "there"
    kerberos.kdestroy(ground.place, "us")
    refused = ground.said("apply", there, "--yes", "--workdir", ground.folder / "none", code=7)
    assert "HTTP 401" in refused["message"] and "klist" in refused["hint"], refused
    kerberos.kinit(ground.place, "us")
    assert [app["state"] for app in ground.alive()] == ["RUNNING"]
    killed_at("halt/stop", ("apply", there, "--yes", "--workdir", str(workdir)), workdir, {})
    kerberos.kdestroy(ground.place, "us")
    stuck = ground.said("resume", workdir, code=7)
    assert "HTTP 401" in stuck["message"] and "klist" in stuck["hint"], stuck
    kerberos.kinit(ground.place, "us")
    assert ground.said("resume", workdir)["state"] == "finished"
    assert [app["state"] for app in ground.alive()] == ["RUNNING"]
    ground.finished()


@pytest.mark.slow
@pytest.mark.row("W-19")
def test_a_start_that_fails_leaves_the_old_job_running(ground: Secured) -> None:
    """A NodeManager with Kerberos and without Hadoop's native library, as here, gives no log (HTTP
    500): what YARN itself keeps of it is shown.
    """
    ground.started()
    bad = ground.folder / "bad.py"
    bad.write_text("raise SystemExit('not today')\n")
    submit = {"application": str(bad), "conf": {"spark.yarn.maxAppAttempts": 1}}
    failing, workdir = ground.spec("bad", "a", "b", submit=submit), ground.folder / "runs" / "bad"
    told = ground.said("apply", failing, "--yes", "--workdir", workdir, code=7)
    assert (
        "demo failed" in told["message"] and "User application exited with 1" in told["message"]
    ), told
    assert [job["state"] for job in told["report"]["jobs"]] == ["rolled-back"]
    (app,) = ground.cluster.calls.alive()
    assert app.user == "us" and app.job_state is JobState.RUNNING
    ground.finished()
