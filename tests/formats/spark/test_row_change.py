"""Rows of one schema made rows of another."""

import json
import struct
from decimal import Decimal

import pytest

from stateshift.errors import FormatError
from stateshift.formats.spark.column_values import encode_value
from stateshift.formats.spark.row_change import Unfit, evolve, type_of
from stateshift.formats.spark.types import decode_struct
from stateshift.formats.spark.unsafe_row import decode_row


def schema(*fields):
    """StructType JSON of name -> type."""
    return {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields],
    }


def changed(before, row, **change):
    """The new names, and the values of the row after the change."""
    found = evolve(before, change)
    after = decode_struct(json.dumps(found.schema))
    return after.names, decode_row(found.apply(row), after)


def row_of(plain, *values):
    """A row, made by adding columns with these defaults to one column that is dropped."""
    added = [
        {"name": f["name"], "type": f["type"], "default": v}
        for f, v in zip(plain["fields"], values, strict=True)
    ]
    return evolve(schema(("_", "long")), {"add": added, "drop": ["_"]}).apply(bytes(16))


COUNTED = schema(("count", "long"), ("word", "string"), ("total", "integer"))
ROW = row_of(COUNTED, 3, "délta", -7)


def test_a_row_without_changes_keeps_its_bytes():
    assert evolve(COUNTED, {}).apply(ROW) == ROW


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"add": [{"name": "last", "type": "string"}]},
            {"count": 3, "word": "délta", "total": -7, "last": None},
        ),
        (
            {"add": [{"name": "n", "type": "int", "default": 5, "after": ""}]},
            {"n": 5, "count": 3, "word": "délta", "total": -7},
        ),
        (
            {
                "add": [
                    {
                        "name": "at",
                        "type": "timestamp",
                        "default": "1970-01-01T00:00:01",
                        "after": "count",
                    }
                ]
            },
            {"count": 3, "at": 1_000_000, "word": "délta", "total": -7},
        ),
        (
            {
                "add": [
                    {"name": "a", "type": "long", "default": 1},
                    {"name": "b", "type": "long", "after": "a"},
                ]
            },
            {"count": 3, "word": "délta", "total": -7, "a": 1, "b": None},
        ),
        ({"widen": {"total": "bigint"}}, {"count": 3, "word": "délta", "total": -7}),
        (
            {"widen": {"total": "decimal(30,2)"}},
            {"count": 3, "word": "délta", "total": Decimal("-7.00")},
        ),
        (
            {"widen": {"total": "double"}, "rename": {"total": "sum"}},
            {"count": 3, "word": "délta", "sum": -7.0},
        ),
        ({"drop": ["word"]}, {"count": 3, "total": -7}),
        ({"drop": ["count", "total"]}, {"word": "délta"}),
    ],
)
def test_columns_are_added_widened_renamed_and_dropped(change, expected):
    names, values = changed(COUNTED, ROW, **change)
    assert dict(zip(names, values, strict=True)) == expected


def test_columns_inside_of_a_struct_are_changed_and_others_beside_it_stay():
    outer = schema(("state", COUNTED), ("timeout", "long"))
    row = struct.pack("<qIIq", 0, len(ROW), 24, 9) + ROW
    more = {"name": "state.last", "type": "long", "default": 8, "after": "count"}
    names, (state, timeout) = changed(
        outer, row, add=[more], widen={"state.total": "long"}, drop=["state.word"]
    )
    assert (names, state, timeout) == (("state", "timeout"), (3, 8, -7), 9)
    missing = struct.pack("<qqq", 1, 0, 9)
    assert changed(outer, missing, add=[more])[1] == (None, 9)


NESTED = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {
            "name": "tags",
            "nullable": False,
            "metadata": {},
            "type": {
                "type": "map",
                "keyType": "string",
                "valueContainsNull": False,
                "valueType": {"type": "array", "elementType": "long", "containsNull": False},
            },
        },
    ],
}


