"""Many rows decoded at once: UnsafeRows of one schema as an Arrow array, column by column instead of row by row.

    rows are one content of words: all of them, and all structs inside, begin at multiples of 8
    a fixed column is one gather of words; a string is a gather of words, then a copy of its bytes by Arrow

Lists, maps, calendar intervals and variants are left to `unsafe_row`, as is everything odd: where a row does not keep
to its bounds, `structs` gives None, and decoding it alone says what is wrong. So this has no opinions of its own; that
both ways agree is tested on every golden checkpoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.columns import arrow_type
from stateshift.formats.blocks import Binary, Flags, Ints, cut
from stateshift.formats.spans import Content, spans
from stateshift.formats.spark.types import Atomic, DataType, DecimalType, StructType

_FIXED = {
    "boolean": "<u1", "byte": "<i1", "short": "<i2", "integer": "<i4", "long": "<i8", "float": "<f4", "double": "<f8",
    "date": "<i4", "timestamp": "<i8", "timestamp_ntz": "<i8", "day-time": "<i8", "year-month": "<i4",
}  # fmt: skip
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
    return False


def structs(rows: Binary, kind: StructType) -> pa.Array | None:
    """The rows as one struct array; None where one of them is not as it should be, or there is nothing to decode."""
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
    """Rows in one content, each at a multiple of 8. A null value's place is nowhere: what is gathered for it is any
    word, and never shown."""

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
        self, slots: Any, starts: Ints, ends: Ints, valid: Flags, left: Ints, kind: DataType
    ) -> pa.Array | None:
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
        left -= size  # the parts of one row may not add up to more than the row
        if (valid & ((begin + size > ends) | (left < 0))).any():
            return None
        if isinstance(kind, StructType):
            return self.struct(begin, begin + size, valid, kind)
        if isinstance(kind, DecimalType):
            return None if (size > 16).any() else self._long_decimals(begin + size, size, valid, wanted)
        return self._texts(begin, size, valid, wanted)

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
        """Two's complement, big-endian, of at most 16 bytes; as Arrow has it, little-endian and of 16."""
        back = np.arange(1, 17)
        inside = back <= size[:, None]
        digits = self._bytes[np.where(inside & valid[:, None], end[:, None] - back, 0)]
        first = self._bytes[np.where(size > 0, end - size, 0)]
        sign = np.where((size > 0) & (first > 127), 255, 0).astype(np.uint8)
        wide = np.where(inside, digits, sign[:, None])
        return pa.Array.from_buffers(wanted, len(size), [_bitmap(valid), pa.py_buffer(wide.tobytes())])


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
