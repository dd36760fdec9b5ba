"""The binary rows, arrays and maps of SQL: each field has a place of its own, from which it is
read by its type. Numbers in them are little-endian.

    row     u1 kind (0 +I, 1 -U, 2 +U, 3 -D), a bit for each field that is null: together as many
            words of 8 bytes as they need; 8 bytes a field; what does not fit there
    array   i32 n, a bit for each item that is null (words of 4 bytes); n items of their width,
            filled up to 8 bytes; what does not fit there
    map     i32 size of the keys' array, the keys' array, the values' array

    BOOLEAN, TINYINT 1 byte; SMALLINT 2; INT, FLOAT, DATE (days), TIME (milliseconds), INTERVAL
    YEAR 4; BIGINT, DOUBLE, INTERVAL DAY (milliseconds), DECIMAL up to 18 digits (unscaled),
    TIMESTAMP up to 3 digits (milliseconds) 8. In a row each has 8 bytes.
    text, bytes    up to 7 bytes within the 8: the last is 80 + length; else u32 size, u32 offset
    DECIMAL        u32 size, u32 offset of the unscaled number, big-endian
    TIMESTAMP      u32 nanoseconds of the millisecond, u32 offset of i64 milliseconds
    others         u32 size, u32 offset

Offsets count from the beginning of the row or array. Whatever lies outside of it is refused.

    row_reader(types, names)(span) -> {"f0": ...}       a span of bytes, with the words for errors
    slot_reader(type)(span, place) -> Slot              a field as it is
    encode_row(kind, slots) -> bytes
    slot_of(type, value) -> Slot                        of a value as it is shown
    encode_span(type, value) -> bytes                   the inverse of `span_reader`

The last two raise one of `WRONG` for a value of another type, or write another value: who calls
them reads it again.

Flink: table/data/binary/{BinaryRowData, BinaryArrayData, BinaryMapData, BinarySegmentUtils}, 1.15
to 2.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from stateshift.errors import FormatError
from stateshift.formats.flink.logical_types import LogicalType
from stateshift.formats.flink.times import (
    date_text,
    day_of,
    instant_of,
    instant_text,
    local_of,
    local_text,
    nanos_of,
    time_text,
)

KINDS: Final = ("+I", "-U", "+U", "-D")
COMPACT_DECIMAL: Final = 18
COMPACT_TIMESTAMP: Final = 3
SHORT: Final = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")
_WORD: Final = 8
_KIND_BITS: Final = 8
_INLINE: Final = 0x80
_MILLI_NANOS: Final = 1_000_000
_DAY_MILLIS: Final = 86_400_000
DIGITS_MAX: Final = 1_000
_DECIMAL_BYTES_MAX: Final = 17  # 38 digits, and a sign


class Span(NamedTuple):
    """Some bytes of `data`, from `start` to `end`."""

    data: bytes
    start: int
    end: int

    def part(self, offset: int, size: int) -> Span:
        """Return the part at an offset; refused where it lies outside."""
        start = self.start + offset
        if start + size > self.end:
            raise self.wrong(f"{size} bytes at {offset}, of {self.end - self.start} that it has")
        return Span(self.data, start, start + size)

    def content(self) -> bytes:
        return self.data[self.start : self.end]

    def wrong(self, fact: str) -> FormatError:
        return FormatError(f"a row of SQL is not whole: {fact}", None, self.start)


# Reads a value from a row or array: it, and the place of the value in its data.
FieldReader = Callable[[Span, int], object]
SpanReader = Callable[[Span], object]


def plain_decimal(unscaled: int, scale: int) -> str:
    """Return a decimal's digits; with an exponent where the digits would be many more."""
    if not 0 <= scale <= DIGITS_MAX:
        return f"{unscaled}E{-scale}" if scale else str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    whole = len(digits) - scale
    return f"{sign}{digits[:whole]}.{digits[whole:]}" if scale else sign + digits


def timestamp_text(type_: LogicalType, millis: int, nanos: int) -> str:
    """Return a timestamp; one with a local time zone is an instant."""
    seconds, rest = divmod(millis, 1000)
    text = instant_text if type_.root == "TIMESTAMP_WITH_LOCAL_TIME_ZONE" else local_text
    return text(seconds, rest * _MILLI_NANOS + nanos)


