"""UnsafeRow: the bytes of a row, read by its schema. Little-endian throughout.

    row    null bits, ceil(n/64) words | n slots of 8 bytes | variable part, each item padded to 8
    array  i64 n | null bits, ceil(n/64) words | n elements of the type's width, padded to 8 |
           variable part
    map    i64 bytes of the key array | key array | value array

    in a slot  numbers, dates (days), timestamps (microseconds), intervals; a decimal of at most 18
               digits, unscaled
    variable   the slot is offset << 32 | size, counted from the start of the row (array) the slot
               is in: string, binary, struct, array, map, a longer decimal (two's complement,
               big-endian), calendar interval (i32 months, i32 days, i64 microseconds), variant (i32
               size of the value | value | metadata)

Source: Spark, UnsafeRow, UnsafeArrayData, UnsafeMapData, UnsafeWriter.

Values are plain: int for dates, times and intervals, float, bool, str (bytes that are not UTF-8
kept as surrogates), bytes, Decimal, tuples for structs and arrays, tuples of pairs for maps, None.
Work is bounded by the row's size times the schema's depth: the variable parts of one container may
not add up to more than the container.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from decimal import Decimal
from itertools import repeat

from stateshift.errors import FormatError
from stateshift.formats.spark.types import (
    FORMS,
    WIDTHS,
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    Row,
    StructType,
    Value,
    null_bytes,
)

_LONG = struct.Struct("<q")
_PLACE = struct.Struct("<II")
_CALENDAR = struct.Struct("<iiq")


def decode_row(content: bytes, schema: StructType) -> Row:
    """Return the values of one row."""
    return _struct(content, 0, len(content), schema)


def unscale_decimal(value: Decimal, scale: int) -> int:
    """Return a decimal's stored integer; exact in any decimal context."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent + scale < 0:
        raise FormatError(f"{value} is no decimal of scale {scale}")
    number: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -number if sign else number


def scale_integer(number: int, scale: int) -> Decimal:
    """Return the inverse of `unscale_decimal`."""
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -scale))


def twos_complement(number: int) -> bytes:
    """Return a number in as few bytes as hold it, big-endian (BigInteger.toByteArray)."""
    bits = (number + (number < 0)).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


class _Container:
    """A row or array in `content[base:end]`, and its bytes that no variable part has taken."""

    __slots__ = ("_left", "base", "content", "end")

    def __init__(self, content: bytes, base: int, end: int) -> None:
        self.content, self.base, self.end = content, base, end
        self._left = end - base

    def part(self, slot: int) -> tuple[int, int]:
        size, offset = _PLACE.unpack_from(self.content, slot)
        start = self.base + offset
        self._left -= size
        if start + size > self.end or self._left < 0:
            raise FormatError("a value lies outside its row", None, slot)
        return start, start + size


def _struct(content: bytes, base: int, end: int, schema: StructType) -> Row:
    count = len(schema.types)
    bits = null_bytes(count)
    least = bits + 8 * count
    if end - base < least:
        raise FormatError(f"a row of {count} fields needs {least} bytes", None, end)
    nulls = int.from_bytes(content[base : base + bits], "little")
    return _values(_Container(content, base, end), nulls, base + bits, 8, schema.types)


def _array(content: bytes, base: int, end: int, element: DataType) -> Row:
    if end - base < 8:
        raise FormatError("an array needs eight bytes for its length", None, end)
    (count,) = _LONG.unpack_from(content, base)
    width = 8
    if isinstance(element, Atomic):
        width = 0 if element.name == "void" else WIDTHS.get(element.name, 8)
    if not 0 <= count <= 8 * (end - base):
        raise FormatError(f"an array claims {count} elements", None, base)
    first = base + 8 + null_bytes(count)
    if end < first + width * count:
        raise FormatError(f"an array of {count} elements does not fit", None, end)
    nulls = int.from_bytes(content[base + 8 : first], "little")
    array = _Container(content, base, end)
    return _values(array, nulls, first, width, repeat(element, count))


def _values(
    container: _Container, nulls: int, slot: int, width: int, kinds: Iterable[DataType]
) -> Row:
    values: list[Value] = []
    for number, kind in enumerate(kinds):
        is_null = nulls >> number & 1
        values.append(None if is_null else _value(container, slot, kind))
        slot += width
    return tuple(values)


def _map(content: bytes, base: int, end: int, wanted: MapType) -> tuple[tuple[Value, Value], ...]:
    if end - base < 8:
        raise FormatError("a map needs eight bytes for the size of its keys", None, end)
    (size,) = _LONG.unpack_from(content, base)
    middle = base + 8 + size
    if size < 0 or middle > end:
        raise FormatError(f"a map claims keys of {size} bytes", None, base)
    keys = _array(content, base + 8, middle, wanted.key)
    values = _array(content, middle, end, wanted.value)
    if len(keys) != len(values):
        raise FormatError(f"a map has {len(keys)} keys and {len(values)} values", None, base)
    return tuple(zip(keys, values, strict=True))


def _value(place: _Container, slot: int, wanted: DataType) -> Value:
    content = place.content
    match wanted:
        case Atomic(name) if name in FORMS:
            return FORMS[name].unpack_from(content, slot)[0]
        case Atomic("void"):
            return None
        case DecimalType(precision, scale) if precision <= 18:
            return scale_integer(_LONG.unpack_from(content, slot)[0], scale)
    start, end = place.part(slot)
    return _variable(content, start, end, wanted)


def _variable(content: bytes, start: int, end: int, wanted: DataType) -> Value:
    match wanted:
        case DecimalType():
            return _wide_decimal(content, start, end, wanted)
        case StructType():
            return _struct(content, start, end, wanted)
        case ArrayType(element):
            return _array(content, start, end, element)
        case MapType():
            return _map(content, start, end, wanted)
        case Atomic("string"):
            return content[start:end].decode("utf-8", "surrogateescape")
        case Atomic("binary"):
            return bytes(content[start:end])
        case Atomic("calendar"):
            if end - start != _CALENDAR.size:
                raise FormatError("a calendar interval is not of 16 bytes", None, start)
            return _CALENDAR.unpack_from(content, start)
    # A variant: value and metadata.
    value = start + 4
    metadata = value + int.from_bytes(content[start:value], "little")
    if end < value or end < metadata:
        raise FormatError("a variant is longer than its place", None, start)
    return bytes(content[value:metadata]), bytes(content[metadata:end])


def _wide_decimal(content: bytes, start: int, end: int, wanted: DecimalType) -> Decimal:
    """Return a decimal beyond a long. Too many digits are refused (Decimal.set), fewer not."""
    number = int.from_bytes(content[start:end], "big", signed=True) if end - start <= 16 else 10**38
    if abs(number) >= 10**wanted.precision:
        raise FormatError(f"a decimal has more than {wanted.precision} digits", None, start)
    return scale_integer(number, wanted.scale)
