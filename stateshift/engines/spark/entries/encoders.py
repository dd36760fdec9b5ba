"""How a store's rows are put together to keys and values: Spark's encoders, undone. Pure.

    plain    row                                             HDFS-backed, every key and value
    row      00 | row                                        RocksDB
    prefix   i32LE size | 00 row of the first columns        session windows, maps, timers
             | 00 row of the others
    range    i32LE size | 00 row of the ordering columns     time to live, timers by time
             | [00 row of the others]
               each ordering column as binary: 00 negative, 01 positive, 02 null | value,
               big-endian
    postfix  00 row without the time                         joins of state format 4
             | i64BE time, its sign bit turned
    before   i64BE time, its sign bit turned | 00 row without the time
    list     (i32LE size | 00 row)*, between them            list state, joins of state format 4
             the merge operator's delimiter

Under `encodingFormat=avro` (transformWithState) rows are Avro's, and the rest alike:

    row      00 | i16LE schema | row
    prefix   i32LE size | 00 row of the first columns | 00 i16LE schema | row of the others
    range    i32LE size | 00 row of the ordering columns, two binaries each: 00 01 02 as above, and
             the value big-endian | [00 i16LE schema | row of the others]
    value    00 | i16LE schema | row, in lists with its size before it

The schema's number stands beside the columns in the schema files. Keys never had another than 0:
their columns cannot become others. Those of values can, and then a schema file is added: an old row
is read by its own, and has the columns of the newest, as Spark reads it.

Source: Spark, RocksDBStateEncoder (NoPrefixKey-, PrefixKeyScan-, RangeKeyScan-, MultiValuedState-,
TimestampAsPostfix-, TimestampAsPrefixKeyStateEncoder, AvroStateEncoder), the JSON of
RocksDBKeyStateEncoderSpec, StateSchemaCompatibilityChecker.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from stateshift.engines.spark.layout import FRAME
from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.spark import avro_rows
from stateshift.formats.spark.avro_rows import row_reader
from stateshift.formats.spark.column_values import encode_row
from stateshift.formats.spark.types import Atomic, DataType, Row, StructType, Value
from stateshift.formats.spark.unsafe_row import decode_row

Kind = Literal["plain", "row", "prefix", "range", "postfix", "before"]

# More columns than any key has: what a damaged file may not make us count to.
COLUMNS_MAX = 10_000

_LONG = struct.Struct(">Q")
NUMBER = struct.Struct("<h")  # of a schema
_SIGN = 1 << 63
_SPECS: dict[str, Kind] = {
    "NoPrefixKeyStateEncoderSpec": "row",
    "PrefixKeyScanStateEncoderSpec": "prefix",
    "RangeKeyScanStateEncoderSpec": "range",
    "TimestampAsPostfixKeyStateEncoderSpec": "postfix",
    "TimestampAsPrefixKeyStateEncoderSpec": "before",
}


@dataclass(frozen=True, slots=True)
class Encoder:
    """How a key is encoded: the columns of its prefix or order; whether all rows are Avro's."""

    kind: Kind
    columns: tuple[int, ...] = ()
    avro: bool = False


PLAIN, ROW = Encoder("plain"), Encoder("row")


def encoder_of(spec: str) -> Encoder:
    """Return the encoder that a schema file of version 3 describes with each store, in JSON."""
    try:
        plain = json.loads(spec)
        name = plain["keyStateEncoderType"]
        kind = _SPECS.get(name)
        if kind is None:
            raise UnknownVersion(f"keys are encoded by {str(name)[:80]}, which is not known")
        prefix = int(plain["numColsPrefixKey"]) if kind == "prefix" else 0
        ordering = tuple(map(int, plain.get("orderingOrdinals", ())))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise FormatError(f"a key encoder is described by {spec[:80]!r}") from error
    if not all(0 <= column <= COLUMNS_MAX for column in (prefix, *ordering)):
        raise FormatError(f"a key encoder names columns that no key has: {spec[:80]!r}")
    return Encoder(kind, tuple(range(prefix)) if kind == "prefix" else ordering)


