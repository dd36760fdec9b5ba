"""Tables of ours: read back by our own reader, and every byte of what names them. That RocksDB
opens them is shown in acceptance/test_tables.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.formats.blocks import RowBlock, block_of
from stateshift.formats.rocksdb import sst_encoding
from stateshift.formats.rocksdb.block import encode_varint as varint
from stateshift.formats.rocksdb.manifest import (
    CURRENT,
    DELETE,
    MANIFEST,
    PUT,
    SEQUENCE_MAX,
    KeyPlace,
    TableFacts,
    TableFile,
    decode_manifest,
    encode_manifest,
    with_table,
)
from stateshift.formats.rocksdb.sst_encoding import encode_sst, heads_of
from stateshift.formats.rocksdb.table import decode_sst, open_table
from stateshift.formats.spark.rocksdb import ListedTable, RocksDBSnapshot, decode_zip, encode_zip

STATE = st.dictionaries(st.binary(max_size=300), st.binary(max_size=400), max_size=60)


def table_of(blocks: Iterable[RowBlock], sequence: int = 0) -> tuple[bytes, TableFacts]:
    pieces: list[bytes] = []
    encoding = encode_sst(blocks, sequence)
    while True:
        try:
            pieces.append(next(encoding))
        except StopIteration as end:
            return b"".join(pieces), end.value


def blocks_of(records: list[tuple[bytes, bytes]], each: int) -> list[RowBlock]:
    return [block_of(records[start : start + each]) for start in range(0, len(records), each)]


@settings(max_examples=150, deadline=None)
@given(STATE, st.integers(1, 70), st.sampled_from((64, 4096, 16 * 1024)))
def test_a_table_holds_what_went_in_whatever_blocks_it_came_in(
    state: dict[bytes, bytes], each: int, block_bytes: int
) -> None:
    records = sorted(state.items())
    usual, sst_encoding.BLOCK = sst_encoding.BLOCK, block_bytes
    try:
        content, facts = table_of(blocks_of(records, each))
    finally:
        sst_encoding.BLOCK = usual
    found = list(decode_sst(content))
    assert [(entry.key, entry.value) for entry in found] == records
    assert {(entry.sequence, entry.kind) for entry in found} <= {(0, PUT)}
    expected = (records[0][0], records[-1][0]) if records else (b"", b"")
    assert facts == TableFacts(len(content), len(records), *expected)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.binary(max_size=9), st.none() | st.binary(max_size=9), min_size=1),
    st.integers(1, 20),
    st.integers(0, SEQUENCE_MAX),
)
def test_a_table_of_puts_and_deletes_has_one_sequence_and_says_what_it_begins_and_ends_with(
    writes: dict[bytes, bytes | None], each: int, sequence: int
) -> None:
    records = sorted(writes.items())
    blocks = [block_of(records[start : start + each]) for start in range(0, len(records), each)]
    content, facts = table_of(blocks, sequence)
    kinds = [DELETE if value is None else PUT for _, value in records]
    expected = [
        (key, sequence, kind, value or b"")
        for (key, value), kind in zip(records, kinds, strict=True)
    ]
    assert list(decode_sst(content)) == expected
    assert (facts.first, facts.last) == (sequence << 8 | kinds[0], sequence << 8 | kinds[-1])
    opened = open_table(lambda offset, count: content[offset : offset + count], len(content))
    assert opened.number(b"rocksdb.deleted.keys") == kinds.count(DELETE)


def test_a_table_has_one_byte_changed_nowhere_unseen() -> None:
    records = [(b"%06d" % n, b"v" * (n % 50)) for n in range(300)]
    content, _ = table_of(blocks_of(records, 1000))
    for place in range(0, len(content) - 60, 7):
        damaged = bytearray(content)
        damaged[place] ^= 0x55
        with pytest.raises(Exception, match="an SST"):
            list(decode_sst(bytes(damaged)))


@pytest.mark.parametrize("each", [1, 7, 400, 4999, 5000])
def test_the_same_records_give_the_same_bytes_and_nothing_of_this_machine(each: int) -> None:
    records = [(b"%06d" % n, b"v" * (n % 50)) for n in range(5000)]
    one, other = table_of(blocks_of(records, 5000)), table_of(blocks_of(records, each))
    assert one == other
    content, _ = one
    assert b"creation.time" not in content and b"host" not in content


@settings(max_examples=60, deadline=None)
@given(STATE, st.integers(1, 70), st.sampled_from((64, 4096)))
def test_the_same_records_give_the_same_bytes_in_whatever_blocks_they_come(
    state: dict[bytes, bytes], each: int, block_bytes: int
) -> None:
    records = sorted(state.items())
    usual, sst_encoding.BLOCK = sst_encoding.BLOCK, block_bytes
    try:
        together, apart = table_of([block_of(records)]), table_of(blocks_of(records, each))
    finally:
        sst_encoding.BLOCK = usual
    assert together == apart


@given(
    st.lists(st.tuples(st.integers(0, 1 << 31), st.integers(0, 1 << 31)), min_size=1, max_size=20)
)
def test_sizes_are_written_as_varints(sizes: list[tuple[int, int]]) -> None:
    keys, values = (np.array(side, np.int64) for side in zip(*sizes, strict=True))
    assert heads_of(keys, values).to_pylist() == [
        b"\0" + varint(key) + varint(value) for key, value in sizes
    ]


# What RocksDB 6.20, 7.9, 8.3 and 9.8 open.
EDIT = (
    b"\x01\x1aleveldb.BytewiseComparator\x02\x00\x09\x00\x03\x05\x04\x01"
    b"\x67\x06\x02\x80\x02\x09a\x01\0\0\0\0\0\0\0\x09c\x01\0\0\0\0\0\0\0\0\0\x01"
    b"\x67\x06\x04\x07\x09d\x01\0\0\0\0\0\0\0\x09d\x01\0\0\0\0\0\0\0\0\0\x01"
)


def test_a_manifest_names_every_table_with_its_level_and_bounds() -> None:
    tables = {2: TableFacts(256, 3, b"a", b"c"), 4: TableFacts(7, 1, b"d", b"d")}
    manifest = encode_manifest(tables)
    assert manifest[7:] == EDIT
    assert manifest[4:7] == len(EDIT).to_bytes(2, "little") + b"\x01"


@pytest.mark.parametrize("size", [1, 500, *range(32_640, 32_700), 40_000])
def test_a_table_more_is_named_behind_all_that_a_manifest_says(size: int) -> None:
    """Wherever the edit begins in a block of the log, also in its last few bytes."""
    key = b"k" * (size // 2)
    manifest = encode_manifest({2: TableFacts(9, 1, key, key)})
    before = decode_manifest(manifest)
    table = TableFacts(77, 3, b"a", b"c" * 200, first=5 << 8 | DELETE, last=5 << 8 | PUT)
    after = decode_manifest(with_table(manifest, 8, table))
    assert (after.last_sequence, after.next_file) == (5, 9)
    added = after.families[0].tables.pop(8)
    assert added == TableFile(8, 0, 77, KeyPlace(b"a", -5), KeyPlace(b"c" * 200, -5), 5, 5)
    assert after.families == before.families


def test_a_manifest_that_is_longer_than_a_block_of_the_log_is_cut_there() -> None:
    key = b"k" * 1000
    manifest = encode_manifest(
        {n: TableFacts(1, 1, key + b"%03d" % n, key + b"%03d" % n) for n in range(2, 100)}
    )
    kinds, position = [], 0
    while position < len(manifest):
        size, kind = (
            int.from_bytes(manifest[position + 4 : position + 6], "little"),
            manifest[position + 6],
        )
        kinds.append(kind)
        assert position // 32_768 == (position + 6 + size) // 32_768, "no piece crosses a block"
        position += 7 + size
    assert position == len(manifest) and kinds == [2, 3, 3, 3, 3, 3, 4]


def test_a_zip_of_ours_brings_rocksdbs_own_files_along() -> None:
    snapshot = RocksDBSnapshot((ListedTable("000002.sst", "000002-u.sst", 10),), 3, format=2)
    content = encode_zip(snapshot, {"CURRENT": CURRENT, MANIFEST: b"edit"})
    read = decode_zip(content)
    assert (read.tables, read.keys, read.format) == (snapshot.tables, 3, 2)
    assert content == encode_zip(snapshot, {"CURRENT": CURRENT, MANIFEST: b"edit"})
