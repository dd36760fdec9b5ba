"""Livy, a standalone master, YARN and Flink behind TLS, with a certificate of an authority that nobody
knows but the spec.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import Cluster, JobState, Submission
from stateshift.errors import ClusterError
from stateshift.specification.model import ClusterSpec
from tests.clusters import fake_flink, fake_livy, fake_standalone, fake_yarn

ORDERS = Submission(
    "run-1.orders", "orders", "hdfs://shop/ck/orders", options={"application": "/jobs/orders.py"}
)
IN_FLINK = replace(ORDERS, options={"jar_id": "1_orders.jar", "arguments": ["{tag}"]})
KINDS = {
    "livy": fake_livy.serving,
    "spark_standalone": fake_standalone.serving,
    "yarn": fake_yarn.serving,
    "flink_rest": fake_flink.serving,
}


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
    also: dict[str, Any] = {"ui_url": url} if kind == "spark_standalone" else {}
    if kind == "yarn":
        launcher = {"FAKE_YARN": url, "SSL_CERT_FILE": options.get("ca_file", "")}
        script = str(Path(__file__).with_name("fake_spark_submit.py"))
        also = {"environment": launcher, "spark_submit": script}
    known = {
        "url": url,
        "settle_seconds": 0.3,
        "request_seconds": 60,
        "state_dir": str(tmp_path / "state"),
        **also,
    }
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
    authority: tuple[trustme.CA, Path],
    tmp_path: Path,
    kind: str,
    serving: Callable[..., Any],
    wrong: str,
) -> None:
    signer = trustme.CA() if wrong == "another authority" else authority[0]
    named = {} if wrong == "no authority named" else {"ca_file": str(authority[1])}
    host = "elsewhere.example" if wrong == "another host" else "127.0.0.1"
    with serving(tls=certified(signer, host)) as server:
        with pytest.raises(
            ClusterError, match=r"https://127.0.0.1:\d+ shows a certificate that is not"
        ) as caught:
            opened(kind, server.url, tmp_path, **named).submit(submission(kind))
        assert caught.value.hint is not None and '"ca_file"' in caught.value.hint
        assert not server.headers


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_an_authority_that_is_not_there_is_told(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ClusterError, match=r'"ca_file": .*nowhere.pem') as caught:
        opened(kind, "https://127.0.0.1:9", tmp_path, ca_file=str(tmp_path / "nowhere.pem")).submit(
            submission(kind)
        )
    assert caught.value.exit_code == 7


@pytest.fixture
def ours(authority: tuple[trustme.CA, Path], tmp_path: Path) -> dict[str, str]:
    """The files of a certificate that the same authority has signed for us."""
    certificate = authority[0].issue_cert("etl@shop.example")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "ours.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "ours.key"))
    return {"cert_file": str(tmp_path / "ours.pem"), "key_file": str(tmp_path / "ours.key")}


def asking(authority: trustme.CA) -> ssl.SSLContext:
    """A server that wants to see whose client it talks to
    (security.ssl.rest.authentication-enabled).
    """
    context = certified(authority, "127.0.0.1")
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_a_flink_that_asks_for_our_certificate_is_shown_it(
    authority: tuple[trustme.CA, Path], tmp_path: Path, ours: dict[str, str]
) -> None:
    with fake_flink.serving(tls=asking(authority[0])) as server:
        server.jars["1_orders.jar"] = "orders.jar"
        opened("flink_rest", server.url, tmp_path, ca_file=str(authority[1]), **ours).submit(
            IN_FLINK
        )
        assert server.started == {ORDERS.tag: 1}
        # What comes first when it hangs up is up to the two kernels.
        with pytest.raises(
            ClusterError, match=r"breaks off the secured connection|does not answer"
        ):
            opened("flink_rest", server.url, tmp_path, ca_file=str(authority[1])).find(
                "run-2.orders"
            )


@pytest.mark.parametrize("missing", ["cert_file", "key_file"])
def test_a_file_of_our_certificate_that_is_not_there_is_told(
    tmp_path: Path, ours: dict[str, str], missing: str
) -> None:
    named = {**ours, missing: str(tmp_path / "nowhere.pem")}
    with pytest.raises(ClusterError, match=rf'"{missing}": .*nowhere.pem'):
        opened("flink_rest", "https://127.0.0.1:9", tmp_path, **named).submit(IN_FLINK)
