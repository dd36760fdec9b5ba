"""Rows decoded by the thousand are what they are one by one; what is odd is left to the decoder
that says why.
"""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.entries.vectors import array, arrow_type, fits, structs
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError
from stateshift.formats.blocks import binary
from stateshift.formats.spark.types import ArrayType, Atomic, DecimalType, MapType, StructType
from stateshift.formats.spark.unsafe_row import decode_row
from tests.look.golden_images import HERE, STATEFUL, on_a_disk
from tests.support.entries import entries

ROW = StructType(("n", "s"), (Atomic("long"), Atomic("string")))


def row(number, text, size=None, offset=24):
    word = text.ljust((len(text) + 7) // 8 * 8, b"\0")
    return struct.pack("<qqII", 0, number, len(text) if size is None else size, offset) + word


def rows_of(case):
    """Every store's bare rows, with their schema."""
    storage = on_a_disk(case).open(HERE)
    (image,) = survey(storage).images
    views = views_of(storage, image)
    found = {}
    for shard in image.shards:
        for entry in entries(storage.chunks, shard, image.settings):
            view = views.of(shard.operator, entry.store)
            strip = 0 if view.encoder.kind == "plain" else 1
            if view.encoder.kind in ("plain", "row") and view.known and not view.many:
                keys, values = found.setdefault((shard.operator, entry.store), (view, [], []))[1:]
                keys.append(entry.key[strip:])
                values.append(entry.value[strip:])
    for view, keys, values in found.values():
        yield keys, view.key
        yield values, view.value


@pytest.mark.parametrize(
    "case", STATEFUL, ids=[f"{case.parent.name}/{case.name}" for case in STATEFUL]
)
def test_golden_rows_decode_to_the_same_arrays_either_way(case):
    for rows, kind in rows_of(case):
        kept = [at for at, one in enumerate(kind.types) if fits(one)]
        if len(kept) == len(kind.types) and kept:
            together = structs(binary(rows), kind)
            assert together is not None
            assert together.equals(array([decode_row(one, kind) for one in rows], arrow_type(kind)))


def test_every_column_of_the_types_that_fit_is_the_same_with_nulls_and_nested():
    inner = StructType(("x", "y"), (Atomic("integer"), Atomic("string")))
    kind = StructType(
        ("b", "inner", "d", "v"), (Atomic("boolean"), inner, DecimalType(9, 2), Atomic("void"))
    )
    nested = struct.pack("<QqII", 0, 7, 3, 24) + b"abc\0\0\0\0\0"
    null = struct.pack("<QqII", 3, 0, 0, 0)
    whole = struct.pack("<QqIIqq", 8, 1, len(nested), 40, -1234, 0) + nested
    half = struct.pack("<QqIIqq", 9, 0, len(null), 40, 5, 0) + null
    empty = struct.pack("<Qqqqq", 15, 0, 0, 0, 0)
    found = structs(binary([whole, half, empty]), kind)
    assert found is not None and found.to_pylist() == [
        {
            "b": True,
            "inner": {"x": 7, "y": "abc"},
            "d": pa.scalar(-1234).cast(pa.decimal128(38, 2)).as_py() / 100,
            "v": None,
        },
        {"b": None, "inner": {"x": None, "y": None}, "d": found[1]["d"].as_py(), "v": None},
        {"b": None, "inner": None, "d": None, "v": None},
    ]
    assert found.equals(
        array([decode_row(one, kind) for one in (whole, half, empty)], arrow_type(kind))
    )


@pytest.mark.parametrize(
    "bad",
    [
        row(1, b"abc", size=99),
        row(1, b"abc", offset=1 << 31),
        row(1, b"\xff\xfe"),
        row(1, b"abc")[:20],
        b"",
        b"x" * 9,
    ],
)
def test_what_is_odd_is_left_to_the_decoder_that_says_why(bad):
    assert structs(binary([row(1, b"abc"), bad]), ROW) is None
    assert structs(binary([row(1, b"abc"), row(2, b"")]), ROW).to_pylist() == [
        {"n": 1, "s": "abc"},
        {"n": 2, "s": ""},
    ]


def test_types_that_need_a_loop_do_not_fit():
    for kind in (
        ArrayType(Atomic("void")),
        MapType(Atomic("long"), Atomic("calendar")),
        Atomic("variant"),
    ):
        assert not fits(kind) and not fits(StructType(("a",), (kind,)))
    assert fits(ROW)


INNER = StructType(("x", "y"), (Atomic("integer"), Atomic("binary")))
MIXED = StructType(("n", "inner", "raw"), (Atomic("short"), INNER, Atomic("binary")))
NESTED = struct.pack("<QqII", 0, 7, 3, 24) + b"abc\0\0\0\0\0"
SOUND = struct.pack("<QqIIII", 0, 5, len(NESTED), 32, 5, 64) + NESTED + b"bytes\0\0\0"


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 7)), max_size=4),
    st.booleans(),
)
def test_whatever_bits_are_flipped_both_decoders_say_the_same(flips, other_first):
    flipped = bytearray(SOUND)
    for place, bit in flips:
        flipped[place] ^= 1 << bit
    rows = [SOUND, bytes(flipped)] if other_first else [bytes(flipped), SOUND]
    together = structs(binary(rows), MIXED)
    try:
        alone = array([decode_row(one, MIXED) for one in rows], arrow_type(MIXED))
    except FormatError:
        assert together is None
        return
    assert together is None or together.equals(alone)


