"""A shard in parts: together they are the shard, whatever a real Spark wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from stateshift.engines.spark.entries.fold import folded, parts_of
from stateshift.engines.spark.entries.shard_parts import SHARD_PART, encode_part, parts_between
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.formats.blocks import Binary
from stateshift.formats.rocksdb.table import ALL_KEYS, KeyRange
from stateshift.storage.protocol import Storage
from stateshift.survey import ShardFiles
from tests.engines.spark.golden import NAMES, golden

Entry = tuple[str, bytes, bytes | None]


def read(
    storage: Storage, shard: ShardFiles, settings: Mapping[str, str], parts: Iterable[KeyRange]
) -> tuple[list[Entry], Counter[tuple[str, bytes]]]:
    """What the parts hold, one behind the other; and what is deleted in them."""
    entries: list[Entry] = []
    gone: Counter[tuple[str, bytes]] = Counter()

    def deleted(store: str, keys: Binary) -> None:
        gone.update((store, key) for key in keys.to_pylist())

    for part in parts:
        own = {**settings, SHARD_PART: encode_part(part)}
        for store, block in folded(storage.chunks, shard, own, deleted=deleted):
            entries += [(store, key, value) for key, value in block.records()]
    return entries, gone


@pytest.mark.sample(140)
@pytest.mark.parametrize("name", NAMES)
def test_parts_hold_every_entry_once_and_in_the_shards_order(name: str) -> None:
    storage = golden(name)
    for image in survey(storage).images:
        for shard in image.shards:
            whole, gone = read(storage, shard, image.settings, [ALL_KEYS])
            parts = parts_of(storage.chunks, shard, 3)
            assert read(storage, shard, image.settings, parts) == (whole, gone)
            keys = sorted(key for _, key, _ in whole)
            elsewhere = parts_between(keys[:: max(1, len(keys) // 4)])
            entries, deleted = read(storage, shard, image.settings, elsewhere)
            assert (Counter(entries), deleted) == (Counter(whole), gone)


def test_a_shard_of_sorted_tables_is_cut_within_them() -> None:
    storage = golden("spark-4.1.4/session-rocksdb")
    (image,) = survey(storage).images
    for shard in image.shards:
        assert len(parts_of(storage.chunks, shard, 2)) == 2