def decode_key(content: bytes, columns: StructType, encoder: Encoder) -> Row:
    """Return the key's columns, in the order of its schema."""
    match encoder.kind:
        case "plain":
            return decode_row(content, columns)
        case "row":
            return decode_row(bare(content), columns)
        case "prefix":
            first, rest = halves(content)
            count = len(encoder.columns)
            leading = decode_row(first, columns.sliced(slice(count)))
            others = decode_row(bare(rest), columns.sliced(slice(count, None)))
            return (*leading, *others)
        case "range":
            return _range(content, columns, encoder)
        case "postfix":
            return _timed(content[:-8], content[-8:], columns)
        case "before":
            return _timed(content[8:], content[:8], columns)


def encode_key(row: Row, columns: StructType, encoder: Encoder) -> bytes:
    """Return the inverse of `decode_key`, and of `AvroRows.key`."""
    encode = avro_rows.encode_row if encoder.avro else encode_row
    head = FRAME + NUMBER.pack(KEY_SCHEMA) if encoder.avro else FRAME
    match encoder.kind:
        case "plain":
            return encode(row, columns)
        case "row":
            return head + encode(row, columns)
        case "prefix":
            count = len(encoder.columns)
            first = encode(row[:count], columns.sliced(slice(count)))
            rest = encode(row[count:], columns.sliced(slice(count, None)))
            return _with_size(FRAME + first) + head + rest
        case "range":
            others = unordered_columns(columns, encoder)
            kinds = columns.picked(encoder.columns).types
            ordering = list(map(_order_bytes, [row[at] for at in encoder.columns], kinds))
            if encoder.avro:
                ordering = list(chain(*((each[:1], each[1:]) for each in ordering)))
            binaries = StructType(("",) * len(ordering), (Atomic("binary"),) * len(ordering))
            first = _with_size(FRAME + encode(tuple(ordering), binaries))
            rest = encode(tuple(row[at] for at in others), columns.picked(others))
            return first + head + rest if others else first
    leading = FRAME + encode_row(row[:-1], columns.sliced(slice(-1)))
    time = _LONG.pack(row[-1] + _SIGN)
    return leading + time if encoder.kind == "postfix" else time + leading


def encode_value(row: Row, columns: StructType, encoder: Encoder, number: int) -> bytes:
    """Return a value's row; one of Avro's has the number of its schema."""
    if encoder.avro:
        return FRAME + NUMBER.pack(number) + avro_rows.encode_row(row, columns)
    bare_row = encode_row(row, columns)
    return bare_row if encoder.kind == "plain" else FRAME + bare_row


def encode_list(rows: Iterable[bytes], delimiter: bytes) -> bytes:
    """Return a list's value of its encoded rows."""
    return delimiter.join(map(_with_size, rows))


def _with_size(content: bytes) -> bytes:
    return len(content).to_bytes(4, "little") + content


def decode_list(content: bytes, columns: StructType, delimiter: bytes) -> list[Row]:
    """Return the rows of a list state's value."""
    return [decode_row(row, columns) for row in rows_of_list(content, delimiter)]


def rows_of_list(content: bytes, delimiter: bytes) -> Iterator[bytes]:
    """Yield the rows of a list, one after the other."""
    position = 0
    while True:
        row, end = _sized(content, position, "an item of a list lies outside of it")
        yield bare(row)
        if end == len(content):
            return
        if not content.startswith(delimiter, end):
            fact = "the items of a list are not divided as the merge operator does"
            raise FormatError(fact, None, end)
        position = end + len(delimiter)


def bare(content: bytes) -> bytes:
    """Return a row without the byte that RocksDB's encoding puts before it."""
    if content[:1] != b"\0":
        raise FormatError("a row does not begin with the encoding that is known", None, 0)
    return content[1:]


def _sized(content: bytes, position: int, fact: str) -> tuple[bytes, int]:
    """Return the bytes of the size at `position`, and their end; `fact` says what is wrong."""
    start = position + 4
    size = int.from_bytes(content[position:start], "little", signed=True)
    end = start + size
    if start > len(content) or size < 1 or end > len(content):
        raise FormatError(fact, None, position)
    return content[start:end], end


