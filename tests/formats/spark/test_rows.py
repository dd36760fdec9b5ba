"""Types, rows and placements. What Spark says of all types is in test_golden, case `types`."""

import contextlib
import json
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DecimalType,
    MapType,
    StructType,
    decode_struct,
)
from stateshift.formats.spark.unsafe_row import decode_row, unscale_decimal
from tests.support.encoders import partition_of


def schema(*types):
    fields = [{"name": "same", "type": kind, "nullable": True, "metadata": {}} for kind in types]
    return decode_struct(json.dumps({"type": "struct", "fields": fields}))


EVERYTHING = schema(
    "long",
    "string",
    "decimal(30,5)",
    {"type": "array", "elementType": "string", "containsNull": True},
    {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": "void"}},
    {
        "type": "struct",
        "fields": [{"name": "x", "type": "variant"}, {"name": "y", "type": "interval"}],
    },
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("integer", Atomic("integer")),
        ("varchar(5)", Atomic("string")),
        ("string collate UNICODE_CI", Atomic("string")),
        ("null", Atomic("void")),
        ("decimal(10,2)", DecimalType(10, 2)),
        ("interval year to month", Atomic("year-month")),
        ("interval day to second", Atomic("day-time")),
        ({"type": "udt", "sqlType": "long"}, Atomic("long")),
        ({"type": "array", "elementType": "long"}, ArrayType(Atomic("long"))),
        (
            {"type": "map", "keyType": "long", "valueType": "date"},
            MapType(Atomic("long"), Atomic("date")),
        ),
    ],
)
def test_a_type_is_read_from_its_json(name, kind):
    assert schema(name) == StructType(("same",), (kind,))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '"long"',
        '{"type":"struct"}',
        '{"type":"struct","fields":[{"name":"a","type":"time(6)"}]}',
        '{"type":"struct","fields":' * 5000,
        '{"type":"array","elementType":"long"}',
        '{"type":"struct","fields":[{"type":"long"}]}',
        '{"type":[]}',
    ],
)
def test_what_is_no_struct_is_refused(text):
    with pytest.raises(FormatError):
        decode_struct(text)


def test_fields_are_read_by_position():
    row = (
        bytes((0b100,))
        + bytes(7)
        + struct.pack("<q", -5)
        + struct.pack("<II", 2, 32)
        + bytes(8)
        + b"hi"
        + bytes(6)
    )
    assert decode_row(row, schema("long", "string", "long")) == (-5, "hi", None)


def test_a_string_that_is_not_utf8_keeps_its_bytes():
    row = bytes(8) + struct.pack("<II", 1, 16) + b"\xff" + bytes(7)
    (value,) = decode_row(row, schema("string"))
    assert value.encode("utf-8", "surrogateescape") == b"\xff"


@pytest.mark.parametrize(
    ("row", "types"),
    [
        (bytes(15), ("long",)),
        (bytes(8) + struct.pack("<II", 9, 16) + bytes(8), ("string",)),
        (bytes(8) + struct.pack("<II", 8, 2**32 - 1) + bytes(8), ("binary",)),
        (bytes(8) + struct.pack("<II", 24, 0) * 3, ("string", "string", "string")),
        (
            bytes(8) + struct.pack("<II", 8, 16) + struct.pack("<q", 2**40),
            ({"type": "array", "elementType": "void"},),
        ),
        (bytes(8) + struct.pack("<II", 8, 16) + struct.pack("<q", -1), ("interval",)),
    ],
)
def test_what_points_out_of_the_row_is_refused(row, types):
    with pytest.raises(FormatError) as caught:
        decode_row(row, schema(*types))
    assert caught.value.offset is not None


@given(st.binary(max_size=200))
def test_random_rows_raise_nothing_but_format_errors(content):
    with contextlib.suppress(FormatError):
        decode_row(content, EVERYTHING)


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_are_exact(number, scale):
    value = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    assert unscale_decimal(value, scale) == number


# What Spark 4.3.0 answers to SELECT hash(...).
HASHES = [
    ((1,), ("integer",), -559580957),
    ((1,), ("long",), -1712319331),
    (("Spark",), ("string",), 228093765),
    (("",), ("string",), 142593372),
    (("abc", None, 2), ("string", "date", "short"), 1607087361),
    ((True,), ("boolean",), -559580957),
    ((-0.0,), ("double",), -1670924195),
    ((1.5,), ("float",), -221251528),
    ((3,), ("interval month",), -1823081949),
    ((5_000_000,), ("interval second",), -111824516),
    (((14, 25, 5 * 3600_000_000 + 6 * 60_000_000 + 7_500_000),), ("interval",), -504672070),
    ((Decimal("-123456789012345678901234.56789"),), ("decimal(30,5)",), 355631909),
    ((Decimal("-1.28"),), ("decimal(38,2)",), 775851899),
    ((Decimal("1.28"),), ("decimal(38,2)",), -544401882),
    ((Decimal("0.00"),), ("decimal(38,2)",), -783713497),
    ((Decimal("1.25"),), ("decimal(10,2)",), 1910520950),
    ((b"\xff\x01\x80",), ("binary",), -260462071),
    (("ünïcode ☃",), ("string",), -1725265478),
    ((("a", None, "bcd"),), ({"type": "array", "elementType": "string"},), 1268579532),
    ((-3653,), ("date",), 1238262706),
    ((1767225600500000,), ("timestamp",), 183810313),
]


@pytest.mark.parametrize(("values", "types", "expected"), HASHES)
def test_a_hash_is_sparks(values, types, expected):
    assert signed_hash(values, schema(*types).types) == expected


def test_a_null_leaves_the_hash_as_it_is():
    assert signed_hash((None,), schema("long").types) == 42
    one = schema("long").types
    assert signed_hash((5, None), schema("long", "string").types) == signed_hash((5,), one)


@given(st.integers(1, 1000), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3))
def test_every_key_has_a_partition(partitions, values):
    kinds = schema(*["long"] * len(values)).types
    assert 0 <= partition_of(values, kinds, partitions) < partitions
