"""Many rows decoded at once: UnsafeRows of one schema as an Arrow array, column by column instead
of row by row.

    rows are one content of words: all of them, and all structs inside, begin at multiples of 8
    a fixed column is one gather of words; a string is a gather of words, then a copy of its bytes by Arrow
    the items of all lists are one column of their own

Calendar intervals, variants and lists of nothing but nulls are left to `unsafe_row`, as is
everything odd: where a row does not keep to its bounds, `structs` gives None, and decoding it alone
says what is wrong. So this has no opinions of its own; that both ways agree is tested on every
golden checkpoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.columns import arrow_type
from stateshift.formats.blocks import Binary, Flags, Ints, cut
from stateshift.formats.spans import Content, spans, words
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    StructType,
)

_FIXED = {
    "boolean": "<u1",
    "byte": "<i1",
    "short": "<i2",
    "integer": "<i4",
    "long": "<i8",
    "float": "<f4",
    "double": "<f8",
    "date": "<i4",
    "timestamp": "<i8",
    "timestamp_ntz": "<i8",
    "day-time": "<i8",
    "year-month": "<i4",
}
_LOW = np.uint64(0xFFFFFFFF)


def fits(kind: DataType) -> bool:
    """Whether all of a type can be decoded this way."""
    match kind:
        case Atomic(name):
            return name in _FIXED or name in ("string", "binary", "void")
        case DecimalType():
            return True
        case StructType(_, types):
            return all(map(fits, types))
        case ArrayType(element):
            return element != Atomic("void") and fits(element)
        case MapType(key, value):
            return Atomic("void") not in (key, value) and fits(key) and fits(value)
    return False


def structs(rows: Binary, kind: StructType) -> pa.Array | None:
    """The rows as one struct array; None where one of them is not as it should be, or there is
    nothing to decode.
    """
    found = spans(rows)
    if not len(rows) or rows.null_count or not kind.types or (found.sizes % 8).any():
        return None
    if (found.starts % 8).any():  # rows that lie among other things
        found = spans(cut(found.content, found.starts, found.ends))
    made = _Buffer(found.content).struct(found.starts, found.ends, np.ones(len(rows), bool), kind)
    if made is not None:
        try:
            made.validate(full=True)
        except pa.ArrowInvalid:  # a string that is not UTF-8
            return None
    return made


class _Buffer:
    """Rows in one content, each at a multiple of 8. A null value's place is nowhere: what is
    gathered for it is any word, and never shown.
    """

    def __init__(self, content: Content) -> None:
        self._bytes = content if len(content) >= 8 else np.zeros(8, np.uint8)
        self._words = self._bytes[: len(self._bytes) // 8 * 8].view("<u8")

    def struct(self, starts: Ints, ends: Ints, here: Flags, kind: StructType) -> pa.Array | None:
        """Structs from `starts` to `ends`, those of them that are `here`."""
        count = len(kind.types)
        bits = (count + 63) // 64
        if (here & ((starts % 8 != 0) | (ends - starts < 8 * (bits + count)))).any():
            return None
        first = np.where(here, starts // 8, 0)
        left = np.where(here, ends - starts, 0)
        columns = []
        for at, (_, one) in enumerate(zip(kind.names, kind.types, strict=True)):
            nulls = self._at(first + at // 64) >> np.uint64(at % 64) & np.uint64(1)
            valid = here & (nulls == 0)
            slots = self._at(first + bits + at)
            column = self._column(slots, starts, ends, valid, left, one)
            if column is None:
                return None
            columns.append(column)
        mask = None if here.all() else pa.array(~here)
        if not columns:
            return None
        return pa.StructArray.from_arrays(columns, fields=list(arrow_type(kind)), mask=mask)

    def _at(self, places: Ints) -> Any:
        """Words by their number; beyond the end (only ever of what is not shown) the last one."""
        return self._words[np.minimum(places, len(self._words) - 1)]

    def _column(
        self,
        slots: Any,
        starts: Ints,
        ends: Ints,
        valid: Flags,
        left: Ints,
        kind: DataType,
        owners: Ints | None = None,
    ) -> pa.Array | None:
        """A column of a struct, or with `owners` the items of lists. `left` is what each row, or
        list, still has room for.
        """
        wanted = arrow_type(kind)
        match kind:
            case Atomic("void"):
                return pa.nulls(len(slots))
            case Atomic(name) if name in _FIXED:
                return _fixed(slots, valid, _FIXED[name], wanted)
            case DecimalType(precision, _) if precision <= 18:
                return _decimals(slots, valid, wanted)
        size = np.where(valid, slots & _LOW, 0).astype(np.int64)
        begin = starts + np.where(valid, slots >> np.uint64(32), 0).astype(np.int64)
        # The parts of one row or list may not add up to more than there is of it.
        left -= size if owners is None else np.bincount(owners, size, len(left)).astype(np.int64)
        if (
            valid & ((begin + size > ends) | ((left if owners is None else left[owners]) < 0))
        ).any():
            return None
        match kind:
            case StructType():
                return self.struct(begin, begin + size, valid, kind)
            case DecimalType():
                return (
                    None
                    if (size > 16).any()
                    else self._long_decimals(begin + size, size, valid, wanted)
                )
            case ArrayType(element):
                found = self._items(begin, size, valid, element)
                return found and _listed(found[0], found[1], valid, wanted)
            case MapType():
                return self._maps(begin, size, valid, kind)
        return self._texts(begin, size, valid, wanted)

    def _items(
        self, begin: Ints, size: Ints, valid: Flags, kind: DataType
    ) -> tuple[Ints, pa.Array] | None:
        """How many items each list has, and all of them one behind the other."""
        if (valid & ((size < 8) | (begin % 8 != 0))).any():
            return None
        first = np.where(valid, begin // 8, 0)
        counts = np.where(valid, self._at(first), 0).view(np.int64)
        width = (
            np.dtype(_FIXED[kind.name]).itemsize
            if isinstance(kind, Atomic) and kind.name in _FIXED
            else 8
        )
        if (valid & ((counts < 0) | (counts > 8 * size))).any():
            return None
        bits = (counts + 63) // 64
        if (valid & (8 + 8 * bits + width * counts > size)).any():
            return None
        owners = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        nulls = self._at(first[owners] + 1 + number // 64) >> (number % 64).astype(
            np.uint64
        ) & np.uint64(1)
        slots = words(self._bytes, (first + 1 + bits)[owners] * 8 + width * number)
        left, here = np.where(valid, size, 0), nulls == 0
        items = self._column(slots, begin[owners], (begin + size)[owners], here, left, kind, owners)
        return None if items is None else (counts, items)

    def _maps(self, begin: Ints, size: Ints, valid: Flags, kind: MapType) -> pa.Array | None:
        """The size of the list of keys, that list, and the list of values."""
        if (valid & ((size < 8) | (begin % 8 != 0))).any():
            return None
        middle = np.where(valid, self._at(np.where(valid, begin // 8, 0)), 0).view(np.int64)
        if (valid & ((middle < 0) | (middle > size - 8))).any():
            return None
        keys = self._items(begin + 8, middle, valid, kind.key)
        values = self._items(
            begin + 8 + middle, np.where(valid, size - 8 - middle, 0), valid, kind.value
        )
        if keys is None or values is None or (keys[0] != values[0]).any() or keys[1].null_count:
            return None
        wanted = arrow_type(kind)
        fields = [wanted.key_field, wanted.item_field]
        return _listed(
            keys[0], pa.StructArray.from_arrays([keys[1], values[1]], fields=fields), valid, wanted
        )

    def _texts(self, begin: Ints, size: Ints, valid: Flags, wanted: pa.DataType) -> pa.Array | None:
        if int(size.sum()) >= 1 << 31:
            return None
        begin = np.where(valid, begin, 0)
        found = cut(self._bytes, begin, begin + size, None if valid.all() else ~valid)
        try:
            return found.cast(wanted)
        except pa.ArrowInvalid:  # not UTF-8
            return None

    def _long_decimals(self, end: Ints, size: Ints, valid: Flags, wanted: pa.DataType) -> pa.Array:
        """Two's complement, big-endian, of at most 16 bytes; as Arrow has it, little-endian and
        of 16.
        """
        back = np.arange(1, 17)
        inside = back <= size[:, None]
        digits = self._bytes[np.where(inside & valid[:, None], end[:, None] - back, 0)]
        first = self._bytes[np.where(size > 0, end - size, 0)]
        sign = np.where((size > 0) & (first > 127), 255, 0).astype(np.uint8)
        wide = np.where(inside, digits, sign[:, None])
        return pa.Array.from_buffers(
            wanted, len(size), [_bitmap(valid), pa.py_buffer(wide.tobytes())]
        )


def _listed(counts: Ints, items: pa.Array, valid: Flags, wanted: pa.DataType) -> pa.Array | None:
    if len(items) >= 1 << 31:
        return None
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.Array.from_buffers(
        wanted, len(counts), [_bitmap(valid), pa.py_buffer(offsets)], children=[items]
    )


def _fixed(slots: Any, valid: Flags, code: str, wanted: pa.DataType) -> pa.Array:
    width = np.dtype(code).itemsize
    values = np.ascontiguousarray(slots).view(code)[:: 8 // width]
    if pa.types.is_boolean(wanted):
        return pa.array(values != 0, mask=~valid)
    data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
    return pa.Array.from_buffers(wanted, len(slots), [_bitmap(valid), data])


def _decimals(slots: Any, valid: Flags, wanted: pa.DataType) -> pa.Array:
    """Unscaled longs widened to the 16 bytes that Arrow has for every decimal."""
    low = np.where(valid, slots.view("<i8"), 0)
    wide = np.stack((low, low >> 63), axis=1).astype("<i8")
    return pa.Array.from_buffers(wanted, len(slots), [_bitmap(valid), pa.py_buffer(wide.tobytes())])


def _bitmap(valid: Flags) -> Any:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
