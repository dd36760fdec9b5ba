"""A bin of columns: what is read of a base and of changes is what was folded."""

from __future__ import annotations

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.live.bins.commits import Piece
from stateshift.live.bins.files import Files
from stateshift.live.bins.operators import Operator, operator
from stateshift.live.bins.stores import Table, to_bytes
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage

KEYS = {"one": ("user",), "two": ("user", "place")}


def operator_of(key: tuple[str, ...]) -> Operator:
    @operator(
        bins=2,
        key=key,
        time="at",
        out="user long",
        form="columns",
        state="user long, place string, n long",
    )
    def kept(table: object, rows: object) -> tuple[object, object]:
        raise AssertionError("nothing is folded here")

    return kept


def table_of(rows: list[tuple[int | None, str, int]]) -> pyarrow.Table:
    schema = pyarrow.schema(
        [("user", pyarrow.int64()), ("place", pyarrow.string()), ("n", pyarrow.int64())]
    )
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return pyarrow.table(columns, schema=schema)


ROWS = st.lists(
    st.tuples(st.none() | st.integers(0, 5), st.sampled_from("ab"), st.integers(0, 99)),
    max_size=8,
)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@settings(deadline=None)
@given(st.lists(ROWS, max_size=6), st.integers(0, 6))
def test_what_is_read_is_the_last_row_of_each_key_in_the_order_of_changes(
    key: tuple[str, ...], pieces: list[list[tuple[int | None, str, int]]], at_hand: int
) -> None:
    operator = operator_of(key)
    expected: dict[tuple[object, ...], tuple[int | None, str, int]] = {}
    tables = []
    for piece in pieces:
        # A piece has a key once: it is what one batch has changed.
        once = {_key(row, key): row for row in piece}
        for one, row in once.items():
            expected.pop(one, None)
            expected[one] = row
        tables.append(to_bytes(table_of(list(once.values()))))
    store = Table.read(operator, tables[:at_hand]).caught_up(tables[at_hand:])
    found = [] if store.table is None else store.table.to_pylist()
    assert [tuple(row.values()) for row in found] == list(expected.values())


def _key(row: tuple[int | None, str, int], key: tuple[str, ...]) -> tuple[object, ...]:
    return row[: len(key)]


def test_an_empty_table_is_read_though_a_file_of_nothing_else_was_never_written():
    files = Files(MemoryStorage(MemoryDisk(), "memory://group"))
    counted = operator_of(("a",))
    size = len(Table(counted).whole())
    piece = Piece("bins/states/counted/west/data/000000001-once", 0, size)
    assert Table.read(counted, [files.read(piece)]).keys == 0
