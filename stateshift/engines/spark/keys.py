"""Which part of a store's key decides its shard, by operator and by how the key is encoded. Pure.

    form        a key, under RocksDB (HDFS-backed keys are rows alone)                       the shard is decided by
    single      any: an operator without a key has shard 0 and no other                      -
    row         00 row                                                                       its first `columns`
    prefix      i32LE size | 00 row of the first `columns` | 00 row of the others            the first row
    range       i32LE size | 00 row of ordering columns | 00 row of the others               the second row; of an
                                                                                             item in a map, its first
    time-last   00 row | u64BE time                                                          the row
    time-first  u64BE time | 00 row                                                          the row

    operator                        columns that decide
    session window                  all but the last, which is the session's start
    join, keyWithIndexToValue       all but the last, which is the index
    anything else                   all

Source: Spark, RocksDBStateEncoder (NoPrefixKey-, PrefixKeyScan-, RangeKeyScan-, TimestampAsPrefix- and
TimestampAsPostfixKeyStateEncoder), StatefulOperatorPartitioning, StreamingSessionWindowStateManager,
SymmetricHashJoinStateManager; 3.3 to 4.3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stateshift.errors import FormatError
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.types import Atomic, DataType, StructType, decode_struct
from stateshift.formats.spark.unsafe_row import decode_row

Form = Literal["single", "row", "prefix", "range", "time-last", "time-first"]

SESSION_START = "sessionStartTime"
NAMEABLE = ("string", "byte", "short", "integer", "long", "boolean")
INDEXED = "keyWithIndexToValue"

_FORMS: Mapping[str, Form] = {
    "NoPrefixKeyStateEncoderSpec": "row",
    "PrefixKeyScanStateEncoderSpec": "prefix",
    "RangeKeyScanStateEncoderSpec": "range",
    "TimestampAsPostfixKeyStateEncoderSpec": "time-last",
    "TimestampAsPrefixKeyStateEncoderSpec": "time-first",
}


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How a store's keys are read for their shard. `schema` is the StructType JSON of the row that decides, of which
    the first `columns` count; `framed` where each row stands behind RocksDB's encoding byte."""

    form: Form
    schema: str
    columns: int
    framed: bool


def key_rule(store: str, schema: Mapping[str, Any], framed: bool) -> KeyRule:
    """The rule of one store or column family, from what its schema says; FormatError where that is not known."""
    if "__COLLATIONS" in schema["key"] or "string collate" in schema["key"]:
        # Placed by the collation's own key, which only the ICU library can compute.
        raise FormatError(f"the key of {store} holds collated strings, whose placement is not known")
    plain = json.loads(schema["key"])
    key = decode_struct(schema["key"])
    if all(kind == Atomic("void") for kind in key.types):
        return KeyRule("single", schema["key"], 0, framed)
    if schema["encoder"]:
        return _encoded(json.loads(schema["encoder"]), plain, key, store, framed)
    session = schema["prefix"] or key.names[-1] == SESSION_START
    leading = len(key.names) - 1 if session or store.endswith(INDEXED) else len(key.names)
    if session and framed:
        return KeyRule("prefix", _columns(plain, 0, leading), leading, framed)
    return KeyRule("row", schema["key"], leading, framed)


def key_hash(rule: KeyRule) -> Callable[[bytes], int]:
    """The function from a key to the number whose remainder is its shard."""
    if rule.form == "single":
        return lambda key: 0
    schema = decode_struct(rule.schema)
    columns, types = rule.columns, schema.types[: rule.columns]
    inner = rule.form == "range" and _is_element(schema)
    if inner:
        types = (_part(types[0]),)
    row_of = _ROWS[rule.form]
    skip = 1 if rule.framed else 0

    def hashed(key: bytes) -> int:
        row = row_of(key)
        if skip and row[:1] != b"\0":
            began = row[:1].hex() or "nothing"
            raise FormatError(f"a key that begins with {began}, not with RocksDB's encoding byte 00")
        values = decode_row(row[skip:], schema)[:columns]
        return signed_hash(values[0][:1] if inner else values, types)

    return hashed


def key_column(rule: KeyRule, column: str) -> Callable[[bytes], str | None] | None:
    """The function from a key to the text of one of its columns; None where the rule's row has no such column that a
    person could name a value of: text, whole numbers, true and false."""
    schema = decode_struct(rule.schema)
    names = () if rule.form == "single" else schema.names[: rule.columns]
    if column not in names:
        return None
    number = names.index(column)
    kind = schema.types[number]
    if not isinstance(kind, Atomic) or kind.name not in NAMEABLE:
        return None
    row_of, skip = _ROWS[rule.form], 1 if rule.framed else 0

    def told(key: bytes) -> str | None:
        value = decode_row(row_of(key)[skip:], schema)[number]
        if value is None or isinstance(value, str):
            return value
        return str(value).lower()

    return told


def _encoded(encoder: Mapping[str, Any], plain: Any, key: StructType, store: str, framed: bool) -> KeyRule:
    """A column family, whose key encoder stands in the schema."""
    kind = str(encoder.get("keyStateEncoderType"))
    form = _FORMS.get(kind)
    count = len(key.names)
    if form is None or not framed:
        raise FormatError(f"the keys of {store} are encoded by {kind}, which is not known")
    if form == "row":
        leading = count - 1 if store.endswith(INDEXED) else count
        return KeyRule("row", json.dumps(plain), leading, framed)
    if form == "prefix":
        leading = int(encoder["numColsPrefixKey"])
        return KeyRule("prefix", _columns(plain, 0, leading), leading, framed)
    if form == "range":
        others = [n for n in range(count) if n not in encoder["orderingOrdinals"]]
        if not others:
            raise FormatError(f"the keys of {store} are ordered by all of their columns: none is left to place them")
        picked = {**plain, "fields": [plain["fields"][n] for n in others]}
        return KeyRule("range", json.dumps(picked), len(others), framed)
    return KeyRule(form, _columns(plain, 0, count - 1), count - 1, framed)


def _columns(plain: Any, start: int, end: int) -> str:
    return json.dumps({**plain, "fields": plain["fields"][start:end]})


def _is_element(schema: StructType) -> bool:
    """The expiries of a map's items are kept by (grouping key, key in the map): the grouping key decides."""
    first = schema.types[0]
    return len(schema.types) == 1 and isinstance(first, StructType) and first.names == ("key", "userKey")


def _part(element: DataType) -> DataType:
    assert isinstance(element, StructType), "asked of elements only"
    return element.types[0]


def _sized(key: bytes) -> int:
    size = int.from_bytes(key[:4], "little")
    if len(key) < 4 or 4 + size > len(key):
        raise FormatError("a key is shorter than the part it claims to begin with")
    return 4 + size


_ROWS: Mapping[Form, Callable[[bytes], bytes]] = {
    "row": lambda key: key,
    "prefix": lambda key: key[4 : _sized(key)],
    "range": lambda key: key[_sized(key) :],
    "time-last": lambda key: key[:-8],
    "time-first": lambda key: key[8:],
}