def field_names(count: int) -> tuple[str, ...]:
    """Return the names of columns that have none, as SQL gives them."""
    return tuple(f"f{number}" for number in range(count))


def row_reader(types: Sequence[LogicalType], names: Sequence[str]) -> SpanReader:
    """Return the reader of rows of these fields."""
    readers = [field_reader(type_) for type_ in types]
    header = header_size(len(types))
    fixed = header + _WORD * len(types)
    fields = [
        (name, read, header + _WORD * number, *divmod(number + _KIND_BITS, 8))
        for number, (name, read) in enumerate(zip(names, readers, strict=True))
    ]

    def read_row(row: Span) -> dict[str, object]:
        data, start = row.data, row.start
        if start + fixed > row.end:
            raise row.wrong(f"{row.end - start} bytes, where its fields take {fixed}")
        kind = data[start]
        if kind >= len(KINDS):
            raise row.wrong(f"a kind of {kind}")
        decoded: dict[str, object] = {"@kind": KINDS[kind]} if kind else {}
        for name, read, place, byte, bit in fields:
            is_null = data[start + byte] >> bit & 1
            decoded[name] = None if is_null else read(row, start + place)
        return decoded

    return read_row


def header_size(count: int) -> int:
    """Return the bytes before the first of so many fields."""
    return (count + 63 + _KIND_BITS) // 64 * _WORD


class Slot(NamedTuple):
    """The 8 bytes of a field; or, where it is elsewhere, that `part` of the row, filled up, and the
    number (`low`) that stands beside its place.
    """

    content: bytes = bytes(_WORD)
    part: bytes | None = None
    low: int = 0
    is_null: bool = False


# Reads the slot of a field that is not null, at its place.
SlotReader = Callable[[Span, int], Slot]


def slot_places(row: Span, count: int) -> tuple[Sequence[int], Callable[[int], bool]]:
    """Return the places of a row's fields, and the function that says whether one is null."""
    bits = header_size(count)
    row.part(0, bits + _WORD * count)
    nulls = int.from_bytes(row.data[row.start : row.start + bits], "little") >> _KIND_BITS
    first = row.start + bits
    return range(first, first + _WORD * count, _WORD), lambda number: bool(nulls >> number & 1)


def _reserved(type_: LogicalType) -> int:
    """Return the bytes elsewhere that a field always has: BinaryRowWriter keeps them for null."""
    if type_.root == "DECIMAL" and type_.size > COMPACT_DECIMAL:
        return 2 * _WORD
    is_long = type_.root.startswith("TIMESTAMP") and type_.size > COMPACT_TIMESTAMP
    return _WORD if is_long else 0


def null_slot(type_: LogicalType) -> Slot:
    """Return the slot of a null for which bytes are kept, where its type has them."""
    reserved = _reserved(type_)
    return Slot(part=bytes(reserved) if reserved else None, is_null=True)


def null_slot_at(row: Span, place: int, type_: LogicalType) -> Slot:
    """Return the slot of a null that a row has. RowDataSerializer keeps no bytes for it where
    BinaryRowWriter.writeTimestamp and writeDecimal do; rows that are keys are equal by their bytes.
    """
    if any(row.data[place : place + _WORD]):
        return null_slot(type_)
    return Slot(is_null=True)


def slot_reader(type_: LogicalType) -> SlotReader:
    """Return the function that takes a field's slot as it is."""
    reserved = _reserved(type_)
    is_fixed = not reserved and type_.root.startswith(("DECIMAL", "TIMESTAMP"))

    def read_slot(row: Span, place: int) -> Slot:
        content = row.data[place : place + _WORD]
        is_inline = type_.root in SHORT and content[-1] & _INLINE
        if is_fixed or is_inline or type_.root in _FIXED:
            return Slot(content)
        low, offset = ROW_PLACE.unpack(content)
        size = _WORD if reserved == _WORD else low
        part = row.part(offset, size).content()
        return Slot(part=part + bytes(max(reserved - size, -size % _WORD)), low=low)

    return read_slot


