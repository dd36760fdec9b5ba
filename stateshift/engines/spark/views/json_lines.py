"""Pieces as JSON lines: many at once where their types allow it, else one by one, and the same
either way.

A piece is entries, or changes, on their way out of an image: a block of one store of one shard,
with the view that reads it.

Columns as JSON text, many rows at once: what `rows.plain_value` and `json.dumps` make of them
one by one.

    texts(column, kind)  a text for each row; None for types that are left to them (intervals,
                         variants)

Numbers and plain strings are put into text by Arrow; floating point, decimals, bytes, and strings
that need an escape are each made by Python, as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spark.entries.columnar import keys_of, values_of
from stateshift.engines.spark.entries.store_view import StoreView, plain_value
from stateshift.engines.spark.entries.vectors import fits
from stateshift.engines.views import HINT_FILE
from stateshift.errors import FormatError
from stateshift.formats.blocks import Column, RowBlock, part
from stateshift.formats.spark.text import JsonObject
from stateshift.formats.spark.types import (
    WIDTHS,
    ArrayType,
    Atomic,
    DataType,
    MapType,
    StructType,
    Value,
    unique,
)


def lines_of(piece: StoreRows) -> Iterator[bytes]:
    """Yield the entries of a piece as JSON, one a line."""
    together = _together(piece)
    yield "".join(_one_by_one(piece)).encode("utf-8") if together is None else together


def _together(piece: StoreRows) -> bytes | None:
    view, block = piece.view, piece.block
    if view.key is None or view.value is None or piece.changes:
        return None
    keys, values = keys_of(view, block.keys), values_of(view, block.values)
    if keys is None or values is None:
        return None
    value_texts = lists if view.many else texts
    key, value = texts(keys, view.key), value_texts(values, view.value)
    if key is None or value is None:
        return None
    shared = json.dumps(_shared(piece), ensure_ascii=False)
    lines = join_texts(shared[:-1] + ', "key": ', key, ', "value": ', value, "}\n")
    _, _, content = lines.buffers()
    assert lines.offset == 0, "a column that was just made begins at its beginning"
    end = int(memoryview(lines.buffers()[1]).cast("q")[len(lines)])
    return bytes(pa.py_buffer(content))[:end]


def _shared(piece: StoreRows) -> JsonObject:
    return {"operator": piece.operator, "store": piece.view.store, "shard": piece.shard}


def _one_by_one(piece: StoreRows) -> Iterator[str]:
    shared, view = _shared(piece), piece.view
    for at, (key, value) in enumerate(piece.block.records()):
        plain: JsonObject = {}
        if piece.changes:
            plain |= {"batch": piece.batch, "change": piece.changes[at]}
        plain |= shared
        is_known = view.key is not None
        plain["key"] = view.named_key(key_of(piece, key)) if is_known else {"hex": key.hex()}
        shown = value_of(piece, value)
        if isinstance(shown, bytes):
            plain["value"] = {"hex": shown.hex()}
        else:
            plain["value"] = None if shown is None else view.named_value(shown)
        text = json.dumps(plain, ensure_ascii=False)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            # A byte of a string that is not UTF-8 is kept as a surrogate, which JSON can only say
            # as an escape.
            text = json.dumps(plain)
        yield text + "\n"


class StoreRows(NamedTuple):
    """Entries, or changes, of one store of one shard on their way out; `path` is to blame."""

    view: StoreView
    operator: str
    shard: int
    block: RowBlock
    path: str
    batch: int = 0
    changes: tuple[str, ...] = ()


def part_of(piece: StoreRows, start: int, count: int) -> StoreRows:
    """Return some of its entries."""
    if start == 0 and len(piece.block) <= count:
        return piece
    block = part(piece.block, start, min(start + count, len(piece.block)))
    return piece._replace(block=block, changes=piece.changes[start : start + count])


def key_of(piece: StoreRows, key: bytes) -> Value:
    """Return a key's columns, its bytes where they are not known."""
    if piece.view.key is None:
        return key
    try:
        return piece.view.decode_key(key)
    except FormatError as error:
        raise _at(error, piece) from error


def value_of(piece: StoreRows, value: bytes | None) -> Value:
    """Return a value's columns, its bytes where they are not known; None of a deletion."""
    if value is None or piece.view.value is None:
        return value
    try:
        return piece.view.decode_value(value)
    except FormatError as error:
        raise _at(error, piece) from error


def _at(error: FormatError, piece: StoreRows) -> FormatError:
    fact = f"a row of the store {piece.view.store} does not fit its schema: {error.fact}"
    return FormatError(fact, piece.path, hint=HINT_FILE)


_NOTHING = pa.scalar("", pa.large_string())
_ESCAPED = r'["\\\x00-\x1f]'
_WHOLE = WIDTHS.keys() - {"boolean", "float", "double"}

Texts = Column  # a pyarrow.LargeStringArray


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
            parts: list[Texts | str] = []
            for name, field, item in zip(unique(names), column.flatten(), types, strict=True):
                comma = ", " if parts else ""
                parts.append(f"{comma}{json.dumps(name, ensure_ascii=False)}: ")
                parts.append(_texts(field, item).fill_null("null"))
            return _or_null(column, join_texts("{", *parts, "}"))
        case Atomic("void"):
            return pa.nulls(len(column), pa.large_string())
        case Atomic("boolean"):
            return column.cast(pa.large_string())
        case Atomic("string"):
            return _strings(column.cast(pa.large_string()))
        case Atomic(name) if name in _WHOLE:
            return column.view(f"int{8 * WIDTHS[name]}").cast(pa.large_string())
        case ArrayType(element):
            return _lists(column, _texts(column.values, element))
        case MapType(key, item):
            keys, items = _texts(column.keys, key), _texts(column.items, item).fill_null("null")
            return _lists(column, join_texts("[", keys, ", ", items, "]"))
    texts = []  # one by one
    for value in column.to_pylist():
        texts.append(None if value is None else json.dumps(plain_value(value, kind)))
    return pa.array(texts, pa.large_string())


def _lists(column: Column, each: Texts) -> Texts:
    """Return a text for each list; `each` is every item's, of all lists in a row."""
    items = pa.LargeListArray.from_arrays(column.offsets.cast(pa.int64()), each.fill_null("null"))
    between = pa.scalar(", ", pa.large_string())
    return _or_null(column, join_texts("[", pc.binary_join(items, between), "]"))


def _or_null(column: Column, texts: Texts) -> Texts:
    if not column.null_count:
        return texts
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.large_string()))


def _strings(column: Column) -> Texts:
    quoted = join_texts('"', column, '"')
    odd = pc.match_substring_regex(column, _ESCAPED)
    if not pc.any(odd).as_py():
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in column.filter(odd).to_pylist()]
    return pc.replace_with_mask(quoted, odd.fill_null(False), pa.array(escaped, pa.large_string()))
