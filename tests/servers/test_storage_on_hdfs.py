"""The storage contract on a real HDFS, over HTTP and natively; and what HDFS alone can do to a
storage.
"""

from __future__ import annotations

import gc
import json
import os
import time
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.errors import StorageError, TransientStorageError
from stateshift.step import KeepOwners
from stateshift.storage.hdfs.conf import read_conf
from stateshift.storage.hdfs.storage import open_hdfs
from stateshift.storage.protocol import CHUNK, Storage
from stateshift.survey import Owned
from tests.contracts import test_storage_contract as contract
from tests.contracts.members import Reopen
from tests.support.ground import Ground
from tests.support.servers import Servers, hadoop

pytestmark = [pytest.mark.servers, pytest.mark.slow]

# Every promise of the protocol; the fixtures below decide whose.
OF_LOCAL_DISKS = ("test_a_big_file_is_copied_in_bounded_memory",)
PROMISES = {name: test for name, test in vars(contract).items() if name.startswith("test_")}
globals().update({name: test for name, test in PROMISES.items() if name not in OF_LOCAL_DISKS})
storage = contract.storage

# A NameNode takes no colon in a name.
NAMES = [name for name in contract.NAMES if ":" not in name]


def on(servers: Servers, name: str, way: str, place: str, **more: str) -> Storage:
    conf = servers.exports()["HADOOP_CONF_DIR"]
    environment = {
        "HADOOP_CONF_DIR": conf,
        "STATESHIFT_HDFS": way,
        "HDFSCLI_CONFIG": os.devnull,
        **more,
    }
    return open_hdfs(f"hdfs://{name}/{place}", environment)


@pytest.fixture(params=["web", "native"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# The default run moves jobs and checkpoints natively, which takes all of these promises for
# granted.
@pytest.fixture(params=["web", pytest.param("native", marks=pytest.mark.slow)])
def reopen(request: pytest.FixtureRequest, single: Servers) -> Reopen:
    place = f"{uuid.uuid4().hex}/a b/place%20#?"
    return lambda: on(single, "hdfs-a", str(request.param), place)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_literally(storage: Storage, name: str) -> None:
    contract.test_names_are_taken_literally(storage, name)


def test_names_that_differ_only_in_special_characters_are_different_files(storage: Storage) -> None:
    for name in NAMES:
        storage.write(f"d/{name}", lambda name=name: iter([name.encode()]))
    assert {info.path: storage.read(info.path) for info in storage.list()} == {
        f"d/{n}": n.encode() for n in NAMES
    }


@pytest.mark.parametrize("name", ["a:b", "d/e:f/g"])
def test_a_colon_in_a_name_is_refused_by_the_namenode_and_told(storage: Storage, name: str) -> None:
    with pytest.raises(StorageError, match="HDFS takes no such name") as raised:
        storage.write(name, lambda: iter([b"x"]))
    assert ":" in (raised.value.hint or "")


def test_many_files_in_one_directory_are_all_listed(storage: Storage) -> None:
    """More than a NameNode tells at once (dfs.ls.limit is 1,000)."""
    names = {f"many/{number:04}" for number in range(1100)}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: storage.create(name, b""), names))
    assert {info.path for info in storage.list()} == names