def wide_decimal(content: bytes) -> Slot:
    """Return the slot of a decimal of more digits, of one that fits in 8 bytes."""
    raw = wide_bytes(int.from_bytes(content, "little", signed=True))
    return Slot(part=raw.ljust(2 * _WORD, b"\0"), low=len(raw))


def wide_bytes(number: int) -> bytes:
    """Return a number as Java's BigInteger writes it: in no more bytes than it needs."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def encode_row(kind: int, slots: Sequence[Slot]) -> bytes:
    """Return a row of these fields."""
    bits, nulls = header_size(len(slots)), 0
    offset, contents, parts = bits + _WORD * len(slots), [], []
    for number, slot in enumerate(slots):
        nulls |= slot.is_null << number
        if slot.part is None:
            contents.append(slot.content)
            continue
        contents.append(ROW_PLACE.pack(slot.low, offset))
        parts.append(slot.part)
        offset += len(slot.part)
    first = (nulls << _KIND_BITS | kind).to_bytes(bits, "little")
    return b"".join((first, *contents, *parts))


def array_reader(item: LogicalType) -> SpanReader:
    """Return the reader of arrays of such items."""
    read, width = field_reader(item), _WIDTHS.get(item.root, _WORD)

    def read_array(array: Span) -> list[object]:
        data, start = array.data, array.start
        array.part(0, 4)
        (count,) = _I4.unpack_from(data, start)
        header = 4 + (count + 31) // 32 * 4
        if count < 0 or start + header + count * width > array.end:
            raise array.wrong(f"{count} items in {array.end - start} bytes")
        bits, first = start + 4, start + header
        return [
            None
            if data[bits + number // 8] >> number % 8 & 1
            else read(array, first + number * width)
            for number in range(count)
        ]

    return read_array


def map_reader(key: LogicalType, value: LogicalType) -> SpanReader:
    """Return the reader of maps: pairs of keys and values."""
    read_keys, read_values = array_reader(key), array_reader(value)

    def read_map(content: Span) -> list[list[object]]:
        content.part(0, 4)
        (size,) = _I4.unpack_from(content.data, content.start)
        if size < 0:
            raise content.wrong(f"keys of {size} bytes")
        keys, rest = content.part(4, size), content.start + 4 + size
        values = read_values(Span(content.data, rest, content.end))
        own_keys = read_keys(keys)
        assert isinstance(own_keys, list) and isinstance(values, list), "arrays"
        if len(own_keys) != len(values):
            raise content.wrong(f"{len(own_keys)} keys, and {len(values)} values")
        return [list(pair) for pair in zip(own_keys, values, strict=True)]

    return read_map


# ---- values as they are shown --------------------------------------------------------------------

WRONG: Final = (ValueError, TypeError, OverflowError, KeyError, struct.error)
Type = TypeVar("Type")
Made = TypeVar("Made")


def slot_of(type_: LogicalType, given: object) -> Slot:
    """Return the slot of a value, as RowDataSerializer and ArrayDataSerializer write it."""
    if given is None:
        if not type_.nullable:
            raise ValueError(f"null, where {type_} is never null")
        return Slot(is_null=True)
    if type_.root in SQL_FORMS:
        if type_.root == "DATE":
            given = day_of(as_text(given))
        elif type_.root == "TIME_WITHOUT_TIME_ZONE":
            given = nanos_of(as_text(given)) // _MILLI_NANOS
        return Slot(struct.pack(SQL_FORMS[type_.root], given).ljust(_WORD, b"\0"))
    if type_.root.startswith("TIMESTAMP"):
        millis, nanos = timestamp_parts(type_, given)
        is_long = type_.size > COMPACT_TIMESTAMP
        return Slot(part=_I8.pack(millis), low=nanos) if is_long else Slot(_I8.pack(millis))
    raw = encode_span(type_, given)
    if type_.root == "DECIMAL" and type_.size <= COMPACT_DECIMAL:
        return Slot(_I8.pack(int.from_bytes(raw, "big", signed=True)))
    if type_.root in SHORT and len(raw) < _WORD:
        return Slot(raw.ljust(_WORD - 1, b"\0") + bytes((_INLINE | len(raw),)))
    size = max(_reserved(type_), len(raw) + -len(raw) % _WORD)
    return Slot(part=raw.ljust(size, b"\0"), low=len(raw))


def encode_span(type_: LogicalType, given: object) -> bytes:
    """Return a value that has a span of bytes of its own."""
    match type_.root:  # flat: a case a type
        case "ROW" | "STRUCTURED_TYPE":
            return encode_fields(type_.inner, type_.names, given)
        case "ARRAY":
            return encode_array(type_.inner[0], as_list(given))
        case "MAP" | "MULTISET":
            own, of_value = type_.inner[0], (*type_.inner, LogicalType("INTEGER", False))[1]
            pairs = pairs_of(given)
            if len({slot_of(own, key) for key, _ in pairs}) < len(pairs):
                raise ValueError("a map with a key twice")
            raw = encode_array(own, [key for key, _ in pairs])
            items = encode_array(of_value, [item for _, item in pairs])
            return _I4.pack(len(raw)) + raw + items
        case "CHAR" | "VARCHAR" | "BINARY" | "VARBINARY":
            text = as_text(given)
            value = bytes.fromhex(text) if type_.root.endswith("BINARY") else text
            if len(value) > type_.size:
                raise ValueError(f"a length of {len(value)}, where {type_} has {type_.size}")
            return value if isinstance(value, bytes) else text.encode("utf-8", "surrogatepass")
        case "DECIMAL":
            return wide_bytes(decimal_of(as_text(given), type_.size, type_.scale))
    return bytes.fromhex(as_text(fields_of(given, ("raw",))["raw"]))


def key_slot_of(type_: LogicalType, given: object) -> Slot:
    """Return the slot of a value in an operator's key, which BinaryRowWriter writes."""
    slot = slot_of(type_, given)
    return null_slot(type_) if slot.is_null else slot


