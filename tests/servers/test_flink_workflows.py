"""What takes more than two Flinks, or others than the newest: a workflow that becomes two on two
clusters, one of them older; jobs that go to an older Flink and come back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.support import ROOT
from tests.servers.conftest import FLINKS
from tests.servers.flink_ground import KEYS, Ground, incremental
from tests.support.flink import jar, until
from tests.support.servers import CATALOG, Flink, Servers, downloads, group, start

pytestmark = pytest.mark.servers
EXAMPLES = ROOT / "configs" / "examples"


@pytest.fixture(scope="module")
def three(flinks: Servers, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    start(flinks, *FLINKS)
    return Ground(flinks, tmp_path_factory.mktemp("ground"), FLINKS)


@pytest.mark.row("IF-1", "IF-2", "IF-3", "IF-4", "IF-5", "IF-7", "IF-10", "IF-13", "IF-14", "IF-18")
def test_the_worked_case_workflow_1_becomes_2_and_3_on_two_other_clusters(three: Ground) -> None:
    """configs/examples/flink-workflows.json, with our places; workflow 3 goes to an older Flink."""
    id, folder = three.started("orders,payments"), three.folder
    text = (EXAMPLES / "flink-workflows.json").read_text("utf-8")
    arguments = {name: json.dumps(three.arguments(name)) for name in ("orders", "payments")}
    for known, own in (
        ("a4a2b6a7b9d4a5e0c3f1d2e3b4c5d6e7", id),
        ("hdfs://athens:8020", str(folder / "athens")),
        ("hdfs://chania:8020", str(folder / "chania")),
        ("hdfs://patras:8020", str(folder / "patras")),
        *(
            (f"http://flink-{name}:8081", cluster.url)
            for name, cluster in zip(("athens", "chania", "patras"), three.clusters, strict=True)
        ),
        ("jobs-1.20.jar", str(jar(three.clusters[2].lib))),
        ('"jobs.jar"', f'"{jar(three.clusters[1].lib)}"'),
        *((f'["--counters", "{name}"]', words) for name, words in arguments.items()),
    ):
        assert known in text, known
        text = text.replace(known, own)
    spec = folder / "workflows.json"
    spec.write_text(text, "utf-8")
    assert three.applied(spec)["state"] == "finished"
    taken = list((folder / "athens" / "flink" / "taken").glob("savepoint-*"))
    assert len(taken) == 1
    assert three.said("verify", taken[0], "--deep")["restartable"]
    metadata = (
        folder / "patras" / "flink" / "savepoints" / "workflow-3" / "_metadata"
    ).read_bytes()
    assert int.from_bytes(metadata[4:8], "big") == 4
    running = [
        [job["name"] for job in cluster.ask("/jobs/overview")["jobs"] if job["state"] == "RUNNING"]
        for cluster in three.clusters
    ]
    assert running == [[], ["orders"], ["payments"]]
    three.goes_on("orders", "payments")


@pytest.mark.row("IF-12", "IF-18")
@pytest.mark.slow
def test_a_job_of_an_older_flink_goes_to_the_newest_and_back(three: Ground) -> None:
    older, newest = (
        Ground(three.servers, three.folder / "older", names)
        for names in (("flink-1.20", "flink-a"), ("flink-a", "flink-1.20"))
    )
    older.folder.mkdir()
    id = older.started("orders")
    assert older.applied(older.spec(older.job("orders", id)))["state"] == "finished"
    (id,) = [
        job["jid"] for job in newest.here.ask("/jobs/overview")["jobs"] if job["state"] == "RUNNING"
    ]
    before = len(newest.written("orders"))
    until(lambda: len(newest.written("orders")) > before + 100)
    back = newest.job(
        "orders", id, new_savepoint_path=str(older.folder / "back"), source_submit=None
    )
    spec = newest.spec({key: value for key, value in back.items() if value is not None})
    workdir = older.folder / "runs" / "back"
    refused = newest.said("apply", spec, "--yes", "--workdir", workdir, code=4)
    assert "reads metadata up to version 4" in json.dumps(refused)
    assert newest.here.ask(f"/jobs/{id}")["state"] == "RUNNING", "seen before it is stopped"
    back["transform"] = [{"kind": "convert", "flink": "1.20"}]
    spec = newest.spec({key: value for key, value in back.items() if value is not None})
    assert newest.said("apply", spec, "--yes", "--workdir", workdir)["state"] == "finished"
    newest.goes_on("orders")


@pytest.fixture
def application(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    """A cluster of one job, which goes with it, and one that takes any."""
    lib = downloads.flink("2.3.0")
    words = (
        "--counters",
        "orders",
        "--keys",
        str(KEYS),
        "--output",
        str(tmp_path / "out"),
        "--checkpoint-ms",
        "300",
        "--parallelism",
        "2",
        *incremental(tmp_path),
    )
    alone = Flink("flink-app", "2.3.0", True, (str(jar(lib)), "jobs.Count", *words))
    monkeypatch.setitem(CATALOG, alone.name, alone)
    with group(tmp_path_factory.mktemp("flinks"), "flink-app", "flink-b") as servers:
        yield Ground(servers, tmp_path, ("flink-app", "flink-b"))


@pytest.mark.parametrize("mode", ["move", "warm"])
@pytest.mark.slow
def test_a_job_of_an_application_cluster_goes_to_a_session_cluster(
    application: Ground, mode: str
) -> None:
    """Its cluster goes when it has ended, with its savepoint or with its last checkpoint, and is
    asked for nothing after that.
    """
    ground = application
    (job,) = until(lambda: ground.here.ask("/jobs/overview")["jobs"])
    until(lambda: len(ground.written("orders")) > 100)
    submit = ground.submit("orders", *incremental(ground.folder))
    plain = json.loads(
        ground.spec(ground.job("orders", job["jid"], mode=mode, submit=submit)).read_text()
    )
    plain["clusters"]["old"]["application"] = True
    plain["jobs"][0].pop("source_submit")
    spec = ground.folder / "application.json"
    spec.write_text(json.dumps(plain))
    assert ground.applied(spec)["state"] == "finished"
    until(lambda: ground.servers.state("flink-app").pids["jobmanager"] is None)
    assert (ground.folder / "taken").exists() == (mode == "move")
    Ground(ground.servers, ground.folder, ("flink-b",)).goes_on("orders", twice=mode == "warm")


@pytest.mark.slow
@pytest.mark.row("IF-12", "IF-18")
@pytest.mark.parametrize("version", ["1.18.1", "2.0.2"])
def test_a_job_of_the_newest_flink_goes_to_an_older_one(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, version: str
) -> None:
    with group(
        tmp_path_factory.mktemp("flinks"), "flink-a", "flink-b", STATESHIFT_FLINK_VERSION_B=version
    ) as servers:
        ground = Ground(servers, tmp_path)
        job = ground.job("orders", ground.started("orders"), source_submit=None)
        job |= {"transform": [{"kind": "convert", "flink": version}]}
        assert (
            ground.applied(ground.spec({k: v for k, v in job.items() if v is not None}))["state"]
            == "finished"
        )
        ground.goes_on("orders")


@pytest.mark.slow
@pytest.mark.row("IF-18")
def test_a_job_is_not_stopped_for_a_flink_that_does_not_read_its_operator_state(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = tmp_path_factory.mktemp("flinks")
    with group(folder, "flink-a", "flink-b", STATESHIFT_FLINK_VERSION_B="1.15.4") as servers:
        ground = Ground(servers, tmp_path)
        id = ground.started("orders")
        job = ground.job("orders", id, source_submit=None)
        job |= {"transform": [{"kind": "convert", "flink": "1.15.4"}]}
        spec = ground.spec({key: value for key, value in job.items() if value is not None})
        refused = ground.applied(spec, code=4)
        assert "does not read its operator state" in json.dumps(refused)
        assert ground.here.ask(f"/jobs/{id}")["state"] == "RUNNING", "seen before it is stopped"
        job["waive"] = ["operator-state"]
        spec = ground.spec({key: value for key, value in job.items() if value is not None})
        refused = ground.applied(spec, code=4)
        assert "operator state, as sources have it, is in version 6" in json.dumps(refused)
