"""Servers that the files here share the making of; each file has its own, for as long as it
runs. But for Flink in the default run: a file takes over the clusters of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.flink_ground import Ground
from tests.support.servers import Servers, group, start, stop

FLINKS = ("flink-a", "flink-b", "flink-1.20")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """An HDFS with one NameNode."""
    with group(tmp_path_factory.mktemp("hdfs"), "hdfs-a") as servers:
        yield servers


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Two NameNodes; up by itself, so that no more than four JVMs are."""
    with group(tmp_path_factory.mktemp("hdfs"), "hdfs-b") as servers:
        yield servers


@pytest.fixture(scope="session")
def flinks_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("flinks"), {})
    yield servers
    stop(servers, *FLINKS)


@pytest.fixture(scope="module")
def flinks(request: pytest.FixtureRequest, flinks_of_the_run: Servers) -> Iterator[Servers]:
    """Two session clusters of one version. The many jobs of --full would wear them out: each file
    starts them anew then.
    """
    start(flinks_of_the_run, "flink-a", "flink-b")
    yield flinks_of_the_run
    if request.config.getoption("--full") or not are_used_later(request):
        stop(flinks_of_the_run, *FLINKS)


def are_used_later(request: pytest.FixtureRequest) -> bool:
    """Whether a test behind this file wants the Flinks, too."""
    items = request.session.items
    own = [number for number, item in enumerate(items) if item.path == request.path]
    return any("flinks" in item.fixturenames for item in items[own[-1] + 1 :])


@pytest.fixture
def ground(flinks: Servers, tmp_path: Path) -> Iterator[Ground]:
    """The two, and no job of this test on them afterwards. Files with other clusters have a
    ground of their own.
    """
    made = Ground(flinks, tmp_path)
    yield made
    made.cleared()