def encode_fields(
    types: Sequence[LogicalType],
    names: Sequence[str],
    given: object,
    slot: Callable[[LogicalType, object], Slot] = slot_of,
) -> bytes:
    """Return a row of these fields."""
    fields = fields_of(given, names)
    kind = KINDS.index(str(fields.get("@kind", KINDS[0])))
    return encode_row(kind, in_fields(names, types, fields, slot))


def row_form(types: Sequence[LogicalType]) -> struct.Struct | None:
    """Return the form of inserted rows without nulls; None unless all fields are numbers."""
    forms = [SQL_FORMS[type_.root] for type_ in types if type_.root in SQL_NUMBERS]
    if not forms or len(forms) < len(types):
        return None
    fields = (f"{form[1]}{_WORD - struct.calcsize(form)}x" for form in forms)
    return struct.Struct(f"<{header_size(len(types))}x{''.join(fields)}")


def encode_array(item: LogicalType, items: Sequence[object]) -> bytes:
    """Return an array of such items."""
    slots, width = [slot_of(item, each) for each in items], _WIDTHS.get(item.root, _WORD)
    header = _I4.size + (len(slots) + 31) // 32 * 4
    offset = header + width * len(slots)
    filled, nulls, contents, parts = bytes(-offset % _WORD), 0, [], []
    offset += len(filled)
    for number, slot in enumerate(slots):
        nulls |= slot.is_null << number
        content = slot.content
        if slot.part is not None:
            content = ROW_PLACE.pack(slot.low, offset)
            parts.append(slot.part)
            offset += len(slot.part)
        contents.append(content[:width])
    bits = nulls.to_bytes(header - _I4.size, "little")
    return b"".join((_I4.pack(len(slots)), bits, *contents, filled, *parts))


def timestamp_parts(type_: LogicalType, given: object) -> tuple[int, int]:
    """Return milliseconds and the nanoseconds left of a timestamp, which has its digits at most."""
    is_instant = type_.root == "TIMESTAMP_WITH_LOCAL_TIME_ZONE"
    seconds, nanos = (instant_of if is_instant else local_of)(as_text(given))
    if nanos % 10 ** (9 - type_.size):
        raise ValueError(f"{given!r}, where {type_} has {type_.size} digits of a second")
    return seconds * 1000 + nanos // _MILLI_NANOS, nanos % _MILLI_NANOS


