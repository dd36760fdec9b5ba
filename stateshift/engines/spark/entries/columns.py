"""State as Arrow columns: Spark's types as Arrow's, rows as arrays.

    boolean byte short integer long  bool int8 int16 int32 int64
    float double                     float32 float64
    decimal(p,s)                     decimal128(p,s)
    string binary                    string binary
    date                             date32
    timestamp                        timestamp[us, UTC]
    timestamp_ntz                    timestamp[us]
    interval day to second           duration[us]
    interval year to month           int32, months
    calendar interval                struct<months, days, microseconds>: Arrow's own has
                                     nanoseconds, and a smaller range
    variant                          struct<value: binary, metadata: binary>, as Spark's Parquet has
                                     it
    struct array map void            struct list map null

A type that is none of Arrow's or Parquet's is named in its field's metadata (`spark.type`) what it
is. A schema's names may repeat; the later ones are numbered, as everywhere we show them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from stateshift.errors import FormatError
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    StructType,
    Value,
    unique,
)

_ATOMIC = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "day-time": pa.duration("us"),
    "year-month": pa.int32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "void": pa.null(),
    "calendar": pa.struct(
        [("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())]
    ),
    "variant": pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
}
# The keys of a field's metadata that say more than Arrow's type.
_SPARK_TYPES = {
    "year-month": "interval year to month",
    "day-time": "interval day to second",
    "calendar": "interval",
    "variant": "variant",
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type a Spark type is exported as; repeated field names are numbered."""
    match kind:
        case Atomic(name):
            return _ATOMIC[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case StructType(names, types):
            return pa.struct(list(map(_field, unique(names), types)))
        case ArrayType(element):
            return pa.list_(_field("element", element))
        case MapType(key, value):
            return pa.map_(arrow_type(key), _field("value", value))


def array(values: Sequence[Value], kind: pa.DataType) -> pa.Array:
    """Return decoded values as one array."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError as error:
        hint = "write JSON lines (.jsonl), which escape it"
        raise FormatError("a string is not UTF-8, and Arrow has no other", hint=hint) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise FormatError(f"values do not fit their type {kind}: {error}") from error


def _field(name: str, kind: DataType) -> pa.Field:
    spark_type = _SPARK_TYPES.get(kind.name) if isinstance(kind, Atomic) else None
    metadata = {"spark.type": spark_type} if spark_type else None
    return pa.field(name, arrow_type(kind), metadata=metadata)
