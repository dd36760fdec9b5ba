"""Avro rows: the bytes of a row of transformWithState under `stateStore.encodingFormat=avro`, read
by its columns.

    row     its columns, one behind the other
    column  00 null, or 02 and the value; a void column is no byte at all
    value   boolean: 00 or 01       byte short integer long date timestamp timestamp_ntz: zigzag
                                    varint
            float double: little-endian       decimal(p, s): unscaled, big-endian, of as many bytes
                                              as p digits need
            string binary: varint size | bytes       struct: its columns
            array: (varint count | items)* | 00       map: (varint count | (varint size | key |
                                                      value)*)* | 00
              a count below zero is followed by the block's size in bytes; items and values that
              are structs, arrays or maps are like columns, 00 or 02 and the value, others the bare
              value

    row_reader(columns)          content, offset -> the row from there to the end; as `unsafe_row`
                                 has it
    row_reader(columns, wanted)  the same as a row of other columns, as Spark reads a row that was
                                 written before the schema became another: columns by name, new ones
                                 null, numbers widened
    encode_row(values, columns)  the inverse of the former

Source: Spark, SchemaConverters.toAvroTypeWithDefaults (which makes everything null-able but the
items of arrays and the values of maps), AvroSerializer, AvroDeserializer; Avro 1.12, specification,
"Binary encoding", "Schema resolution".

Types that Spark refuses to encode so (intervals, variants, maps whose keys are not strings) are
refused here, and arrays of void, whose items take no byte: nothing would bound their count.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal

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
)
from stateshift.formats.spark.unsafe_row import scale_integer, unscale_decimal

# A function that gives the value at an offset, and its end.
Reader = Callable[[bytes, int], tuple[Value, int]]

_WHOLE = ("byte", "short", "integer", "date", "timestamp", "timestamp_ntz")
_FLOATS = {name: FORMS[name] for name in ("float", "double")}

_WIDER = {
    "byte": ("short", "integer", "long", "float", "double"),
    "short": ("integer", "long", "float", "double"),
    "integer": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
}


def row_reader(
    written: StructType, wanted: StructType | None = None
) -> Callable[[bytes, int], Row]:
    """Return a reader of rows; FormatError for a type that cannot be, or become the wanted one."""
    try:
        read = _record(written, wanted or written)
    except RecursionError as error:
        raise FormatError("a schema is nested too deeply", None, 0) from error

    def row(content: bytes, offset: int) -> Row:
        values: Row
        try:
            values, end = read(content, offset)
        except IndexError as error:
            raise FormatError("a row ends inside of its columns", None, len(content)) from error
        if end != len(content):
            raise FormatError("a row goes on behind its last column", None, end)
        return values

    return row


def bytes_of(decimal: DecimalType) -> int:
    """Return the bytes that hold every number of so many digits (Decimal.minBytesForPrecision)."""
    most: int = 10**decimal.precision
    return (most.bit_length() + 8) // 8


def encode_row(values: Row, columns: StructType) -> bytes:
    """Return one row: the inverse of `row_reader(columns)`."""
    return b"".join(map(_encode_column, values, columns.types))


def _encode_column(value: Value, kind: DataType) -> bytes:
    if kind == Atomic("void"):
        return b""
    return b"\0" if value is None else b"\2" + _encode_value(value, kind)


def _encode_value(value: Value, kind: DataType) -> bytes:
    match kind:
        case StructType():
            return encode_row(value, kind)
        case ArrayType(element):
            return _encode_block([_encode_item(item, element) for item in value])
        case MapType(key, inner):
            pairs = [_encode_value(name, key) + _encode_item(item, inner) for name, item in value]
            return _encode_block(pairs)
        case DecimalType():
            number = unscale_decimal(value, kind.scale)
            return number.to_bytes(bytes_of(kind), "big", signed=True)
        case Atomic("boolean"):
            return b"\1" if value else b"\0"
        case Atomic("string" | "binary"):
            is_text = isinstance(value, str)
            content = value.encode("utf-8", "surrogateescape") if is_text else value
            return _encode_long(len(content)) + bytes(content)
        case Atomic(name) if name in _FLOATS:
            return _FLOATS[name].pack(value)
        case Atomic(name) if name == "long" or name in _WHOLE:
            return _encode_long(value)
    raise _unreadable(kind, kind)


def _encode_item(value: Value, kind: DataType) -> bytes:
    if isinstance(kind, StructType | ArrayType | MapType):
        return _encode_column(value, kind)
    if value is None:
        raise FormatError("a null in a list of values that are never null")
    return _encode_value(value, kind)


def _encode_block(items: list[bytes]) -> bytes:
    head = _encode_long(len(items)) if items else b""
    return head + b"".join(items) + b"\0"


def _encode_long(number: int) -> bytes:
    rest, encoded = (number << 1) ^ (number >> 63), bytearray()
    while rest > 127:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*encoded, rest))


def _record(written: StructType, wanted: StructType) -> Reader:
    if written == wanted:
        return _columns([_column(kind, kind) for kind in written.types])
    types = dict(zip(wanted.names, wanted.types, strict=True))
    positions: dict[str, int] = {}
    columns: list[Reader] = []
    for name, kind in zip(written.names, written.types, strict=True):
        positions.setdefault(name, len(columns))
        columns.append(_column(kind, types.get(name, kind)))
    read = _columns(columns)
    order = [positions.get(name) for name in wanted.names]

    def record(content: bytes, at: int) -> tuple[Row, int]:
        row, at = read(content, at)
        return tuple(None if position is None else row[position] for position in order), at

    return record


def _columns(readers: list[Reader]) -> Reader:
    def columns(content: bytes, at: int) -> tuple[Row, int]:
        row = []
        for read in readers:
            value, at = read(content, at)
            row.append(value)
        return tuple(row), at

    return columns


def _column(written: DataType, wanted: DataType) -> Reader:
    """Return a reader of a value, or null: a union has two branches."""
    if written == Atomic("void"):
        return lambda content, at: (None, at)
    read = _value(written, wanted)

    def column(content: bytes, at: int) -> tuple[Value, int]:
        branch = content[at]
        if branch == 2:
            return read(content, at + 1)
        if branch:
            fact = f"a column begins with {branch:#04x}, which is neither null nor a value"
            raise FormatError(fact, None, at)
        return None, at + 1

    return column


def _value(written: DataType, wanted: DataType) -> Reader:
    match written, wanted:
        case StructType(), StructType():
            return _record(written, wanted)
        case ArrayType(Atomic("void")), _:
            fact = "an array of void in Avro rows: nothing bounds how many items it claims"
            raise FormatError(fact)
        case ArrayType(element), ArrayType(wanted_element):
            return _blocks(_item(element, wanted_element))
        case MapType(Atomic("string"), value), MapType(Atomic("string"), wanted_value):
            read = _item(value, wanted_value)

            def pair(content: bytes, at: int) -> tuple[tuple[str, Value], int]:
                key, at = _text(content, at)
                item, at = read(content, at)
                return (key, item), at

            return _blocks(pair)
        case DecimalType(), _ if written == wanted:
            return _decimal(written)
        case Atomic(name), Atomic(wanted_name):
            return _atomic(name, wanted_name)
    raise _unreadable(written, wanted)


def _unreadable(written: DataType, wanted: DataType) -> FormatError:
    if written == wanted:
        fact = f"Avro rows with a column of type {_named(written)}, which Spark does not write"
        return FormatError(fact)
    fact = f"a column was of type {_named(written)} and is of type {_named(wanted)} now"
    return FormatError(fact)


def _item(written: DataType, wanted: DataType) -> Reader:
    if written == Atomic("void") or isinstance(written, StructType | ArrayType | MapType):
        return _column(written, wanted)  # the others are never null
    return _value(written, wanted)


def _atomic(name: str, wanted: str) -> Reader:
    if {name, wanted} == {"string", "binary"}:
        return _ATOMIC[wanted]
    if name not in _ATOMIC:
        raise _unreadable(Atomic(name), Atomic(wanted))
    if name == wanted:
        return _ATOMIC[name]
    if wanted not in _WIDER.get(name, ()):
        raise _unreadable(Atomic(name), Atomic(wanted))
    return _widened(_ATOMIC[name], wanted)


def _boolean(content: bytes, at: int) -> tuple[bool, int]:
    if content[at] > 1:
        raise FormatError("a boolean is neither 0 nor 1", None, at)
    return content[at] == 1, at + 1


def _long(content: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint: the lowest seven bits first, the sign in the lowest bit."""
    start = at
    byte = content[at]
    number = byte & 0x7F
    shift = 7
    while byte > 127:
        at += 1
        byte = content[at]
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70 or number >> 64:
            raise FormatError("a varint has more than 64 bits", None, start)
    return (number >> 1) ^ -(number & 1), at + 1


