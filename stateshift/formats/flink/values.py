"""Values as Flink's serializers write them, read as JSON can tell them. A reader takes a value out
of an input, to its end; those of composites are made of those of their parts.

    String           length + 1, then UTF-16 units, each a varint of seven bits a byte, lowest first
    BigInteger       i4 0 null, 1 zero, 2 one, 3 ten; else 4 + n, and n bytes
    BigDecimal       a BigInteger, null for null, i4 scale
    Instant          i8 seconds, i4 nanoseconds; Long.MIN for null
    LocalDate        i4 year, u1 month, u1 day; LocalTime u1 hour, minute, second, i4 nanoseconds
    Date, sql.Time   i8 milliseconds, Long.MIN for null; sql.Timestamp and i4 nanoseconds
    array            i4 n, n items; of objects: n * (u1 is there, item)
    enum             i4, its place
    list             i4 n, n items; set n * (u1 is null, item); map n * (key, u1 is null, value)
    StringValue      a String whose length is not one more: it is never null
    NullValue        nothing at all; the NullSerializer of SQL's views of data a byte 0
    tuple            its fields; case classes, too
    Row              a bit for each: 2 of its kind, of Flink 1.11 and newer, and 1 a field that is
                     null, highest first; the other fields
    Either           u1 is left, value; Option u1 is there, value; nullable u1 is null, value or
                     padding
    POJO             u1 flags: 1 null, 2 its own class, 4 utf class or 8 u1 tag of a subclass,
                     which follows as a POJO of its own; fields: u1 is null, value
    Kryo, ...        only its own classes can read it

Flink: api/common/typeutils/base/*, api/java/typeutils/runtime/*, types/StringValue; api/scala/
typeutils/*, 1.15 to 2.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from stateshift.errors import FormatError
from stateshift.formats.flink.binary_rows import KINDS, Span, SpanReader, plain_decimal
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.times import calendar_text, instant_text, time_text

Reader = Callable[[DataInput], object]

_NULL_LONG: Final = -(1 << 63)
_NULL_INT: Final = -(1 << 31)
_NULL_DATE_REST: Final = -(1 << 15)
_SECOND_NANOS: Final = 1_000_000_000
_NUMBER_BYTES_MAX: Final = 1_700  # Python writes numbers of 4,300 digits
SMALL: Final = (None, 0, 1, 10)
NUMBERS: Final[Mapping[str, str]] = {
    "Byte": ">b",
    "Short": ">h",
    "Int": ">i",
    "Long": ">q",
    "Float": ">f",
    "Double": ">d",
}
IS_NULL, NO_SUBCLASS, SUBCLASS, TAGGED = 1, 2, 4, 8


class Unknown(Exception):
    """Nothing more can be read of a serializer. `snapshot`: its snapshot's class, if known.

    `read` is what was read until then, fields by their names; an empty one is where it ended.
    """

    def __init__(self, fact: str, snapshot: str | None = None) -> None:
        super().__init__(fact)
        self.snapshot = snapshot
        self.read: dict[str, object] = {}


def read_string(data: DataInput) -> str | None:
    """Read a string: length + 1, then UTF-16 units, each a varint; a length of 0 is None."""
    length = read_varint(data)
    return _units(data, length - 1) if length else None


def read_string_value(data: DataInput) -> str:
    """Read a StringValue."""
    return _units(data, read_varint(data))


def _units(data: DataInput, length: int) -> str:
    # Units of a byte each are taken at once.
    stop = data.at + length
    plain = data.data[data.at : min(stop, data.end)]
    if len(plain) == length and plain.isascii():
        data.at = stop
        return plain.decode("ascii")
    units = []
    for _ in range(length):
        at, unit = data.at, read_varint(data)
        if unit > 0xFFFF:
            raise data.wrong("a string holds an invalid UTF-16 unit", at)
        units.append(unit)
    return struct.pack(f">{len(units)}H", *units).decode("utf-16-be", "surrogatepass")


def read_varint(data: DataInput) -> int:
    """Read a number of at most 35 bits, seven bits a byte, the lowest first."""
    number = shift = 0
    while True:
        at, byte = data.at, data.u1()
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7
        if shift > 28:
            raise data.wrong("unterminated varint", at)


def encode_string(text: str, more: int = 1) -> bytes:
    """Return a string as Flink writes it; its length is so many more."""
    if text.isascii():  # a unit is a byte
        return varint_bytes(len(text) + more) + text.encode()
    raw = text.encode("utf-16-be", "surrogatepass")
    numbers = (len(raw) // 2 + more, *struct.unpack(f">{len(raw) // 2}H", raw))
    return b"".join(map(varint_bytes, numbers))


def varint_bytes(number: int) -> bytes:
    """Return a number in seven bits a byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_of(form: str) -> Reader:
    """Return the reader of a number of this form."""
    number = struct.Struct(form)
    return lambda data: number.unpack(data.take(number.size))[0]


