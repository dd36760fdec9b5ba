"""A real Flink goes on from the golden savepoints of all versions: they are what they are said to be."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flink.golden import Image, images
from tests.support.flink import Cluster, cluster_of, faults, lines, until
from tests.support.servers import group

pytestmark = pytest.mark.servers
KEYS, MORE = 10, 25
# What Flink drained or finished does not go on, and what names its files by absolute paths lies elsewhere now.
NAMES = ("count-canonical", "count-inline", "count-native", "count-saved", "count-two", "count-one", "count-no-uids",
         "count-changelog-canonical")  # fmt: skip
WHOLE = [image for image in images(*NAMES) if "held" in image.told]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with group(tmp_path_factory.mktemp("flink"), "flink-a") as servers:
        yield cluster_of(servers, "flink-a")


def going_on(image: Image, output: Path) -> tuple[str, ...]:
    told = image.told["arguments"]
    before = dict(zip(told[::2], told[1::2], strict=True))
    kept = {name: value for name, value in before.items() if "checkpoint" not in name}
    words = {**kept, "--output": str(output), "--hold": str(image.told["numbers"] + MORE)}
    return tuple(word for pair in words.items() for word in pair)


def goes_on(cluster: Cluster, image: Image, tmp_path: Path) -> None:
    savepoint = shutil.copytree(image.place, tmp_path / "savepoint")
    first = image.told["numbers"]
    parallelism = image.told["case"]["parallelism"] + 1
    words = going_on(image, tmp_path / "out")
    job = cluster.run(image.told["case"]["job"], *words, parallelism=parallelism, savepoint=savepoint)
    counters = [uid.removesuffix("-count") for uid in image.told["held"]]
    until(lambda: all(len(lines(tmp_path / "out" / name)) >= MORE for name in counters))
    cluster.cancelled(job)
    for name in counters:
        assert faults(lines(tmp_path / "out" / name), KEYS, first, first + MORE) == []


@pytest.mark.parametrize("image", images("count-canonical-rocksdb"), ids=str)
def test_the_newest_flink_goes_on_from_what_any_version_wrote(cluster: Cluster, image: Image, tmp_path: Path) -> None:
    goes_on(cluster, image, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("image", WHOLE, ids=str)
def test_every_golden_savepoint_is_gone_on_from(cluster: Cluster, image: Image, tmp_path: Path) -> None:
    goes_on(cluster, image, tmp_path)
