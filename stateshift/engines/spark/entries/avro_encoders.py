"""Keys and values whose rows are Avro's (transformWithState under `encodingFormat=avro`), undone.
Pure.

    row     00 | i16LE schema | row
    prefix  i32LE size | 00 row of the first columns | 00 i16LE schema | row of the others
    range   i32LE size | 00 row of the ordering columns, two binaries each: 00 01 02 as in
            `encoders`, and the value
            big-endian | [00 i16LE schema | row of the others]
    value   00 | i16LE schema | row, in lists with its size before it

The schema's number stands beside the columns in the schema files. Keys never had another than 0:
their columns cannot become others. Those of values can, and then a schema file is added: an old row
is read by its own, and has the columns of the newest, as Spark reads it.

    avro_rows_of(key, encoder, value, written) -> AvroRows  `written` are the columns of values by
                                                            schema number

Source: Spark, AvroStateEncoder, StateSchemaCompatibilityChecker; the rows are
`formats.spark.avro_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stateshift.engines.spark.entries.encoders import (
    Encoder,
    arrange_columns,
    bare,
    halves,
    ordered_columns,
    unordered_columns,
)
from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.spark.avro_rows import row_reader
from stateshift.formats.spark.types import Atomic, Row, StructType

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
            return _prefix(columns, len(encoder.columns))
        case "range":
            return _range(columns, encoder)
    raise FormatError(f"keys of Avro rows are never encoded as {encoder.kind}")


def _prefix(columns: StructType, count: int) -> Decode:
    leading = row_reader(columns.sliced(slice(count)))
    others = row_reader(columns.sliced(slice(count, None)))

    def decode(content: bytes) -> Row:
        first, rest = halves(content)
        return (*leading(first, 0), *others(_numbered(rest), _NUMBERED))

    return decode


def _range(columns: StructType, encoder: Encoder) -> Decode:
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
        leading = ordered_columns(_marked(read_ordering(first, 0)), columns, encoder)
        following = read_others(_numbered(rest), _NUMBERED) if others else ()
        return arrange_columns(ordering, leading, others, following)

    return decode


def _marked(halved: Sequence[bytes | None]) -> list[bytes]:
    """Return each ordering column as one binary: its mark, and the value behind it."""
    columns = []
    for mark, value in zip(halved[::2], halved[1::2], strict=True):
        if mark is None or value is None or len(mark) != 1:
            raise FormatError("a column that orders keys is not encoded as it should be", None, 5)
        columns.append(mark + value)
    return columns


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