def read_nothing(data: DataInput) -> None:
    """Read a byte that stands for nothing."""
    data.take(1)


def read_char(data: DataInput) -> str:
    """Read a UTF-16 unit."""
    return chr(data.i2() & 0xFFFF)


def read_hex(data: DataInput) -> str:
    """Read bytes behind their number."""
    return data.take(data.count("bytes")).hex()


def read_utf8(data: DataInput) -> str:
    """Read a text behind the number of its bytes."""
    at, raw = data.at, data.take(data.count("bytes"))
    try:
        return raw.decode("utf-8", "surrogatepass")
    except ValueError as error:
        raise data.wrong(f"a text is not UTF-8 ({error})", at) from error


def _read_integer(data: DataInput) -> int | None:
    at, code = data.at, data.count("bytes of a BigInteger")
    if code < len(SMALL):
        return SMALL[code]
    if code == len(SMALL):
        raise data.wrong("a BigInteger of no bytes", at)
    return int.from_bytes(data.take(code - len(SMALL)), "big", signed=True)


def read_big_integer(data: DataInput) -> object:
    """Read a BigInteger; one of thousands of digits is shown by its bytes."""
    return _shown(_read_integer(data))


def _shown(number: int | None) -> object:
    if number is None or number.bit_length() <= 8 * _NUMBER_BYTES_MAX:
        return number
    size = number.bit_length() // 8 + 1
    return {"raw": number.to_bytes(size, "big", signed=True).hex()}


def read_big_decimal(data: DataInput) -> object:
    """Read a BigDecimal: its digits as text."""
    unscaled = _read_integer(data)
    if unscaled is None:
        return None
    scale, shown = data.i4(), _shown(unscaled)
    return plain_decimal(unscaled, scale) if isinstance(shown, int) else shown


def read_instant(data: DataInput) -> str | None:
    """Read an instant."""
    at, seconds, nanos = data.at, data.i8(), data.i4()
    if seconds == _NULL_LONG:
        return None
    _require_nanos(data, nanos, at)
    return instant_text(seconds, nanos)


def _require_nanos(data: DataInput, nanos: int, at: int) -> None:
    if not 0 <= nanos < _SECOND_NANOS:
        raise data.wrong(f"{nanos} nanoseconds of a second", at)


def read_date(data: DataInput) -> str | None:
    """Read a LocalDate."""
    at, year = data.at, data.i4()
    if year == _NULL_INT:
        data.i2()
        return None
    month, day = data.u1(), data.u1()
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise data.wrong(f"a date of month {month} and day {day}", at)
    return calendar_text(year, month, day)


def read_time(data: DataInput) -> str | None:
    """Read a LocalTime."""
    at, hour, minute, second, nanos = data.at, data.u1(), data.u1(), data.u1(), data.i4()
    if hour == 0x80:
        return None
    if hour > 23 or minute > 59 or second > 59:
        raise data.wrong(f"a time of {hour} hours, {minute} minutes and {second} seconds", at)
    _require_nanos(data, nanos, at)
    return time_text(((hour * 60 + minute) * 60 + second) * _SECOND_NANOS + nanos)


def read_date_time(data: DataInput) -> str | None:
    """Read a LocalDateTime."""
    date, time = read_date(data), read_time(data)
    return None if date is None or time is None else f"{date}T{time}"


