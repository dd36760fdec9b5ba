"""A real Flink goes on from the golden savepoints of all versions: they are what they are said
to be.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.support import ROOT, stateshift
from tests.flink.golden import Image, images
from tests.support.flink import Cluster, changes, cluster_of, faults, has_seen, lines, until
from tests.support.servers import group

pytestmark = pytest.mark.servers
KEYS, MORE = 10, 25
# What Flink drained or finished does not go on, and what names its files by absolute paths lies
# elsewhere now.
NAMES = (
    "count-canonical",
    "count-inline",
    "count-native",
    "count-saved",
    "count-two",
    "count-one",
    "count-no-uids",
    "count-changelog-canonical",
)
WINDOWS = ("windows", "lists", "sessions")
Held = dict[tuple[str, str, str], str]
KINDS = images("kinds-canonical", "kinds-native", "kinds-compressed")
WHOLE = [image for image in images(*NAMES) if "held" in image.told]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with group(tmp_path_factory.mktemp("flink"), "flink-a") as servers:
        yield cluster_of(servers, "flink-a")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with group(tmp_path_factory.mktemp("older"), "flink-1.20") as servers:
        yield cluster_of(servers, "flink-1.20")


@pytest.fixture(scope="module")
def unmoved(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Held]:
    """What is held in the end by jobs that have never stopped, without and with values that are
    null.
    """
    found: dict[bool, Held] = {}
    for nulls in (False, True):
        output = tmp_path_factory.mktemp("unmoved")
        end = KINDS[0].told["numbers"] + MORE
        words = ("--output", str(output), "--hold", str(end), "--nulls", str(nulls).lower())
        job = cluster.run("jobs.Kinds", *words, parallelism=2)
        until(lambda output=output, end=end: has_seen(output, end))
        cluster.cancelled(job)
        found[nulls] = last(output)
    return found


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
    job = cluster.run(
        image.told["case"]["job"], *words, parallelism=parallelism, savepoint=savepoint
    )
    counters = [uid.removesuffix("-count") for uid in image.told["held"]]
    until(lambda: all(len(lines(tmp_path / "out" / name)) >= MORE for name in counters))
    cluster.cancelled(job)
    for name in counters:
        assert faults(lines(tmp_path / "out" / name), KEYS, first, first + MORE) == []


@pytest.mark.parametrize("image", images("count-canonical-rocksdb"), ids=str)
@pytest.mark.slow
def test_the_newest_flink_goes_on_from_what_any_version_wrote(
    cluster: Cluster, image: Image, tmp_path: Path
) -> None:
    goes_on(cluster, image, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("image", WHOLE, ids=str)
def test_every_golden_savepoint_is_gone_on_from(
    cluster: Cluster, image: Image, tmp_path: Path
) -> None:
    goes_on(cluster, image, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("image", [image for image in KINDS if image.version >= "2"], ids=str)
def test_every_kind_of_state_is_gone_on_with(
    cluster: Cluster, image: Image, unmoved: dict[bool, Held], tmp_path: Path
) -> None:
    goes_on_with_all(cluster, image, unmoved, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("image", [image for image in KINDS if image.version < "2"], ids=str)
def test_every_kind_of_state_of_an_older_flink_is_gone_on_with(
    older: Cluster, image: Image, unmoved: dict[bool, Held], tmp_path: Path
) -> None:
    """Not by 2.x: a list in a POJO is Kryo's before, and has a serializer of its own since then."""
    goes_on_with_all(older, image, unmoved, tmp_path)


@pytest.mark.slow
@pytest.mark.row("IF-12")
@pytest.mark.parametrize("image", images("kinds-canonical-hashmap", version="2.3.0"), ids=str)
@pytest.mark.parametrize(
    "change",
    [
        ("--parallelism", "3"),
        pytest.param(("--parallelism", "1"), marks=pytest.mark.slow),
        pytest.param(("--parallelism", "4", "--max-parallelism", "200"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_every_kind_of_state_is_gone_on_with_by_other_subtasks(
    cluster: Cluster,
    image: Image,
    unmoved: dict[bool, Held],
    tmp_path: Path,
    change: tuple[str, ...],
) -> None:
    """As many as the image then says: Flink gives each what is its own, and deals nothing out."""
    savepoint = shutil.copytree(image.place, tmp_path / "as it was")
    stateshift(
        "repartition",
        savepoint,
        "--to",
        tmp_path / "savepoint",
        *change,
        "--yes",
        "--workdir",
        tmp_path / "run",
        cwd=ROOT,
    )
    goes_on_with_all(
        cluster, image, unmoved, tmp_path, parallelism=int(change[1]), words=change[2:]
    )


def goes_on_with_all(
    cluster: Cluster,
    image: Image,
    unmoved: dict[bool, Held],
    tmp_path: Path,
    parallelism: int | None = None,
    words: tuple[str, ...] = (),
) -> None:
    if parallelism is None:
        shutil.copytree(image.place, tmp_path / "savepoint")
        parallelism = image.told["case"]["parallelism"] + 1
    savepoint, words = tmp_path / "savepoint", (*going_on(image, tmp_path / "out"), *words)
    job = cluster.run("jobs.Kinds", *words, parallelism=parallelism, savepoint=savepoint)
    until(lambda: has_seen(tmp_path / "out", image.told["numbers"] + MORE))
    cluster.cancelled(job)
    expected = unmoved["--nulls" in image.told["arguments"]]
    held = {**before(image), **last(tmp_path / "out")}
    assert pending(held) == pending(
        {key: value for key, value in expected.items() if key[0] in image.told["held"]}
    )


def last(output: Path) -> Held:
    """What each state of each key was told to hold at last; a window is told when it fires."""
    return {(operator, state, key): value for operator, state, key, value in changes(output)}


def before(image: Image) -> Held:
    return {
        (operator, state, key): str(value)
        for operator, states in image.told["held"].items()
        if operator not in WINDOWS
        for state, keys in states.items()
        for key, value in keys.items()
    }


def pending(held: Held) -> Held:
    """Without the timers that are none any more: what is told of an image has forgotten them."""
    return {key: value for key, value in held.items() if value != "fired"}
