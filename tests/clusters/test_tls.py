"""Livy, a standalone master and Flink behind TLS, with a certificate of an authority that nobody knows but the spec."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from stateshift.clusters.opening import open_cluster
from stateshift.clusters.protocol import Cluster, JobState, Submission
from stateshift.errors import ClusterError
from stateshift.spec.model import ClusterSpec
from tests.clusters import fake_flink, fake_livy, fake_standalone

ORDERS = Submission("run-1.orders", "orders", "hdfs://shop/ck/orders", options={"application": "/jobs/orders.py"})
IN_FLINK = replace(ORDERS, options={"jar_id": "1_orders.jar", "arguments": ["{tag}"]})
KINDS = {"livy": fake_livy.serving, "spark_standalone": fake_standalone.serving, "flink_rest": fake_flink.serving}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    made = trustme.CA()
    file = tmp_path_factory.mktemp("authority") / "ca.pem"
    made.cert_pem.write_to_path(str(file))
    return made, file


def certified(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def opened(kind: str, url: str, tmp_path: Path, **options: Any) -> Cluster:
    also = {"ui_url": url} if kind == "spark_standalone" else {}
    known = {"url": url, "settle_seconds": 0.3, "request_seconds": 5, "state_dir": str(tmp_path / "state"), **also}
    return open_cluster(ClusterSpec("a", kind, {**known, **options}), str(tmp_path))


def submission(kind: str) -> Submission:
    return IN_FLINK if kind == "flink_rest" else ORDERS


@pytest.mark.parametrize(("kind", "serving"), KINDS.items(), ids=list(KINDS))
def test_a_server_whose_authority_the_spec_names_is_trusted(
    authority: tuple[trustme.CA, Path], tmp_path: Path, kind: str, serving: Callable[..., Any]
) -> None:
    with serving(tls=certified(authority[0], "127.0.0.1")) as server:
        cluster = opened(kind, server.url, tmp_path, ca_file=str(authority[1]))
        if kind == "flink_rest":
            server.jars["1_orders.jar"] = "orders.jar"
        cluster.submit(submission(kind))
        assert cluster.find(ORDERS.tag).state is not JobState.ABSENT
        assert server.started == {ORDERS.tag: 1}


@pytest.mark.parametrize(("kind", "serving"), KINDS.items(), ids=list(KINDS))
@pytest.mark.parametrize("wrong", ["another authority", "another host", "no authority named"])
def test_nothing_is_told_to_a_server_that_is_not_trusted(
    authority: tuple[trustme.CA, Path], tmp_path: Path, kind: str, serving: Callable[..., Any], wrong: str
) -> None:
    signer = trustme.CA() if wrong == "another authority" else authority[0]
    named = {} if wrong == "no authority named" else {"ca_file": str(authority[1])}
    host = "elsewhere.example" if wrong == "another host" else "127.0.0.1"
    with serving(tls=certified(signer, host)) as server:
        with pytest.raises(ClusterError, match=r"https://127.0.0.1:\d+ shows a certificate that is not") as caught:
            opened(kind, server.url, tmp_path, **named).submit(submission(kind))
        assert caught.value.hint is not None and '"ca_file"' in caught.value.hint
        assert not server.headers


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_an_authority_that_is_not_there_is_told(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ClusterError, match=r'"ca_file": .*nowhere.pem') as caught:
        opened(kind, "https://127.0.0.1:9", tmp_path, ca_file=str(tmp_path / "nowhere.pem")).submit(submission(kind))
    assert caught.value.exit_code == 7
