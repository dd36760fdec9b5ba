"""The keys and values of a store as Arrow arrays: what `encoders` undoes for one entry, for a block
of them.

    keys_of(view, keys)       a struct array with the key's columns
    values_of(view, values)   one with the value's, or a list array of them where the store keeps
                              lists
    hashes_of(view, keys)     the number whose remainder is a key's shard
    texts_of(view, at, keys)  one of a key's columns, as text

The first two give None where a type or an encoding needs a loop, or where something is not as it
should be: decoding entry by entry does it, or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries import avro_vectors
from stateshift.engines.spark.entries.avro_encoders import KEY_SCHEMA
from stateshift.engines.spark.entries.columns import array, arrow_type
from stateshift.engines.spark.entries.encoders import Encoder
from stateshift.engines.spark.entries.keys import Path
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.vectors import fits, structs
from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, Flags, Ints, cut
from stateshift.formats.spans import Content, Spans, spans, words
from stateshift.formats.spark import placement_columns
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.types import Atomic, DataType, StructType

# Lists of more items are decoded one by one.
ITEMS_MAX = 10_000

_SIGN = np.uint64(1 << 63)

# content, starts, ends, columns -> the rows that lie there, as one array; None where a loop decodes
# them.
Rows = Callable[[Content, Ints, Ints, StructType], "pa.Array | None"]


def keys_of(view: StoreView, keys: Binary) -> pa.Array | None:
    if view.key is None or not fits(view.key) or not len(keys):
        return None
    if view.avro is not None and view.key.types:
        together = _avro_keys(view, spans(keys), view.key)
        return _each(keys, view.decode_key, arrow_type(view.key)) if together is None else together
    found, columns = spans(keys), view.key
    match view.encoder.kind:
        case "plain":
            return structs(keys, columns)
        case "row":
            return _bare(found.content, found.starts, found.ends, columns)
        case "prefix":
            return _halves(found, columns, len(view.encoder.columns), _bare, _bare)
        case "range":
            return _range(found, columns, view.encoder, _binaries, _bare)
        case "postfix":
            return _timed(found, found.starts, found.ends - 8, columns, found.ends - 8)
        case "before":
            return _timed(found, found.starts + 8, found.ends, columns, found.starts)


def values_of(view: StoreView, values: Binary) -> pa.Array | None:
    if view.value is None or not fits(view.value) or not len(values) or values.null_count:
        return None
    found = spans(values)
    if view.avro is not None and view.value.types:
        rows = partial(avro_vectors.numbered, number=view.avro.newest)
        where = (found.content, found.starts, found.ends, view.value)
        together = _lists(found, view.value, view.delimiter, rows) if view.many else rows(*where)
        kind = pa.list_(arrow_type(view.value)) if view.many else arrow_type(view.value)
        return _each(values, view.decode_value, kind) if together is None else together
    if view.many:
        return _lists(found, view.value, view.delimiter, _bare)
    if view.encoder.kind == "plain":
        return structs(values, view.value)
    return _bare(found.content, found.starts, found.ends, view.value)


def hashes_of(view: StoreView, keys: Binary, decoded: pa.Array | None = None) -> Ints:
    """Asked where it is known which columns place a key; a store without any has shard 0 alone.
    `decoded` is what `keys_of` gave, if it was asked.
    """
    assert view.placed is not None, "asked before whether the placement is known"
    if not view.placed:
        return np.zeros(len(keys), np.int64)
    decoded = keys_of(view, keys) if decoded is None else decoded
    columns = (
        [_column(decoded, view.key, path) for path in view.placed] if decoded is not None else []
    )
    if not columns or not all(placement_columns.fits(kind) for _, kind in columns):
        found = (signed_hash(*view.placing(view.decode_key(key))) for key in keys.to_pylist())
        return np.fromiter(found, np.int64, len(keys))
    arrays, kinds = zip(*columns, strict=True)
    return placement_columns.hashes(arrays, kinds, len(keys)).astype(np.int64)


def texts_of(view: StoreView, at: int, keys: Binary) -> list[str | None]:
    """The column number `at`: text, whole numbers, true and false."""
    decoded = keys_of(view, keys)
    if decoded is not None:
        texts: list[str | None] = decoded.flatten()[at].cast(pa.string()).to_pylist()
        return texts
    values = [view.decode_key(key)[at] for key in keys.to_pylist()]
    return [
        value if value is None or isinstance(value, str) else str(value).lower() for value in values
    ]


def _column(decoded: pa.Array, kind: Any, path: Path) -> tuple[pa.Array, DataType]:
    """One column of a key, or one inside of it."""
    for at in path:
        decoded, kind = decoded.flatten()[at], kind.types[at]
    return decoded, kind


def _avro_keys(view: StoreView, found: Spans, columns: StructType) -> pa.Array | None:
    rest = partial(avro_vectors.numbered, number=KEY_SCHEMA)
    match view.encoder.kind:
        case "row":
            return rest(found.content, found.starts, found.ends, columns)
        case "prefix":
            return _halves(found, columns, len(view.encoder.columns), avro_vectors.bare, rest)
        case "range":
            return _range(found, columns, view.encoder, avro_vectors.marked, rest)
    return None


def _each(items: Binary, decode: Callable[[bytes], Any], kind: pa.DataType) -> pa.Array | None:
    try:
        return array([decode(item) for item in items.to_pylist()], kind)
    except FormatError:
        return None


def _bare(content: Content, starts: Ints, ends: Ints, columns: StructType) -> pa.Array | None:
    """Rows behind the byte that RocksDB's encoding puts before each."""
    if (ends <= starts).any() or content[starts].any():
        return None
    return structs(cut(content, starts + 1, ends), columns)


