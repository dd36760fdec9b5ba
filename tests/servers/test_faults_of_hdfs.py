"""What goes wrong between us and a real HDFS while a checkpoint is moved by the command line: the
right exit code, the place in the message, nothing visible on the target, and a run that goes on
once the fault is mended.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.errors import StorageError, TransientStorageError
from stateshift.storage.hdfs.storage import open_hdfs
from tests.support.moving import has_begun, put, said, spec
from tests.support.servers import CATALOG, Place, Servers, hadoop

pytestmark = [pytest.mark.servers, pytest.mark.slow]
SECONDS_MAX = 120.0


@pytest.fixture(params=["web", "native"])
def environment(request: pytest.FixtureRequest, single: Servers) -> dict[str, str]:
    return reached(single, str(request.param))


def reached(servers: Servers, way: str) -> dict[str, str]:
    conf = servers.exports()["HADOOP_CONF_DIR"]
    return {"HADOOP_CONF_DIR": conf, "STATESHIFT_HDFS": way, "HDFSCLI_CONFIG": os.devnull}


def places(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """A checkpoint on HDFS, and a place on the same one where it is to go."""
    way = environment["STATESHIFT_HDFS"]
    source = f"hdfs://hdfs-a/{name}-{way}/old"
    put(open_hdfs(source, environment), "window-hdfs")
    return source, f"hdfs://hdfs-a/{name}-{way}/new"


def failed(
    environment: Mapping[str, str], tmp_path: Path, source: str, target: str, **job: Any
) -> str:
    """What a move says that ends with 6; `job` stands beside its places."""
    path = Path(spec(tmp_path, source, target))
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({**whole, "jobs": [{**whole["jobs"][0], **job}]}))
    told = said(
        environment, "apply", str(path), "--yes", "--workdir", str(tmp_path / "run"), code=6
    )
    return json.dumps(told)


def goes_on(environment: Mapping[str, str], tmp_path: Path, source: str, target: str) -> None:
    assert said(environment, "resume", str(tmp_path / "run"))["state"] == "finished"
    assert said(environment, "diff", source, target)["equal"]


# ---- who is asked


@pytest.mark.parametrize("way", ["web", "native"])
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid:8020"])
def test_a_wrong_host_or_port_is_told_with_its_name(tmp_path: Path, way: str, host: str) -> None:
    environment = {
        "HADOOP_CONF_DIR": str(tmp_path),
        "STATESHIFT_HDFS": way,
        "HDFSCLI_CONFIG": os.devnull,
    }
    began = time.monotonic()
    with pytest.raises(TransientStorageError) as raised:
        list(open_hdfs(f"hdfs://{host}/orders", environment).list())
    assert host in raised.value.fact
    assert "host and port" in (raised.value.hint or "") or "check the host" in (
        raised.value.hint or ""
    )
    assert time.monotonic() - began < 15.0


def test_a_port_that_is_another_services_is_told(single: Servers, tmp_path: Path) -> None:
    """The NameNode's RPC port, asked over HTTP; its HTTP port, asked by RPC."""
    ports = single.place("hdfs-a").ports
    environment = {"HADOOP_CONF_DIR": str(tmp_path), "HDFSCLI_CONFIG": os.devnull}
    for way, location in (
        ("web", f"webhdfs://127.0.0.1:{ports['nn1-rpc']}/orders"),
        ("native", f"hdfs://127.0.0.1:{ports['nn1-http']}/orders"),
    ):
        with pytest.raises(StorageError) as raised:
            open_hdfs(location, {**environment, "STATESHIFT_HDFS": way}).stat("metadata")
        assert location in raised.value.fact
        assert raised.value.hint


# ---- what is refused


@pytest.mark.slow
def test_a_namenode_in_safe_mode_ends_a_move_that_is_begun_again_afterwards(
    environment: dict[str, str], single: Servers, tmp_path: Path
) -> None:
    source, target = places(environment, "safe")
    with in_safe_mode(single):
        told = failed(environment, tmp_path, source, target)
    assert "SafeModeException" in told
    assert "hdfs dfsadmin -safemode get" in told
    assert "hdfs://hdfs-a/safe" in told
    assert list(open_hdfs(target, environment).list()) == []
    goes_on(environment, tmp_path, source, target)


