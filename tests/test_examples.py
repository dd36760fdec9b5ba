"""The examples that need no server are carried out here; each of the others has a test that does
it, where its servers are.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stateshift.formats import uid
from stateshift.storage.local.storage import LocalStorage
from tests.support.checkpoints import Checkpoint, held, put
from tests.support.examples import FOLDER, example
from tests.support.moving import said

TESTS = Path(__file__).parent
RUN_BY = {
    "first.json": "acceptance/test_move.py",
    "move.json": "acceptance/test_move.py",
    "standby.json": "acceptance/test_failover.py",
    "warm.json": "acceptance/test_warm.py",
    "cluster-first.json": "servers/test_cluster_moves.py",
    "cluster-move.json": "servers/test_cluster_moves.py",
    "cluster-split.json": "servers/test_cluster_moves.py",
    "cluster-merge.json": "servers/test_cluster_moves.py",
    "algorithm-5.json": "servers/test_cluster_moves.py",
    "merge.json": "test_examples.py",
    "data.json": "test_examples.py",
    "delta.json": "test_examples.py",
    "payment-fraud.json": "test_examples.py",
    "workflow.json": "servers/test_examples.py",
    "command.json": "servers/test_examples.py",
    "fork.json": "servers/test_examples.py",
    "transform.json": "servers/test_examples.py",
    "infore-spark.json": "servers/test_examples.py",
    "livy.json": "servers/test_scenes.py",
    "standalone.json": "servers/test_scenes.py",
    "kafka-to-s3.json": "servers/test_scenes.py",
    "flink-workflows.json": "servers/test_flink_workflows.py",
    "flink-warm.json": "servers/test_flink_warm.py",
    "flink-union.json": "servers/test_flink_moves.py",
    "infore-flink.json": "servers/test_flink_moves.py",
    "rebalance.json": "cli/test_rebalance.py",
    "flink-sql.json": "servers/test_flink_sql.py",
    "payment-fraud.dataflow.json": "cli/test_dataflow.py",
}


def test_every_example_is_run_by_a_test() -> None:
    assert sorted(RUN_BY) == sorted(path.name for path in FOLDER.glob("*.json"))
    for name, test in RUN_BY.items():
        text = re.sub(r"RUN_BY = \{.*?\n\}", "", (TESTS / test).read_text("utf-8"), flags=re.DOTALL)
        assert f'"{name}"' in text, f"{test} does not run {name}"


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Instead of /data and /mnt/new."""
    return {'"/data/': f'"{tmp_path}/data/', '"/mnt/new/': f'"{tmp_path}/mnt/'}


def applied(spec: Path, workdir: Path) -> None:
    assert said({}, "apply", str(spec), "--yes", "--workdir", str(workdir))["state"] == "finished"


@pytest.mark.long
@pytest.mark.row("IS-16")
def test_merge_has_the_content_of_all_three_in_the_new_place(
    tmp_path: Path, places: dict[str, str]
) -> None:
    folders = {"orders": "", "orders-north": " (north)", "orders, south": " (south)"}
    images, checkpoints = {}, tmp_path / "data" / "checkpoints"
    for number, (folder, region) in enumerate(folders.items()):
        operator = f"Sum per shop{region}"
        images[uid.directory_name(operator)] = checkpoint = Checkpoint(batches=number + 2)
        checkpoint.write(
            LocalStorage(f"file://{checkpoints}/{folder}"), uid.directory_name(operator)
        )
    applied(example("merge.json", tmp_path, places), tmp_path / "run")
    target = held(LocalStorage(f"file://{tmp_path}/mnt/checkpoints/orders"))
    for directory, checkpoint in images.items():
        newest = f"offsets/{checkpoint.batches - 1}"
        assert target[f"{directory}/{newest}"] == checkpoint.files()[newest]
    left = held(LocalStorage(f"file://{checkpoints}/orders-north"))
    assert not [path for path in left if "/state/" in path], "it was not moved"


@pytest.mark.long
def test_data_takes_what_the_job_reads_along_and_leaves_what_is_there(
    tmp_path: Path, places: dict[str, str]
) -> None:
    archive, new = tmp_path / "data" / "archive", tmp_path / "mnt" / "archive"
    Checkpoint(inputs=f"file://{archive}/in").write(LocalStorage(f"file://{archive}/checkpoint"))
    for number in range(3):
        put(LocalStorage(f"file://{archive}/in"), f"f{number}.json", b"{}\n")
    for out in (archive / "out", new / "out"):
        put(LocalStorage(f"file://{out}"), "part-0", b"a result")
    applied(example("data.json", tmp_path, places), tmp_path / "run")
    assert held(LocalStorage(f"file://{new}/in")) == held(LocalStorage(f"file://{archive}/in"))
    log = (new / "checkpoint" / "sources" / "0" / "2").read_text()
    assert f"{new}/in/f2.json" in log
    assert str(archive) not in log


@pytest.mark.long
@pytest.mark.row("W-4")
def test_delta_tells_what_its_table_has_and_takes_a_strangers_folder_along(
    tmp_path: Path, places: dict[str, str]
) -> None:
    lake, checkpoint = tmp_path / "data" / "lake", Checkpoint(planned=True)
    orders = LocalStorage(f"file://{lake}/checkpoints/orders")
    checkpoint.write(orders)
    put(orders, "lineage/events.json", b"{}")
    whole = Checkpoint(batches=4).files()
    for path in ("state/0/0/4.delta", "state/0/1/4.delta"):  # of the planned batch
        put(orders, path, whole[path])
    for batch in range(4):
        txn = b'{"txn":{"appId":"%s","version":%d}}' % (checkpoint.query.encode(), batch)
        put(LocalStorage(f"file://{lake}/orders"), f"_delta_log/{batch + 7:020d}.json", txn)
    spec = example("delta.json", tmp_path, places)
    planned = said({}, "plan", str(spec))
    told = " ".join(finding["message"] for finding in planned["findings"])
    assert "up to 3 (version 10)" in told
    assert "batch 3 was planned and not committed; the sink (delta) has it, and a restart" in told
    applied(spec, tmp_path / "run")
    target = held(LocalStorage(f"file://{tmp_path}/mnt/checkpoints/orders"))
    assert target["lineage/events.json"] == b"{}"


@pytest.mark.long
@pytest.mark.row("IS-8", "F-9")
def test_jobs_that_feed_each_other_move_as_one(tmp_path: Path, places: dict[str, str]) -> None:
    checkpoints = tmp_path / "data" / "checkpoints"
    for name in ("ingest", "features", "alerting"):
        Checkpoint().write(LocalStorage(f"file://{checkpoints}/{name}"))
    example("payment-fraud.dataflow.json", tmp_path)
    spec = example("payment-fraud.json", tmp_path, places)
    planned = said({}, "plan", str(spec))
    assert planned["waves"] == [["ingest", "features", "alerting"]]
    (cut,) = planned["cuts"]
    assert ["replicate", "user features"] in cut["joints"]
    assert cut["between"] == ["join features", "fraud model"], (
        "the job that scores stays where it is"
    )
    applied(spec, tmp_path / "run")
    for name in ("ingest", "features", "alerting"):
        brought = held(LocalStorage(f"file://{tmp_path}/mnt/checkpoints/{name}"))
        assert len(brought) > 9 and brought.items() <= Checkpoint().files().items()
