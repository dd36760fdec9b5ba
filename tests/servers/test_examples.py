"""The examples that move checkpoints between real HDFS and S3, of jobs that do not run, or that a
stand-in of a cluster runs: each is taken as it is, but for the hosts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.formats import uid
from stateshift.storage.opening import open_storage
from stateshift.storage.protocol import Storage
from tests.acceptance.support import stateshift
from tests.look.golden_images import NEWEST, contents, write
from tests.support import s3
from tests.support.checkpoints import Checkpoint, held
from tests.support.examples import example
from tests.support.servers import Servers, group

pytestmark = pytest.mark.servers
SHOWN_ON = "Spark, HDFS"
Said = Callable[..., Any]
BUCKETS = ("production", "test", "old", "new", "chania")

# How an operator's own program may speak for its cluster; a job that runs commits a batch.
PROGRAM = f"""#!{sys.executable}
import os, pathlib, sys
from stateshift.storage.opening import open_storage

verb, name = sys.argv[1], os.environ["STATESHIFT_TAG"] or os.environ["STATESHIFT_JOB"] or "none"
job = pathlib.Path(__file__).with_name(name)
if verb == "find":
    print(job.read_text() if job.exists() else "absent")
elif verb == "submit":
    place = open_storage(os.environ["STATESHIFT_CHECKPOINT"])
    latest = max(int(info.path.split("/")[1]) for info in place.list() if info.path.startswith("commits/"))
    for name in ("offsets", "commits"):
        content = place.read(f"{{name}}/{{latest}}")
        place.write(f"{{name}}/{{latest + 1}}", lambda: iter((content,)))
    job.write_text("running")
    print(os.environ["STATESHIFT_OPTIONS"])
elif verb == "stop":
    job.write_text("finished")
elif verb == "version":
    print("4.3.0")
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("examples"), "hdfs-a", "s3-moto") as servers:
        for bucket in BUCKETS:
            with s3.exported(servers, s3.MOTO):
                s3.make(servers.exports()[s3.MOTO], bucket)
        yield servers


@pytest.fixture(scope="module")
def another_hdfs(servers: Servers) -> Iterator[None]:
    servers.up("hdfs-b")
    yield
    servers.down("hdfs-b")


@pytest.fixture
def exports(servers: Servers) -> Iterator[dict[str, str]]:
    with s3.exported(servers, s3.MOTO) as exports:
        yield exports


def put(location: str, checkpoint: Checkpoint, prefix: str = "") -> Storage:
    storage = open_storage(location)
    checkpoint.write(storage, prefix)
    return storage


@pytest.fixture
def said(exports: dict[str, str], tmp_path: Path) -> Said:
    """What the command line answers, in the test's folder."""
    return lambda *words: stateshift(*words, "--json", cwd=tmp_path, env=exports).json


def apply(said: Said, spec: Path) -> None:
    assert said("apply", spec, "--yes", "--workdir", spec.parent / "run")["state"] == "finished"


@pytest.mark.slow
@pytest.mark.usefixtures("another_hdfs")
@pytest.mark.row("IS-2", "IS-4", "IS-16")
def test_infore_s_dialect_merges_three_and_takes_them_to_another_hdfs(
    said: Said, tmp_path: Path
) -> None:
    here, there = "hdfs://hdfs-a/checkpoints", "hdfs://hdfs-b/checkpoints"
    for name in ("traffic", "buses", "trams", "weather"):
        put(f"{here}/{name}", Checkpoint(), uid.directory_name(name))
    weather = held(open_storage(f"{here}/weather"))
    apply(
        said,
        example(
            "infore-spark.json",
            tmp_path,
            {
                "hdfs://athens:8020": "hdfs://hdfs-a",
                "hdfs://chania:8020": "hdfs://hdfs-b",
            },
        ),
    )
    moved = held(open_storage(f"{there}/traffic"))
    for name in ("traffic", "buses", "trams"):
        assert moved[f"{uid.directory_name(name)}/commits/2"] == Checkpoint().files()["commits/2"]
    assert held(open_storage(f"{here}/weather")) == weather


@pytest.mark.row("IS-5", "IS-8")
def test_a_workflow_goes_from_hdfs_to_s3_under_its_names(said: Said, tmp_path: Path) -> None:
    here = open_storage("hdfs://hdfs-a/workflows/studio")
    hashed = uid.PROFILES["java-signed"]
    names = ("Aggregate (5)", "Join [a/b] (orders & payments)")
    directories = [
        uid.directory_name(name, hashed.p, hashed.m, hashed.offset, hashed.signed) for name in names
    ]
    for number, directory in enumerate([*directories, "9123223_mytest"]):
        Checkpoint(keys=number + 1).write(here, directory)
    apply(said, example("workflow.json", tmp_path, {"hdfs://athens:8020": "hdfs://hdfs-a"}))
    index = json.loads(
        open_storage("s3a://chania/workflows/studio").read("_stateshift/operators.json")
    )
    assert index["operators"] == {
        **dict(zip(names, directories, strict=True)),
        "Union": "9123223_mytest",
    }
    assert said("verify", "s3a://chania/workflows/studio", "--deep")["restartable"]


@pytest.mark.slow
def test_state_goes_back_is_spread_and_converted(said: Said, tmp_path: Path) -> None:
    here, there = "hdfs://hdfs-a/checkpoints/orders", "hdfs://hdfs-a/checkpoints/orders-64"
    write(open_storage(here), contents(NEWEST["custom"]))
    places = {"hdfs://namenode:8020": "hdfs://hdfs-a", '"batch": 1041': '"batch": 1'}
    apply(said, example("transform.json", tmp_path, places))
    assert said("verify", there, "--deep")["restartable"]
    told = said("inspect", there)
    assert told["epoch"] == 1
    assert [(one["provider"], one["shards"]) for one in told["operators"]] == [("rocksdb", 64)]


@pytest.mark.slow
def test_a_fork_for_a_test_cluster_leaves_the_job_alone(said: Said, tmp_path: Path) -> None:
    here, there = "s3a://production/checkpoints/orders", "s3a://test/checkpoints/orders"
    before = held(put(here, Checkpoint(planned=True)))
    apply(said, example("fork.json", tmp_path))
    assert held(open_storage(here)) == before
    copied = held(open_storage(there))
    assert copied["metadata"] != before["metadata"]
    assert copied["commits/2"] == before["commits/2"]
    assert "offsets/3" not in copied
    assert said("diff", here, there)["equal"]


@pytest.mark.slow
@pytest.mark.row("IS-19")
def test_commands_of_one_s_own_find_stop_and_start_the_job(said: Said, tmp_path: Path) -> None:
    put("s3a://old/checkpoints/orders", Checkpoint())
    program = tmp_path / "ci" / "spark"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (tmp_path / "ci" / "orders").write_text("running")  # as a person has started it
    apply(said, example("command.json", tmp_path))
    assert (tmp_path / "ci" / "orders").read_text() == "finished"
    assert [path.read_text() for path in (tmp_path / "ci").glob("20*")] == ["running"]
    assert "commits/3" in held(open_storage("s3a://new/checkpoints/orders"))