def _whole(bits: int) -> Reader:
    half = 1 << bits - 1

    def whole(content: bytes, at: int) -> tuple[int, int]:
        number, end = _long(content, at)
        if not -half <= number < half:
            raise FormatError(f"a number has more than {bits} bits", None, at)
        return number, end

    return whole


def _floating(form: struct.Struct) -> Reader:
    size = form.size

    def floating(content: bytes, at: int) -> tuple[float, int]:
        return form.unpack(_taken(content, at, size))[0], at + size

    return floating


def _widened(read: Reader, into: str) -> Reader:
    if into not in _FLOATS:
        return read
    form = _FLOATS[into]

    def widened(content: bytes, at: int) -> tuple[float, int]:
        value, at = read(content, at)
        return form.unpack(form.pack(value))[0], at

    return widened


def _decimal(kind: DecimalType) -> Reader:
    size, scale, most = bytes_of(kind), kind.scale, 10**kind.precision

    def decimal(content: bytes, at: int) -> tuple[Decimal, int]:
        number = int.from_bytes(_taken(content, at, size), "big", signed=True)
        if abs(number) >= most:
            raise FormatError(f"a decimal has more than {kind.precision} digits", None, at)
        return scale_integer(number, scale), at + size

    return decimal


def _binary(content: bytes, at: int) -> tuple[bytes, int]:
    size, start = _long(content, at)
    if size < 0:
        raise FormatError(f"a value claims {size} bytes", None, at)
    return _taken(content, start, size), start + size


