"""The rows in keys of joins, without what is kept beside the join's own key: an index, or a time.
Pure.

    row_and_last(view, keys)  a row of the key's columns, and what its last column holds (it is cut
                              out of the row)
    row_and_time(view, keys)  row | time, wherever in the key the time stands

A row without its last column has the slots of the others, and what lies behind them moves eight
bytes forward: so does the offset in each slot that has one. What results are the bytes of the row
as Spark writes it for the other columns.
"""

from __future__ import annotations

import numpy as np

from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.formats.binaries import binaries, joined
from stateshift.formats.blocks import Binary, Ints, cut
from stateshift.formats.spans import Spans, spans, words
from stateshift.formats.spark.types import WIDTHS, Atomic, DataType, DecimalType

_MOVED = np.uint64(8 << 32)


def row_and_last(view: StoreView, keys: Binary, last: bool) -> tuple[Binary, Ints] | None:
    """Return the rows of keys that decode, and what their last columns hold. Without `last`,
    nothing is cut out; None where such keys are not single rows.
    """
    assert view.key is not None, "asked before whether the columns are known"
    if view.encoder.kind not in ("plain", "row"):
        return None
    whole = spans(keys)
    starts, ends = whole.starts + (view.encoder.kind == "row"), whole.ends
    if not last:
        return cut(whole.content, starts, ends), np.zeros(len(keys), np.int64)
    count = len(view.key.types)
    bits = _null_bytes(count)
    if count < 2 or _null_bytes(count - 1) != bits or ((ends - starts) % 8).any():
        return None
    slots = starts + bits + 8 * (count - 1)
    rows = joined(cut(whole.content, starts, slots), cut(whole.content, slots + 8, ends))
    offsets = [bits // 8 + at for at, kind in enumerate(view.key.types[:-1]) if _has_offset(kind)]
    return _moved(spans(rows), offsets), words(whole.content, slots).view(np.int64)


def _null_bytes(count: int) -> int:
    """Return how many bytes of null bits a row of so many columns has."""
    return (count + 63) // 64 * 8


def row_and_time(view: StoreView, keys: Binary) -> Binary | None:
    """Return keys as row | i64BE time, its sign bit turned; None where no time is encoded."""
    whole = spans(keys)
    content, starts, ends = whole.content, whole.starts, whole.ends
    if view.encoder.kind == "postfix":
        return joined(cut(content, starts + 1, ends - 8), cut(content, ends - 8, ends))
    if view.encoder.kind == "before":
        return joined(cut(content, starts + 9, ends), cut(content, starts, starts + 8))
    return None


def _moved(rows: Spans, slots: list[int]) -> Binary:
    """Return the rows with these slots corrected: what they point at has moved eight bytes
    forward. Rows are whole words.
    """
    first, end = _extent(rows)
    content = rows.content[first:end].copy()
    numbers = content.view(np.uint64)
    begins = (rows.starts - first) // 8
    for slot in slots:
        places = begins + slot
        numbers[places] -= np.where(numbers[places] != 0, _MOVED, np.uint64(0))
    return binaries(content, np.append(rows.starts, end) - first)


def _extent(rows: Spans) -> tuple[int, int]:
    """Return where the first of the rows begins, and the last ends."""
    if not len(rows.starts):
        return 0, 0
    return int(rows.starts[0]), int(rows.ends[-1])


def _has_offset(kind: DataType) -> bool:
    match kind:
        case Atomic(name):
            return name not in WIDTHS and name != "void"
        case DecimalType(precision, _):
            return precision > 18
    return True
