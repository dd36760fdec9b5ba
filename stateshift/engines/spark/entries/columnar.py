"""The keys and values of a store as Arrow arrays: what `encoders` undoes for one entry, for a block
of them.

`keys_of` and `values_of` give None where a type or an encoding needs a loop, or where something is
not as it should be: decoding entry by entry does it, or says what is wrong. `encoded_keys` and
`encoded_values` are their inverse.

Avro rows of one schema are decoded at once, column by column. Only the column before it tells the
beginning of a column; but so it is in every row, and a step is taken in all of them at once.
Decimals, arrays and maps are left to `formats.spark.avro_rows`, as is everything odd: None is given
for them. That both ways agree is tested on every golden checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.encoders import KEY_SCHEMA, Encoder, unordered_columns
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.vectors import array, arrow_type, fits, rows_of, structs
from stateshift.engines.spark.layout import FRAME
from stateshift.errors import FormatError
from stateshift.formats.blocks import (
    Binary,
    Column,
    Flags,
    Ints,
    Numbers,
    cut,
    join_columns,
    lengths,
    of_width,
)
from stateshift.formats.spans import Content, Spans, spans, words
from stateshift.formats.spark import placement_columns
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.types import WIDTHS, Atomic, DataType, Row, StructType

# Lists of more items are decoded one by one.
ITEMS_MAX = 10_000

_SIGN = np.uint64(1 << 63)

# content, starts, ends, columns -> the rows that lie there, as one array; None where a loop decodes
# them.
Rows = Callable[[Content, Ints, Ints, StructType], "pa.Array | None"]
# The same for columns that order keys, each as one binary.
Binaries = Callable[[Content, Ints, Ints, StructType], list[Column] | None]


def keys_of(view: StoreView, keys: Binary) -> pa.Array | None:
    """Return a block's keys as a struct array; None where a loop decodes them, or without keys."""
    if view.key is None or not fits(view.key) or not len(keys):
        return None
    if view.avro is not None and view.key.types:
        decoded = _avro_keys(view.encoder, spans(keys), view.key)
        kind = arrow_type(view.key)
        return _each(keys, view.decode_key, kind) if decoded is None else decoded
    encoder, columns = view.encoder, view.key
    if encoder.kind == "plain":
        return structs(keys, columns)
    whole = spans(keys)
    match encoder.kind:
        case "row":
            return _bare(whole.content, whole.starts, whole.ends, columns)
        case "prefix":
            return _halves(whole, columns, len(encoder.columns), _bare, _bare)
        case "range":
            return _range(whole, columns, encoder, _binaries, _bare)
        case "postfix":
            row = Spans(whole.content, whole.starts, whole.ends - 8)
            return _timed(row, columns, times=row.ends)
        case "before":
            row = Spans(whole.content, whole.starts + 8, whole.ends)
            return _timed(row, columns, times=whole.starts)


def values_of(view: StoreView, values: Binary) -> pa.Array | None:
    """Return a block's values, in lists if the store keeps lists; None where a loop decodes."""
    if view.value is None or not fits(view.value) or not len(values) or values.null_count:
        return None
    if view.avro is not None and view.value.types:
        whole = spans(values)
        rows = partial(numbered_rows, number=view.avro.newest)
        kind = arrow_type(view.value)
        if view.many:
            kind = pa.list_(kind)
            decoded = _lists(whole, view.value, view.delimiter, rows)
        else:
            decoded = rows(whole.content, whole.starts, whole.ends, view.value)
        return _each(values, view.decode_value, kind) if decoded is None else decoded
    whole = spans(values)
    if view.many:
        return _lists(whole, view.value, view.delimiter, _bare)
    if view.encoder.kind == "plain":
        return structs(values, view.value)
    return _bare(whole.content, whole.starts, whole.ends, view.value)


def encoded_keys(view: StoreView, keys: pa.StructArray) -> Binary | None:
    """Return a struct array as a block's keys; None where a loop encodes them."""
    encoder, columns = view.encoder, cast(StructType, view.key)
    if not len(keys) or not columns.types or encoder.avro:
        return None
    if encoder.kind == "prefix":
        count, fields = len(encoder.columns), keys.flatten()
        first_columns, others = columns.sliced(slice(count)), columns.sliced(slice(count, None))
        first = rows_of(_struct(fields[:count], first_columns), first_columns)
        rest = rows_of(_struct(fields[count:], others), others)
        if first is None or rest is None:
            return None
        sizes = (lengths(first) + len(FRAME)).astype("<u4").view(np.uint8).reshape(-1, 4)
        return join_columns(of_width(sizes), FRAME, first, FRAME, rest)
    if encoder.kind not in ("plain", "row"):
        return None
    rows = rows_of(keys, columns)
    return rows if rows is None or encoder.kind == "plain" else join_columns(FRAME, rows)


