"""Servers that the files here share the making of; each file has its own, for as long as it
runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.flink_ground import Ground
from tests.support.servers import Servers, group


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


@pytest.fixture(scope="module")
def flinks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Two session clusters of one version."""
    with group(tmp_path_factory.mktemp("flinks"), "flink-a", "flink-b") as servers:
        yield servers


@pytest.fixture
def ground(flinks: Servers, tmp_path: Path) -> Iterator[Ground]:
    """The two, and no job of this test on them afterwards. Files with other clusters have a
    ground of their own.
    """
    made = Ground(flinks, tmp_path)
    yield made
    made.cleared()
