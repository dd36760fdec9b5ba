"""Avro rows: written here as the specification says, read by us. What Spark writes is in
test_images, cases `tws-avro…`.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.spark.avro_rows import bytes_of, row_reader
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    StructType,
)
from stateshift.formats.spark.unsafe_row import scale_integer, unscale_decimal

WHOLE = {
    "byte": 8,
    "short": 16,
    "integer": 32,
    "date": 32,
    "long": 64,
    "timestamp": 64,
    "timestamp_ntz": 64,
}
LONG, STRING, VOID = Atomic("long"), Atomic("string"), Atomic("void")


def struct_of(*kinds: DataType) -> StructType:
    return StructType(tuple(f"c{n}" for n in range(len(kinds))), kinds)


def varint(number: int) -> bytes:
    number, found = (number << 1) ^ (number >> 63), bytearray()
    while number > 127:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def encoded(value: Any, kind: DataType, block: int = 0) -> bytes:
    """Arrays and maps in blocks of at most so many items, which then say how long they are."""
    match kind:
        case StructType():
            return b"".join(
                column(one, own, block) for one, own in zip(value, kind.types, strict=True)
            )
        case ArrayType(element):
            return blocks([item(one, element, block) for one in value], block)
        case MapType(_, held):
            return blocks([encoded(k, STRING) + item(v, held, block) for k, v in value], block)
        case DecimalType(_, scale):
            return unscale_decimal(value, scale).to_bytes(bytes_of(kind), "big", signed=True)
        case Atomic("boolean"):
            return bytes((value,))
        case Atomic("float" | "double" as name):
            return struct.pack("<f" if name == "float" else "<d", value)
        case Atomic("string" | "binary"):
            content = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
            return varint(len(content)) + content
    return varint(value)


def column(value: Any, kind: DataType, block: int = 0) -> bytes:
    if kind == VOID:
        return b""
    return b"\0" if value is None else b"\2" + encoded(value, kind, block)


def item(value: Any, kind: DataType, block: int) -> bytes:
    nullable = isinstance(kind, StructType | ArrayType | MapType) or kind == VOID
    return column(value, kind, block) if nullable else encoded(value, kind, block)


def blocks(items: list[bytes], most: int) -> bytes:
    if not most:
        return (varint(len(items)) + b"".join(items) if items else b"") + b"\0"
    pieces = [items[at : at + most] for at in range(0, len(items), most)]
    sized = (
        varint(-len(piece)) + varint(sum(map(len, piece))) + b"".join(piece) for piece in pieces
    )
    return b"".join(sized) + b"\0"


ATOMS = st.sampled_from([*WHOLE, "boolean", "float", "double", "string", "binary"]).map(Atomic)
DECIMALS = st.builds(DecimalType, st.integers(1, 38), st.integers(0, 10))
KINDS = st.recursive(
    ATOMS | DECIMALS,
    lambda inner: (
        inner.map(ArrayType)
        | inner.map(lambda kind: MapType(STRING, kind))
        | st.lists(inner | st.just(VOID), max_size=3).map(lambda kinds: struct_of(*kinds))
    ),
    max_leaves=6,
)


def values(kind: DataType) -> st.SearchStrategy[Any]:
    match kind:
        case StructType():
            return st.tuples(*(st.none() | values(one) for one in kind.types))
        case ArrayType(element):
            return st.lists(items(element), max_size=4).map(tuple)
        case MapType(_, held):
            return st.lists(st.tuples(values(STRING), items(held)), max_size=4).map(tuple)
        case DecimalType(precision, scale):
            most = 10**precision - 1
            return st.integers(-most, most).map(lambda number: scale_integer(number, scale))
        case Atomic(name) if name in WHOLE:
            half = 1 << WHOLE[name] - 1
            return st.integers(-half, half - 1)
        case Atomic("boolean"):
            return st.booleans()
        case Atomic("float" | "double" as name):
            return st.floats(width=32 if name == "float" else 64, allow_nan=False)
        case Atomic("binary"):
            return st.binary(max_size=20)
        case Atomic("void"):
            return st.none()
    return st.binary(max_size=20).map(lambda content: content.decode("utf-8", "surrogateescape"))


def items(kind: DataType) -> st.SearchStrategy[Any]:
    return (
        st.none() | values(kind)
        if isinstance(kind, StructType | ArrayType | MapType)
        else values(kind)
    )


@given(
    data=st.data(),
    kinds=st.lists(KINDS, max_size=4),
    block=st.integers(0, 2),
    offset=st.integers(0, 4),
)
def test_what_is_written_is_read_again(
    data: st.DataObject, kinds: list[DataType], block: int, offset: int
) -> None:
    columns = struct_of(*kinds)
    row = data.draw(values(columns))
    content = bytes(offset) + encoded(row, columns, block)
    assert row_reader(columns)(content, offset) == row


@given(data=st.data(), kinds=st.lists(KINDS, min_size=1, max_size=3))
def test_a_row_cut_anywhere_is_refused_with_the_offset(
    data: st.DataObject, kinds: list[DataType]
) -> None:
    columns = struct_of(*kinds)
    content = encoded(data.draw(values(columns)), columns)
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(FormatError) as caught:
        row_reader(columns)(content[:cut], 0)
    assert caught.value.offset is not None and caught.value.offset <= cut


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"\2\2\0", LONG, "goes on behind"),
        (b"\1\2", LONG, "neither null nor"),
        (b"\2" + b"\xff" * 9 + b"\x03", LONG, "64 bits"),
        (b"\2" + b"\x80" * 20 + b"\0", LONG, "64 bits"),
        (b"\2" + varint(1 << 31), Atomic("integer"), "32 bits"),
        (b"\2" + varint(-129), Atomic("byte"), "8 bits"),
        (b"\2\2", Atomic("boolean"), "neither 0 nor 1"),
        (b"\2" + varint(-1), STRING, "claims -1 bytes"),
        (b"\2" + varint(1 << 40), STRING, "behind the end"),
        (b"\2\x7f\xff\xff\xff\xff", DecimalType(9, 2), "9 digits"),
        (b"\2" + varint(1 << 40), ArrayType(LONG), "items"),
        (b"\2" + varint(-(1 << 62)) + b"\0", ArrayType(StructType((), ())), "items"),
        (b"\2" + varint(-1) + varint(5) + b"\2\0", ArrayType(LONG), "size it claims"),
    ],
)
def test_what_no_writer_writes_is_refused(content: bytes, kind: DataType, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        row_reader(struct_of(kind))(content, 0)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (Atomic("calendar"), "calendar"),
        (Atomic("variant"), "variant"),
        (Atomic("year-month"), "year-month"),
        (Atomic("day-time"), "day-time"),
        (MapType(LONG, STRING), "map of long to string"),
        (ArrayType(VOID), "array of void"),
        (StructType(("a",), (ArrayType(Atomic("variant")),)), "variant"),
    ],
)
def test_types_that_spark_does_not_write_so_are_refused_by_name(kind: DataType, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        row_reader(struct_of(kind))


def test_an_old_row_has_the_columns_of_the_newest_schema() -> None:
    inner = StructType(("x", "gone"), (Atomic("integer"), STRING))
    old = StructType(("n", "gone", "deep"), (Atomic("integer"), ArrayType(LONG), ArrayType(inner)))
    wider = StructType(("more", "x"), (STRING, Atomic("double")))
    new = StructType(("deep", "new", "n"), (ArrayType(wider), MapType(STRING, LONG), LONG))
    content = encoded((5, (1, 2), ((7, "a"), None)), old)
    assert row_reader(old, new)(content, 0) == (((None, 7.0), None), None, 5)


@pytest.mark.parametrize(
    ("old", "new", "value", "found"),
    [
        (Atomic("integer"), LONG, -5, -5),
        (LONG, Atomic("double"), 1 << 53, float(1 << 53)),
        (LONG, Atomic("float"), 16_777_217, 16_777_216.0),
        (Atomic("float"), Atomic("double"), 0.5, 0.5),
        (STRING, Atomic("binary"), "é", "é".encode()),
        (Atomic("binary"), STRING, b"\xff", "\udcff"),
    ],
)
def test_a_value_is_widened_as_avro_does(
    old: DataType, new: DataType, value: Any, found: Any
) -> None:
    assert row_reader(struct_of(old), struct_of(new))(column(value, old), 0) == (found,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LONG, Atomic("integer")),
        (STRING, LONG),
        (DecimalType(9, 2), DecimalType(9, 3)),
        (LONG, Atomic("timestamp")),
    ],
)
def test_a_type_that_became_another_without_room_is_refused(old: DataType, new: DataType) -> None:
    with pytest.raises(FormatError, match="was of type"):
        row_reader(struct_of(old), struct_of(new))


def test_fractions_without_a_number_are_read() -> None:
    (value,) = row_reader(struct_of(Atomic("double")))(b"\2" + struct.pack("<d", math.nan), 0)
    assert math.isnan(value)
    assert row_reader(struct_of(DecimalType(38, 0)))(b"\2" + b"\xff" * 16, 0) == (Decimal(-1),)
