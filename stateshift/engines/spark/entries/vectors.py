"""Many rows decoded at once: UnsafeRows of one schema as an Arrow array, column by column instead
of row by row.

    rows are one content of words: all of them, and all structs inside, begin at multiples of 8
    a fixed column is one gather of words
    a string is a gather of words, then a copy of its bytes by Arrow
    the items of all lists are one column of their own

Calendar intervals, variants and lists of nothing but nulls are left to `unsafe_row`, as is
everything odd: where a row does not keep to its bounds, `structs` gives None, and decoding it alone
says what is wrong. That both ways agree is tested on every golden checkpoint. `rows_of` is the way
back, for columns that are no lists.

Spark's types as Arrow's:

    boolean byte short integer long  bool int8 int16 int32 int64
    float double                     float32 float64
    decimal(p,s)                     decimal128(p,s)
    string binary                    string binary
    date                             date32
    timestamp                        timestamp[us, UTC]
    timestamp_ntz                    timestamp[us]
    interval day to second           duration[us]
    interval year to month           int32, months
    calendar interval                struct<months, days, microseconds>: Arrow's own has
                                     nanoseconds, and a smaller range
    variant                          struct<value: binary, metadata: binary>, as in Spark's Parquet
    struct array map void            struct list map null

A type that is none of Arrow's or Parquet's is named in its field's metadata (`spark.type`) what it
is. A schema's names may repeat; the later ones are numbered, as everywhere we show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.errors import FormatError
from stateshift.formats.blocks import (
    Binary,
    Flags,
    Ints,
    binary,
    cut,
    join_columns,
    lengths,
    of_width,
)
from stateshift.formats.spans import Content, Words, spans, words
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    StructType,
    Value,
    unique,
)

_ARROW_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "day-time": pa.duration("us"),
    "year-month": pa.int32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "void": pa.null(),
    "calendar": pa.struct(
        [("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())]
    ),
    "variant": pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
}
# The keys of a field's metadata that say more than Arrow's type.
_SPARK_TYPES = {
    "year-month": "interval year to month",
    "day-time": "interval day to second",
    "calendar": "interval",
    "variant": "variant",
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type a Spark type is exported as; repeated field names are numbered."""
    match kind:
        case Atomic(name):
            return _ARROW_TYPES[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case StructType(names, types):
            return pa.struct(list(map(_field, unique(names), types)))
        case ArrayType(element):
            return pa.list_(_field("element", element))
        case MapType(key, value):
            return pa.map_(arrow_type(key), _field("value", value))


def array(values: Sequence[Value], kind: pa.DataType) -> pa.Array:
    """Return decoded values as one array."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError as error:
        hint = "write JSON lines (.jsonl), which escape it"
        raise FormatError("a string is not UTF-8, and Arrow has no other", hint=hint) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise FormatError(f"values do not fit their type {kind}: {error}") from error


def _field(name: str, kind: DataType) -> pa.Field:
    spark_type = _SPARK_TYPES.get(kind.name) if isinstance(kind, Atomic) else None
    metadata = {"spark.type": spark_type} if spark_type else None
    return pa.field(name, arrow_type(kind), metadata=metadata)


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
_ATOMIC = frozenset((*_FIXED, "string", "binary", "void"))
_LOW = np.uint64(0xFFFFFFFF)


def fits(kind: DataType) -> bool:
    """Whether all of a type can be decoded this way."""
    match kind:
        case Atomic(name):
            return name in _ATOMIC
        case DecimalType():
            return True
        case StructType(_, types):
            return all(map(fits, types))
        case ArrayType(element):
            return _fits_as_item(element)
        case MapType(key, value):
            return _fits_as_item(key) and _fits_as_item(value)
    return False


def _fits_as_item(kind: DataType) -> bool:
    return kind != Atomic("void") and fits(kind)


def structs(rows: Binary, kind: StructType) -> pa.Array | None:
    """Return the rows as one struct array; None where one of them is odd, or there is nothing."""
    if not len(rows) or rows.null_count or not kind.types:
        return None
    whole = spans(rows)
    if (whole.sizes & 7).any():
        return None
    if (whole.starts & 7).any():  # rows that lie among other things
        whole = spans(cut(whole.content, whole.starts, whole.ends))
    every = np.ones(len(rows), bool)
    decoded = _Buffer(whole.content).struct(whole.starts, whole.ends, every, kind)
    # None where a string in it is not UTF-8.
    if decoded is None:
        return None
    try:
        decoded.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return decoded


@dataclass(frozen=True, slots=True)
class _Slots:
    """A column of structs, or with `owners` the items of lists: a slot for each, and where the
    row or list lies that it is in. `left` is how many bytes of each row, or list, no part has
    taken yet.
    """

    slots: Words
    starts: Ints
    ends: Ints
    valid: Flags
    left: Ints
    owners: Ints | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of variable size: where each begins, and how long it is."""

    begin: Ints
    size: Ints
    valid: Flags

    def are_not(self, right: Flags) -> bool:
        """Whether one that is valid is not as it should be."""
        return bool((self.valid & ~right).any())


class _Buffer:
    """Rows in one content, each at a multiple of 8. A null's word is any, and never shown."""

    def __init__(self, content: Content) -> None:
        self._bytes = content if len(content) >= 8 else np.zeros(8, np.uint8)
        self._words = self._bytes[: len(self._bytes) // 8 * 8].view("<u8")

    def struct(self, starts: Ints, ends: Ints, here: Flags, kind: StructType) -> pa.Array | None:
        """Return structs from `starts` to `ends`, those of them that are `here`."""
        count = len(kind.types)
        bits = (count + 63) // 64
        sizes = ends - starts
        if (here & ((starts & 7 != 0) | (sizes < 8 * (bits + count)))).any():
            return None
        first = np.where(here, starts >> 3, 0)
        left = np.where(here, sizes, 0)
        columns = []
        for at, column_kind in enumerate(kind.types):
            nulls = self._at(first + at // 64) >> np.uint64(at % 64) & np.uint64(1)
            slots = self._at(first + bits + at)
            column = self._column(
                _Slots(slots, starts, ends, valid=here & (nulls == 0), left=left), column_kind
            )
            if column is None:
                return None
            columns.append(column)
        if not columns:
            return None
        mask = None if here.all() else pa.array(~here)
        return pa.StructArray.from_arrays(columns, fields=list(arrow_type(kind)), mask=mask)

    def _at(self, places: Ints) -> Words:
        """Return words by their number; the last one beyond the end, which is never shown."""
        return self._words.take(places, mode="clip")

    def _column(self, column: _Slots, kind: DataType) -> pa.Array | None:
        slots, valid = column.slots, column.valid
        match kind:
            case Atomic("void"):
                return pa.nulls(len(slots))
            case Atomic(name) if name in _FIXED:
                code = _FIXED[name]
                wanted = arrow_type(kind)
                width = np.dtype(code).itemsize
                values = np.ascontiguousarray(slots).view(code)[:: 8 // width]
                if pa.types.is_boolean(wanted):
                    return pa.array(values != 0, mask=~valid)
                data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
                return pa.Array.from_buffers(wanted, len(slots), [_bitmap(valid), data])
            case DecimalType(precision, _) if precision <= 18:
                low = np.where(valid, slots.view("<i8"), 0)
                wide = np.stack((low, low >> 63), axis=1).astype("<i8")
                return pa.Array.from_buffers(
                    arrow_type(kind), len(slots), [_bitmap(valid), pa.py_buffer(wide.tobytes())]
                )
        parts = _parts(column)
        return None if parts is None else self._variable(parts, kind)

    def _variable(self, parts: _Parts, kind: DataType) -> pa.Array | None:
        begin, size, valid = parts.begin, parts.size, parts.valid
        match kind:
            case StructType():
                return self.struct(begin, begin + size, valid, kind)
            case DecimalType():
                return self._long_decimals(parts, arrow_type(kind))
            case ArrayType(element):
                items = self._items(parts, element)
                return None if items is None else _listed(*items, valid, arrow_type(kind))
            case MapType():
                return self._maps(parts, kind)
        return self._texts(parts, arrow_type(kind))

    def _items(self, lists: _Parts, kind: DataType) -> tuple[Ints, pa.Array] | None:
        begin, size, valid = lists.begin, lists.size, lists.valid
        if lists.are_not((size >= 8) & (begin & 7 == 0)):
            return None
        first = np.where(valid, begin >> 3, 0)
        counts = np.where(valid, self._at(first), 0).view(np.int64)
        if isinstance(kind, Atomic) and kind.name in _FIXED:
            width = np.dtype(_FIXED[kind.name]).itemsize
        else:
            width = 8
        if lists.are_not((counts >= 0) & (counts <= 8 * size)):
            return None
        bits = (counts + 63) // 64
        if lists.are_not(8 + 8 * bits + width * counts <= size):
            return None
        owners = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        shift = (number % 64).astype(np.uint64)
        nulls = self._at(first[owners] + 1 + number // 64) >> shift & np.uint64(1)
        column = _Slots(
            slots=words(self._bytes, (first + 1 + bits)[owners] * 8 + width * number),
            starts=begin[owners],
            ends=(begin + size)[owners],
            valid=nulls == 0,
            left=np.where(valid, size, 0),
            owners=owners,
        )
        items = self._column(column, kind)
        return None if items is None else (counts, items)

    def _maps(self, maps: _Parts, kind: MapType) -> pa.Array | None:
        """Decode the size of the list of keys, that list, and the list of values."""
        begin, size, valid = maps.begin, maps.size, maps.valid
        if maps.are_not((size >= 8) & (begin & 7 == 0)):
            return None
        middle = np.where(valid, self._at(np.where(valid, begin >> 3, 0)), 0).view(np.int64)
        if maps.are_not((middle >= 0) & (middle <= size - 8)):
            return None
        rest = np.where(valid, size - 8 - middle, 0)
        keys = self._items(_Parts(begin + 8, middle, valid), kind.key)
        values = self._items(_Parts(begin + 8 + middle, rest, valid), kind.value)
        if keys is None or values is None:
            return None
        if (keys[0] != values[0]).any() or keys[1].null_count:
            return None
        wanted = arrow_type(kind)
        fields = [wanted.key_field, wanted.item_field]
        pairs = pa.StructArray.from_arrays([keys[1], values[1]], fields=fields)
        return _listed(keys[0], pairs, valid, wanted)

    def _texts(self, parts: _Parts, wanted: pa.DataType) -> pa.Array | None:
        if int(parts.size.sum()) >= 1 << 31:
            return None
        begin = np.where(parts.valid, parts.begin, 0)
        missing = None if parts.valid.all() else ~parts.valid
        texts = cut(self._bytes, begin, begin + parts.size, missing)
        try:
            return texts.cast(wanted)
        except pa.ArrowInvalid:  # not UTF-8
            return None

    def _long_decimals(self, parts: _Parts, wanted: pa.DataType) -> pa.Array | None:
        """Decode big-endian two's complement of up to 16 bytes; Arrow's is little-endian, of 16."""
        begin, size, valid = parts.begin, parts.size, parts.valid
        if (size > 16).any():
            return None
        back = np.arange(1, 17)
        inside = back <= size[:, None]
        places = (begin + size)[:, None] - back
        digits = self._bytes[np.where(inside & valid[:, None], places, 0)]
        first = self._bytes[np.where(size > 0, begin, 0)]
        sign = np.where((size > 0) & (first > 127), 255, 0).astype(np.uint8)
        wide = np.where(inside, digits, sign[:, None])
        buffers = [_bitmap(valid), pa.py_buffer(wide.tobytes())]
        return pa.Array.from_buffers(wanted, len(size), buffers)


def rows_of(column: pa.StructArray, kind: StructType) -> Binary | None:
    """Return a struct array as rows; None where a loop encodes them."""
    bits = (len(kind.types) + 63) // 64
    head = np.zeros((len(column), bits + len(kind.types)), np.uint64)
    offsets, parts = np.full(len(column), 8 * head.shape[1], np.uint64), list[Binary]()
    for at, (inner, inner_kind) in enumerate(zip(column.flatten(), kind.types, strict=True)):
        valid = inner.is_valid().to_numpy(zero_copy_only=False)
        head[:, at // 64] |= np.where(valid, np.uint64(0), np.uint64(1 << at % 64))
        if inner_kind == Atomic("void"):
            continue
        slots = _slots_of(inner, inner_kind)
        if slots is None:
            part = rows_of(inner, inner_kind) if isinstance(inner_kind, StructType) else None
            if inner_kind in (Atomic("string"), Atomic("binary")):
                part = inner.cast(pa.large_binary())
            if part is None:
                return None
            part = pc.if_else(inner.is_valid(), part, pa.scalar(b"", pa.large_binary()))
            sizes = lengths(part).astype(np.uint64)
            slots = offsets << np.uint64(32) | sizes
            free = -lengths(part) % 8
            parts += [part, _PADDING.take(pa.array(free))]
            offsets += sizes + free.astype(np.uint64)
        head[:, bits + at] = np.where(valid, slots, np.uint64(0))
    return join_columns(of_width(head.view(np.uint8).reshape(len(column), -1)), *parts)


_PADDING = binary([bytes(count) for count in range(8)])


def _slots_of(column: pa.Array, kind: DataType) -> Words | None:
    """Return the slots of a fixed column, any for null; None of a column that is not fixed."""
    if kind == Atomic("boolean"):
        return column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64)
    code = _FIXED.get(kind.name) if isinstance(kind, Atomic) else None
    if isinstance(kind, DecimalType) and kind.precision <= 18:
        code = "<V16"
    if code is None:
        return None
    width = np.dtype(code).itemsize
    held = np.frombuffer(column.buffers()[1], code, len(column), column.offset * width)
    if width == 16:
        return np.ascontiguousarray(held).view("<u8")[::2]
    return np.ascontiguousarray(held).view(f"<u{width}").astype(np.uint64)


def _parts(column: _Slots) -> _Parts | None:
    """Return the parts that slots point at; None where they exceed their rows or lists."""
    valid, owners, left = column.valid, column.owners, column.left
    size = np.where(valid, column.slots & _LOW, 0).astype(np.int64)
    offsets = np.where(valid, column.slots >> np.uint64(32), 0).astype(np.int64)
    begin = column.starts + offsets
    if owners is None:
        left -= size  # in place: the row's other columns count on
        left_of_own = left
    else:
        left -= np.bincount(owners, size, len(left)).astype(np.int64)
        left_of_own = left[owners]
    parts = _Parts(begin, size, valid)
    return None if parts.are_not((begin + size <= column.ends) & (left_of_own >= 0)) else parts


def _listed(counts: Ints, items: pa.Array, valid: Flags, wanted: pa.DataType) -> pa.Array | None:
    if len(items) >= 1 << 31:
        return None
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    buffers = [_bitmap(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(wanted, len(counts), buffers, children=[items])


def _bitmap(valid: Flags) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
