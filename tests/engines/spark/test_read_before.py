"""A look for damage that leaves out what was read before: it reads none of that, finds nothing
wrong with an image that is whole, and in what is new finds what a whole look does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from stateshift.engines.spark.check.image import findings_of
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.engines.spark.survey.own_places import JOIN
from stateshift.formats.spark.offset_conf import codec_in
from stateshift.formats.spark.state_blocks import encode_snapshot
from stateshift.migration.source_check import without_known
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, ShardFiles, Survey
from tests.engines.spark.golden import NAMES, golden
from tests.support.checkpoints import put

CHANGES = (".delta", ".changelog")


class Opened:
    """A storage that writes down which files are read to their end."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.paths: set[str] = set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        yield from self._storage.chunks(path, offset, size)
        self.paths.add(path)


def new_changes(image: Image) -> list[str]:
    """The newest file of each shard that is folded, where that is a change after others."""
    folded = [shard for shard in image.shards if not is_of_join(image, shard)]
    newest = [shard.files[-1] for shard in folded if len(shard.files) > 1]
    return [path for path in newest if path.endswith(CHANGES)]


def is_of_join(image: Image, shard: ShardFiles) -> bool:
    joins = {operator.id for operator in image.operators if operator.name == JOIN}
    return shard.operator in joins or "key" in shard.store


def after(image: Image, new: list[str]) -> Image:
    folded = [shard for shard in image.shards if not is_of_join(image, shard)]
    known = {path for shard in folded for path in shard.files}.difference(new)
    read = [path for path in image.needed if path.removesuffix(".crc") in known]
    return replace(image, read_before=tuple(read))


def refusals(storage: Storage, found: Survey, image: Image) -> set[Finding]:
    return {one for one in findings_of(storage, found, image) if one.level == "refuse"}


@pytest.mark.sample(20)
@pytest.mark.parametrize("name", NAMES)
def test_damage_in_what_is_new_is_found_and_what_is_known_is_not_read(name: str) -> None:
    storage = golden(name)
    found = survey(storage)
    for image in found.images:
        new = new_changes(image)
        if not new:
            continue
        own = after(image, new)
        opened = Opened(storage)
        assert refusals(opened, found, own) == refusals(storage, found, image)  # type: ignore[arg-type]
        peeked = Opened(storage)
        views_of(peeked, image)  # type: ignore[arg-type]
        known = {path for path in own.read_before if not path.endswith(".zip")}
        assert not known & (opened.paths - peeked.paths), "what was read before"
        assert set(new) <= opened.paths
        content = storage.read(new[0])
        put(storage, new[0], content[: len(content) // 2])
        seen = survey(storage)
        damaged = replace(seen.images[found.images.index(image)], read_before=own.read_before)
        whole = replace(damaged, read_before=())
        paths = {finding.path for finding in refusals(storage, seen, whole)}
        assert {finding.path for finding in refusals(storage, seen, damaged)} == paths
        assert new[0] in paths or damaged.epochs != image.epochs, "a change that is cut off"
        put(storage, new[0], content)


def test_a_new_snapshot_is_read_with_its_tables() -> None:
    name = next(each for each in NAMES if "rocksdb" in each and zips(golden(each)))
    storage = golden(name)
    found = survey(storage)
    for image in found.images:
        new = zips(storage)
        opened = Opened(storage)
        assert not refusals(opened, found, after(image, new))  # type: ignore[arg-type]
        tables = {path for shard in image.shards for path in shard.files if path.endswith(".sst")}
        assert tables <= opened.paths


def test_a_store_of_a_join_is_compared_with_those_that_were_read() -> None:
    """Maintenance writes the snapshot of one store, at a batch that was read already."""
    storage = golden("spark-3.5.9/join-hdfs")
    found = survey(storage)
    (image,) = found.images
    shard = next(each for each in image.shards if each.store == "left-keyToNumValues")
    blocks = [block for _, block in fold_shard(storage.chunks, shard, image.settings)]
    snapshot = shard.files[-1].replace(".delta", ".snapshot")
    put(storage, snapshot, b"".join(encode_snapshot(blocks, codec_in(image.settings))))
    found = survey(storage)
    later = without_known(found.images[0], image.needed)
    assert snapshot in later.needed and not refusals(storage, found, later)


def test_a_new_checksum_of_a_file_that_is_known_is_compared() -> None:
    storage = golden("spark-4.1.4/chained-rocksdb")
    found = survey(storage)
    (image,) = found.images
    new = next(path for path in image.needed if path.endswith(".changelog.crc"))
    put(storage, new, storage.read(new).replace(b'"value":', b'"value":1'))
    own = without_known(image, set(image.needed) - {new})
    assert {one.path for one in refusals(storage, found, own)} == {new.removesuffix(".crc")}


def zips(storage: Storage) -> list[str]:
    found = survey(storage)
    return [path for image in found.images for path in image.needed if path.endswith(".zip")]
