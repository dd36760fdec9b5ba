"""A shard in parts: together they are the shard, whatever a real Spark wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pytest

from stateshift.engines import window
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.rocksdb_version import (
    SHARD_PART,
    encode_part,
    parts_between,
    parts_of,
)
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, RowBlock, binary
from stateshift.formats.rocksdb.block import Handle
from stateshift.formats.rocksdb.manifest import TableFacts, encode_manifest
from stateshift.formats.rocksdb.sst_encoding import encode_sst
from stateshift.formats.rocksdb.table import ALL_KEYS, KeyRange, open_content
from stateshift.formats.spark.rocksdb import ListedTable, RocksDBSnapshot, encode_zip
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
        for store, block in fold_shard(storage.chunks, shard, own, deleted=deleted):
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


class Cut(NamedTuple):
    """A shard of two tables that overlap, of several blocks each, and where the blocks are."""

    files: dict[str, bytes]
    shard: ShardFiles
    blocks: list[tuple[str, Handle]]
    parts: list[KeyRange]

    def read(self, part: KeyRange) -> list[Entry]:
        own = {SHARD_PART: encode_part(part)}
        entries: list[Entry] = []
        for store, block in fold_shard(self.chunks, self.shard, own):
            entries += [(store, key, value) for key, value in block.records()]
        return entries

    def chunks(self, path: str, offset: int = 0) -> Iterator[bytes]:
        content = self.files[path]
        for start in range(offset, len(content), 1000):
            yield content[start : start + 1000]


@pytest.fixture
def cut_shard(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """Tables that are not read at once, though they are small."""
    monkeypatch.setattr(window, "CHUNK", 3000)
    monkeypatch.setattr(window, "WINDOW", 3000)
    files: dict[str, bytes] = {}
    facts, tables = {}, []
    for number, step in ((4, 2), (5, 3)):
        keys = [b"%06d" % key for key in range(0, 30_000, step)]
        values = [b"%d in %d" % (key, number) for key in range(len(keys))]
        files[f"SSTs/{number}.sst"] = b"".join(encode_sst([RowBlock(binary(keys), binary(values))]))
        size = len(files[f"SSTs/{number}.sst"])
        facts[number] = TableFacts(size, len(keys), keys[0], keys[-1])
        tables.append(ListedTable(f"{number:06}.sst", f"{number}.sst", size))
    manifest = {"MANIFEST-000003": encode_manifest(facts)}
    files["1.zip"] = encode_zip(RocksDBSnapshot(tuple(tables), 1), manifest)
    blocks = []
    for path in ("SSTs/4.sst", "SSTs/5.sst"):
        blocks += [(path, handle) for _, handle in open_content(files[path]).ends()]
    shard = ShardFiles("0", "default", 0, tuple(files))
    whole = Cut(files, shard, blocks, [])
    return whole._replace(parts=parts_of(whole.chunks, shard, 5))


def test_of_a_table_a_part_reads_its_blocks_and_the_end(cut_shard: Cut) -> None:
    """And all parts together each block, which those on both sides of a cut read twice."""
    assert len(cut_shard.blocks) > 20 and len(cut_shard.parts) == 5
    size = sum(map(len, cut_shard.files.values()))
    entries: list[Entry] = []
    for part in cut_shard.parts:
        read = Counter[str]()

        def counted(path: str, offset: int = 0, read: Counter[str] = read) -> Iterator[bytes]:
            for chunk in cut_shard.chunks(path, offset):
                read[path] += len(chunk)
                yield chunk

        own = {SHARD_PART: encode_part(part)}
        for store, block in fold_shard(counted, cut_shard.shard, own):
            entries += [(store, key, value) for key, value in block.records()]
        assert read.total() < 0.5 * size
    assert entries == cut_shard.read(ALL_KEYS)


def test_a_damaged_block_is_noticed_by_a_part_wherever_it_is(cut_shard: Cut) -> None:
    for path, handle in cut_shard.blocks:
        intact = cut_shard.files[path]
        damaged = bytearray(intact)
        damaged[handle.offset + handle.size // 2] ^= 1
        cut_shard.files[path] = bytes(damaged)
        noticed = 0
        for part in cut_shard.parts:
            try:
                cut_shard.read(part)
            except FormatError as error:
                noticed += 1
                assert error.where["path"] == path and "checksum" in error.fact
        assert 1 <= noticed <= 2, (path, handle)
        cut_shard.files[path] = intact


@pytest.mark.parametrize("change", [-1, 1, -20_000])
def test_a_table_of_another_length_is_refused_by_every_part_that_reads_it(
    cut_shard: Cut, change: int
) -> None:
    path = "SSTs/4.sst"
    content = cut_shard.files[path]
    cut_shard.files[path] = (content + b"0")[: len(content) + change]
    for part in cut_shard.parts:
        with pytest.raises(FormatError, match=f"bytes is {len(content) + change} long"):
            cut_shard.read(part)
