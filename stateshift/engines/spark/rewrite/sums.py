"""Values of one key in several checkpoints, added column by column. Pure.

    {"schema": StructType JSON of the value, "columns": ["count", "total"], "framed": RocksDB's
    encoding byte before it}

Only columns of a fixed width in their slot can be added in place: whole numbers, floating point,
decimals of at most 18 digits. Null and a number make the number. Every other column has to be the
same in both; names may repeat, and then all columns of that name are added. A sum that leaves its
type's range is refused, as Spark's would wrap around unseen.

This module is asked by the planner what can be added, so numpy and Arrow are imported where
something is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.engines.spark.rewrite.stores import of_stores
from stateshift.errors import Incompatible
from stateshift.formats.spark.types import (
    Atomic,
    DataType,
    DecimalType,
    StructType,
    decode_struct,
    null_bytes,
)
from stateshift.plain import JsonObject

if TYPE_CHECKING:
    from stateshift.formats.blocks import Binary, Flags, Ints, Numbers
Add = Callable[["Binary", "Binary"], "Binary"]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that is added: where in a row its null bit and its slot are, and its numpy type."""

    null_byte: int
    null_bit: int
    slot: int
    width: str


_WIDTHS = {
    "byte": "<i1",
    "short": "<i2",
    "integer": "<i4",
    "long": "<i8",
    "float": "<f4",
    "double": "<f8",
}


def adders(operator: str, sums: Mapping[str, JsonObject]) -> dict[str, Add]:
    """Return the functions that add two values each, row by row, by store of the operator."""
    adds = {}
    for store, how in of_stores(sums, operator).items():
        adds[store] = _adder(decode_struct(how["schema"]), how["columns"], how["framed"])
    return adds


def cannot_add(schema: JsonObject, columns: list[str]) -> str | None:
    """Return the first column that cannot be added, or is not there; of Avro rows, any."""
    value = decode_struct(schema["value"])
    widths: dict[str, list[str | None]] = {}
    for name, kind in zip(value.names, value.types, strict=True):
        widths.setdefault(name, []).append(_width(kind))
    for column in columns:
        can_add = column in widths and all(widths[column])
        if schema.get("avro") or not can_add:
            return column
    return None


def _adder(schema: StructType, columns: list[str], framed: bool) -> Add:
    first_null = 1 if framed else 0
    first_slot = first_null + null_bytes(len(schema.types))
    least = first_slot + 8 * len(schema.types)
    added = []
    for number, (name, kind) in enumerate(zip(schema.names, schema.types, strict=True)):
        if name in columns:
            width = _width(kind)
            assert width is not None, "the findings have asked"
            place = first_null + number // 8
            added.append(_Column(place, 1 << number % 8, first_slot + 8 * number, width))

    def add(ones: Binary, others: Binary) -> Binary:
        import numpy as np
        import pyarrow as pa

        from stateshift.formats.blocks import lengths, of_width

        sizes = lengths(ones)
        if (sizes != lengths(others)).any() or sizes.min(initial=least) < least:
            raise _different(schema, columns)
        order, sums = [], []
        for size in np.unique(sizes):  # rows of one size are a matrix
            places = np.flatnonzero(sizes == size)
            rows, more = _matrix(ones, places, size), _matrix(others, places, size)
            for column in added:
                _add(rows, more, column)
            if (rows != more).any():  # `more` took over what was added
                raise _different(schema, columns)
            order.append(places)
            sums.append(of_width(rows))
        back = np.argsort(np.concatenate(order))
        return pa.concat_arrays(sums).take(pa.array(back))

    return add


def _matrix(column: Binary, places: Ints, size: int) -> Numbers:
    """Return the rows at these places, of one size, as a writable matrix of bytes."""
    import numpy as np
    import pyarrow as pa

    from stateshift.formats.blocks import edges

    starts, content = edges(column.take(pa.array(places)))
    rows = np.frombuffer(content, np.uint8)[starts[0] : starts[-1]]
    return rows.reshape(len(places), size).copy()


def _add(rows: Numbers, more: Numbers, column: _Column) -> None:
    """Add a column of `more` to that of `rows`, and make both the same there."""
    import numpy as np

    byte, bit, slot = column.null_byte, column.null_bit, column.slot
    size = np.dtype(column.width).itemsize

    def values(side: Numbers) -> Numbers:
        return np.ascontiguousarray(side[:, slot : slot + size]).view(column.width)[:, 0]

    null, null_too = rows[:, byte] & bit != 0, more[:, byte] & bit != 0
    one, other = values(rows), values(more)
    both = _total(one, other, ~(null | null_too))
    total = np.where(null, other, np.where(null_too, one, both))
    rows[:, slot : slot + size] = total.view(np.uint8).reshape(-1, size)
    kept = np.where(null & null_too, bit, 0).astype(np.uint8)
    rows[:, byte] = rows[:, byte] & np.uint8(~bit & 0xFF) | kept
    more[:, slot : slot + 8] = rows[:, slot : slot + 8]
    more[:, byte] = more[:, byte] & np.uint8(~bit & 0xFF) | kept


def _total(one: Numbers, other: Numbers, counts: Flags) -> Numbers:
    """Return the sums, of which those that count stay in the range of their type."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        total = one + other
    if total.dtype.kind == "i":
        overflows = (other >= 0) != (total >= one)
    else:
        overflows = np.isinf(total) & np.isfinite(one) & np.isfinite(other)
    wrong = np.flatnonzero(overflows & counts)
    if len(wrong):
        exact = one[wrong[0]].item() + other[wrong[0]].item()
        raise Incompatible(f"a sum of {exact} leaves the range of its column", hint=_BACK)
    return total


def _width(kind: DataType) -> str | None:
    match kind:
        case Atomic(name):
            return _WIDTHS.get(name)
        case DecimalType(precision, _) if precision <= 18:
            return "<i8"
    return None


_BACK = "take this run back (`stateshift rollback WORKDIR`)"


def _different(schema: StructType, columns: list[str]) -> Incompatible:
    others = ", ".join(name for name in schema.names if name not in columns)
    return Incompatible(
        "a key is in several checkpoints, and its values differ in columns that are not "
        f"added ({others})",
        hint=f"{_BACK}; only buffers that can be added (count, sum) are merged over common keys",
    )
