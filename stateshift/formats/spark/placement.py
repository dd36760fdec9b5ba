"""Which partition a key belongs to: pmod(Murmur3_x86_32(columns, seed 42), partitions).

Columns are folded from left to right, each hash being the seed of the next; a null leaves the seed
as it is. Spark's hash of bytes is its own: the last one to three bytes are each mixed in as a
whole, sign-extended word. A stock murmur3 agrees on whole words only, so the tail is widened first,
and the length it was finished with is exchanged.

Source: Spark, HashExpression (Murmur3Hash), Murmur3_x86_32.hashUnsafeBytes,
HashPartitioning.partitionIdExpression.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import mmh3

from stateshift.errors import FormatError
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    StructType,
)
from stateshift.formats.spark.unsafe_row import unscaled

SEED = 42

_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_INTS = frozenset(("byte", "short", "integer", "date", "year-month"))
_LONGS = frozenset(("long", "timestamp", "timestamp_ntz", "day-time"))
_MASK = 0xFFFFFFFF
_INVERSE_1 = pow(0x85EBCA6B, -1, 1 << 32)
_INVERSE_2 = pow(0xC2B2AE35, -1, 1 << 32)


def signed_hash(values: Sequence[Any], types: Sequence[DataType], seed: int = SEED) -> int:
    """What SQL's `hash(...)` gives."""
    value = seed & _MASK
    for item, wanted in zip(values, types, strict=True):
        value = _hash(item, wanted, value)
    return value - (1 << 32) if value >> 31 else value


def _hash(value: Any, wanted: DataType, seed: int) -> int:
    if value is None:
        return seed
    match wanted:
        case Atomic(name):
            return _hash_atomic(value, name, seed)
        case DecimalType(precision, scale):
            number = unscaled(value, scale)
            if precision <= 18:
                return _words(_LONG.pack(number), seed)
            return _bytes(
                number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True),
                seed,
            )
        case StructType(_, types):
            for item, inner in zip(value, types, strict=True):
                seed = _hash(item, inner, seed)
        case ArrayType(element):
            for item in value:
                seed = _hash(item, element, seed)
        case MapType(key, item_type):
            for name, item in value:
                seed = _hash(item, item_type, _hash(name, key, seed))
    return seed


def _hash_atomic(value: Any, name: str, seed: int) -> int:
    if name in _INTS or name == "boolean":
        return _words(_INT.pack(int(value)), seed)
    if name in _LONGS:
        return _words(_LONG.pack(value), seed)
    match name:
        case "float":
            return _words(_FLOAT.pack(_plain(value)), seed)
        case "double":
            return _words(_DOUBLE.pack(_plain(value)), seed)
        case "string":
            return _bytes(value.encode("utf-8", "surrogateescape"), seed)
        case "binary":
            return _bytes(value, seed)
        case "calendar":
            months, days, microseconds = value
            return _words(
                _INT.pack(months), _words(_INT.pack(days), _words(_LONG.pack(microseconds), seed))
            )
    raise FormatError(f"keys of type {name} have no placement")


def _plain(value: float) -> float:
    """-0.0 is hashed as 0.0, and what is not a number as the one that Java's doubleToLongBits
    makes of them all.
    """
    return math.nan if value != value else value or 0.0


def _words(data: bytes, seed: int) -> int:
    return mmh3.hash(data, seed, signed=False)


def _bytes(data: bytes, seed: int) -> int:
    tail = len(data) % 4
    if not tail:
        return mmh3.hash(data, seed, signed=False)
    whole = len(data) - tail
    widened = data[:whole] + struct.pack(f"<{tail}i", *struct.unpack(f"{tail}b", data[whole:]))
    return _finish(_unfinish(mmh3.hash(widened, seed, signed=False)) ^ len(widened) ^ len(data))


def _finish(value: int) -> int:
    """Murmur3's last mixing, without the length."""
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def _unfinish(value: int) -> int:
    value = (value ^ value >> 16) * _INVERSE_2 & _MASK
    value = (value ^ value >> 13 ^ value >> 26) * _INVERSE_1 & _MASK
    return value ^ value >> 16
