"""Whole blocks written as `state_files` writes records one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.engines.spark.entries.row_checksums import without_value_checksums
from stateshift.formats.blocks import binary, block_of, without_first
from stateshift.formats.spark.compression import CODECS, decompress
from stateshift.formats.spark.state_blocks import (
    add_row_checksums,
    add_value_checksums,
    encode_snapshot,
)
from stateshift.formats.spark.state_files import StateRecord, encode_delta, with_row_checksum

RECORDS = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=300)), max_size=30)


def plain(chunks: object) -> bytes:
    return b"".join(decompress(chunks))  # type: ignore[arg-type]


@given(RECORDS, st.integers(1, 10), st.booleans())
def test_a_snapshot_is_what_its_records_are_one_by_one(
    records: list[tuple[bytes, bytes]], each: int, checked: bool
) -> None:
    blocks = [block_of(records[start : start + each]) for start in range(0, len(records), each)]
    single = [StateRecord(key, value) for key, value in records]
    if checked:
        blocks, single = list(map(add_row_checksums, blocks)), list(map(with_row_checksum, single))
    assert plain(encode_snapshot(blocks, "lz4")) == plain(encode_delta(single))


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_written(codec: str) -> None:
    blocks = [block_of([(b"k", b"v" * 100_000)])]
    assert plain(encode_snapshot(blocks, codec)) == plain(
        encode_delta([StateRecord(b"k", b"v" * 100_000)])
    )


@given(RECORDS)
def test_values_are_behind_their_checksum_and_size(records: list[tuple[bytes, bytes]]) -> None:
    for key, value in add_value_checksums(block_of(records)).records():
        assert (
            without_value_checksums(key, value or b"", b"") == dict(records).get(key, b"")
            or len(records) > 1
        )


@given(
    st.lists(st.binary(min_size=2, max_size=9), max_size=20), st.integers(0, 2), st.integers(0, 5)
)
def test_items_lose_their_first_bytes_wherever_the_column_begins(
    items: list[bytes], count: int, skip: int
) -> None:
    column = binary([b"left out"] * skip + items).slice(skip)
    assert without_first(column, count).to_pylist() == [item[count:] for item in items]
