"""Byte strings as numpy sees them, and their hashes."""

from __future__ import annotations

import mmh3
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stateshift.formats.blocks import binary
from stateshift.formats.spans import LONG, hash64, hash128, missing, spans, words

ITEMS = st.lists(st.none() | st.binary(max_size=70))


@given(ITEMS, st.integers(0, 3))
def test_spans_point_at_the_items_also_of_a_slice(items: list[bytes | None], cut: int) -> None:
    found = spans(binary(items).slice(cut))
    content = found.content.tobytes()
    pieces = [content[a:b] for a, b in zip(found.starts.tolist(), found.ends.tolist(), strict=True)]
    assert pieces == [item or b"" for item in items[cut:]]
    assert missing(binary(items).slice(cut)).tolist() == [item is None for item in items[cut:]]


@given(st.binary(max_size=40), st.lists(st.integers(0, 50)))
def test_a_word_is_eight_bytes_and_zeros_beyond_the_end(content: bytes, places: list[int]) -> None:
    found = words(np.frombuffer(content, np.uint8), np.array(places, np.int64))
    padded = content + bytes(60)
    assert found.tolist() == [int.from_bytes(padded[at : at + 8], "little") for at in places]


LONGER = st.lists(
    st.binary(max_size=70) | st.binary(min_size=LONG - 1, max_size=LONG + 2), max_size=20
)


@given(LONGER)
def test_many_digests_are_those_of_one_by_one(items: list[bytes]) -> None:
    assert [tuple(pair) for pair in hash128(binary(items)).tolist()] == [
        mmh3.hash64(i, signed=False) for i in items
    ]


@given(LONGER)
def test_a_hash_depends_on_the_item_alone(items: list[bytes]) -> None:
    found = hash64(binary(items)).tolist()
    assert found == [hash64(binary([item])).tolist()[0] for item in items]
    assert len(set(found)) == len(set(items))
