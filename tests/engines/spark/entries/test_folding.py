"""Folding in blocks: what it comes to record by record, in memory and on piles."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.engines import spill as spilling
from stateshift.engines.spark.entries import last_writes as settling
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.last_writes import Writes, settle_writes
from stateshift.engines.spark.entries.rocksdb_version import SHARD_PART, encode_part, parts_between
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError, StorageError
from stateshift.formats.blocks import RowBlock, binary
from stateshift.formats.rocksdb.manifest import TableFacts, encode_manifest
from stateshift.formats.rocksdb.sst_encoding import encode_sst
from stateshift.formats.rocksdb.table import ALL_KEYS, KeyRange
from stateshift.formats.spark.rocksdb import ListedTable, RocksDBSnapshot, encode_zip
from stateshift.formats.spark.state_files import StateRecord, encode_delta
from stateshift.survey import ShardFiles
from tests.engines.spark.golden import NAMES, golden
from tests.engines.spark.reference import one_by_one
from tests.support.entries import reading


@pytest.mark.sample(140)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bytes_max", [spilling.BYTES_MAX, 500])
def test_golden_shards_fold_to_the_same_in_memory_and_on_piles(name: str, bytes_max: int) -> None:
    storage = golden(name)
    for image in survey(storage).images:
        for shard in image.shards:
            expected = Counter(
                (e.store, e.key, e.value) for e in one_by_one(storage.chunks, shard, image.settings)
            )
            blocks = fold_shard(storage.chunks, shard, image.settings, bytes_max)
            found = Counter(
                (store, key, value) for store, block in blocks for key, value in block.records()
            )
            assert found == expected


KEYS = st.sampled_from([b"", b"a", b"b", b"key", b"k" * 9, b"\0" * 8, b"\0" * 9])
WRITES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3), st.booleans()), max_size=60)


def written(
    writes: list[tuple[bytes, bytes | None, bool]], every: int, times: list[int]
) -> Iterator[Writes]:
    for start in range(0, len(writes), every):
        piece = writes[start : start + every]
        merges = np.array([merge and value is not None for _, value, merge in piece], bool)
        block = RowBlock(binary([k for k, _, _ in piece]), binary([v for _, v, _ in piece]), merges)
        yield Writes(block, np.array(times[start : start + every], np.uint64))


@settings(deadline=None)
@given(
    WRITES,
    st.integers(1, 20),
    st.sampled_from((100, 1 << 20)),
    st.sampled_from((b",", b"")),
    st.data(),
)
def test_the_last_write_counts_and_merges_are_joined(
    writes: list[tuple[bytes, bytes | None, bool]],
    every: int,
    bytes_max: int,
    between: bytes,
    data: st.DataObject,
) -> None:
    times = data.draw(st.lists(st.integers(0, 9), min_size=len(writes), max_size=len(writes)))
    state: dict[bytes, bytes] = {}
    for at in sorted(range(len(writes)), key=lambda at: times[at]):
        key, value, merge = writes[at]
        if value is None:
            state.pop(key, None)
        elif merge and key in state:
            state[key] += between + value
        else:
            state[key] = value
    blocks = settle_writes(written(writes, every, times), between, bytes_max)
    found = [record for block in blocks for record in block.records()]
    assert len(found) == len(dict(found)) and dict(found) == state


def test_keys_of_one_hash_are_still_two_keys() -> None:
    """Sixty-four bits are not proof: what hashes alike is looked at."""
    hashes = np.zeros(6, np.uint64)
    keys = binary([b"a", b"b", b"a", b"c", b"b", b"a"])
    order, first = settling._grouped(keys, hashes, np.arange(6).astype(np.uint64))
    assert keys.take(order).to_pylist() == [b"a", b"a", b"a", b"b", b"b", b"c"]
    assert first.tolist() == [True, False, False, True, False, True]


def shard_of(records: list[StateRecord]) -> tuple[Any, ShardFiles]:
    content = b"".join(encode_delta(records))
    path = "state/0/0/1.snapshot"
    return reading({path: content}), ShardFiles("0", "default", 0, (path,))


def test_nothing_is_left_of_piles_whatever_ends_the_folding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    read, shard = shard_of([StateRecord(b"%08d" % n, b"v" * 40) for n in range(5000)])
    blocks = fold_shard(read, shard, {}, bytes_max=1000)
    next(blocks)
    assert not list(tmp_path.iterdir())
    blocks.close()
    assert not list(tmp_path.iterdir())


def test_a_place_for_piles_that_is_not_there_is_a_fault_of_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    read, shard = shard_of([StateRecord(b"%08d" % n, b"v" * 40) for n in range(5000)])
    with pytest.raises(StorageError, match="temporary files") as caught:
        list(fold_shard(read, shard, {}, bytes_max=1000))
    assert caught.value.hint is not None and "TMPDIR" in caught.value.hint


@pytest.mark.long
def test_the_same_files_give_the_same_blocks() -> None:
    read, shard = shard_of([StateRecord(b"%08d" % (n % 700), b"v%d" % n) for n in range(5000)])
    for bytes_max in (1000, 1 << 20):
        one, other = (
            [
                (store, list(block.records()))
                for store, block in fold_shard(read, shard, {}, bytes_max)
            ]
            for _ in range(2)
        )
        assert one == other and sum(len(records) for _, records in one) == 700


def two_tables(told: dict[int, tuple[bytes, bytes]]) -> tuple[dict[str, bytes], ShardFiles]:
    """Tables of a to m and of c to z, and a MANIFEST that tells these smallest and largest keys."""
    letters = {4: b"abcdefghijklm", 5: b"cdefghijklmnopqrstuvwxyz"}
    files, facts, tables = {}, {}, []
    for number, keys in letters.items():
        singles = [bytes([letter]) for letter in keys]
        block = RowBlock(binary(singles), binary(singles))
        files[f"SSTs/{number}.sst"] = b"".join(encode_sst([block]))
        size = len(files[f"SSTs/{number}.sst"])
        facts[number] = TableFacts(size, len(keys), *told.get(number, (singles[0], singles[-1])))
        tables.append(ListedTable(f"{number:06}.sst", f"{number}.sst", size))
    manifest = {"MANIFEST-000003": encode_manifest(facts)}
    files["1.zip"] = encode_zip(RocksDBSnapshot(tuple(tables), 37), manifest)
    return files, ShardFiles("0", "default", 0, tuple(files))


WHOLE, HALVES = [ALL_KEYS], parts_between([b"b"])


@pytest.mark.parametrize("parts", [WHOLE, HALVES], ids=["whole", "halves"])
@pytest.mark.parametrize(
    "told",
    [
        {4: (b"a", b"b"), 5: (b"c", b"z")},  # as if they did not overlap
        {4: (b"a", b"b")},
        {4: (b"c", b"m")},
        {5: (b"m", b"z")},
    ],
)
def test_a_table_of_other_keys_than_the_manifest_says_is_refused_whole_and_in_parts(
    told: dict[int, tuple[bytes, bytes]], parts: list[KeyRange]
) -> None:
    files, shard = two_tables(told)
    with pytest.raises(FormatError, match="holds other keys than") as caught:
        for part in parts:
            own = {SHARD_PART: encode_part(part)}
            list(fold_shard(reading(files), shard, own))
    assert caught.value.where["path"] in files


@pytest.mark.parametrize("part", [*WHOLE, *HALVES])
def test_a_manifest_whose_table_ends_before_it_begins_is_refused_in_every_part(
    part: KeyRange,
) -> None:
    files, shard = two_tables({5: (b"z", b"a")})
    with pytest.raises(FormatError, match="has table 5 end before it begins"):
        list(fold_shard(reading(files), shard, {SHARD_PART: encode_part(part)}))


def test_tables_that_overlap_as_the_manifest_says_are_merged() -> None:
    files, shard = two_tables({})
    blocks = fold_shard(reading(files), shard, {})
    keys = [key for _, block in blocks for key, _ in block.records()]
    assert b"".join(keys) == b"abcdefghijklmnopqrstuvwxyz"
