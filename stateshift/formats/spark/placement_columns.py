"""Which partition keys belong to, many at once: `placement` over Arrow's columns.

    hashes(columns, types) -> int32 array      what SQL's `hash(...)` gives for each row

A column is mixed into the hashes of the ones before it by a few numpy operations; strings need some
for each eight of their bytes, and the few that are long are hashed one by one. Types inside of
which hashing loops (lists, maps) or that Arrow holds otherwise (decimals beyond 18 digits, calendar
intervals) are left to `placement`: `fits` says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stateshift.formats.blocks import Flags, Ints
from stateshift.formats.spans import spans, words
from stateshift.formats.spark.placement import SEED, signed_hash
from stateshift.formats.spark.types import Atomic, DataType, DecimalType, StructType

# Strings of more bytes are hashed one by one.
LONG = 256

Hashes = Any  # a numpy array of uint32

_INTS = frozenset(("byte", "short", "integer", "date", "year-month", "boolean"))
_LONGS = frozenset(("long", "timestamp", "timestamp_ntz", "day-time"))
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def fits(kind: DataType) -> bool:
    """Whether all of a type can be hashed this way."""
    match kind:
        case Atomic(name):
            return (
                name in _INTS
                or name in _LONGS
                or name in ("float", "double", "string", "binary", "void")
            )
        case DecimalType(precision, _):
            return precision <= 18
        case StructType(_, types):
            return all(map(fits, types))
    return False


def hashes(columns: Sequence[Any], types: Sequence[DataType], count: int) -> Ints:
    """The hash of each of `count` rows."""
    found = np.full(count, SEED, np.uint32)
    for column, kind in zip(columns, types, strict=True):
        found = _mixed(found, column, kind)
    return found.view(np.int32)


def _mixed(found: Hashes, column: Any, kind: DataType) -> Hashes:
    match kind:
        case Atomic("void"):
            return found
        case StructType(_, types):
            for inner, one in zip(column.flatten(), types, strict=True):  # null where the struct is
                found = _mixed(found, inner, one)
            return found
        case Atomic("string" | "binary"):
            hashed = _bytes(found, column)
        case Atomic(name) if name in _INTS or name == "float":
            hashed = _finished(_word(found, _numbers(column, kind).view(np.uint32)), 4)
        case _:
            hashed = _eight(found, _numbers(column, kind).view(np.uint64))
    return np.where(_here(column), hashed, found) if column.null_count else hashed


def _here(column: Any) -> Flags:
    return column.is_valid().to_numpy(zero_copy_only=False)


def _numbers(column: Any, kind: DataType) -> Any:
    """The column's numbers as Spark hashes them: of four bytes, or of eight; any number where it
    is null.
    """
    if isinstance(kind, DecimalType):  # 16 bytes, of which the lower 8 are the unscaled long
        _, content = column.buffers()
        return np.frombuffer(content, "<i8")[
            2 * column.offset : 2 * (column.offset + len(column)) : 2
        ].copy()
    assert isinstance(kind, Atomic), "asked of numbers only"
    if kind.name in ("float", "double"):
        numbers = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        numbers = np.where(
            np.isnan(numbers), numbers.dtype.type(np.nan), numbers
        )  # all that are none are hashed alike
        return numbers + numbers.dtype.type(0)  # -0.0 is hashed as 0.0
    if kind.name == "boolean":
        return column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int32)
    wide = np.int64 if kind.name in _LONGS else np.int32
    plain = {"date": pa.int32()}.get(kind.name, pa.int64() if kind.name in _LONGS else column.type)
    return column.view(plain).fill_null(0).to_numpy(zero_copy_only=False).astype(wide)


def _bytes(found: Hashes, column: Any) -> Hashes:
    """Spark's hash of bytes: whole words, then each byte of the rest as a word of its own, with
    its sign.
    """
    items = column.cast(pa.large_binary()) if column.type != pa.large_binary() else column
    texts = spans(items)
    sizes = np.minimum(texts.sizes, LONG + 1)
    hashed = found.copy()
    for position in range(0, min(int(sizes.max(initial=0)), LONG) // 4 * 4, 4):
        here = np.flatnonzero(sizes - position >= 4)
        word = words(texts.content, texts.starts[here] + position).astype(np.uint32)
        hashed[here] = _word(hashed[here], word)
    tails = sizes // 4 * 4
    for number in range(3):
        here = np.flatnonzero(sizes % 4 > number)
        byte = texts.content[texts.starts[here] + tails[here] + number].view(np.int8)
        hashed[here] = _word(hashed[here], byte.astype(np.int32).view(np.uint32))
    hashed = _finished(hashed, sizes.astype(np.uint32))
    for at in np.flatnonzero(sizes > LONG).tolist():
        content = texts.content[texts.starts[at] : texts.ends[at]].tobytes()
        hashed[at] = signed_hash((content,), (Atomic("binary"),), int(found[at])) & 0xFFFFFFFF
    return hashed


def _eight(found: Hashes, number: Any) -> Hashes:
    low, high = number.astype(np.uint32), (number >> np.uint64(32)).astype(np.uint32)
    return _finished(_word(_word(found, low), high), 8)


def _word(found: Hashes, word: Hashes) -> Hashes:
    found = found ^ _turned(word * _C1, 15) * _C2
    return _turned(found, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(found: Hashes, size: Any) -> Hashes:
    found = found ^ np.asarray(size, np.uint32)
    found = (found ^ found >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    found = (found ^ found >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return found ^ found >> np.uint32(16)


def _turned(value: Hashes, bits: int) -> Hashes:
    return value << np.uint32(bits) | value >> np.uint32(32 - bits)
