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
from typing import TYPE_CHECKING, Any

from stateshift.errors import Incompatible
from stateshift.formats.spark.types import Atomic, DataType, DecimalType, StructType, decode_struct

if TYPE_CHECKING:
    from stateshift.formats.blocks import Binary

Add = Callable[["Binary", "Binary"], "Binary"]

_WIDTHS = {
    "byte": "<i1",
    "short": "<i2",
    "integer": "<i4",
    "long": "<i8",
    "float": "<f4",
    "double": "<f8",
}


def adders(operator: str, sums: Mapping[str, Mapping[str, Any]]) -> dict[str, Add]:
    """Per store of the operator: the function that adds two values each, row by row."""
    own = f"{operator}/"
    return {
        name.removeprefix(own): _adder(decode_struct(one["schema"]), one["columns"], one["framed"])
        for name, one in sums.items()
        if name.startswith(own)
    }


def cannot_add(schema: Mapping[str, Any], columns: list[str]) -> str | None:
    """The first of the columns that is not there, or of a type that cannot be added; in Avro rows
    none has a place of its own.
    """
    value = decode_struct(schema["value"])
    for column in columns:
        kinds = [
            kind for name, kind in zip(value.names, value.types, strict=True) if name == column
        ]
        if schema.get("avro") or not kinds or not all(_width(kind) for kind in kinds):
            return column
    return None


def _adder(schema: StructType, columns: list[str], framed: bool) -> Add:
    nulls = 1 if framed else 0
    slots = nulls + (len(schema.types) + 63) // 64 * 8
    added = {n: _width(kind) for n, kind in enumerate(schema.types) if schema.names[n] in columns}

    def add(ones: Binary, others: Binary) -> Binary:
        import numpy as np
        import pyarrow as pa

        from stateshift.formats.binaries import lengths, of_width

        sizes = lengths(ones)
        if (sizes != lengths(others)).any() or (
            len(sizes) and sizes.min() < slots + 8 * len(schema.types)
        ):
            raise _different(schema, columns)
        order, found = [], []
        for size in np.unique(sizes):  # rows of one size are a matrix
            places = np.flatnonzero(sizes == size)
            rows, more = (_matrix(side, places, size) for side in (ones, others))
            for number, width in added.items():
                assert width is not None, "the findings have asked"
                _add(rows, more, number, nulls, slots, width)
            if (rows != more).any():  # `more` took over what was added
                raise _different(schema, columns)
            order.append(places)
            found.append(of_width(rows))
        back = np.argsort(np.concatenate(order))
        return pa.concat_arrays(found).take(pa.array(back))

    return add


def _matrix(column: Binary, places: Any, size: int) -> Any:
    """The rows at these places, all of one size, as a matrix of bytes that can be changed."""
    import numpy as np
    import pyarrow as pa

    from stateshift.formats.binaries import edges

    starts, content = edges(column.take(pa.array(places)))
    return (
        np.frombuffer(content, np.uint8)[starts[0] : starts[-1]].reshape(len(places), size).copy()
    )


def _add(rows: Any, more: Any, number: int, nulls: int, slots: int, width: str) -> None:
    """Add a column of `more` to that of `rows`, and make both the same there."""
    import numpy as np

    slot, byte, bit = slots + 8 * number, nulls + number // 8, 1 << number % 8
    size = np.dtype(width).itemsize
    null, null_too = (side[:, byte] & bit != 0 for side in (rows, more))
    one, other = (
        np.ascontiguousarray(side[:, slot : slot + size]).view(width)[:, 0] for side in (rows, more)
    )
    total = np.where(null, other, np.where(null_too, one, _total(one, other, ~(null | null_too))))
    rows[:, slot : slot + size] = total.view(np.uint8).reshape(-1, size)
    kept = np.where(null & null_too, bit, 0).astype(np.uint8)
    rows[:, byte] = rows[:, byte] & np.uint8(~bit & 0xFF) | kept
    more[:, slot : slot + 8] = rows[:, slot : slot + 8]
    more[:, byte] = more[:, byte] & np.uint8(~bit & 0xFF) | kept


def _total(one: Any, other: Any, counts: Any) -> Any:
    """The sums, of which those that count stay in the range of their type."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        total = one + other
    if total.dtype.kind == "i":
        left = (other >= 0) != (total >= one)
    else:
        left = np.isinf(total) & np.isfinite(one) & np.isfinite(other)
    wrong = np.flatnonzero(left & counts)
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
        (
            "a key is in several checkpoints, and its values differ in columns that are not "
            f"added ({others})"
        ),
        hint=f"{_BACK}; only buffers that can be added (count, sum) are merged over common keys",
    )