def encoded_values(view: StoreView, values: pa.Array) -> Binary | None:
    """Return the same of values."""
    columns = cast(StructType, view.value)
    if view.many or view.encoder.avro or not len(values) or not columns.types:
        return None
    rows = rows_of(values, columns)
    return rows if rows is None or view.encoder.kind == "plain" else join_columns(FRAME, rows)


def hashes_of(view: StoreView, keys: Binary, decoded: pa.Array | None = None) -> Ints:
    """Return the hashes of keys whose placing columns are known; `decoded` is from `keys_of`."""
    assert view.placed is not None, "asked before whether the placement is known"
    if not view.placed:
        return np.zeros(len(keys), np.int64)
    if decoded is None:
        decoded = keys_of(view, keys)
    if decoded is not None:
        assert view.key is not None, "asked of keys that were decoded"
        arrays: list[pa.Array] = []
        kinds: list[DataType] = []
        for path in view.placed:
            column, kind = decoded, cast(DataType, view.key)
            for at in path:
                assert isinstance(kind, StructType), "a path leads into structs alone"
                column, kind = column.flatten()[at], kind.types[at]
            arrays.append(column)
            kinds.append(kind)
        if all(map(placement_columns.fits, kinds)):
            return placement_columns.hashes(arrays, kinds, len(keys)).astype(np.int64)
    hashes = (signed_hash(*view.placing(view.decode_key(key))) for key in keys.to_pylist())
    return np.fromiter(hashes, np.int64, len(keys))


def texts_of(view: StoreView, at: int, keys: Binary) -> list[str | None]:
    """Return the column number `at`: text, whole numbers, true and false."""
    decoded = keys_of(view, keys)
    if decoded is not None:
        texts: list[str | None] = decoded.flatten()[at].cast(pa.string()).to_pylist()
        return texts
    values = [view.decode_key(key)[at] for key in keys.to_pylist()]
    return [
        value if value is None or isinstance(value, str) else str(value).lower() for value in values
    ]


def _avro_keys(encoder: Encoder, keys: Spans, columns: StructType) -> pa.Array | None:
    numbered = partial(numbered_rows, number=KEY_SCHEMA)
    if encoder.kind == "row":
        return numbered(keys.content, keys.starts, keys.ends, columns)
    if encoder.kind == "prefix":
        return _halves(keys, columns, len(encoder.columns), bare, numbered)
    assert encoder.kind == "range", "the keys of Avro rows are never encoded otherwise"
    return _range(keys, columns, encoder, marked_columns, numbered)


def _each(
    items: Binary, decode: Callable[[bytes], Row | list[Row]], kind: pa.DataType
) -> pa.Array | None:
    try:
        return array([decode(item) for item in items.to_pylist()], kind)
    except FormatError:
        return None


def _bare(content: Content, starts: Ints, ends: Ints, columns: StructType) -> pa.Array | None:
    """Return rows that lie behind the byte which RocksDB's encoding puts before each."""
    if (ends <= starts).any() or content[starts].any():
        return None
    return structs(cut(content, starts + 1, ends), columns)


def _binaries(
    content: Content, starts: Ints, ends: Ints, columns: StructType
) -> list[Column] | None:
    """Return columns that order keys: each as one binary, whatever its type."""
    binaries = StructType(columns.names, (Atomic("binary"),) * len(columns.types))
    decoded = _bare(content, starts, ends, binaries)
    return None if decoded is None else decoded.flatten()


def _halves(
    keys: Spans, columns: StructType, count: int, first: Rows, rest: Rows
) -> pa.Array | None:
    middles = _middles(keys)
    if middles is None:
        return None
    first_columns, other_columns = columns.sliced(slice(count)), columns.sliced(slice(count, None))
    leading = first(keys.content, keys.starts + 4, middles, first_columns)
    others = rest(keys.content, middles, keys.ends, other_columns)
    if leading is None or others is None:
        return None
    return _struct([*leading.flatten(), *others.flatten()], columns)