def decimal_of(text: str, size: int | None, scale: int) -> int:
    """Return the whole number that stands for a decimal with digits of a scale, `size` at most."""
    number, own_scale = decimal_parts(text)
    if not 0 <= own_scale <= scale:
        raise ValueError(f"{own_scale} digits after its point, where {scale} are expected")
    number *= int(10 ** (scale - own_scale))
    if size is not None and abs(number) >= 10**size:
        raise ValueError(f"it has more than {size} digits")
    return number


def decimal_parts(text: str) -> tuple[int, int]:
    """Return the number and the scale that `plain_decimal` told."""
    digits, _, power = text.partition("E")
    whole, _, fraction = digits.partition(".")
    if not (whole + fraction).removeprefix("-").isdecimal():
        raise ValueError(f"{text!r} is no decimal")
    return int(whole + fraction), len(fraction) - int(power or 0)


def as_text(given: object) -> str:
    """Return a value that has to be a text."""
    if not isinstance(given, str):
        raise TypeError(given)
    return given


def as_list(given: object) -> list[object]:
    """Return a value that has to be a list."""
    if not isinstance(given, list):
        raise TypeError(given)
    return given


def pairs_of(given: object) -> list[list[object]]:
    """Return a map, which is shown as a list of pairs."""
    pairs = list(map(as_list, as_list(given)))
    if any(len(pair) != 2 for pair in pairs):
        raise TypeError(given)
    return pairs


def fields_of(given: object, names: Collection[str]) -> dict[str, object]:
    """Return the fields of an object, whose names have to be these; `@` begins none of them."""
    found = dict(given) if isinstance(given, dict) else {}
    if not isinstance(given, dict) or {name for name in found if name[:1] != "@"} != set(names):
        told = ", ".join(found) or "none"
        raise ValueError(f"it has the fields {told}; the type's: {', '.join(names) or 'none'}")
    return found


def in_fields(
    names: Sequence[str],
    types: Sequence[Type],
    fields: Mapping[str, object],
    write: Callable[[Type, object], Made],
) -> list[Made]:
    """Return fields as they are written; of one that does not fit, the error tells its name."""
    made = []
    for name, type_ in zip(names, types, strict=True):
        try:
            made.append(write(type_, fields[name]))
        except WRONG as error:
            raise ValueError(f"{name}: {fact_of(error)}") from error
    return made


def fact_of(error: Exception) -> str:
    """Return the fact of one of the errors that a value of another type makes (`WRONG`)."""
    return str(error) if type(error) is ValueError else "of another type, or too large for it"


def span_reader(type_: LogicalType) -> SpanReader:
    """Return the reader of a value that has a span of bytes of its own."""
    match type_.root:
        case "ROW" | "STRUCTURED_TYPE":
            return row_reader(type_.inner, type_.names)
        case "ARRAY":
            return array_reader(type_.inner[0])
        case "MAP":
            return map_reader(*type_.inner)
        case "MULTISET":
            return map_reader(type_.inner[0], LogicalType("INTEGER", False))
        case "CHAR" | "VARCHAR":
            return read_text
        case "BINARY" | "VARBINARY":
            return lambda span: span.content().hex()
        case "DECIMAL":
            return wide_decimal_reader(type_.scale)
        case _:
            return lambda span: {"raw": span.content().hex()}


def read_text(span: Span) -> str:
    """Read a text."""
    try:
        return span.content().decode("utf-8", "surrogatepass")
    except ValueError as error:
        raise span.wrong(f"a text is not UTF-8 ({error})") from error


def wide_decimal_reader(scale: int) -> SpanReader:
    """Return the reader of decimals of any number of digits."""

    def read_decimal(span: Span) -> str:
        raw = span.content()
        if len(raw) > _DECIMAL_BYTES_MAX:
            raise span.wrong(f"a decimal of {len(raw)} bytes")
        return plain_decimal(int.from_bytes(raw, "big", signed=True), scale)

    return read_decimal


