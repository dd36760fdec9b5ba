"""Where the keys of a block belong: `keys` for many at once.

    hashing(rule)            keys -> the numbers whose remainders are their shards
    belonging(part, …)       (store, keys) -> which of them belong to a part of a split (see `parts`)

What the columnar decoder knows no way for, it leaves to the decoder of single keys, which also says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.keys import KeyRule, is_element, key_column, key_hash
from stateshift.engines.spark.vectors import fits as readable
from stateshift.engines.spark.vectors import structs
from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, Flags, Ints, cut
from stateshift.formats.spans import Spans, spans, words
from stateshift.formats.spark.placement_columns import fits, hashes
from stateshift.formats.spark.types import StructType, decode_struct
from stateshift.plain import from_plain


def hashing(rule: KeyRule) -> Callable[[Binary], Ints]:
    if rule.form == "single":
        return lambda keys: np.zeros(len(keys), np.int64)
    schema, single = decode_struct(rule.schema), key_hash(rule)
    types = schema.types[: rule.columns]
    inner = rule.form == "range" and is_element(schema)
    if inner:
        assert isinstance(types[0], StructType), "an element is a struct"
        types = types[0].types[:1]
    columnar = readable(schema) and all(map(fits, types))

    def hashed(keys: Binary) -> Ints:
        columns = _columns(rule, schema, keys) if columnar and len(keys) else None
        if columns is None:
            return np.fromiter(map(single, keys.to_pylist()), np.int64, len(keys))
        own = columns[0].flatten()[:1] if inner else columns[: rule.columns]
        return hashes(own, types, len(keys)).astype(np.int64)

    return hashed


def belonging(part: Mapping[str, Any], operator: str, shard: int) -> Callable[[str, Binary], Flags]:
    if "shards" in part:
        inside = shard in part["shards"]
        return lambda store, keys: np.full(len(keys), inside)
    values, own = frozenset(part["values"]), f"{operator}/"
    rules = {name: from_plain(KeyRule, rule) for name, rule in part["rules"].items() if name.startswith(own)}
    columns = {name.removeprefix(own): _texts(rule, part["column"]) for name, rule in rules.items()}

    def belongs(store: str, keys: Binary) -> Flags:
        texts = columns.get(store)
        if texts is None:
            raise FormatError(f"entries of the store {store}, whose keys have no column {part['column']}")
        return np.array([text in values for text in texts(keys)], bool)

    return belongs


def _texts(rule: KeyRule, column: str) -> Callable[[Binary], list[str | None]] | None:
    """The text of one of the columns; None where there is no such column."""
    told = key_column(rule, column)
    if told is None:
        return None
    schema = decode_struct(rule.schema)
    number = schema.names.index(column)

    def texts_of(keys: Binary) -> list[str | None]:
        columns = _columns(rule, schema, keys) if readable(schema) and len(keys) else None
        if columns is None:
            return [told(key) for key in keys.to_pylist()]
        values = columns[number].to_pylist()
        return [value if value is None or isinstance(value, str) else str(value).lower() for value in values]

    return texts_of


def _columns(rule: KeyRule, schema: StructType, keys: Binary) -> list[Any] | None:
    """The columns of the row that decides; None where one of them is not as it should be."""
    found = spans(keys)
    row = _row(rule, found)
    if row is None:
        return None
    starts, ends = row
    if rule.framed:
        if (ends <= starts).any() or found.content[starts].any():
            return None
        starts = starts + 1
    decoded: pa.StructArray | None = structs(cut(found.content, starts, ends), schema)
    return None if decoded is None else decoded.flatten()


def _row(rule: KeyRule, found: Spans) -> tuple[Ints, Ints] | None:
    """Where the row that decides lies in each key."""
    if rule.form == "row":
        return found.starts, found.ends
    if (found.sizes < 8).any():
        return None
    if rule.form == "time-last":
        return found.starts, found.ends - 8
    if rule.form == "time-first":
        return found.starts + 8, found.ends
    sizes = (words(found.content, found.starts) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    middles = found.starts + 4 + sizes
    if (middles > found.ends).any():
        return None
    return (found.starts + 4, middles) if rule.form == "prefix" else (middles, found.ends)
