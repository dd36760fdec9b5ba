"""Two real HDFS: WebHDFS as a client and plain HTTP see it, a fail-over by hand, a DataNode that
comes back.
"""

from __future__ import annotations

import http.client
import json
import subprocess
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from hdfs import Config, HdfsError

from tests.support.servers import Servers, hadoop

pytestmark = [pytest.mark.servers, pytest.mark.slow]


def client(servers: Servers) -> Any:
    """The `hdfs` package's, by the alias file that was written for it."""
    return Config(servers.exports()["HDFSCLI_CONFIG"]).get_client()


def asked(
    url: str, method: str, path: str, body: bytes | None = None, **query: str
) -> tuple[int, str, dict[str, Any]]:
    """Status, Location and what else WebHDFS says, one answer at a time."""
    whole = url if path == "" else f"{url}/webhdfs/v1{path}?{urlencode(query)}"
    parts = urlsplit(whole)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", body)
        answer = connection.getresponse()
        content = answer.read()
        is_json = "json" in (answer.headers["Content-Type"] or "")
        return (
            answer.status,
            answer.headers["Location"] or "",
            json.loads(content) if is_json and content else {},
        )
    finally:
        connection.close()


def test_what_is_created_is_read_and_renamed(single: Servers) -> None:
    web = client(single)
    web.write("/orders/0", b"first")
    with web.read("/orders/0") as reader:
        assert reader.read() == b"first"
    web.rename("/orders/0", "/orders/1")
    assert web.list("/orders") == ["1"]
    assert web.checksum("/orders/1")["algorithm"].endswith("CRC32C")


def test_create_without_overwrite_fails_at_the_second_step_alone(single: Servers) -> None:
    """The NameNode hands out a DataNode for a path that is there; the DataNode refuses."""
    url = single.exports()["STATESHIFT_HDFS_A_WEB"]
    query = {"op": "CREATE", "overwrite": "false", "user.name": "root"}
    for expected in (201, 403):
        status, location, _ = asked(url, "PUT", "/fence/0", **query)
        assert status == 307
        status, _, told = asked(location, "PUT", "", b"mine")
        assert status == expected
    assert told["RemoteException"]["exception"] == "FileAlreadyExistsException"


def test_a_rename_onto_what_is_there_is_false_and_changes_nothing(single: Servers) -> None:
    web, url = client(single), single.exports()["STATESHIFT_HDFS_A_WEB"]
    web.write("/rename/from", b"from")
    web.write("/rename/to", b"to")
    query = {"op": "RENAME", "destination": "/rename/to", "user.name": "root"}
    assert asked(url, "PUT", "/rename/from", **query)[::2] == (200, {"boolean": False})
    with web.read("/rename/to") as reader:
        assert reader.read() == b"to"
    with pytest.raises(HdfsError):
        web.rename("/rename/from", "/rename/to")


def test_a_token_is_given_without_kerberos(single: Servers) -> None:
    query = {"op": "GETDELEGATIONTOKEN", "renewer": "root", "user.name": "root"}
    status, _, told = asked(single.exports()["STATESHIFT_HDFS_A_WEB"], "GET", "/", **query)
    assert (status, list(told["Token"])) == (200, ["urlString"])


def test_a_datanode_that_crashed_comes_back_with_what_it_held(single: Servers) -> None:
    web = client(single)
    web.write("/kept", b"kept", overwrite=True)
    before = single.state("hdfs-a")
    single.kill("hdfs-a", "datanode")
    state = single.state("hdfs-a")
    assert (state.word, state.pids["datanode"]) == ("crashed", None)
    after = single.up("hdfs-a")
    assert (after.word, after.ports, after.pids["nn1"]) == ("up", before.ports, before.pids["nn1"])
    with web.read("/kept") as reader:
        assert reader.read() == b"kept"


def test_a_fail_over_is_nothing_to_who_knows_both_namenodes(pair: Servers) -> None:
    web = client(pair)
    web.write("/orders/0", b"first")
    first, second = pair.exports()["STATESHIFT_HDFS_B_WEB"].split(";")
    status, _, told = asked(second, "GET", "/orders", op="LISTSTATUS")
    assert (status, told["RemoteException"]["exception"]) == (403, "StandbyException")
    conf = pair.root / "hadoop-conf"
    hadoop.run(conf, "haadmin", "-ns", "hdfs-b", "-failover", "nn1", "nn2")
    assert asked(first, "GET", "/orders", op="LISTSTATUS")[0] == 403
    with web.read("/orders/0") as reader:
        assert reader.read() == b"first"
    web.write("/orders/1", b"second")
    hdfs = [
        f"{pair.exports()['STATESHIFT_HDFS_COMMANDS']}/hdfs",
        "dfs",
        "-cat",
        "hdfs://hdfs-b/orders/1",
    ]
    done = subprocess.run(hdfs, text=True, capture_output=True, check=True, timeout=200)
    assert done.stdout == "second"  # by its name, over RPC
