"""Columns as JSON text, many rows at once: what `rows.plain_value` and `json.dumps` make of them
one by one.

    texts(column, kind)  a text for each row; None for types that are left to them (intervals,
                         variants)

Numbers and plain strings are put into text by Arrow; floating point, decimals, bytes, and strings
that need an escape are each made by Python, as everywhere.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spark.entries.rows import plain_value
from stateshift.formats.blocks import Column
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    StructType,
    unique,
)

_NOTHING = pa.scalar("", pa.large_string())
_ESCAPED = r'["\\\x00-\x1f]'
_WHOLE = {
    "byte": 1,
    "short": 2,
    "integer": 4,
    "date": 4,
    "year-month": 4,
    "long": 8,
    "timestamp": 8,
    "timestamp_ntz": 8,
    "day-time": 8,
}

_ATOMIC = frozenset((*_WHOLE, "boolean", "float", "double", "string", "binary", "void"))

Texts = Column  # a pyarrow.LargeStringArray


def fits(kind: DataType) -> bool:
    """Whether values of this type are written a column at a time."""
    match kind:
        case Atomic(name):
            return name in _ATOMIC
        case DecimalType():
            return True
        case StructType(_, types):
            return all(map(fits, types))
        case ArrayType(element):
            return fits(element)
        case MapType(key, value):
            return fits(key) and fits(value)


def texts(column: Column, kind: DataType) -> Texts | None:
    """Return the JSON of each value; None where the type is not written by columns."""
    return _texts(column, kind).fill_null("null") if fits(kind) else None


def lists(column: Column, kind: StructType) -> Texts | None:
    """Return a text for each list of structs."""
    return _lists(column, _texts(column.values, kind)) if fits(kind) else None


def join_texts(*parts: Texts | str) -> Texts:
    """Return texts put together row by row; a plain string is the same in each row."""
    columns = [
        pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts
    ]
    return pc.binary_join_element_wise(*columns, _NOTHING)


def _texts(column: Column, kind: DataType) -> Texts:
    """Return a text for each value; null where the value is."""
    match kind:
        case StructType(names, types):
            return _structs(column, unique(names), types)
        case Atomic("void"):
            return pa.nulls(len(column), pa.large_string())
        case Atomic("boolean"):
            return column.cast(pa.large_string())
        case Atomic("string"):
            return _strings(column.cast(pa.large_string()))
        case Atomic(name) if name in _WHOLE:
            return column.view(f"int{8 * _WHOLE[name]}").cast(pa.large_string())
        case ArrayType(element):
            return _lists(column, _texts(column.values, element))
        case MapType(key, item):
            keys, items = _texts(column.keys, key), _texts(column.items, item).fill_null("null")
            return _lists(column, join_texts("[", keys, ", ", items, "]"))
    return _one_by_one(column, kind)


def _one_by_one(column: Column, kind: DataType) -> Texts:
    texts = []
    for value in column.to_pylist():
        texts.append(None if value is None else json.dumps(plain_value(value, kind)))
    return pa.array(texts, pa.large_string())


def _lists(column: Column, each: Texts) -> Texts:
    """Return a text for each list; `each` is the text of every item, of all lists one behind the
    other.
    """
    items = pa.LargeListArray.from_arrays(column.offsets.cast(pa.int64()), each.fill_null("null"))
    between = pa.scalar(", ", pa.large_string())
    return _or_null(column, join_texts("[", pc.binary_join(items, between), "]"))


def _or_null(column: Column, texts: Texts) -> Texts:
    if not column.null_count:
        return texts
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.large_string()))


def _structs(column: Column, names: list[str], types: tuple[DataType, ...]) -> Texts:
    parts: list[Texts | str] = []
    for name, field, kind in zip(names, column.flatten(), types, strict=True):
        comma = ", " if parts else ""
        parts.append(f"{comma}{json.dumps(name, ensure_ascii=False)}: ")
        parts.append(_texts(field, kind).fill_null("null"))
    return _or_null(column, join_texts("{", *parts, "}"))


def _strings(column: Column) -> Texts:
    quoted = join_texts('"', column, '"')
    odd = pc.match_substring_regex(column, _ESCAPED)
    if not pc.any(odd).as_py():
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in column.filter(odd).to_pylist()]
    return pc.replace_with_mask(quoted, odd.fill_null(False), pa.array(escaped, pa.large_string()))
