"""Values by the snapshots of their serializers: read to the end, cut anywhere, and made to hurt."""

from __future__ import annotations

import json
import struct
import time

import pytest

from stateshift.errors import FormatError
from stateshift.formats.flink.avro_data import avro_reader
from stateshift.formats.flink.binary_rows import (
    Span,
    array_reader,
    map_reader,
    plain_decimal,
    row_reader,
)
from stateshift.formats.flink.heap_groups import HeapEntry, Hidden, heap_entries
from stateshift.formats.flink.java_data import DataInput, encode_utf
from stateshift.formats.flink.java_objects import MAGIC, JavaObject, read_object
from stateshift.formats.flink.keyed_state import decode_header
from stateshift.formats.flink.logical_types import LogicalType, logical_type
from stateshift.formats.flink.serializers import Serializer, Unknown, read_snapshot, value
from stateshift.formats.flink.times import date_text, instant_text, time_text
from stateshift.formats.flink.type_names import type_fields, type_name
from tests.formats.flink.typed_values import HeapSection, heap_sections, typed_values

LONG, INT = LogicalType("BIGINT"), LogicalType("INTEGER")


def of(raw: bytes) -> DataInput:
    return DataInput(raw, "a value")


def test_each_snapshot_is_read_to_its_end_and_cut_anywhere_refused() -> None:
    for typed in typed_values():
        assert type_name(typed.serializer) and dict(type_fields(typed.serializer)) is not None
        for end in range(0, len(typed.snapshot), 1 + len(typed.snapshot) // 200):
            with pytest.raises((FormatError, Unknown)):
                read_snapshot(of(typed.snapshot[:end]))


def test_each_value_cut_anywhere_is_refused_or_read_as_another_one_that_ends_there() -> None:
    for typed in typed_values():
        if typed.serializer.name in ("MapSerializer", "ListSerializer"):
            continue  # whose entries are in another form in a canonical savepoint
        for end in range(len(typed.value)):
            data = of(typed.value[:end])
            try:
                value(typed.serializer, data)
            except (FormatError, Unknown):
                continue
            assert data.at <= end


def test_a_key_group_of_the_hashmap_backend_cut_anywhere_is_refused_or_said_to_be_hidden() -> None:
    for section in heap_sections()[::5]:
        for end in range(0, len(section.content), 1 + len(section.content) // 40):
            try:
                found = split(section._replace(content=section.content[:end]))
            except FormatError:
                continue
            assert any(isinstance(one, Hidden) for one in found)


def split(section: HeapSection) -> list[HeapEntry | Hidden]:
    header = decode_header(section.head, len(section.head))
    return list(heap_entries(header, section.content, section.group, 8))


def test_every_byte_of_a_key_group_is_in_an_entry_or_said_to_be_hidden() -> None:
    for section in heap_sections():
        header = decode_header(section.head, len(section.head))
        size = 4 + 6 * len(header.states)
        for one in split(section):
            if isinstance(one, Hidden):
                size += len(one.content)
                assert len(one.states) == 1
            else:
                size += len(one.time + one.namespace + one.key + one.value)
        assert size == len(section.content)


# ---- rows of SQL ---------------------------------------------------------------------------------


def row_of(*words: int, size: int = 0, kind: int = 0) -> bytes:
    return bytes((kind, *bytes(7))) + struct.pack(f"<{len(words)}q", *words) + bytes(size)


def test_a_row_has_its_kind_and_its_fields() -> None:
    read = row_reader((LONG, LogicalType("VARCHAR", size=9)), ("a", "b"))
    inline = int.from_bytes(b"abc\0\0\0\0\x83", "little", signed=True)
    raw = row_of(7, inline, kind=3)
    assert read(Span(raw, 0, len(raw))) == {"@kind": "-D", "a": 7, "b": "abc"}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        row_of(7)[:-1],
        row_of(7, kind=4),
        row_of(24 << 32 | 9),  # behind the end
        row_of(0x7FFFFFFF << 32 | 0x7FFFFFFF),
        row_of(struct.unpack("<q", b"abcdefg\x88")[0]),  # eight bytes in seven
    ],
)
def test_a_row_that_is_not_whole_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError):
        row_reader((LogicalType("VARCHAR", size=9),), ("a",))(Span(raw, 0, len(raw)))


@pytest.mark.parametrize("count", [3, 0x7FFFFFFF, -1])
def test_an_array_of_more_items_than_there_are_is_refused(count: int) -> None:
    raw = struct.pack("<iiqq", count, 0, 1, 2)
    with pytest.raises(FormatError):
        array_reader(LONG)(Span(raw, 0, len(raw)))


def test_a_map_of_more_keys_than_values_is_refused() -> None:
    keys, items = struct.pack("<iiii", 2, 0, 1, 2), struct.pack("<iiii", 1, 0, 1, 0)
    raw = struct.pack("<i", len(keys)) + keys + items
    with pytest.raises(FormatError, match="2 keys, and 1 values"):
        map_reader(INT, INT)(Span(raw, 0, len(raw)))


def test_types_that_refer_to_themselves_are_not_read() -> None:
    package = "org.apache.flink.table.types.logical."
    array = JavaObject(f"{package}ArrayType", {"typeRoot": None})
    array.fields["elementType"] = array
    assert logical_type(array) is None


# ---- objects of Java ------------------------------------------------------------------------------