@pytest.mark.slow
@pytest.mark.parametrize("quota", ["-setSpaceQuota", "-setQuota"])
def test_a_quota_that_is_used_up_in_the_middle_leaves_a_run_to_go_on_with(
    single: Servers, tmp_path: Path, quota: str
) -> None:
    environment, conf = reached(single, "native"), single.root / "hadoop-conf"
    source, _ = places(environment, f"quota{quota}")
    above = f"/small{quota}"
    target = f"hdfs://hdfs-a{above}/orders"
    open_hdfs(f"hdfs://hdfs-a{above}", environment).write("here", lambda: iter((b"x",)))
    # Of names a handful; of space what one block may take, and a file's worth.
    hadoop.run(
        conf,
        "dfsadmin",
        "-fs",
        "hdfs://hdfs-a",
        quota,
        "8" if quota == "-setQuota" else "130m",
        above,
    )
    told = failed(environment, tmp_path, source, target, waive=["paths-stay", "space"])
    assert "quota" in told
    assert f"hdfs dfs -count -q hdfs://hdfs-a{above}" in told
    assert not {"metadata", "commits/5"} & {
        file.path for file in open_hdfs(target, environment).list()
    }
    clear = "-clrQuota" if quota == "-setQuota" else "-clrSpaceQuota"
    hadoop.run(conf, "dfsadmin", "-fs", "hdfs://hdfs-a", clear, above)
    goes_on(environment, tmp_path, source, target)


# ---- what dies


@pytest.mark.slow
def test_a_datanode_that_dies_while_files_are_copied_costs_a_resume(
    environment: dict[str, str], single: Servers, tmp_path: Path
) -> None:
    source, target = places(environment, "dies")
    job, workdir = (
        spec(tmp_path, source, target, throttle={"operations_per_second": 8}),
        tmp_path / "run",
    )
    words = [
        sys.executable,
        "-m",
        "stateshift",
        "apply",
        job,
        "--yes",
        "--workdir",
        str(workdir),
        "--json",
    ]
    run = subprocess.Popen(
        words, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        until = time.monotonic() + SECONDS_MAX
        while not has_begun(workdir, "copy/"):
            assert time.monotonic() < until and run.poll() is None
            time.sleep(0.01)
        single.kill("hdfs-a", "datanode")
        told, _ = run.communicate(timeout=SECONDS_MAX * 3)
    finally:
        run.kill()
        single.up("hdfs-a")
    assert run.returncode == 6, told
    assert "hdfs://hdfs-a/dies" in told.decode()
    assert not {"metadata", "commits/5"} & {
        file.path for file in open_hdfs(target, environment).list()
    }
    goes_on(environment, tmp_path, source, target)


@pytest.mark.slow
def test_a_file_system_without_space_is_told_as_that(
    environment: dict[str, str], single: Servers, tmp_path: Path
) -> None:
    source, target = places(environment, "full")
    with without_space(single, tmp_path):
        told = failed(environment, tmp_path, source, target, waive=["paths-stay", "space"])
    assert "hdfs dfsadmin -report" in told
    assert "hdfs://hdfs-a/full" in told
    assert not list(open_hdfs(target, environment).list())
    assert (
        said(
            environment,
            "apply",
            str(tmp_path / "spec.json"),
            "--yes",
            "--workdir",
            str(tmp_path / "again"),
        )["state"]
        == "finished"
    )


@contextmanager
def in_safe_mode(servers: Servers) -> Iterator[None]:
    conf = servers.root / "hadoop-conf"
    hadoop.run(conf, "dfsadmin", "-fs", "hdfs://hdfs-a", "-safemode", "enter")
    try:
        yield
    finally:
        hadoop.run(conf, "dfsadmin", "-fs", "hdfs://hdfs-a", "-safemode", "leave")


@contextmanager
def without_space(servers: Servers, tmp_path: Path) -> Iterator[None]:
    """The DataNode keeps all of its disk for others, as one does whose disk is full."""
    place, conf = servers.place("hdfs-a"), tmp_path / "conf"
    role = next(
        r for stage in CATALOG["hdfs-a"].stages(place) for r in stage.roles if r.name == "datanode"
    )
    shutil.copytree(place.folder / "conf", conf)
    site = (conf / "hdfs-site.xml").read_text()
    reserved = f"<property><name>dfs.datanode.du.reserved</name><value>{1 << 60}</value></property></configuration>"
    (conf / "hdfs-site.xml").write_text(site.replace("</configuration>", reserved))
    full = tuple(word.replace(str(place.folder / "conf"), str(conf)) for word in role.command)
    servers.kill("hdfs-a", "datanode")
    try:
        place.start(replace(role, command=full, env={"HADOOP_CONF_DIR": str(conf)}))
        place.wait(role)
        known_to_be_full(place)
        yield
    finally:
        servers.kill("hdfs-a", "datanode")
        servers.up("hdfs-a")


def known_to_be_full(place: Place) -> None:
    """The NameNode goes by its last heartbeat."""
    until = time.monotonic() + SECONDS_MAX
    while bean(place)["Free"] > 0:
        assert time.monotonic() < until
        time.sleep(0.2)


def bean(place: Place) -> Any:
    url = f"http://127.0.0.1:{place.ports['nn1-http']}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())["beans"][0]
