"""Which machine a cluster's URL leads to."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stateshift.clusters.http import host_of, host_of_master
from stateshift.clusters.kind import open_cluster
from stateshift.errors import ClusterError
from stateshift.specification import ClusterSpec


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://127.0.0.1:8998", ""),
        ("http://localhost:8998/path", ""),
        ("https://[::1]:8998", ""),
        (f"http://{socket.gethostname()}:8998", ""),
        ("http://livy.example:8998", "livy.example"),
        ("spark://one:7077,two:7077", "one"),
        ("one:7077", "one"),
        ("https://user@far/x", "far"),
    ],
)
def test_a_url_leads_to_a_host_or_to_this_machine(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    ("master", "host"),
    [
        ("local", ""),
        ("local[2]", ""),
        ("local-cluster[2,1,1024]", ""),
        ("spark://localhost:7077", ""),
        ("spark://far:7077", "far"),
        ("yarn", "yarn"),
        ("k8s://https://far:443", "k8s://https://far:443"),
    ],
)
def test_a_master_runs_jobs_here_or_elsewhere(master: str, host: str) -> None:
    assert host_of_master(master) == host


@pytest.mark.parametrize(
    ("kind", "options", "connection", "host"),
    [
        ("spark_submit", {}, None, ""),
        ("spark_submit", {"master": "yarn"}, None, "yarn"),
        ("spark_submit", {}, "far:7077", "far"),
        ("yarn", {"url": "http://127.0.0.1:8088"}, None, "yarn"),
        ("flink_operator", {}, None, "kubernetes"),
        ("spark_operator", {}, None, "kubernetes"),
        ("livy", {"url": "http://far:8998"}, None, "far"),
        ("livy", {"url": "http://far:8998"}, "127.0.0.1:8998", ""),
        ("spark_standalone", {"url": "http://far:6066"}, None, "far"),
        ("command", {"submit": "true"}, None, None),
        ("manual", {}, None, None),
    ],
)
def test_every_kind_says_where_it_runs_jobs(
    tmp_path: Path, kind: str, options: dict[str, str], connection: str | None, host: str | None
) -> None:
    assert open_cluster(ClusterSpec("c", kind, options), str(tmp_path)).host(connection) == host


@pytest.mark.parametrize(
    ("command", "answer"),
    [('test "$STATESHIFT_LOCATION" = hdfs://shop/a', True), ("exit 1", False), (None, None)],
)
def test_a_command_says_whether_jobs_reach_a_place(
    tmp_path: Path, command: str | None, answer: bool | None
) -> None:
    options = {"submit": "true", **({"reach": command} if command else {})}
    assert (
        open_cluster(ClusterSpec("c", "command", options), str(tmp_path)).reaches("hdfs://shop/a")
        is answer
    )


def test_a_command_that_fails_is_no_answer(tmp_path: Path) -> None:
    options = {"submit": "true", "reach": "echo lost >&2; exit 7"}
    cluster = open_cluster(ClusterSpec("c", "command", options), str(tmp_path))
    with pytest.raises(ClusterError, match="the command `reach` ended with exit code 7"):
        cluster.reaches("hdfs://shop/a")
