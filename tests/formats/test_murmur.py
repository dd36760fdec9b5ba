"""Digests of many rows at once: the sum of what mmh3 gives of each."""

from __future__ import annotations

import mmh3
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.formats import murmur
from stateshift.formats.blocks import binary
from stateshift.formats.murmur import sum128

Rows = list[tuple[bytes, bytes]]


def head(size: int) -> bytes:
    return b"7 %d default" % size


def one_by_one(rows: Rows) -> int:
    """The sum of the rows' digests, by mmh3."""
    digests = (mmh3.mmh3_x64_128_digest(head(len(key)) + key + value) for key, value in rows)
    return sum(int.from_bytes(digest, "little") for digest in digests) % (1 << 128)


def at_once(rows: Rows, cut: int = 0) -> int:
    """The same of all together, which are a slice of a longer column."""
    before = [(b"before", b"it")] * cut + rows
    keys, values = (binary([row[side] for row in before]).slice(cut) for side in (0, 1))
    return sum128(head, keys, values)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 70), st.integers(0, 70), st.integers(1, 40), st.integers(0, 3))
def test_rows_of_one_shape_are_hashed_as_by_mmh3(
    key: int, value: int, count: int, cut: int
) -> None:
    random = np.random.default_rng(key * 100 + value)
    rows = [(random.bytes(key), random.bytes(value)) for _ in range(murmur.FEW + count)]
    assert at_once(rows, cut) == one_by_one(rows)


@pytest.mark.parametrize("shapes", [2, 4, 9])
@pytest.mark.parametrize("longest", [40, murmur.LONG + 1])
def test_rows_of_several_shapes_are_hashed_as_by_mmh3(shapes: int, longest: int) -> None:
    random = np.random.default_rng(shapes)
    sizes = [(int(random.integers(longest)), int(random.integers(longest))) for _ in range(shapes)]
    picked = random.integers(shapes, size=3 * murmur.FEW)
    rows = [(random.bytes(sizes[n][0]), random.bytes(sizes[n][1])) for n in picked]
    assert at_once(rows, 1) == one_by_one(rows)


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), max_size=20))
def test_few_rows_are_hashed_as_by_mmh3(rows: Rows) -> None:
    assert at_once(rows) == one_by_one(rows)
