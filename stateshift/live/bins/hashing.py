"""The hash that tells bins apart, as Spark's `xxhash64(columns)` has it: here for single keys,
where no Spark is at hand.

Each column is hashed with the hash of those before it as the seed; a null leaves that as it is.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import xxhash

from stateshift.errors import Complaint, SpecError

if TYPE_CHECKING:
    import pyarrow

SEED = 42

Encode = Callable[[Any], bytes]  # a column's value, as the bytes that are hashed


def encoders(schema: pyarrow.Schema, key: Sequence[str]) -> tuple[Encode, ...]:
    """Return how the values of key columns are hashed.

    Raises:
        SpecError: Spark hashes a column in a way that is not known here.
    """
    found = []
    for name in key:
        kind = schema.field(name).type
        encode = _encoder(kind)
        if encode is None:
            fact = f"the column {name} of type {kind} is hashed by Spark alone"
            hint = "use a key of whole numbers, text, bytes, booleans, floats or timestamps"
            raise SpecError((Complaint("key", fact),), hint=hint)
        found.append(encode)
    return tuple(found)


def hash_of(values: Sequence[object], encode: Sequence[Encode]) -> int:
    """Return the hash of a key's columns, as a number of 64 bits without a sign."""
    hashed = SEED
    for value, encoded in zip(values, encode, strict=True):
        if value is not None:
            hashed = xxhash.xxh64_intdigest(encoded(value), seed=hashed)
    return hashed


def _encoder(kind: pyarrow.DataType) -> Encode | None:
    from pyarrow import types

    if types.is_boolean(kind):
        return lambda value: _INT.pack(int(value))
    if types.is_int8(kind) or types.is_int16(kind) or types.is_int32(kind):
        return _INT.pack
    if types.is_int64(kind):
        return _LONG.pack
    if types.is_float32(kind):
        return lambda value: struct.pack("<f", value + 0.0)  # of -0.0 it makes 0.0
    if types.is_float64(kind):
        return lambda value: struct.pack("<d", value + 0.0)
    if types.is_string(kind) or types.is_large_string(kind):
        return str.encode
    if types.is_binary(kind) or types.is_large_binary(kind):
        return bytes
    if types.is_date32(kind):
        return lambda value: _INT.pack((value - _EPOCH.date()).days)
    if types.is_timestamp(kind):
        return lambda value: _LONG.pack(_micros(value))
    return None


def _micros(value: Any) -> int:  # a datetime, with or without a zone
    naive = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(_UTC)
    since = naive.replace(tzinfo=None) - _EPOCH
    seconds: int = since.days * 86_400 + since.seconds
    return seconds * 1_000_000 + int(since.microseconds)


_EPOCH = datetime.datetime(1970, 1, 1)
_UTC = datetime.UTC
_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")