def read_millis(data: DataInput) -> str | None:
    """Read a Date: milliseconds since 1970."""
    millis = data.i8()
    if millis == _NULL_LONG:
        return None
    seconds, rest = divmod(millis, 1000)
    return instant_text(seconds, rest * 1_000_000)


def read_sql_timestamp(data: DataInput) -> str | None:
    """Read a java.sql.Timestamp, whose nanoseconds hold the milliseconds as well."""
    at, millis, nanos = data.at, data.i8(), data.i4()
    if millis == _NULL_LONG:
        return None
    _require_nanos(data, nanos, at)
    return instant_text(millis // 1000, nanos)


def read_window(data: DataInput) -> list[int]:
    """Read a window of time: beginning and end."""
    return [data.i8(), data.i8()]


def numbers_of(form: str) -> Reader:
    """Return the reader of an array of such numbers."""
    size = struct.calcsize(f">{form}")

    def read_numbers(data: DataInput) -> object:
        count = data.items("items")
        return list(struct.unpack(f">{count}{form}", data.take(count * size)))

    return read_numbers


def read_booleans(data: DataInput) -> object:
    """Read an array of truth values."""
    return [data.boolean() for _ in range(data.items("items"))]


def read_chars(data: DataInput) -> object:
    """Read an array of UTF-16 units, as a text."""
    return data.take(2 * data.items("items")).decode("utf-16-be", "surrogatepass")


def read_strings(data: DataInput) -> object:
    """Read an array of strings."""
    return [read_string(data) for _ in range(data.items("items"))]


def array_of(read: Reader) -> Reader:
    """Return the reader of an array of objects."""

    def read_array(data: DataInput) -> object:
        count = data.items("items")
        return [read(data) if data.boolean() else None for _ in range(count)]

    return read_array


def list_of(read: Reader) -> Reader:
    """Return the reader of a list."""

    def read_list(data: DataInput) -> object:
        return [read(data) for _ in range(data.items("items"))]

    return read_list


def linked_list_of(read: Reader, with_nulls: bool) -> Reader:
    """Return the reader of SQL's linked list, with a bit for each item that is null."""

    def read_list(data: DataInput) -> object:
        count = data.items("items") if not with_nulls else data.count("items")
        mask = _mask(data, count) if with_nulls else None
        items: list[object] = []
        for number in range(count):
            is_null = mask is not None and mask(number)
            items.append(None if is_null else read(data))
        return items

    return read_list


def map_of(read_key: Reader, read_value: Reader) -> Reader:
    """Return the reader of a map: pairs of key and value."""

    def read_map(data: DataInput) -> object:
        items: list[object] = []
        for _ in range(data.items("items")):
            key, is_null = read_key(data), data.boolean()
            items.append([key, None if is_null else read_value(data)])
        return items

    return read_map


def tuple_of(reads: Sequence[Reader]) -> Reader:
    """Return the reader of a tuple."""
    return lambda data: [read(data) for read in reads]


def fields_of(names: Sequence[str], reads: Sequence[Reader]) -> Reader:
    """Return the reader of values one behind the other, each with a name."""
    return _fields_of(tuple(zip(names, reads, strict=True)))


def _fields_of(fields: Sequence[tuple[str, Reader]]) -> Reader:
    def read_fields(data: DataInput) -> object:
        read_until: dict[str, object] = {}
        for name, read in fields:
            try:
                read_until[name] = read(data)
            except Unknown as unknown:
                unknown.read = {**read_until, name: unknown.read}
                raise
        return read_until

    return read_fields


def _mask(data: DataInput, count: int) -> Callable[[int], bool]:
    bits = data.take((count + 7) // 8)
    return lambda number: bool(bits[number // 8] << number % 8 & 0x80)


def row_of(names: Sequence[str], reads: Sequence[Reader], with_kind: bool) -> Reader:
    """Return the reader of a Row."""
    ahead = 2 if with_kind else 0
    named = tuple(zip(range(ahead, ahead + len(names)), names, reads, strict=True))

    def read_row(data: DataInput) -> object:
        mask = _mask(data, ahead + len(named))
        kind = (mask(0) + 2 * mask(1)) if with_kind else 0
        row: dict[str, object] = {"@kind": KINDS[kind]} if kind else {}
        for number, name, read in named:
            row[name] = None if mask(number) else read(data)
        return row

    return read_row


def either_of(left: Reader, right: Reader) -> Reader:
    """Return the reader of one of two."""
    return lambda data: {"left": left(data)} if data.boolean() else {"right": right(data)}


def option_of(read: Reader) -> Reader:
    """Return the reader of a value that is there or not."""
    return lambda data: read(data) if data.boolean() else None


def nullable_of(read: Reader, padding: int) -> Reader:
    """Return the reader of a value that may be null, which has so many bytes then."""

    def read_nullable(data: DataInput) -> object:
        if not data.boolean():
            return read(data)
        data.take(padding)
        return None

    return read_nullable


def union_of(one: Reader, other: Reader) -> Reader:
    """Return the reader of one of two inputs' values."""

    def read_union(data: DataInput) -> object:
        at, tag = data.at, data.u1()
        if tag not in (1, 2):
            raise data.wrong(f"a value of input {tag}, of two", at)
        return {"one": one(data)} if tag == 1 else {"two": other(data)}

    return read_union


def constant_of(names: Sequence[str]) -> Reader:
    """Return the reader of an enum's constants."""

    def read_constant(data: DataInput) -> object:
        at, place = data.at, data.i4()
        if not 0 <= place < len(names):
            raise data.wrong(f"constant {place} of an enum of {len(names)}", at)
        return names[place]

    return read_constant


def sized_reader(read: SpanReader) -> Reader:
    """Return the reader of SQL's binary values, behind the number of their bytes."""

    def read_sized(data: DataInput) -> object:
        within = data.within()
        return read(Span(within.data, within.at, within.end))

    return read_sized


def unreadable(snapshot: str) -> Reader:
    """Return the reader of values that only the job's classes can read."""
    return lambda data: _unread(data, snapshot)


def _unread(data: DataInput, name: str) -> dict[str, object]:
    """Take as many bytes as the input's gap has, if it has one."""
    if data.gap is None:
        raise Unknown(f"a value of {name}", name)
    size, data.gap = data.gap, None
    return {"bytes": data.take(size).hex()}


def read_around(read: Reader, data: DataInput) -> Iterator[tuple[int, object]]:
    """Yield the ways to read a value with one part that cannot be read: its end, and the value.

    A part of every length is tried, and the readable parts behind it have to fit. Nothing is
    yielded where a second part cannot be read.
    """
    start = data.at
    try:
        value = read(data)
    except Unknown:
        longest = data.end - data.at
    else:
        yield data.at, value
        return
    for gap in range(1, longest + 1):
        attempt = DataInput(data.data, data.what, start, data.end)
        attempt.gap = gap
        try:
            value = read(attempt)
        except FormatError:
            continue
        except Unknown:
            return
        yield attempt.at, value


def pojo_of(
    fields: Sequence[tuple[str, Reader]],
    registered: Sequence[tuple[str, Reader]],
    others: Mapping[str, Reader],
) -> Reader:
    """Return the reader of a POJO: its fields, or those of a subclass with its class's name."""

    def read_subclass(data: DataInput, name: str, read: Reader) -> object:
        value = read(data)
        return {"@class": name, **value} if isinstance(value, dict) else value

    def read_pojo(data: DataInput) -> object:
        at, flags = data.at, data.u1()
        if flags & IS_NULL:
            return None
        if flags & SUBCLASS:
            name = data.utf()
            if name not in others:
                return {"@class": name, **_unread(data, name)}
            return read_subclass(data, name, others[name])
        if flags & TAGGED:
            tag = data.u1()
            if tag >= len(registered):
                raise data.wrong(f"subclass {tag}, of {len(registered)}", at)
            return read_subclass(data, *registered[tag])
        if flags != NO_SUBCLASS:
            raise data.wrong(f"an object with flags {flags:#04x}", at)
        return read_fields(data)

    read_fields = _fields_of([(name, nullable_of(read, 0)) for name, read in fields])
    return read_pojo
