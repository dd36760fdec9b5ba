"""Values against the bytes that Flink's serializers write, as their code says: what is read of them,
and what is written for it. Written down from the classes of Flink 2.3.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from stateshift.formats.flink.binary_rows import key_slot_of
from stateshift.formats.flink.encoding import UnfitValue, encode, write_key
from stateshift.formats.flink.evolution import FieldChanges, evolve
from stateshift.formats.flink.java_data import DataInput, encode_utf
from stateshift.formats.flink.logical_types import LogicalType
from stateshift.formats.flink.serializers import Serializer, read_snapshot, takes_no_bytes, value

LONG, STRING = Serializer("LongSerializer", 3), Serializer("StringSerializer", 3)
TIME = LogicalType("TIMESTAMP_WITHOUT_TIME_ZONE", True, 6)
AMOUNT = LogicalType("DECIMAL", True, 30, 2)


def of(name: str, *inner: Serializer, **facts: Any) -> Serializer:
    return Serializer(f"{name}Serializer", 3, inner, **facts)


WRITTEN: list[tuple[Serializer, object, str]] = [
    # SetSerializer: writeInt, and of each element writeBoolean(element == null), the element
    (of("Set", LONG), [5], "00000001 00 0000000000000005"),
    (of("Set", STRING), ["a", None], "00000002 00 0261 01"),
    (of("Tuple", of("Set", STRING), STRING), [["a"], "b"], "00000001 00 0261 0262"),
    # StringValue.write: the number of units, and each unit, seven bits a byte
    (of("StringValue"), "ab", "02 61 62"),
    (of("StringValue"), "", "00"),
    (of("StringValue"), "é" * 128, "8001" + "e901" * 128),
    (STRING, "ab", "03 61 62"),
    # NullValueSerializer writes nothing; NullSerializer of data views writeByte(0)
    (of("Tuple", of("NullValue"), LONG), [None, 1], "0000000000000001"),
    (of("Tuple", of("Null"), LONG), [None, 1], "00 0000000000000001"),
    (of("List", of("Null")), [None, None], "00000002 00 00"),
    (of("Set", of("NullValue")), [None], "00000001 01"),
]


@pytest.mark.parametrize(
    ("serializer", "shown", "digits"), WRITTEN, ids=lambda each: str(each)[:30]
)
def test_values_are_read_and_written_as_flink_writes_them(
    serializer: Serializer, shown: object, digits: str
) -> None:
    raw = bytes.fromhex(digits)
    data = DataInput(raw, "a value")
    assert value(serializer, data) == shown and data.at_end()
    assert encode(serializer, shown) == raw


def test_only_a_null_value_takes_no_bytes() -> None:
    assert takes_no_bytes(of("NullValue")) and takes_no_bytes(of("Tuple", of("NullValue")))
    assert not takes_no_bytes(of("Null")) and not takes_no_bytes(of("Set", of("NullValue")))
    with pytest.raises(UnfitValue):
        encode(of("StringValue"), None)


def test_a_set_of_numbers_is_widened_with_the_byte_before_each() -> None:
    base = "org.apache.flink.api.common.typeutils.base."
    inner = encode_utf(f"{base}IntSerializer$IntSerializerSnapshot") + struct.pack(">i", 3)
    content = encode_utf(f"{base}SetSerializerSnapshot") + struct.pack(">iii", 3, 911108, 1)
    content += struct.pack(">iii", 1333245, 1, 1) + inner
    changes = FieldChanges.of({"widen": {"": "Long"}})
    part = evolve(content, read_snapshot(DataInput(content, "one"), nested=True), changes)
    old = bytes.fromhex("00000002 00 00000005 01")
    assert part.write(DataInput(old, "one")).hex(" ", -4) == (
        bytes.fromhex("00000002 00 0000000000000005 01").hex(" ", -4)
    )


def test_nulls_of_rows_keep_bytes_in_the_operators_key_alone() -> None:
    """RowDataSerializer and ArrayDataSerializer call setNullAt; the projection of a key writes
    writeTimestamp(null) and writeDecimal(null), whose bytes stay."""
    row = of("RowData", columns=(LogicalType("INTEGER"), TIME, AMOUNT), fields=("a", "b", "c"))
    given = {"a": 1, "b": None, "c": None}
    fixed = struct.pack("<QQ", 0b110 << 8, 1)
    assert encode(row, given) == struct.pack(">i", 32) + fixed + bytes(16)
    own = fixed + struct.pack("<IIII", 0, 32, 0, 40) + bytes(8 + 16)
    assert write_key(row, given) == struct.pack(">i", len(own)) + own
    array = of("ArrayData", columns=(LogicalType("ARRAY", inner=(TIME,)),))
    assert encode(array, [None]) == struct.pack(">iIIQ", 16, 1 << 24, 1 << 24, 0)
    assert key_slot_of(LogicalType("INTEGER"), None).part is None


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("LocalDate", "2026-02-30"),
        ("LocalDate", "2025-02-29"),
        ("LocalDate", "+1000000000-01-01"),
        ("LocalDate", "-1000000000-01-01"),
        ("LocalDateTime", "2026-04-31T10:00:00"),
        ("LocalDateTime", "+1000000000-01-01T10:00:00"),
        ("Instant", "+1000000001-01-01T00:00:00Z"),
        ("Instant", "-1000000001-12-31T23:59:59Z"),
    ],
)
def test_times_that_java_does_not_have_are_refused(name: str, given: str) -> None:
    with pytest.raises(UnfitValue):
        encode(of(name), given)


def test_times_at_the_ends_of_javas_are_written() -> None:
    assert encode(of("LocalDate"), "2024-02-29").hex() == "000007e8021d"
    assert encode(of("LocalDate"), "+999999999-12-31").hex() == "3b9ac9ff0c1f"
    last = encode(of("Instant"), "+1000000000-12-31T23:59:59.999999999Z")
    assert struct.unpack(">qi", last) == (31556889864403199, 999_999_999)  # Instant.MAX
    first = encode(of("Instant"), "-1000000000-01-01T00:00:00Z")
    assert struct.unpack(">qi", first) == (-31557014167219200, 0)  # Instant.MIN


def test_a_map_of_avro_with_a_key_twice_is_refused() -> None:
    avro = of("Avro", schema=json.dumps({"type": "map", "values": "int"}))
    with pytest.raises(UnfitValue, match="a key twice"):
        encode(avro, [["a", 1], ["a", 2]])


@pytest.mark.parametrize("wrong", ["x", 0.5, 1 << 63])
def test_a_field_of_a_row_of_numbers_that_does_not_fit_is_named(wrong: object) -> None:
    columns = (LogicalType("BIGINT", True), LogicalType("BIGINT", True))
    row = of("RowData", columns=columns, fields=("fits", "wrong"))
    with pytest.raises(UnfitValue, match="wrong: "):
        encode(row, {"fits": 1, "wrong": wrong})
