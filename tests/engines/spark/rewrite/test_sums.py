"""Values of common keys: added row by row of whole columns, against the same sums in Python."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.engines.spark.rewrite.redistribution import unite_records
from stateshift.engines.spark.rewrite.sums import adders, cannot_add
from stateshift.errors import Incompatible
from stateshift.formats.blocks import Binary, binary, block_of
from stateshift.formats.spark.types import decode_struct
from stateshift.formats.spark.unsafe_row import decode_row

FIELDS = [
    ("n", "long"),
    ("small", "short"),
    ("total", "double"),
    ("price", "decimal(18,2)"),
    ("name", "string"),
]
PLAIN = {
    "type": "struct",
    "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in FIELDS],
}
SCHEMA = json.dumps(PLAIN)
COLUMNS = ["n", "small", "total", "price"]
CODES = "qhdq"


def row(values: list[Any], name: bytes, framed: bool) -> bytes:
    nulls = sum(1 << number for number, value in enumerate(values) if value is None)
    slots = b"".join(
        (b"" if value is None else struct.pack(f"<{code}", value)).ljust(8, b"\0")
        for value, code in zip(values, CODES, strict=True)
    )
    where = (48 << 32 | len(name)).to_bytes(8, "little")
    return (
        bytes(framed)
        + nulls.to_bytes(8, "little")
        + slots
        + where
        + name.ljust(-(-len(name) // 8) * 8, b"\0")
    )


def add_of(framed: bool, columns: list[str] = COLUMNS) -> Any:
    return adders("0", {"0/default": {"schema": SCHEMA, "columns": columns, "framed": framed}})[
        "default"
    ]


def added(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one + other


VALUES = st.tuples(
    st.none() | st.integers(-(1 << 62), (1 << 62) - 1),
    st.none() | st.integers(-100, 100),
    st.none() | st.floats(-1e300, 1e300),
    st.none() | st.integers(-(10**17), 10**17),
)
NAMES = st.sampled_from((b"", b"x", b"more than eight"))


@given(st.lists(st.tuples(VALUES, VALUES, NAMES), min_size=1, max_size=12), st.booleans())
def test_columns_are_added_and_everything_else_stays(
    pairs: list[tuple[Any, Any, bytes]], framed: bool
) -> None:
    ones, others = (binary([row(list(pair[n]), pair[2], framed) for pair in pairs]) for n in (0, 1))
    found = add_of(framed)(ones, others).to_pylist()
    expected = [row(list(map(added, one, other)), name, framed) for one, other, name in pairs]
    assert found == expected
    assert decode_row(found[0][framed:], decode_struct(SCHEMA))[4] == pairs[0][2].decode()


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            [1 << 62, 0, 0.0, 0],
            [1 << 62, 0, 0.0, 0],
            "a sum of 9223372036854775808 leaves the range",
        ),
        ([0, -30000, 0.0, 0], [0, -30000, 0.0, 0], "a sum of -60000 leaves the range"),
        ([0, 0, 1e308, 0], [0, 0, 1e308, 0], "a sum of inf leaves the range"),
    ],
)
def test_a_sum_that_does_not_fit_its_column_is_refused(
    one: list[Any], other: list[Any], message: str
) -> None:
    for sides in ((one, other), (other, one)):
        values = [
            binary([row([1, 1, 1.0, 1], b"", False), row(side, b"", False)]) for side in sides
        ]
        with pytest.raises(Incompatible, match=message):
            add_of(False)(*values)


def test_what_is_not_added_has_to_be_the_same() -> None:
    whole = [1, 1, 1.0, 1]
    for other in (row(whole, b"y", False), row(whole, b"longer than x", False)):
        with pytest.raises(Incompatible, match=r"differ in columns that are not added \(name\)"):
            add_of(False)(binary([row(whole, b"x", False)]), binary([other]))
    with pytest.raises(Incompatible, match="not added"):
        add_of(False, ["n"])(
            binary([row(whole, b"x", False)]), binary([row([1, 1, 2.0, 1], b"x", False)])
        )


def joined(keys: Binary, ones: Binary, others: Binary) -> Binary:
    return binary(
        [one + other for one, other in zip(ones.to_pylist(), others.to_pylist(), strict=True)]
    )


@given(st.lists(st.integers(0, 8), max_size=40), st.integers(1, 7))
def test_each_key_is_there_once_wherever_its_records_are_cut(keys: list[int], each: int) -> None:
    records = [(b"%d" % key, b"%d," % number) for number, key in enumerate(sorted(keys))]
    blocks = (block_of(records[start : start + each]) for start in range(0, len(records), each))
    found = [record for block in unite_records(blocks, joined) for record in block.records()]
    expected: dict[bytes, bytes] = {}
    for key, value in records:
        expected[key] = expected.get(key, b"") + value
    assert dict(found) == expected and len(found) == len(expected)


def test_in_avro_rows_no_column_has_a_place_where_it_could_be_added() -> None:
    assert cannot_add({"value": SCHEMA}, ["n"]) is None
    assert cannot_add({"value": SCHEMA, "avro": True}, ["n"]) == "n"