def _range(
    keys: Spans, columns: StructType, encoder: Encoder, binaries: Binaries, rows: Rows
) -> pa.Array | None:
    middles = _middles(keys)
    ordering, others = encoder.columns, unordered_columns(columns, encoder)
    if middles is None or max(ordering, default=-1) >= len(columns.types):
        return None
    first = binaries(keys.content, keys.starts + 4, middles, columns.picked(ordering))
    rest: list[Column] = []
    if others:
        row = rows(keys.content, middles, keys.ends, columns.picked(others))
        if row is None:
            return None
        rest = row.flatten()
    elif (keys.ends - middles).any():
        return None
    if first is None:
        return None
    fields = dict(zip(others, rest, strict=True))
    for at, marked in zip(ordering, first, strict=True):
        column = _ordered(marked, columns.types[at])
        if column is None:
            return None
        fields[at] = column
    return _struct([fields[at] for at in range(len(columns.types))], columns)


# Those that order in practice: times, and whole numbers.
_ORDERED = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz")


def _width(kind: DataType) -> int | None:
    return WIDTHS[kind.name] if isinstance(kind, Atomic) and kind.name in _ORDERED else None


def _ordered(column: pa.Array, kind: DataType) -> pa.Array | None:
    """Decode 00 negative, 01 positive, 02 null | value, big-endian."""
    width = _width(kind)
    marked = spans(column.cast(pa.large_binary()))
    if width is None or column.null_count or not marked.sizes.all():
        return None
    marks = marked.content[marked.starts]
    null = marks == 2
    if ((marked.sizes != 1 + width) & ~null | (marks > 2)).any():
        return None
    bits = words(marked.content, marked.starts + 1).byteswap().view(np.int64)
    return _times(bits >> (64 - 8 * width), kind, null)


def _timed(row: Spans, columns: StructType, times: Ints) -> pa.Array | None:
    """Decode a row, and the time that is its last column, with its sign bit turned."""
    if _width(columns.types[-1]) != 8 or (row.sizes < 0).any():
        return None
    rest = _bare(row.content, row.starts, row.ends, columns.sliced(slice(-1)))
    if rest is None:
        return None
    numbers = (words(row.content, times).byteswap() ^ _SIGN).view(np.int64)
    return _struct([*rest.flatten(), _times(numbers, columns.types[-1], None)], columns)


def _times(numbers: Ints, kind: DataType, null: Flags | None) -> pa.Array:
    wanted = arrow_type(kind)
    width = np.dtype(f"i{wanted.bit_width // 8}")
    return pa.array(numbers.astype(width), mask=null).view(wanted)


def _lists(lists: Spans, columns: StructType, delimiter: bytes, rows: Rows) -> pa.Array | None:
    """Decode (i32LE size | row)*, the delimiter between them: item by item of all lists at once."""
    here, at, ends = np.arange(len(lists.starts)), lists.starts, lists.ends
    steps: list[tuple[Ints, ...]] = []
    while len(here):
        after = _after_item(Spans(lists.content, at, ends))
        if after is None or len(steps) == ITEMS_MAX:
            return None
        steps.append((here, np.full(len(here), len(steps)), at + 4, after))
        more = after < ends
        here, ends = here[more], ends[more]
        behind = _behind_delimiter(Spans(lists.content, after[more], ends), delimiter)
        if behind is None:
            return None
        at = behind
    owners, numbers, starts, afters = map(np.concatenate, zip(*steps, strict=True))
    order = np.lexsort((numbers, owners))
    items = rows(lists.content, starts[order], afters[order], columns)
    if items is None:
        return None
    offsets = np.searchsorted(owners[order], np.arange(len(lists.starts) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _after_item(rest: Spans) -> Ints | None:
    """Return the ends of the items whose sizes stand here; None where one ends beyond its list."""
    sizes = (words(rest.content, rest.starts) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    after = rest.starts + 4 + sizes
    outside = (after > rest.ends) | (sizes < 1)
    return None if outside.any() else after


def _behind_delimiter(rest: Spans, delimiter: bytes) -> Ints | None:
    """Return the beginnings of the next items; None without a delimiter, or nothing after it."""
    for number, byte in enumerate(delimiter):
        places = rest.starts + number
        if (places >= rest.ends).any() or (rest.content[places] != byte).any():
            return None
    begins = rest.starts + len(delimiter)
    return None if (begins >= rest.ends).any() else begins


def _middles(keys: Spans) -> Ints | None:
    """Return the ends of the parts whose size (i32LE) begins a key."""
    return None if (keys.sizes < 5).any() else _after_item(keys)


def _struct(fields: list[Column], columns: StructType) -> pa.Array:
    return pa.StructArray.from_arrays(fields, fields=list(arrow_type(columns)))


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
