"""The partitions of many keys at once: `placement` over Arrow's columns.

A column is mixed into the hashes of the ones before it by a few numpy operations; strings need some
for each eight of their bytes, and the few that are long are hashed one by one. Types inside of
which hashing loops (lists, maps) or that Arrow holds otherwise (decimals beyond 18 digits, calendar
intervals) are left to `placement`: `fits` says which.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from stateshift.formats.blocks import Column, Flags, Ints, Numbers
from stateshift.formats.spans import spans, words
from stateshift.formats.spark.placement import SEED, signed_hash
from stateshift.formats.spark.types import Atomic, DataType, DecimalType, StructType

# Strings of more bytes are hashed one by one.
LONG = 256

Hashes = Numbers  # uint32

_OF_FOUR_BYTES = frozenset(("byte", "short", "integer", "date", "year-month", "boolean", "float"))
_LONGS = frozenset(("long", "timestamp", "timestamp_ntz", "day-time"))
_HASHED = _OF_FOUR_BYTES | _LONGS | {"double", "string", "binary", "void"}
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def fits(kind: DataType) -> bool:
    """Whether all of a type can be hashed this way."""
    match kind:
        case Atomic(name):
            return name in _HASHED
        case DecimalType(precision, _):
            return precision <= 18
        case StructType(_, types):
            return all(map(fits, types))
    return False


def hashes(columns: Sequence[Column], types: Sequence[DataType], count: int) -> Ints:
    """Return the hash of each of `count` rows."""
    mixed = np.full(count, SEED, np.uint32)
    for column, kind in zip(columns, types, strict=True):
        mixed = _mixed(mixed, column, kind)
    return mixed.view(np.int32)


def _mixed(seeds: Hashes, column: Column, kind: DataType) -> Hashes:
    match kind:
        case Atomic("void"):
            return seeds
        case StructType(_, types):
            parts = column.flatten()  # null where the struct is
            for part, part_kind in zip(parts, types, strict=True):
                seeds = _mixed(seeds, part, part_kind)
            return seeds
    hashed = _hashed(seeds, column, kind)
    if not column.null_count:
        return hashed
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), hashed, seeds)


def _hashed(seeds: Hashes, column: Column, kind: DataType) -> Hashes:
    match kind:
        case Atomic("string" | "binary"):
            return _bytes(seeds, column)
        case Atomic(name) if name in _OF_FOUR_BYTES:
            return _finished(_word(seeds, _numbers(column, kind).view(np.uint32)), 4)
    numbers = _numbers(column, kind).view(np.uint64)
    low, high = numbers.astype(np.uint32), (numbers >> np.uint64(32)).astype(np.uint32)
    return _finished(_word(_word(seeds, low), high), 8)


def _numbers(column: Column, kind: DataType) -> Numbers:
    """Return numbers as Spark hashes them, of four or eight bytes; any number for null."""
    if isinstance(kind, DecimalType):
        _, content = column.buffers()
        halves = np.frombuffer(content, "<i8")
        end = column.offset + len(column)
        return halves[2 * column.offset : 2 * end : 2].copy()
    assert isinstance(kind, Atomic), "asked of numbers only"
    if kind.name in ("float", "double"):
        numbers = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        # All that are not a number are hashed alike.
        numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
        return numbers + numbers.dtype.type(0)  # -0.0 is hashed as 0.0
    if kind.name == "boolean":
        return column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int32)
    is_long = kind.name in _LONGS
    wide = np.int64 if is_long else np.int32
    plain = pa.int64() if is_long else column.type
    if kind.name == "date":
        plain = pa.int32()
    return column.view(plain).fill_null(0).to_numpy(zero_copy_only=False).astype(wide)


def _bytes(seeds: Hashes, column: Column) -> Hashes:
    """Return Spark's hash of bytes: whole words, then each further byte as a signed word."""
    items = column.cast(pa.large_binary()) if column.type != pa.large_binary() else column
    texts = spans(items)
    sizes = np.minimum(texts.sizes, LONG + 1)
    hashed = seeds.copy()
    for position in range(0, min(int(sizes.max(initial=0)), LONG) & ~3, 4):
        rows = _where(sizes >= position + 4)
        word = words(texts.content, texts.starts[rows] + position).astype(np.uint32)
        hashed[rows] = _word(hashed[rows], word)
    rests, tails = sizes & 3, texts.starts + (sizes & ~3)
    for number in range(3):
        rows = _where(rests > number)
        byte = texts.content[tails[rows] + number].view(np.int8)
        hashed[rows] = _word(hashed[rows], byte.astype(np.int32).view(np.uint32))
    hashed = _finished(hashed, sizes.astype(np.uint32))
    for row in np.flatnonzero(sizes > LONG).tolist():
        content = texts.content[texts.starts[row] : texts.ends[row]].tobytes()
        hashed[row] = signed_hash((content,), (Atomic("binary"),), int(seeds[row])) & 0xFFFFFFFF
    return hashed


def _where(chosen: Flags) -> Ints | slice:
    """Return the places of rows that were chosen; fewer rows take fewer steps."""
    return slice(None) if chosen.all() else np.flatnonzero(chosen)


def _word(seeds: Hashes, word: Hashes) -> Hashes:
    mixed = seeds ^ _turned(word * _C1, 15) * _C2
    return _turned(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(mixed: Hashes, size: Ints | int) -> Hashes:
    mixed = mixed ^ np.asarray(size, np.uint32)
    mixed = (mixed ^ mixed >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ mixed >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return mixed ^ mixed >> np.uint32(16)


def _turned(value: Hashes, bits: int) -> Hashes:
    return value << np.uint32(bits) | value >> np.uint32(32 - bits)
