"""Placement over columns: what it is row by row."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.engines.spark.entries.vectors import arrow_type
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.placement_columns import LONG, fits, hashes
from stateshift.formats.spark.types import ArrayType, Atomic, DataType, DecimalType, StructType


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


DOUBLES = st.floats(allow_nan=True) | st.just(-0.0)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": ints(8),
    "short": ints(16),
    "integer": ints(32),
    "long": ints(64),
    "float": st.floats(width=32) | st.just(-0.0),
    "double": DOUBLES,
    "date": ints(32),
    "timestamp": ints(64),
    "timestamp_ntz": ints(64),
    "day-time": ints(64),
    "year-month": ints(32),
    "string": st.text(max_size=20) | st.text("aé", min_size=LONG - 2, max_size=LONG + 3),
    "binary": st.binary(max_size=30),
    "void": st.none(),
}
ATOMS: dict[DataType, st.SearchStrategy[Any]] = {
    Atomic(name): values for name, values in VALUES.items()
}
ATOMS[DecimalType(18, 2)] = ints(58).map(lambda number: Decimal(number).scaleb(-2))
INNER = StructType(("s", "n"), (Atomic("string"), Atomic("long")))
ATOMS[INNER] = st.tuples(st.none() | VALUES["string"], st.none() | VALUES["long"])


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_the_hashes_of_columns_are_those_of_rows(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(ATOMS)), min_size=1, max_size=4))
    assert all(map(fits, kinds))
    rows = data.draw(
        st.lists(st.tuples(*(st.none() | ATOMS[kind] for kind in kinds)), min_size=1, max_size=12)
    )
    columns = [column([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    assert hashes(columns, kinds, len(rows)).tolist() == [signed_hash(row, kinds) for row in rows]


def column(values: list[Any], kind: DataType) -> pa.Array:
    if isinstance(kind, StructType):
        plain = [None if value is None else {"s": value[0], "n": value[1]} for value in values]
        return pa.array(plain, arrow_type(kind))
    numbers = {
        "date": pa.int32(),
        "timestamp": pa.int64(),
        "timestamp_ntz": pa.int64(),
        "day-time": pa.int64(),
    }
    stored = numbers.get(getattr(kind, "name", ""))
    made = pa.array(values, stored or arrow_type(kind))
    return made.view(arrow_type(kind)) if stored else made


@pytest.mark.parametrize(
    ("name", "code", "hashed"), [("double", "d", -1281358385), ("float", "f", -349261430)]
)
def test_whatever_is_no_number_is_hashed_as_one(name: str, code: str, hashed: int) -> None:
    """SELECT hash(double('NaN')), hash(float('NaN')) in Spark 4.3: Double.doubleToLongBits knows
    only one of them.
    """
    patterns = {
        "d": (0x7FF8 << 48, 0x7FF0 << 48 | 1, -1),
        "f": (0x7FC0 << 16, 0x7F80 << 16 | 1, -1),
    }[code]
    content = struct.pack("<3q" if code == "d" else "<3i", *patterns)
    numbers = pa.array(np.frombuffer(content, np.dtype(code)))
    kinds = (Atomic(name),)
    assert hashes([numbers], kinds, 3).tolist() == [hashed] * 3
    assert [
        signed_hash((value,), kinds) for (value,) in struct.iter_unpack(f"<{code}", content)
    ] == [hashed] * 3


def test_a_slice_is_hashed_as_its_rows() -> None:
    kinds = (DecimalType(10, 0), Atomic("string"), Atomic("long"))
    rows = [(Decimal(n), "x" * n, n) for n in range(9)]
    columns = [column([row[at] for row in rows], kind).slice(4) for at, kind in enumerate(kinds)]
    assert hashes(columns, kinds, 5).tolist() == [signed_hash(row, kinds) for row in rows[4:]]


@pytest.mark.parametrize(
    "kind", [ArrayType(Atomic("long")), DecimalType(20, 0), Atomic("calendar"), Atomic("variant")]
)
def test_what_is_hashed_row_by_row_is_known(kind: DataType) -> None:
    assert not fits(kind) and not fits(StructType(("a",), (kind,)))
