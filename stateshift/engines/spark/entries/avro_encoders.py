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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stateshift.engines.spark.entries.encoders import Encoder, Row, bare, halves, ordered, some
from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.spark.avro_rows import row_reader
from stateshift.formats.spark.types import Atomic, StructType

# Behind the byte that RocksDB's encoding puts before it, and behind the schema's number.
_ROW, _NUMBERED = 1, 3

# The only schema that keys have had.
KEY_SCHEMA = 0

Decode = Callable[[bytes], Row]


@dataclass(frozen=True, slots=True, eq=False)
class AvroRows:
    """How a store's keys are decoded, and its values by the number of their schema; `newest` is
    that of values which have the store's own columns.
    """

    key: Decode
    values: Mapping[int, Callable[[bytes, int], Row]]
    newest: int

    def value(self, row: bytes) -> Row:
        """A value without the encoding's byte, as `bare` and `listed` leave it."""
        number = int.from_bytes(row[:2], "little", signed=True)
        read = self.values.get(number)
        if len(row) < 2 or read is None:
            told = (
                f"is of schema {number}, which no schema file tells"
                if len(row) > 1
                else "has no schema's number"
            )
            raise FormatError(f"a value {told}", None, 0)
        return read(row, 2)


def avro_rows_of(
    key: StructType, encoder: Encoder, value: StructType | None, written: Mapping[int, StructType]
) -> AvroRows:
    """FormatError where a type of the columns cannot be."""
    values = {number: _reader(columns, value) for number, columns in written.items()}
    newest = max(
        (number for number, columns in written.items() if columns == value), default=KEY_SCHEMA
    )
    return AvroRows(_KEYS[encoder.kind](key, encoder), values, newest)


def _reader(written: StructType, wanted: StructType | None) -> Callable[[bytes, int], Row]:
    """Rows that cannot have the newest columns are refused where there are any."""
    try:
        return row_reader(written, wanted)
    except FormatError as error:
        if written == wanted:
            raise
        refusal = error

    def refuse(content: bytes, offset: int) -> Row:
        raise refusal

    return refuse


def _row(columns: StructType, encoder: Encoder) -> Decode:
    read = row_reader(columns)
    return lambda content: read(_numbered(content), _NUMBERED)


def _prefix(columns: StructType, encoder: Encoder) -> Decode:
    count = len(encoder.columns)
    first, rest = (
        row_reader(some(columns, slice(count))),
        row_reader(some(columns, slice(count, None))),
    )

    def decode(content: bytes) -> Row:
        one, other = halves(content)
        return (*first(one, 0), *rest(_numbered(other), _NUMBERED))

    return decode


def _range(columns: StructType, encoder: Encoder) -> Decode:
    ordering = encoder.columns
    others = [at for at in range(len(columns.types)) if at not in ordering]
    if any(at >= len(columns.types) for at in ordering):
        raise FormatError("keys are ordered by columns that they do not have", None, 0)
    parts = 2 * len(ordering)
    first = row_reader(StructType(("",) * parts, (Atomic("binary"),) * parts))
    rest = row_reader(
        StructType(
            tuple(columns.names[at] for at in others), tuple(columns.types[at] for at in others)
        )
    )

    def decode(content: bytes) -> Row:
        one, other = halves(content)
        if bool(others) != bool(other):
            raise FormatError("a key is not of the columns that order it", None, 0)
        row: list[Any] = [None] * len(columns.types)
        halved = first(one, 0)
        for at, mark, value in zip(ordering, halved[::2], halved[1::2], strict=True):
            if mark is None or value is None or len(mark) != 1:
                raise FormatError(
                    "a column that orders keys is not encoded as it should be", None, 5
                )
            row[at] = ordered(mark + value, columns.types[at])
        for at, value in zip(
            others, rest(_numbered(other), _NUMBERED) if others else (), strict=True
        ):
            row[at] = value
        return tuple(row)

    return decode


def _unknown(columns: StructType, encoder: Encoder) -> Decode:
    raise FormatError(f"keys of Avro rows are never encoded as {encoder.kind}")


_KEYS: Mapping[str, Callable[[StructType, Encoder], Decode]] = {
    "row": _row,
    "prefix": _prefix,
    "range": _range,
    "postfix": _unknown,
    "before": _unknown,
    "plain": _unknown,
}


def _numbered(content: bytes) -> bytes:
    """Whole, for the offset in it of what is wrong; asked whether it begins as a row of a key
    does.
    """
    row = bare(content[:_NUMBERED])
    if len(row) < 2:
        raise FormatError("a row of a key has no schema's number", None, len(content))
    if row != b"\0\0":
        number = int.from_bytes(row, "little", signed=True)
        raise UnknownVersion(
            f"a key is of schema {number}: known is 0, which no Spark has left", None, _ROW
        )
    return content