def test_a_column_may_be_null_from_now_on_and_its_rows_stay():
    row = struct.pack("<qqII", 0, 7, 0, 24)
    for change, expected in (
        ({"nullable": ["id"]}, [True, False]),
        ({"nullable": ["*"]}, [True, True]),
    ):
        found = evolve(NESTED, change)
        assert [field["nullable"] for field in found.schema["fields"]] == expected
        assert found.apply(row) == row
    loose = evolve(NESTED, {"nullable": ["*"]}).schema["fields"][1]["type"]
    assert loose["valueContainsNull"] and loose["valueType"]["containsNull"]
    assert loose["keyType"] == "string"


def test_of_columns_of_one_name_the_second_is_told_by_its_number():
    twice = schema(("sum", "integer"), ("sum", "integer"))
    assert changed(twice, row_of(schema(("a", "integer"), ("b", "integer")), 1, 2), drop=["sum"])[
        1
    ] == (2,)
    assert changed(twice, row_of(schema(("a", "integer"), ("b", "integer")), 1, 2), drop=["sum#2"])[
        1
    ] == (1,)


def test_seventy_columns_have_two_words_of_null_bits():
    many = schema(*((f"c{n}", "long") for n in range(70)))
    row = row_of(many, *(None if n % 7 == 0 else n for n in range(70)))
    _, values = changed(
        many,
        row,
        add=[{"name": "x", "type": "string", "default": "y", "after": "c3"}],
        drop=["c69"],
    )
    assert values == (
        *(None if n % 7 == 0 else n for n in range(4)),
        "y",
        *(None if n % 7 == 0 else n for n in range(4, 69)),
    )


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"drop": ["other"]}, "no column other; there are count, word, total"),
        ({"widen": {"count": "integer"}}, "cannot be widened"),
        ({"widen": {"count": "double"}}, "cannot be widened"),
        ({"widen": {"total": "decimal(9,0)"}}, "cannot be widened"),
        ({"widen": {"total": "number"}}, "unknown type"),
        ({"add": [{"name": "word", "type": "long"}]}, "a column word already"),
        ({"rename": {"count": "word"}}, "a column word already"),
        ({"add": [{"name": "n", "type": "long", "after": "other"}]}, "no column other"),
        ({"add": [{"name": "n", "type": "byte", "default": 300}]}, "n: "),
        ({"add": [{"name": "n", "type": "long", "default": "x"}]}, "no default of long"),
        ({"add": [{"name": "n", "type": "long", "default": True}]}, "no default of long"),
        (
            {"add": [{"name": "n", "type": "decimal(4,1)", "default": "1.25"}]},
            "no default of decimal",
        ),
        ({"add": [{"name": "n", "type": COUNTED, "default": {}}]}, "no default of this type"),
        ({"add": [{"name": "n", "type": "long"}, {"name": "n", "type": "long"}]}, "one name"),
        ({"drop": ["count", "word", "total"]}, "no column would be left"),
        ({"nullable": ["other"]}, "no column other"),
        ({"drop": ["count.x"]}, "count is no struct"),
        ({"add": [{"name": "other.n", "type": "long"}]}, "other.n: there is no struct other"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, fact):
    with pytest.raises(Unfit, match=fact):
        evolve(COUNTED, change)


@pytest.mark.parametrize("end", range(len(ROW)))
def test_a_row_cut_anywhere_is_refused_or_whole_in_what_is_kept(end):
    try:
        evolve(COUNTED, {"widen": {"total": "long"}}).apply(ROW[:end])
    except FormatError:
        return
    assert end >= 32 + len("délta".encode()), "only the padding of the last part may be missing"


@pytest.mark.parametrize(
    ("kind", "value", "slot"),
    [
        ("integer", -1, b"\xff\xff\xff\xff\0\0\0\0"),
        ("boolean", True, b"\1" + bytes(7)),
        ("decimal(5,2)", Decimal("-1.5"), struct.pack("<q", -150)),
        ("float", 1.5, struct.pack("<f", 1.5) + bytes(4)),
    ],
)
def test_a_value_fills_its_slot_as_spark_fills_it(kind, value, slot):
    assert encode_value(value, type_of(kind)).slot == slot