def field_reader(type_: LogicalType) -> FieldReader:
    """Return the reader of a field of a row, or of an item, at its place."""
    fixed = _FIXED.get(type_.root)
    if fixed is not None:
        return fixed
    match type_.root:
        case root if root in SHORT:
            return short_reader(span_reader(type_))
        case "DECIMAL" if type_.size <= COMPACT_DECIMAL:
            scale = type_.scale
            return lambda row, at: plain_decimal(_I8.unpack_from(row.data, at)[0], scale)
        case "TIMESTAMP_WITHOUT_TIME_ZONE" | "TIMESTAMP_WITH_LOCAL_TIME_ZONE":
            if type_.size <= COMPACT_TIMESTAMP:
                return lambda row, at: timestamp_text(type_, _I8.unpack_from(row.data, at)[0], 0)
            return long_timestamp_reader(type_)
    read = span_reader(type_)

    def read_elsewhere(row: Span, at: int) -> object:
        size, offset = ROW_PLACE.unpack_from(row.data, at)
        return read(row.part(offset, size))

    return read_elsewhere


def short_reader(read: SpanReader) -> FieldReader:
    """Return the reader of fields that are within their 8 bytes, or elsewhere."""

    def read_field(row: Span, at: int) -> object:
        last = row.data[at + 7]
        if last & _INLINE:
            size = last & 0x7F
            if size >= _WORD:
                raise row.wrong(f"{size} bytes within the 7 of a field")
            return read(Span(row.data, at, at + size))
        size, offset = ROW_PLACE.unpack_from(row.data, at)
        return read(row.part(offset, size))

    return read_field


def long_timestamp_reader(type_: LogicalType) -> FieldReader:
    """Return the reader of timestamps with nanoseconds."""

    def read_timestamp(row: Span, at: int) -> object:
        nanos, offset = ROW_PLACE.unpack_from(row.data, at)
        if nanos >= _MILLI_NANOS:
            raise row.wrong(f"{nanos} nanoseconds of a millisecond")
        (millis,) = _I8.unpack_from(row.data, row.part(offset, _WORD).start)
        return timestamp_text(type_, millis, nanos)

    return read_timestamp


def read_time(row: Span, at: int) -> str:
    """Read a time, in milliseconds of the day."""
    (millis,) = _I4.unpack_from(row.data, at)
    if not 0 <= millis < _DAY_MILLIS:
        raise row.wrong(f"a time of {millis} milliseconds")
    return time_text(millis * _MILLI_NANOS)


def read_boolean(row: Span, at: int) -> bool:
    """Read a truth value."""
    value = row.data[at]
    if value > 1:
        raise row.wrong(f"a truth value of {value}")
    return value == 1


def _number(form: struct.Struct) -> FieldReader:
    return lambda row, at: form.unpack_from(row.data, at)[0]


_I4, _I8, ROW_PLACE = struct.Struct("<i"), struct.Struct("<q"), struct.Struct("<II")
_FIXED: Final[Mapping[str, FieldReader]] = {
    "BOOLEAN": read_boolean,
    "TINYINT": _number(struct.Struct("<b")),
    "SMALLINT": _number(struct.Struct("<h")),
    "INTEGER": _number(_I4),
    "INTERVAL_YEAR_MONTH": _number(_I4),
    "BIGINT": _number(_I8),
    "INTERVAL_DAY_TIME": _number(_I8),
    "FLOAT": _number(struct.Struct("<f")),
    "DOUBLE": _number(struct.Struct("<d")),
    "DATE": lambda row, at: date_text(_I4.unpack_from(row.data, at)[0]),
    "TIME_WITHOUT_TIME_ZONE": read_time,
    "NULL": lambda row, at: None,
}
_WIDTHS: Final[Mapping[str, int]] = {
    "BOOLEAN": 1,
    "TINYINT": 1,
    "SMALLINT": 2,
    "INTEGER": 4,
    "INTERVAL_YEAR_MONTH": 4,
    "FLOAT": 4,
    "DATE": 4,
    "TIME_WITHOUT_TIME_ZONE": 4,
}
SQL_NUMBERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE")
SQL_FORMS: Final[Mapping[str, str]] = {
    "BOOLEAN": "<?",
    "TINYINT": "<b",
    "SMALLINT": "<h",
    "FLOAT": "<f",
    "DOUBLE": "<d",
    **dict.fromkeys(("INTEGER", "INTERVAL_YEAR_MONTH", "DATE", "TIME_WITHOUT_TIME_ZONE"), "<i"),
    **dict.fromkeys(("BIGINT", "INTERVAL_DAY_TIME"), "<q"),
}
