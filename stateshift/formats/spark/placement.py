"""The partition of a key: pmod(Murmur3_x86_32(columns, seed 42), partitions).

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
from collections.abc import Callable, Sequence

import mmh3

from stateshift.errors import FormatError
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    StructType,
    Value,
)
from stateshift.formats.spark.unsafe_row import twos_complement, unscale_decimal

SEED = 42

_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_MASK = 0xFFFFFFFF
_INVERSE_1 = pow(0x85EBCA6B, -1, 1 << 32)
_INVERSE_2 = pow(0xC2B2AE35, -1, 1 << 32)


def signed_hash(values: Sequence[Value], types: Sequence[DataType], seed: int = SEED) -> int:
    """Return SQL's `hash(...)`."""
    value = seed & _MASK
    for item, wanted in zip(values, types, strict=True):
        value = _hash(item, wanted, value)
    return value - (1 << 32) if value >> 31 else value


def _hash(value: Value, wanted: DataType, seed: int) -> int:  # noqa: C901 (flat, over the types)
    if value is None:
        return seed
    match wanted:
        case Atomic(name):
            pack = _WORDS_OF.get(name)
            if pack is not None:
                return _words(pack(value), seed)
            hash_of = _HASHES.get(name)
            if hash_of is None:
                raise FormatError(f"keys of type {name} have no placement")
            return hash_of(value, seed)
        case DecimalType(precision, scale) if precision <= 18:
            return _words(_LONG.pack(unscale_decimal(value, scale)), seed)
        case DecimalType(_, scale):
            return _bytes(twos_complement(unscale_decimal(value, scale)), seed)
        case StructType(_, types):
            for item, inner in zip(value, types, strict=True):
                seed = _hash(item, inner, seed)
        case ArrayType(element):
            for item in value:
                seed = _hash(item, element, seed)
        case MapType(key, item_type):
            for name, item in value:
                seed = _hash(name, key, seed)
                seed = _hash(item, item_type, seed)
    return seed


def _hash_calendar(interval: tuple[int, int, int], seed: int) -> int:
    months, days, microseconds = interval
    seed = _words(_LONG.pack(microseconds), seed)
    seed = _words(_INT.pack(days), seed)
    return _words(_INT.pack(months), seed)


# The hashed bytes of types that are whole words.
_WORDS_OF: dict[str, Callable[[Value], bytes]] = {
    **dict.fromkeys(("boolean", "byte", "short", "integer", "date", "year-month"), _INT.pack),
    **dict.fromkeys(("long", "timestamp", "timestamp_ntz", "day-time"), _LONG.pack),
    "float": lambda value: _FLOAT.pack(_canonical(value)),
    "double": lambda value: _DOUBLE.pack(_canonical(value)),
}


def _canonical(value: float) -> float:
    """Return 0.0 for -0.0, and doubleToLongBits' own for any NaN."""
    if math.isnan(value):
        return math.nan
    return value or 0.0


def _words(data: bytes, seed: int) -> int:
    return mmh3.hash(data, seed, signed=False)


def _bytes(data: bytes, seed: int) -> int:
    tail = len(data) % 4
    if not tail:
        return mmh3.hash(data, seed, signed=False)
    whole = len(data) - tail
    signed_bytes = struct.unpack(f"{tail}b", data[whole:])
    widened = data[:whole] + struct.pack(f"<{tail}i", *signed_bytes)
    value = mmh3.hash(widened, seed, signed=False)
    value = (value ^ value >> 16) * _INVERSE_2 & _MASK
    value = (value ^ value >> 13 ^ value >> 26) * _INVERSE_1 & _MASK
    unfinished = value ^ value >> 16
    return _finish(unfinished ^ len(widened) ^ len(data))


# The hashes of the other types.
_HASHES: dict[str, Callable[[Value, int], int]] = {
    "string": lambda text, seed: _bytes(text.encode("utf-8", "surrogateescape"), seed),
    "binary": _bytes,
    "calendar": _hash_calendar,
}


def _finish(value: int) -> int:
    """Mix for the last time, as Murmur3 does, without the length."""
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16