def _text(content: bytes, at: int) -> tuple[str, int]:
    encoded, end = _binary(content, at)
    return encoded.decode("utf-8", "surrogateescape"), end


# The readers of atomic types, as Spark writes them.
_ATOMIC: dict[str, Reader] = {
    **{name: _whole(8 * WIDTHS[name]) for name in _WHOLE},
    **{name: _floating(form) for name, form in _FLOATS.items()},
    "long": _long,
    "boolean": _boolean,
    "string": _text,
    "binary": _binary,
}


def _blocks(read: Reader) -> Reader:
    """Return a reader of items in blocks. An item takes a byte at least: none can claim more."""

    def blocks(content: bytes, at: int) -> tuple[Row, int]:
        items: list[Value] = []
        while True:
            start = at
            count, at = _long(content, at)
            if count == 0:
                return tuple(items), at
            end = None
            if count < 0:
                size, at = _long(content, at)
                count, end = -count, at + size
            if count > len(content) - at:
                raise FormatError(f"an array or a map claims {count} items", None, start)
            for _ in range(count):
                item, at = read(content, at)
                items.append(item)
            if end not in (None, at):
                raise FormatError("a block of items is not of the size it claims", None, start)

    return blocks


def _taken(content: bytes, at: int, size: int) -> bytes:
    end = at + size
    if end > len(content):
        raise FormatError(f"a value of {size} bytes goes on behind the end of its row", None, at)
    return bytes(content[at:end])


def _named(kind: DataType) -> str:
    match kind:
        case Atomic(name):
            return name
        case DecimalType(precision, scale):
            return f"decimal({precision},{scale})"
        case ArrayType(element):
            return f"array of {_named(element)}"
        case MapType(key, value):
            return f"map of {_named(key)} to {_named(value)}"
        case StructType():
            return "struct"
