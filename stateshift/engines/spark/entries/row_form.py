"""Whether rows can be of their store's columns, by what UnsafeRow leaves no freedom in: a file of
another store decodes often enough, and gives other values. Pure.

    a narrow value  the rest of its slot is zero: an offset and a size are none
    a null          its whole slot is zero
    the whole row   null bits, slots, and the variable parts, each padded to 8, without a gap

Long decimals and calendar intervals keep their place where they are null, so that such rows are not
added up. Columns of like widths cannot be told apart.

Source: Spark, UnsafeRowUtils.validateStructuralIntegrityWithReason, UnsafeRowWriter.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.layout import FRAME
from stateshift.formats.blocks import Binary, Flags
from stateshift.formats.spans import spans, words
from stateshift.formats.spark.types import WIDTHS, Atomic, DataType, DecimalType

# Bits of a slot that a narrow value may use.
_BITS: Final = {
    **{name: 8 * width for name, width in WIDTHS.items() if width < 8},
    "boolean": 1,
}
_LONG_DIGITS = 18  # of the longest decimal that is kept in its slot
_LOW = np.uint64(0xFFFFFFFF)


def unlike(view: StoreView, values: Binary) -> Flags:
    """Return which of the values cannot be rows of the store's columns. All of them decode."""
    kinds = () if view.value is None or view.many or view.avro is not None else view.value.types
    if not kinds:
        return np.zeros(len(values), bool)
    whole = spans(values)
    starts = whole.starts + (0 if view.encoder.kind == "plain" else len(FRAME))
    bits = (len(kinds) + 63) // 64
    odd = np.zeros(len(values), bool)
    taken = np.full(len(values), 8 * (bits + len(kinds)))
    for at, kind in enumerate(kinds):
        nulls = words(whole.content, starts + at // 64 * 8) >> np.uint64(at % 64) & np.uint64(1)
        slots = words(whole.content, starts + 8 * (bits + at))
        is_null = nulls != 0
        if not _keeps_its_place(kind):
            odd |= is_null & (slots != 0)
        if isinstance(kind, Atomic) and kind.name in _BITS:
            odd |= ~is_null & (slots >> np.uint64(_BITS[kind.name]) != 0)
        elif _is_variable(kind):
            sizes = (slots & _LOW).astype(np.int64)
            taken += np.where(is_null, 0, (sizes + 7) // 8 * 8)
    if not any(map(_keeps_its_place, kinds)):
        odd |= taken != whole.ends - starts
    return odd


def _keeps_its_place(kind: DataType) -> bool:
    """Whether a null of this type has a place in the variable part."""
    is_long = isinstance(kind, DecimalType) and kind.precision > _LONG_DIGITS
    return is_long or kind == Atomic("calendar")


def _is_variable(kind: DataType) -> bool:
    if isinstance(kind, DecimalType):
        return kind.precision > _LONG_DIGITS
    return not isinstance(kind, Atomic) or (kind.name not in WIDTHS and kind.name != "void")