LONG = StructType(("d",), (DecimalType(38, 3),))


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), min_size=1))
def test_long_decimals_are_widened_with_their_sign(numbers):
    rows = []
    for number in numbers:
        size = (abs(number or 0)).bit_length() // 8 + 1
        digits = b"" if number is None else number.to_bytes(size, "big", signed=True)
        rows.append(struct.pack("<QII", number is None, len(digits), 16) + digits.ljust(16, b"\0"))
    expected = array([decode_row(one, LONG) for one in rows], arrow_type(LONG))
    assert structs(binary(rows), LONG).equals(expected)


SHORTS = struct.pack("<qQ", 3, 2) + struct.pack("<hhh", 1, 0, -2) + b"\0\0"
TEXTS = struct.pack("<qQ", 2, 0) + struct.pack("<IIII", 3, 32, 0, 40) + b"abc\0\0\0\0\0"
PAIRS = struct.pack("<q", len(TEXTS)) + TEXTS + struct.pack("<qQqq", 2, 1, 0, 9)
LISTED = StructType(
    ("a", "m"), (ArrayType(Atomic("short")), MapType(Atomic("string"), Atomic("long")))
)
BOTH = struct.pack("<QIIII", 0, len(SHORTS), 24, len(PAIRS), 24 + len(SHORTS)) + SHORTS + PAIRS
NEITHER = struct.pack("<QQQ", 3, 0, 0)


def test_lists_and_maps_are_columns_of_their_items():
    found = structs(binary([BOTH, NEITHER, BOTH]), LISTED)
    assert found is not None and found.to_pylist()[:2] == [
        {"a": [1, None, -2], "m": [("abc", None), ("", 9)]},
        {"a": None, "m": None},
    ]
    assert found.equals(
        array([decode_row(one, LISTED) for one in (BOTH, NEITHER, BOTH)], arrow_type(LISTED))
    )


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, len(BOTH) - 1), st.integers(0, 7)), max_size=4), st.booleans()
)
def test_whatever_bits_of_lists_are_flipped_both_decoders_say_the_same(flips, other_first):
    flipped = bytearray(BOTH)
    for place, bit in flips:
        flipped[place] ^= 1 << bit
    rows = [BOTH, bytes(flipped)] if other_first else [bytes(flipped), BOTH]
    together = structs(binary(rows), LISTED)
    try:
        alone = array([decode_row(one, LISTED) for one in rows], arrow_type(LISTED))
    except FormatError:
        assert together is None
        return
    assert together is None or together.equals(alone)
