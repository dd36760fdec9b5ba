"""The keys and values of a store as Arrow arrays: what `encoders` undoes for one entry, for a block
of them.

`keys_of` and `values_of` give None where a type or an encoding needs a loop, or where something is
not as it should be: decoding entry by entry does it, or says what is wrong. `encoded_keys` and
`encoded_values` are their inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries import avro_vectors
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
        return _avro_values(view, values, view.value, view.avro.newest)
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


def _avro_values(
    view: StoreView, values: Binary, columns: StructType, newest: int
) -> pa.Array | None:
    whole = spans(values)
    rows = partial(avro_vectors.numbered_rows, number=newest)
    kind = arrow_type(columns)
    if view.many:
        kind = pa.list_(kind)
        decoded = _lists(whole, columns, view.delimiter, rows)
    else:
        decoded = rows(whole.content, whole.starts, whole.ends, columns)
    return _each(values, view.decode_value, kind) if decoded is None else decoded


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
    numbered = partial(avro_vectors.numbered_rows, number=KEY_SCHEMA)
    if encoder.kind == "row":
        return numbered(keys.content, keys.starts, keys.ends, columns)
    if encoder.kind == "prefix":
        return _halves(keys, columns, len(encoder.columns), avro_vectors.bare, numbered)
    assert encoder.kind == "range", "the keys of Avro rows are never encoded otherwise"
    return _range(keys, columns, encoder, avro_vectors.marked_columns, numbered)


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