def _range(content: bytes, columns: StructType, encoder: Encoder) -> Row:
    first, rest = halves(content)
    ordering, others = encoder.columns, unordered_columns(columns, encoder)
    has_rest = bool(others) == bool(rest)
    if not has_rest or max(encoder.columns, default=-1) >= len(columns.types):
        raise FormatError("a key is not of the columns that order it", None, 0)
    binaries = StructType(columns.picked(ordering).names, (Atomic("binary"),) * len(ordering))
    leading = ordered_columns(decode_row(first, binaries), columns, encoder)
    following = decode_row(bare(rest), columns.picked(others)) if others else ()
    return arrange_columns(ordering, leading, others, following)


def ordered_columns(
    values: Sequence[bytes | None], columns: StructType, encoder: Encoder
) -> list[Value]:
    """Return the columns that order a key, of which each was one binary."""
    kinds = columns.picked(encoder.columns).types
    return [ordering_bytes(value, kind) for value, kind in zip(values, kinds, strict=True)]


def arrange_columns(
    ordering: Sequence[int], leading: Sequence[Value], others: Sequence[int], rest: Sequence[Value]
) -> Row:
    """Return a key's columns in the order of its schema."""
    row = dict(zip(ordering, leading, strict=True))
    row |= zip(others, rest, strict=True)
    return tuple(row[at] for at in range(len(row)))


def unordered_columns(columns: StructType, encoder: Encoder) -> list[int]:
    """Return the columns of a key that do not order it."""
    return [at for at in range(len(columns.types)) if at not in encoder.columns]


_TIMES = tuple(map(Atomic, ("long", "timestamp", "timestamp_ntz")))


def _timed(row: bytes, time: bytes, columns: StructType) -> Row:
    if len(time) < 8:
        raise FormatError("a key is too short for its time", None, len(time))
    if not columns.types or columns.types[-1] not in _TIMES:
        raise FormatError("a key is encoded with a time, which its last column is not", None, 0)
    others = decode_row(bare(row), columns.sliced(slice(-1)))
    return (*others, _LONG.unpack(time)[0] - _SIGN)


def halves(content: bytes) -> tuple[bytes, bytes]:
    """Return the bare row of the size that stands first, and what follows it."""
    row, end = _sized(content, 0, "the first columns of a key lie outside of it")
    return bare(row), content[end:]


_ORDERED = {
    "boolean": struct.Struct(">?"),
    "byte": struct.Struct(">b"),
    "short": struct.Struct(">h"),
    "integer": struct.Struct(">i"),
    "long": struct.Struct(">q"),
    "float": struct.Struct(">f"),
    "double": struct.Struct(">d"),
    "date": struct.Struct(">i"),
    "timestamp": struct.Struct(">q"),
    "timestamp_ntz": struct.Struct(">q"),
    "year-month": struct.Struct(">i"),
    "day-time": struct.Struct(">q"),
}
_FRACTIONS = ("float", "double")


def ordering_bytes(value: bytes | None, wanted: DataType) -> Value:
    """Decode a sign and a big-endian value; of negative fractions all bits are turned."""
    if value is None or value[:1] == b"\2":
        return None
    name = wanted.name if isinstance(wanted, Atomic) else ""
    form = _ORDERED.get(name)
    if form is None or len(value) != 1 + form.size or value[0] > 1:
        raise FormatError("a column that orders keys is not encoded as it should be")
    is_negative, body = value[0] == 0, value[1:]
    if is_negative and name in _FRACTIONS:
        body = bytes(byte ^ 0xFF for byte in body)
    return form.unpack(body)[0]


def _order_bytes(value: Value, kind: DataType) -> bytes:
    """Return the inverse of `ordering_bytes`; a null is as long as the others."""
    name = kind.name if isinstance(kind, Atomic) else ""
    form = _ORDERED.get(name)
    if form is None:
        raise FormatError("a column of this type orders no keys")
    if value is None:
        return b"\2" + bytes(form.size)
    body = form.pack(value)
    is_negative = body[0] >> 7 == 1 and name != "boolean"
    if is_negative and name in _FRACTIONS:
        body = bytes(byte ^ 0xFF for byte in body)
    return (b"\0" if is_negative else b"\1") + body