def test_what_is_written_one_way_is_read_the_other(single: Servers) -> None:
    web, native = (on(single, "hdfs-a", way, "both") for way in ("web", "native"))
    content = bytes(range(256)) * (3 * CHUNK // 256) + b"end"
    web.write("by web", lambda: iter([content]), modified=1234567890.5)
    native.write("natively", lambda: iter([content]), modified=1234567890.5)
    for storage in (web, native):
        assert {(i.path, i.size, i.modified) for i in storage.list()} == {
            ("by web", len(content), 1234567890.5),
            ("natively", len(content), 1234567890.5),
        }
        assert b"".join(storage.chunks("by web")) == b"".join(storage.chunks("natively")) == content


def test_somebody_else_may_not(single: Servers, way: str) -> None:
    on(single, "hdfs-a", way, f"mine-{way}").write("a", lambda: iter([b"x"]))
    theirs = on(single, "somebody-else@hdfs-a", way, f"mine-{way}")
    assert theirs.read("a") == b"x"
    with pytest.raises(StorageError, match="no permission on") as raised:
        theirs.write("b", lambda: iter([b"x"]))
    assert not isinstance(raised.value, TransientStorageError)
    assert "getfacl" in (raised.value.hint or "")
    assert theirs.writable() is theirs.writable("deep/down") is False, "and says so before"
    assert on(single, "hdfs-a", way, f"mine-{way}").writable("deep/down") is True


def test_who_asks_natively_is_answered_as_that_user(single: Servers) -> None:
    ours = on(single, "hdfs-a", "native", "answered")
    ours.write("a", lambda: iter([b"x"]))
    assert ours.writable() is True
    assert (
        on(single, "hdfs-a", "native", "answered", HADOOP_USER_NAME="somebody-else").writable()
        is False
    )


def test_the_room_of_an_hdfs_is_what_its_datanodes_and_the_quotas_above_leave(
    single: Servers, way: str
) -> None:
    storage, conf = on(single, "hdfs-a", way, f"room-{way}/deep"), single.root / "hadoop-conf"
    free = storage.room()
    assert (free.limit, free.copies, free.files_free) == ("its DataNodes", 1, None)
    assert (free.bytes_free or 0) > 1 << 20
    on(single, "hdfs-a", way, f"room-{way}").write("a", lambda: iter([b"x" * 100]))
    for quota in (["-setSpaceQuota", "10m"], ["-setQuota", "7"]):
        hadoop.run(conf, "dfsadmin", "-fs", "hdfs://hdfs-a", *quota, f"/room-{way}")
    left = storage.room()
    assert (left.bytes_free, left.limit) == (
        10 * 1024 * 1024 - 100,
        f"the space quota of /room-{way}",
    )
    assert (left.files_free, left.files_limit) == (5, f"the quota of names of /room-{way}")
    assert left.shared == free.shared


def test_without_http_a_native_client_is_told_nothing_and_says_so(
    single: Servers, tmp_path: Path
) -> None:
    """The NameNode answers over RPC, and where it is said to answer over HTTP nobody does."""
    for name in ("core-site.xml", "hdfs-site.xml"):
        text = (single.root / "hadoop-conf" / name).read_text()
        web = single.exports()["STATESHIFT_HDFS_A_WEB"].removeprefix("http://")
        (tmp_path / name).write_text(text.replace(web, "127.0.0.1:1"))
    storage = on(single, "hdfs-a", "native", "mute", HADOOP_CONF_DIR=str(tmp_path))
    assert storage.writable() is None
    assert storage.room().bytes_free is None
    storage.write("a", lambda: iter([b"x"]))


def test_a_full_quota_is_told_as_that_and_leaves_nothing(single: Servers, way: str) -> None:
    storage, conf = on(single, "hdfs-a", way, f"small-{way}"), single.root / "hadoop-conf"
    storage.write("a", lambda: iter([b"x"]))
    hadoop.run(conf, "dfsadmin", "-fs", "hdfs://hdfs-a", "-setSpaceQuota", "1k", f"/small-{way}")
    with pytest.raises(StorageError, match="quota is used up") as raised:
        storage.write("b", lambda: iter([b"y" * 4096]))
    assert "count -q" in (raised.value.hint or "")
    assert [info.path for info in storage.list()] == ["a"]


def test_a_namenode_in_safe_mode_may_let_us_in_a_moment(single: Servers, way: str) -> None:
    storage, conf = on(single, "hdfs-a", way, f"safe-{way}"), single.root / "hadoop-conf"
    storage.write("a", lambda: iter([b"x"]))
    hadoop.run(conf, "dfsadmin", "-fs", "hdfs://hdfs-a", "-safemode", "enter")
    try:
        assert storage.read("a") == b"x"
        with pytest.raises(TransientStorageError, match="SafeModeException") as raised:
            storage.write("b", lambda: iter([b"y"]))
        assert "safemode" in (raised.value.hint or "")
    finally:
        hadoop.run(conf, "dfsadmin", "-fs", "hdfs://hdfs-a", "-safemode", "leave")
    storage.write("b", lambda: iter([b"y"]))


def test_a_fail_over_in_the_middle_of_a_write_costs_nothing(pair: Servers, way: str) -> None:
    storage, conf = on(pair, "hdfs-b", way, f"over-{way}"), pair.root / "hadoop-conf"
    storage.write("before", lambda: iter([b"x"]))

    def content() -> Iterator[bytes]:
        yield b"1" * CHUNK
        hadoop.fail_over(conf, "hdfs-b")
        yield b"2" * CHUNK

    assert storage.write("during", content) == 2 * CHUNK
    storage.create("after", b"y")
    assert b"".join(storage.chunks("during")) == b"1" * CHUNK + b"2" * CHUNK
    assert sorted(info.path for info in storage.list()) == ["after", "before", "during"]


def test_half_a_file_is_not_completed_when_it_is_forgotten(single: Servers) -> None:
    """The native client's own file object completes it when Python collects it; by then HDFS may
    be gone for good.
    """
    import hdfs_native

    storage = on(single, "hdfs-a", "native", "half")
    with pytest.raises(contract.ContentFailed):
        storage.write("a", contract.failing(b"x" * CHUNK))
    held = [each for each in gc.get_objects() if isinstance(each, hdfs_native.FileWriter)]
    assert held == []
    assert list(storage.list()) == []


def test_owners_and_permissions_go_with_a_checkpoint(single: Servers, way: str) -> None:
    """Given away by the superuser; a checkpoint's directory that only its job may look into is
    one at the target.
    """
    source, target = (
        on(single, "hdfs-a", way, f"theirs-{way}"),
        on(single, "hdfs-a", way, f"ours-{way}"),
    )
    for storage in (source, target):
        storage.write("commits/0", lambda: iter([b"v1"]))
    source.own(Owned("commits/0", "etl", "streams", 0o640))
    source.own(Owned("", "etl", "streams", 0o1770))
    step = KeepOwners(
        "publish/owners-0", source.location, target.location, owner=True, permissions=True
    )
    world = replace(
        Ground().world, storage={one.location: one for one in (source, target)}.__getitem__
    )
    evidence = step.run(world)
    found = {owned.path: owned[1:] for owned in target.owners()}
    assert found[""] == ("etl", "streams", 0o1770) and found["commits/0"] == (
        "etl",
        "streams",
        0o640,
    )
    assert step.holds(world, evidence) == []


def test_equal_files_have_equal_checksums_and_need_not_be_read(single: Servers, way: str) -> None:
    one, other = (
        on(single, "hdfs-a", way, f"sum-{way}"),
        on(single, "hdfs-a", way, f"sum-too-{way}"),
    )
    for storage, content in ((one, b"x"), (other, b"x")):
        storage.write("big", lambda content=content: iter([content * CHUNK]))
    other.write("different", lambda: iter([b"x" * (CHUNK - 1) + b"y"]))
    kept = one.checksum("big")
    assert kept is not None and "CRC32C" in kept
    assert kept == other.checksum("big") != other.checksum("different")


# A DataNode gives the same figures for ten seconds.
COUNTED_SECONDS = 12


def test_what_is_written_natively_is_on_the_datanodes_disk(single: Servers) -> None:
    """As the pages say, and what it costs. Who writes over HTTP leaves it to the kernel."""
    before = _forced_to_disk(single)
    for way in ("native", "web"):
        storage = on(single, "hdfs-a", way, f"forced-{way}")
        storage.write("a", lambda: iter([b"x" * CHUNK]))
        after = _forced_to_disk(single)
        assert after - before == (1 if way == "native" else 0)
        before = after


def _forced_to_disk(servers: Servers) -> int:
    """How often the DataNode has had a block forced to its disk so far."""
    time.sleep(COUNTED_SECONDS)
    conf = read_conf(servers.exports())
    key = "dfs.namenode.http-address.hdfs-a."
    namenode = next(conf.get(name) for name in conf.properties if name.startswith(key))
    live = _bean(namenode, "NameNode,name=NameNodeInfo")["LiveNodes"]
    (datanode,) = json.loads(live).values()
    return int(_bean(datanode["infoAddr"], "DataNode,name=DataNodeActivity-*")["FsyncCount"])


def _bean(server: str, name: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{server}/jmx?qry=Hadoop:service={name}") as answer:
        (bean,) = json.load(answer)["beans"]
    return dict(bean)
