"""Many Avro rows decoded at once: rows of one schema as an Arrow array, column by column instead of
row by row.

Only the column before it tells the beginning of a column; but so it is in every row, and a step is
taken in all of them at once. Decimals, arrays and maps are left to `formats.spark.avro_rows`, as is
everything odd: None is given for them. That both ways agree is tested on every golden checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.vectors import arrow_type
from stateshift.formats.blocks import Column, Flags, Ints, Numbers, cut, join_columns
from stateshift.formats.spans import Content, spans, words
from stateshift.formats.spark.types import WIDTHS, Atomic, DataType, StructType

_WHOLE = ("byte", "short", "integer", "date", "long", "timestamp", "timestamp_ntz")

# The places of the groups of a varint's bits, and what the byte of each may be at most: of the last
# one bit is left.
_GROUPS = (*((shift, 255) for shift in range(0, 63, 7)), (63, 1))


class _Odd(Exception):
    """Something that is decoded row by row, or refused so."""


def bare(content: Content, starts: Ints, ends: Ints, columns: StructType) -> pa.Array | None:
    """Return Avro rows behind a byte 00 each, as a struct array; None where a loop decodes them."""
    if (ends <= starts).any() or content[starts].any():
        return None
    return _rows(content, starts + 1, ends, columns)


def numbered_rows(
    content: Content, starts: Ints, ends: Ints, columns: StructType, number: int
) -> pa.Array | None:
    """Return Avro rows behind 00 and i16LE `number` each; None where a loop decodes them."""
    head = np.frombuffer(b"\0" + number.to_bytes(2, "little", signed=True), np.uint8)
    if (ends - starts < 3).any() or (content[starts[:, None] + np.arange(3)] != head).any():
        return None
    return _rows(content, starts + 3, ends, columns)


def marked_columns(
    content: Content, starts: Ints, ends: Ints, columns: StructType
) -> list[Column] | None:
    """Return columns that order keys, each a mark and a value; None where a loop decodes them."""
    count = 2 * len(columns.types)
    halved = StructType(tuple(map(str, range(count))), (Atomic("binary"),) * count)
    decoded = bare(content, starts, ends, halved)
    if decoded is None:
        return None
    halves = [column.cast(pa.large_binary()) for column in decoded.flatten()]
    marks, values = halves[::2], halves[1::2]
    if any(column.null_count for column in halves):
        return None
    if any((spans(mark).sizes != 1).any() for mark in marks):
        return None
    return list(map(join_columns, marks, values))


def _rows(content: Content, starts: Ints, ends: Ints, columns: StructType) -> pa.Array | None:
    if not columns.types or not len(starts) or (starts > ends).any():
        return None
    steps = _Steps(content, starts.astype(np.int64), ends)
    try:
        rows = steps.struct(np.arange(len(starts)), columns)
    except _Odd:
        return None
    at_end = (steps.at == ends).all()
    return rows if at_end else None


@dataclass
class _Steps:
    """How far each row has been read. A step is taken in the rows whose numbers are `here`."""

    content: Content
    at: Ints
    ends: Ints

    def struct(self, here: Ints, columns: StructType) -> pa.Array:
        if not columns.types:
            raise _Odd
        fields = [self._column(here, kind) for kind in columns.types]
        return pa.StructArray.from_arrays(fields, fields=list(arrow_type(columns)))

    def _column(self, here: Ints, kind: DataType) -> pa.Array:
        if kind == Atomic("void"):
            return pa.nulls(len(here))
        branches = self._bytes(here)
        valid = branches == 2
        self._check(valid | (branches == 0))
        if valid.all():
            return self._value(here, kind)
        places = pa.array(np.cumsum(valid) - 1, mask=~valid)
        return self._value(here[valid], kind).take(places)

    def _value(self, here: Ints, kind: DataType) -> pa.Array:
        match kind:
            case StructType():
                return self.struct(here, kind)
            case Atomic(name) if name in _WHOLE:
                numbers = self._varints(here)
                narrow = numbers.astype(f"i{WIDTHS[name]}")
                self._check(narrow == numbers)
                return pa.array(narrow).view(arrow_type(kind))
            case Atomic("float"):
                return self._floats(here, 4)
            case Atomic("double"):
                return self._floats(here, 8)
            case Atomic("boolean"):
                values = self._bytes(here)
                self._check(values <= 1)
                return pa.array(values == 1)
            case Atomic("string" | "binary"):
                return self._texts(here, arrow_type(kind))
        raise _Odd

    def _bytes(self, here: Ints) -> Numbers:
        at = self.at[here]
        self._check(at < self.ends[here])
        self.at[here] = at + 1
        return self.content[at]

    def _varints(self, here: Ints) -> Ints:
        numbers, places = np.zeros(len(here), np.uint64), np.arange(len(here))
        for shift, most in _GROUPS:
            groups = self._bytes(here[places]).astype(np.uint64)
            self._check(groups <= most)
            numbers[places] |= (groups & np.uint64(127)) << np.uint64(shift)
            places = places[groups > 127]
            if not len(places):
                break
        return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)

    def _floats(self, here: Ints, size: int) -> pa.Array:
        at = self.at[here]
        self._check(at + size <= self.ends[here])
        self.at[here] = at + size
        bits = words(self.content, at)
        return pa.array(bits.view("<f8") if size == 8 else bits.astype("<u4").view("<f4"))

    def _texts(self, here: Ints, wanted: pa.DataType) -> pa.Array:
        sizes = self._varints(here)
        at = self.at[here]
        self._check((sizes >= 0) & (sizes <= self.ends[here] - at))
        if int(sizes.sum()) >= 1 << 31:
            raise _Odd
        self.at[here] = at + sizes
        try:
            return cut(self.content, at, at + sizes).cast(wanted)
        except pa.ArrowInvalid as error:  # not UTF-8
            raise _Odd from error

    def _check(self, right: Flags) -> None:
        if not right.all():
            raise _Odd
