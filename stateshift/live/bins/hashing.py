"""The hash that tells bins apart, as Spark's `xxhash64(columns)` has it: here for single keys,
where no Spark is at hand.

Each column is hashed with the hash of those before it as the seed; a null leaves that as it is.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xxhash

from stateshift.errors import Complaint, SpecError

if TYPE_CHECKING:
    import pyarrow

SEED = 42
HASH = "__stateshift_hash"  # the column that Spark adds: xxhash64 of the key

Encode = Callable[[Any], bytes]  # a column's value, as the bytes that are hashed


def encoders(schema: pyarrow.Schema, key: Sequence[str]) -> tuple[Encode, ...]:
    """Return the encoders of key columns."""
    return encoders_of(key_kinds(schema, key), key)


def key_kinds(schema: pyarrow.Schema, key: Sequence[str]) -> tuple[str, ...]:
    """Return the kind of each key column, by which it is hashed; `?…` where Spark alone can."""
    types = [schema.field(name).type for name in key]
    return tuple(_kind(type_) or f"?{type_}" for type_ in types)


def encoders_of(kinds: Sequence[str], key: Sequence[str]) -> tuple[Encode, ...]:
    """Return the encoders of key columns by their kinds; refuse those that Spark alone hashes."""
    for kind, name in zip(kinds, key, strict=True):
        if kind not in _ENCODE:
            fact = f"the column {name} of type {kind[1:]} is hashed by Spark alone"
            hint = "use a key of whole numbers, text, bytes, booleans, floats or timestamps"
            raise SpecError((Complaint("key", fact),), hint=hint)
    return tuple(_ENCODE[kind] for kind in kinds)


def hash_of(values: Sequence[object], encode: Sequence[Encode]) -> int:
    """Return the hash of a key's columns, as a number of 64 bits without a sign."""
    hashed = SEED
    for value, encoded in zip(values, encode, strict=True):
        if value is not None:
            hashed = xxhash.xxh64_intdigest(encoded(value), seed=hashed)
    return hashed


def hasher(encode: Sequence[Encode]) -> Callable[[Any], int]:
    """Return the function that hashes a key: a value, or a tuple of several columns. One column
    alone is hashed without a detour, for states have many keys.
    """
    if len(encode) > 1:
        return lambda key: hash_of(key, encode)
    (encoded,) = encode
    digest = xxhash.xxh64_intdigest
    return lambda key: SEED if key is None else digest(encoded(key), SEED)


def _kind(type_: pyarrow.DataType) -> str | None:
    """Return Spark's name of a type, or of one hashed alike; None where that is not known."""
    from pyarrow import types

    if types.is_boolean(type_):
        return "boolean"
    if types.is_int8(type_) or types.is_int16(type_) or types.is_int32(type_):
        return "integer"
    if types.is_string(type_) or types.is_large_string(type_):
        return "string"
    if types.is_binary(type_) or types.is_large_binary(type_):
        return "binary"
    if types.is_timestamp(type_):
        return "timestamp"
    plain = {"int64": "long", "float": "float", "double": "double", "date32[day]": "date"}
    return plain.get(str(type_))


def _micros(value: datetime.datetime) -> int:  # with or without a zone
    naive = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(_UTC)
    since = naive.replace(tzinfo=None) - _EPOCH
    seconds: int = since.days * 86_400 + since.seconds
    return seconds * 1_000_000 + int(since.microseconds)


_EPOCH = datetime.datetime(1970, 1, 1)
_UTC = datetime.UTC
_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")

_ENCODE: Mapping[str, Encode] = {
    "boolean": lambda value: _INT.pack(int(value)),
    "integer": _INT.pack,
    "long": _LONG.pack,
    "float": lambda value: struct.pack("<f", value + 0.0),  # of -0.0 it makes 0.0
    "double": lambda value: struct.pack("<d", value + 0.0),
    "string": str.encode,
    "binary": bytes,
    "date": lambda value: _INT.pack((value - _EPOCH.date()).days),
    "timestamp": lambda value: _LONG.pack(_micros(value)),
}
