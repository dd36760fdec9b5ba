"""A checkpoint goes from one real HDFS to another by the command line; a fail-over in the middle costs nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.storage.hdfs.opening import open_hdfs
from tests.look.golden_images import NEWEST, contents, write
from tests.support.servers import Servers, group, hadoop

pytestmark = pytest.mark.servers

CASES = ["window-hdfs", "window-rocksdb"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("hdfs"), "hdfs-a", "hdfs-b") as servers:
        yield servers


@pytest.fixture(params=["web", "native"])
def environment(request: pytest.FixtureRequest, servers: Servers) -> dict[str, str]:
    conf = servers.exports()["HADOOP_CONF_DIR"]
    return {"HADOOP_CONF_DIR": conf, "STATESHIFT_HDFS": str(request.param), "HDFSCLI_CONFIG": os.devnull}


def said(environment: dict[str, str], *words: str, code: int = 0) -> Any:
    """What the command line answers, as JSON."""
    run = subprocess.run(
        [sys.executable, "-m", "stateshift", *words, "--json"],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == code, run.stdout[-2000:] + run.stderr[-2000:]
    return json.loads(run.stdout)


def spec(tmp_path: Path, source: str, target: str, **more: Any) -> str:
    job = {"name": "orders", "checkpoint_location": source, "remote_location": target, "waive": ["paths-stay"], **more}
    (tmp_path / "spec.json").write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
    return str(tmp_path / "spec.json")


@pytest.mark.row("IS-16")
@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_moves_from_one_hdfs_to_the_other_and_back(
    environment: dict[str, str], tmp_path: Path, case: str
) -> None:
    way = environment["STATESHIFT_HDFS"]
    source, target = f"hdfs://hdfs-a/ck/{case} {way}", f"hdfs://hdfs-b/ck/{case} {way}"
    storage = open_hdfs(source, environment)
    write(storage, contents(NEWEST[case]))
    before = {info.path: storage.read(info.path) for info in storage.list()}
    workdir = str(tmp_path / "run")
    done = said(environment, "apply", spec(tmp_path, source, target), "--yes", "--workdir", workdir)
    assert done["state"] == "finished"
    assert said(environment, "verify", target, "--deep")["restartable"]
    assert said(environment, "diff", source, target)["equal"]
    said(environment, "verify", workdir)
    assert said(environment, "rollback", workdir, "--yes")["state"] == "rolled-back"
    assert {info.path: storage.read(info.path) for info in storage.list()} == before
    assert list(open_hdfs(target, environment).list()) == []


def test_a_fail_over_while_files_are_copied_is_gone_through(
    environment: dict[str, str], servers: Servers, tmp_path: Path
) -> None:
    way = environment["STATESHIFT_HDFS"]
    source, target = f"hdfs://hdfs-a/over-{way}", f"hdfs://hdfs-b/over-{way}"
    write(open_hdfs(source, environment), contents(NEWEST["window-hdfs"]))
    first, second = ("nn1", "nn2") if way == "web" else ("nn2", "nn1")
    over = threading.Thread(
        target=hadoop.run, args=(servers.root / "hadoop-conf", "haadmin", "-ns", "hdfs-b", "-failover", first, second)
    )
    # Slow enough for the fail-over, which takes a few seconds, to fall among the copies.
    job = spec(tmp_path, source, target)
    plain = json.loads(Path(job).read_text())
    Path(job).write_text(json.dumps({**plain, "throttle": {"operations_per_second": 8}}))
    over.start()
    done = said(environment, "apply", job, "--yes", "--workdir", str(tmp_path / "run"))
    over.join()
    assert done["state"] == "finished"
    assert said(environment, "diff", source, target)["equal"]
