"""Blocks: records as columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stateshift.formats.blocks import RowBlock, binary, block_of, cut

RECORDS = st.lists(st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=20)))


@given(RECORDS)
def test_a_block_holds_its_records_in_their_order(
    records: list[tuple[bytes, bytes | None]],
) -> None:
    assert list(block_of(records).records()) == records


@given(RECORDS.filter(bool), st.data())
def test_what_is_taken_comes_in_the_order_asked_for(
    records: list[tuple[bytes, bytes | None]], data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, len(records) - 1)))
    taken = block_of(records).take(np.array(places, np.int64))
    assert list(taken.records()) == [records[place] for place in places]


def test_merges_are_taken_along() -> None:
    block = RowBlock(binary([b"a", b"b"]), binary([b"1", b"2"]), np.array([False, True]))
    taken = block.take(np.array([1])).merges
    assert taken is not None and taken.tolist() == [True]


@given(st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=9))))
def test_pieces_are_cut_out_of_what_stands_between_them(
    parts: list[tuple[bytes, bytes | None]],
) -> None:
    content, starts, ends = b"", [], []
    for gap, piece in parts:
        content += gap
        starts.append(len(content))
        content += piece or b""
        ends.append(len(content))
    missing = np.array([piece is None for _, piece in parts], bool)
    found = cut(content, np.array(starts, np.int64), np.array(ends, np.int64), missing)
    assert found.to_pylist() == [piece for _, piece in parts]