def test_an_array_of_more_items_than_bytes_is_refused() -> None:
    head = MAGIC + b"\x75\x72" + encode_utf("[J") + bytes(8) + b"\x02\0\0\x78\x70"
    with pytest.raises(FormatError):
        read_object(of(head + struct.pack(">i", 0x7FFFFFFF)))


def test_arrays_in_arrays_end() -> None:
    one = b"\x75\x72" + encode_utf("[LA;") + bytes(8) + b"\x02\0\0\x78\x70" + struct.pack(">i", 1)
    with pytest.raises(FormatError, match="nested too deeply"):
        read_object(of(MAGIC + one * 3000))


# ---- Avro ----------------------------------------------------------------------------------------


def test_a_record_of_avro_is_read_by_its_schema() -> None:
    schema = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "next", "type": ["null", "Order"]},
        ],
    }
    one = (
        struct.pack(">q", 7)
        + struct.pack(">ii", 1, 2) + b"hi"
        + struct.pack(">i", 2) + struct.pack(">h", 1234)
        + struct.pack(">q", 1500)
        + struct.pack(">i", 1)
        + b"\x02" + struct.pack(">i", 1) + b"x" + struct.pack(">i", 1) + b"y" + b"\0"
        + b"\x01" + struct.pack(">i", 1) + b"n" + struct.pack(">i", 5) + b"\0"
    )  # fmt: skip
    serializer = Serializer("AvroSerializer", 2, schema=json.dumps(schema))
    data = of(one + struct.pack(">i", 1) + one + struct.pack(">i", 0))
    read = value(serializer, data)
    inner = {
        "id": 7,
        "note": "hi",
        "price": "12.34",
        "at": "1970-01-01T00:00:01.500Z",
        "kind": "B",
        "tags": ["x", "y"],
        "counts": [["n", 5]],
    }
    assert read == {**inner, "next": {**inner, "next": None}} and data.at_end()
    assert not serializer.is_opaque and dict(type_fields(serializer))["id"] == "long"


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "7",
        '{"type": "record"}',
        '"Order"',
        '{"type": "fixed", "name": "a", "size": -1}',
        "[" * 99_999,
    ],
)
def test_what_is_no_schema_is_opaque(schema: str) -> None:
    assert avro_reader(schema) is None
    assert Serializer("AvroSerializer", 2, schema=schema).is_opaque


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "a", "fields": [{"name": "a", "type": "a"}]},
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "array", "items": "null"}},
    ],
)
def test_values_of_avro_without_an_end_are_refused_at_once(schema: object) -> None:
    read = avro_reader(json.dumps(schema))
    assert read is not None
    began = time.thread_time()
    with pytest.raises(FormatError):
        read(of(b"\xff\x7f" * 50_000))
    assert time.thread_time() - began < 5


# ---- others --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "text"),
    [(0, "1970-01-01"), (19_754, "2024-02-01"), (-719_528, "0000-01-01"), (-25_509, "1900-02-28"),
     (11_016, "2000-02-29"), (2_932_897, "+10000-01-01"), (-719_529, "-0001-12-31")],
)  # fmt: skip
def test_days_are_dates_of_all_years(days: int, text: str) -> None:
    assert date_text(days) == text


def test_times_have_as_many_digits_as_they_need() -> None:
    assert time_text(1_000_000_000) == "00:00:01"
    assert time_text(1_500_000_000) == "00:00:01.500"
    assert time_text(1_500_001_000) == "00:00:01.500001"
    assert instant_text(-1, 1) == "1969-12-31T23:59:59.000000001Z"


@pytest.mark.parametrize(
    ("unscaled", "scale", "text"),
    [
        (5, 3, "0.005"),
        (-12345, 2, "-123.45"),
        (7, 0, "7"),
        (7, -3, "7E3"),
        (1, 1 << 30, "1E-1073741824"),
    ],
)
def test_decimals_are_digits_and_never_too_many(unscaled: int, scale: int, text: str) -> None:
    assert plain_decimal(unscaled, scale) == text


def test_a_number_of_a_million_digits_is_shown_by_its_bytes() -> None:
    raw = struct.pack(">i", 400_004) + b"\x7f" * 400_000
    shown = value(Serializer("BigIntSerializer", 3), of(raw))
    assert shown == {"raw": "7f" * 400_000}


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("InstantSerializer", struct.pack(">qi", 0, 1_000_000_000)),
        ("LocalDateSerializer", struct.pack(">iBB", 2024, 13, 1)),
        ("LocalTimeSerializer", struct.pack(">BBBi", 24, 0, 0, 0)),
        ("BigIntSerializer", struct.pack(">i", -1)),
        ("IntPrimitiveArraySerializer", struct.pack(">ii", 2, 0)),
        ("StringArraySerializer", struct.pack(">i", 0x7FFFFFFF)),
    ],
)
def test_what_a_serializer_does_not_write_is_refused(name: str, raw: bytes) -> None:
    with pytest.raises(FormatError):
        value(Serializer(name, 3), of(raw))


def test_objects_of_a_class_that_no_snapshot_describes_are_named() -> None:
    pojo = Serializer("PojoSerializer", 2, (Serializer("LongSerializer", 3),), "A", ("x",))
    assert value(pojo, of(b"\x02\0" + struct.pack(">q", 7))) == {"x": 7}
    assert value(pojo, of(b"\x01")) is None
    with pytest.raises(Unknown, match="of B"):
        value(pojo, of(b"\x04" + encode_utf("B")))
    for wrong in (b"\x08\x00", b"\x20", b"\x02\x02"):
        with pytest.raises(FormatError):
            value(pojo, of(wrong))
