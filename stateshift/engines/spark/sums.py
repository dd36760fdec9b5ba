"""Values of one key in several checkpoints, added column by column. Pure.

    {"schema": StructType JSON of the value, "columns": ["count", "total"], "framed": RocksDB's encoding byte before it}

Only columns of a fixed width in their slot can be added in place: whole numbers, floating point, decimals of at most
18 digits. Null and a number make the number. Every other column has to be the same in both; names may repeat, and then
all columns of that name are added. A sum that leaves its type's range is refused, as Spark's would wrap around unseen.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from stateshift.errors import Incompatible
from stateshift.formats.spark.types import Atomic, DataType, DecimalType, StructType, decode_struct

Add = Callable[[bytes, bytes], bytes]

_CODES = {"byte": "<b", "short": "<h", "integer": "<i", "long": "<q", "float": "<f", "double": "<d"}


def adders(operator: str, sums: Mapping[str, Mapping[str, Any]]) -> dict[str, Add]:
    """Per store of the operator: the function that adds two values."""
    own = f"{operator}/"
    return {
        name.removeprefix(own): _adder(decode_struct(one["schema"]), one["columns"], one["framed"])
        for name, one in sums.items()
        if name.startswith(own)
    }


def cannot_add(schema: StructType, columns: list[str]) -> str | None:
    """The first of the columns that is not there, or of a type that cannot be added."""
    for column in columns:
        kinds = [kind for name, kind in zip(schema.names, schema.types, strict=True) if name == column]
        if not kinds or not all(_codec(kind) for kind in kinds):
            return column
    return None


def _adder(schema: StructType, columns: list[str], framed: bool) -> Add:
    skip = 1 if framed else 0
    bits = (len(schema.types) + 63) // 64 * 8
    added = {n: _codec(kind) for n, kind in enumerate(schema.types) if schema.names[n] in columns}

    def add(one: bytes, other: bytes) -> bytes:
        row, more = bytearray(one), other
        if len(one) != len(other):
            raise _different(schema, columns)
        for number, codec in added.items():
            assert codec is not None, "the findings have asked"
            _add(row, more, number, skip, skip + bits, codec)
        rest = bytearray(more)
        for number in added:  # what was added may differ; everything else may not
            slot = skip + bits + 8 * number
            rest[slot : slot + 8] = row[slot : slot + 8]
            byte, bit = skip + number // 8, 1 << number % 8
            rest[byte] = rest[byte] & ~bit | row[byte] & bit
        if rest != row:
            raise _different(schema, columns)
        return bytes(row)

    return add


def _add(row: bytearray, more: bytes, number: int, nulls: int, slots: int, codec: struct.Struct) -> None:
    slot, byte, bit = slots + 8 * number, nulls + number // 8, 1 << number % 8
    if more[byte] & bit:
        return
    if row[byte] & bit:
        row[byte] &= ~bit & 0xFF
        row[slot : slot + 8] = more[slot : slot + 8]
        return
    total = codec.unpack_from(row, slot)[0] + codec.unpack_from(more, slot)[0]
    try:
        codec.pack_into(row, slot, total)
    except (struct.error, OverflowError) as error:
        raise Incompatible(f"a sum of {total} leaves the range of its column", hint=_BACK) from error


def _codec(kind: DataType) -> struct.Struct | None:
    match kind:
        case Atomic(name) if name in _CODES:
            return struct.Struct(_CODES[name])
        case DecimalType(precision, _) if precision <= 18:
            return struct.Struct("<q")
    return None


_BACK = "take this run back (`stateshift rollback WORKDIR`)"


def _different(schema: StructType, columns: list[str]) -> Incompatible:
    others = ", ".join(name for name in schema.names if name not in columns)
    return Incompatible(
        f"a key is in several checkpoints, and its values differ in columns that are not added ({others})",
        hint=f"{_BACK}; only buffers that can be added (count, sum) are merged over common keys",
    )