# Behind the byte that RocksDB's encoding puts before it, and behind the schema's number.
_ROW, _NUMBERED = 1, 3

# The only schema that keys have had.
KEY_SCHEMA = 0

Decode = Callable[[bytes], Row]


@dataclass(frozen=True, slots=True, eq=False)
class AvroRows:
    """The decoders of keys, and of values by schema number; `newest` has the store's columns."""

    key: Decode
    values: Mapping[int, Callable[[bytes, int], Row]]
    newest: int

    def value(self, row: bytes) -> Row:
        """Return a value without the encoding's byte, as `bare` and `listed` leave it, decoded."""
        if len(row) < 2:
            raise FormatError("a value has no schema's number", None, 0)
        number = int.from_bytes(row[:2], "little", signed=True)
        read = self.values.get(number)
        if read is None:
            raise FormatError(f"a value is of schema {number}, which no schema file has", None, 0)
        return read(row, 2)


def avro_rows_of(
    key: StructType, encoder: Encoder, value: StructType | None, written: Mapping[int, StructType]
) -> AvroRows:
    """Return the decoder of a store's rows; FormatError where a type cannot be decoded."""
    values = {number: _reader(columns, value) for number, columns in written.items()}
    own = [number for number, columns in written.items() if columns == value]
    return AvroRows(_key_reader(key, encoder), values, max(own, default=KEY_SCHEMA))


def _reader(written: StructType, wanted: StructType | None) -> Callable[[bytes, int], Row]:
    """Return the reader of a schema's rows, which refuses rows that cannot become the newest."""
    try:
        return row_reader(written, wanted)
    except FormatError as error:
        if written == wanted:
            raise
        refusal = error

    def refuse(content: bytes, offset: int) -> Row:
        raise refusal

    return refuse


def _key_reader(columns: StructType, encoder: Encoder) -> Decode:
    match encoder.kind:
        case "row":
            read = row_reader(columns)
            return lambda content: read(_numbered(content), _NUMBERED)
        case "prefix":
            count = len(encoder.columns)
            leading = row_reader(columns.sliced(slice(count)))
            others = row_reader(columns.sliced(slice(count, None)))

            def decode(content: bytes) -> Row:
                first, rest = halves(content)
                return (*leading(first, 0), *others(_numbered(rest), _NUMBERED))

            return decode
        case "range":
            return _avro_range(columns, encoder)
    raise FormatError(f"keys of Avro rows are never encoded as {encoder.kind}")


def _avro_range(columns: StructType, encoder: Encoder) -> Decode:
    ordering, others = encoder.columns, unordered_columns(columns, encoder)
    if max(ordering, default=-1) >= len(columns.types):
        raise FormatError("keys are ordered by columns that they do not have", None, 0)
    halved = 2 * len(ordering)
    read_ordering = row_reader(StructType(("",) * halved, (Atomic("binary"),) * halved))
    read_others = row_reader(columns.picked(others))

    def decode(content: bytes) -> Row:
        first, rest = halves(content)
        if bool(others) != bool(rest):
            raise FormatError("a key is not of the columns that order it", None, 0)
        binaries = read_ordering(first, 0)
        marked = []  # each ordering column as one binary
        for mark, value in zip(binaries[::2], binaries[1::2], strict=True):
            if mark is None or value is None or len(mark) != 1:
                fact = "a column that orders keys is not encoded as it should be"
                raise FormatError(fact, None, 5)
            marked.append(mark + value)
        leading = ordered_columns(marked, columns, encoder)
        following = read_others(_numbered(rest), _NUMBERED) if others else ()
        return arrange_columns(ordering, leading, others, following)

    return decode


def _numbered(content: bytes) -> bytes:
    """Return the content whole, for offsets of faults in it, if it begins as a row of a key."""
    row = bare(content[:_NUMBERED])
    if len(row) < 2:
        raise FormatError("a row of a key has no schema's number", None, len(content))
    if row != b"\0\0":
        number = int.from_bytes(row, "little", signed=True)
        fact = f"a key is of schema {number}: known is 0, which no Spark has left"
        raise UnknownVersion(fact, None, _ROW)
    return content
