"""A bin of columns: what is read of a base and of changes is what was folded."""

from __future__ import annotations

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.live.bins.arrow_tables import read_tables, to_bytes
from stateshift.live.bins.commits import FilePiece
from stateshift.live.bins.files import Files
from stateshift.live.bins.operators import BinOperator, operator
from stateshift.live.bins.stores import BinTable
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage

KEYS = {"one": ("user",), "two": ("user", "place")}


def operator_of(key: tuple[str, ...]) -> BinOperator:
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
    store = BinTable(operator).caught_up(tables[:at_hand]).caught_up(tables[at_hand:])
    found = [] if store.table is None else store.table.to_pylist()
    assert [tuple(row.values()) for row in found] == list(expected.values())


def _key(row: tuple[int | None, str, int], key: tuple[str, ...]) -> tuple[object, ...]:
    return row[: len(key)]


def test_an_empty_table_is_read_though_a_file_of_nothing_else_was_never_written():
    files = Files(MemoryStorage(MemoryDisk(), "memory://group"))
    counted = operator_of(("a",))
    size = len(BinTable(counted).whole())
    piece = FilePiece("bins/states/counted/west/data/000000001-once", 0, size)
    assert BinTable(counted).caught_up([files.read(piece)]).keys == 0


def test_tables_that_follow_each_other_are_read_whatever_they_are_like() -> None:
    plain = pyarrow.table({"user": [1, 2], "place": ["a", "b"]})
    in_two_batches = pyarrow.concat_tables([plain, pyarrow.table({"user": [3], "place": ["c"]})])
    other_schema = pyarrow.table({"user": pyarrow.array([4], pyarrow.int32()), "place": ["d"]})
    with_dictionary = plain.set_column(1, "place", plain.column("place").dictionary_encode())
    empty = plain.slice(0, 0)
    tables = [
        *(plain, in_two_batches, plain, other_schema, empty, plain),
        *(with_dictionary, with_dictionary, plain, other_schema, other_schema),
    ]
    found = list(read_tables([b"", *map(to_bytes, tables), b""]))
    assert [table.schema for table in found] == [table.schema for table in tables]
    assert [table.to_pylist() for table in found] == [table.to_pylist() for table in tables]


def test_a_change_takes_the_columns_of_the_state() -> None:
    user_and_n = [("user", pyarrow.int64()), ("n", pyarrow.int64())]
    state = pyarrow.table([[1, 2], [10, 20]], schema=pyarrow.schema(user_and_n))
    narrow = [("user", pyarrow.int32()), ("n", pyarrow.int16())]
    changed = pyarrow.table([[2, 3], [21, 30]], schema=pyarrow.schema(narrow))
    pieces = [to_bytes(state), to_bytes(changed), to_bytes(changed.slice(1))]
    read = BinTable(operator_of(("user",))).caught_up(pieces).table
    assert read is not None
    assert read.schema == state.schema
    assert read.to_pylist() == [
        {"user": 1, "n": 10},
        {"user": 2, "n": 21},
        {"user": 3, "n": 30},
    ]