def _binaries(content: Content, starts: Ints, ends: Ints, columns: StructType) -> list[Any] | None:
    """Columns that order keys: each as one binary, whatever its type."""
    decoded = _bare(
        content, starts, ends, StructType(columns.names, (Atomic("binary"),) * len(columns.types))
    )
    return None if decoded is None else decoded.flatten()


def _halves(
    found: Spans, columns: StructType, count: int, first: Rows, rest: Rows
) -> pa.Array | None:
    middles = _middles(found)
    if middles is None:
        return None
    parts = (
        (
            first,
            found.starts + 4,
            middles,
            StructType(columns.names[:count], columns.types[:count]),
        ),
        (rest, middles, found.ends, StructType(columns.names[count:], columns.types[count:])),
    )
    fields: list[Any] = []
    for rows, starts, ends, some in parts:
        decoded = rows(found.content, starts, ends, some)
        if decoded is None:
            return None
        fields += decoded.flatten()
    return _struct(fields, columns)


def _range(
    found: Spans,
    columns: StructType,
    encoder: Encoder,
    binaries: Callable[..., list[Any] | None],
    rows: Rows,
) -> pa.Array | None:
    middles, ordering = _middles(found), encoder.columns
    others = [at for at in range(len(columns.types)) if at not in ordering]
    if middles is None or any(at >= len(columns.types) for at in ordering):
        return None
    leading = StructType(
        tuple(columns.names[at] for at in ordering), tuple(columns.types[at] for at in ordering)
    )
    first = binaries(found.content, found.starts + 4, middles, leading)
    if first is None:
        return None
    fields: dict[int, Any] = {
        at: _ordered(one, columns.types[at]) for at, one in zip(ordering, first, strict=True)
    }
    if others:
        some = StructType(
            tuple(columns.names[at] for at in others), tuple(columns.types[at] for at in others)
        )
        rest = rows(found.content, middles, found.ends, some)
        if rest is None:
            return None
        fields |= dict(zip(others, rest.flatten(), strict=True))
    elif (middles != found.ends).any():
        return None
    if any(column is None for column in fields.values()):
        return None
    return _struct([fields[at] for at in range(len(columns.types))], columns)


# Those that order in practice: times, and whole numbers.
_ORDERED = {
    "byte": 1,
    "short": 2,
    "integer": 4,
    "long": 8,
    "date": 4,
    "timestamp": 8,
    "timestamp_ntz": 8,
}


def _ordered(column: pa.Array, kind: DataType) -> pa.Array | None:
    """00 negative, 01 positive, 02 null | value, big-endian."""
    width = _ORDERED.get(kind.name) if isinstance(kind, Atomic) else None
    found = spans(column.cast(pa.large_binary()))
    if width is None or column.null_count or not found.sizes.all():
        return None
    marks = found.content[found.starts]
    null = marks == 2
    if ((found.sizes != 1 + width) & ~null | (marks > 2)).any():
        return None
    numbers = words(found.content, found.starts + 1).byteswap().view(np.int64) >> (64 - 8 * width)
    return _times(numbers, kind, null)


def _timed(
    found: Spans, starts: Ints, ends: Ints, columns: StructType, times: Ints
) -> pa.Array | None:
    """A row, and the time that is its last column, with its sign bit turned."""
    kind = columns.types[-1]
    if (found.sizes < 8).any() or not isinstance(kind, Atomic) or _ORDERED.get(kind.name) != 8:
        return None
    rest = _bare(found.content, starts, ends, StructType(columns.names[:-1], columns.types[:-1]))
    if rest is None:
        return None
    numbers = (words(found.content, times).byteswap() ^ _SIGN).view(np.int64)
    return _struct([*rest.flatten(), _times(numbers, kind, None)], columns)


def _times(numbers: Ints, kind: DataType, null: Flags | None) -> pa.Array:
    wanted = arrow_type(kind)
    width = np.dtype(f"i{wanted.bit_width // 8}")
    return pa.array(numbers.astype(width), mask=null).view(wanted)


def _lists(found: Spans, columns: StructType, delimiter: bytes, rows: Rows) -> pa.Array | None:
    """(i32LE size | row)*, the delimiter between them: item by item of all lists at once."""
    here, at, ends = np.arange(len(found.starts)), found.starts, found.ends
    steps: list[tuple[Ints, ...]] = []
    while len(here):
        sizes = (words(found.content, at) & np.uint64(0xFFFFFFFF)).astype(np.int64)
        after = at + 4 + sizes
        if len(steps) == ITEMS_MAX or (after > ends).any() or (sizes < 1).any():
            return None
        steps.append((here, np.full(len(here), len(steps)), at + 4, after))
        more = after < ends
        here, at, ends = here[more], after[more], ends[more]
        for number, byte in enumerate(delimiter):
            if (at + number >= ends).any() or (found.content[at + number] != byte).any():
                return None
        at = at + len(delimiter)
        if (at >= ends).any():
            return None
    owners, numbers, starts, afters = (
        np.concatenate(column) for column in zip(*steps, strict=True)
    )
    order = np.lexsort((numbers, owners))
    items = rows(found.content, starts[order], afters[order], columns)
    if items is None:
        return None
    offsets = np.searchsorted(owners[order], np.arange(len(found.starts) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _middles(found: Spans) -> Ints | None:
    """Where the part ends whose size (i32LE) a key begins with."""
    if (found.sizes < 5).any():
        return None
    sizes = (words(found.content, found.starts) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    middles = found.starts + 4 + sizes
    return None if ((sizes < 1) | (middles > found.ends)).any() else middles


def _struct(fields: list[Any], columns: StructType) -> pa.Array:
    return pa.StructArray.from_arrays(fields, fields=list(arrow_type(columns)))
