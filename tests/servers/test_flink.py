"""A Flink runs a job, stops it with a savepoint, and another goes on from there: nothing lost,
nothing doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.flink import Cluster, Refused, cluster_of, faults, lines, until
from tests.support.servers import Servers, group, named, processes

pytestmark = [pytest.mark.servers, pytest.mark.slow]
KEYS = 7


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("flink"), "flink-a") as servers:
        yield servers


@pytest.fixture
def cluster(servers: Servers) -> Cluster:
    return cluster_of(servers, "flink-a")


def counting(output: Path, *words: str) -> tuple[str, ...]:
    return ("jobs.Count", "--keys", str(KEYS), "--output", str(output), *words)


def test_the_name_of_the_kind_means_the_two_and_not_the_older_one() -> None:
    assert named("flink") == ("flink-a", "flink-b")
    assert named("flink-1.20") == ("flink-1.20",)
    assert named("hdfs") == ("hdfs-a", "hdfs-b")


def test_a_cluster_tells_its_version_and_has_eight_slots(cluster: Cluster) -> None:
    told = cluster.ask("/overview")
    assert (told["flink-version"], told["taskmanagers"], told["slots-total"]) == ("2.3.0", 1, 8)


@pytest.mark.parametrize("kind", ["string", "long", "int", "tuple"])
def test_a_job_that_is_stopped_and_started_again_loses_nothing_and_doubles_nothing(
    cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    job = cluster.run(*counting(tmp_path / "out", "--kind", kind), parallelism=2)
    until(lambda: len(lines(tmp_path / "out" / "orders")) > 50)
    savepoint = cluster.stopped(job, tmp_path / "savepoints")
    before = lines(tmp_path / "out" / "orders")
    assert faults(before, KEYS, 0, len(before)) == []
    end = len(before) + 50
    words = counting(tmp_path / "out", "--kind", kind, "--hold", str(end))
    job = cluster.run(*words, parallelism=3, savepoint=savepoint)
    until(lambda: len(lines(tmp_path / "out" / "orders")) >= end)
    cluster.cancelled(job)
    assert faults(lines(tmp_path / "out" / "orders"), KEYS, 0, end) == []


def test_a_retained_checkpoint_is_gone_on_from(cluster: Cluster, tmp_path: Path) -> None:
    retained = (
        "--checkpoint-ms",
        "300",
        "--flink.execution.checkpointing.externalized-checkpoint-retention",
        "RETAIN_ON_CANCELLATION",
        "--flink.execution.checkpointing.dir",
        (tmp_path / "kept").as_uri(),
        "--flink.state.backend.type",
        "rocksdb",
        "--flink.execution.checkpointing.incremental",
        "true",
    )
    job = cluster.run(*counting(tmp_path / "one", "--hold", "100", *retained), parallelism=2)
    until(lambda: len(lines(tmp_path / "one" / "orders")) == 100)
    cluster.checkpointed(
        job, after=cluster.ask(f"/jobs/{job}/checkpoints")["counts"]["completed"] + 1
    )
    cluster.cancelled(job)
    checkpoint = cluster.retained(job)
    assert list((tmp_path / "kept" / job / "shared").iterdir())
    later = counting(tmp_path / "two", "--hold", "160", "--flink.state.backend.type", "rocksdb")
    job = cluster.run(*later, parallelism=1, savepoint=checkpoint)
    until(lambda: len(lines(tmp_path / "two" / "orders")) >= 60)
    cluster.cancelled(job)
    assert faults(lines(tmp_path / "two" / "orders"), KEYS, 100, 160) == []


def test_a_savepoint_whose_operator_the_job_has_not_is_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = cluster.run(*counting(tmp_path / "out", "--hold", "20"))
    savepoint = cluster.stopped(job, tmp_path / "savepoints")
    with pytest.raises(Refused, match="Cannot map checkpoint/savepoint state for operator"):
        cluster.run(*counting(tmp_path / "out", "--counters", "payments"), savepoint=savepoint)


def test_a_jobmanager_that_crashed_is_started_again_where_it_was(servers: Servers) -> None:
    before = servers.exports()
    servers.kill("flink-a", "jobmanager")
    assert servers.state("flink-a").word == "crashed"
    assert servers.up("flink-a").word == "up"
    assert servers.exports() == before
    assert cluster_of(servers, "flink-a").ask("/overview")["slots-total"] == 8


@pytest.mark.slow  # downloads another Flink
def test_another_version_and_further_configuration_are_asked_for_by_environment(
    tmp_path: Path,
) -> None:
    conf = tmp_path / "conf"
    conf.write_text(
        "# more\ntaskmanager.memory.segment-size: 4kb\ntaskmanager.memory.task.heap.size: 256m\n"
    )
    asked = {"STATESHIFT_FLINK_VERSION_B": "1.20.5", "STATESHIFT_FLINK_CONF": str(conf)}
    with group(tmp_path / "root", "flink-b", **asked) as servers:
        cluster = cluster_of(servers, "flink-b")
        assert cluster.ask("/overview")["flink-version"] == "1.20.5"
        configured = {one["key"]: one["value"] for one in cluster.ask("/jobmanager/config")}
        assert configured["taskmanager.memory.segment-size"] == "4kb"
        assert Servers(servers.root).exports() == servers.exports()
        taskmanager = servers.state("flink-b").pids["taskmanager"]
        assert taskmanager is not None
        assert " -Xmx384m " in processes.command(taskmanager)
