"""Rows become the state that they were exported from, of every kind of store; what does not fit is
refused by its row, and nothing is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stateshift import api, look
from stateshift.engines.spark.entries.row_columns import Misfit, RowColumns, _in_own_type
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.vectors import arrow_type
from stateshift.formats.spark.types import StructType, decode_struct
from stateshift.table.rows import batches_in
from stateshift.table.tables import tables_of
from tests.cli.support import Said, said
from tests.formats.golden import CASES, ROOT, expected

NEWEST = ROOT / "spark-4.3.0"
WINDOWS = NEWEST / "window-hdfs" / "checkpoint"
NEVER_NULL = ROOT / "spark-3.5.9" / "window-hdfs" / "checkpoint"  # later Sparks say it of no column
STATEFUL = [case for case in CASES if expected(case)["stores"]]
# Of which a store has no shard that is right for each key: Spark did not promise it before 3.3.
BEFORE_3_3 = "spark-3.2.1"
# Rows that are equal column by column, and not as bytes: what Spark leaves in the place of an
# interval that is null; rows of an older schema, which become those of the newest.
BY_COLUMNS = ("calendar", "tws-avro-evolved")


def imported(folder: Path, template: Path, *rows: object) -> Said:
    to = (
        "--template",
        str(template),
        "--to",
        str(folder / "new"),
        "--workdir",
        str(folder / "run"),
    )
    return said("import", *map(str, rows), *to, "--waive", "paths-stay", "--yes")


def exported(folder: Path, checkpoint: Path, suffix: str) -> list[Path]:
    """The state in a file, or in one for each store."""
    if suffix == ".jsonl":
        assert said("export", str(checkpoint), "--to", str(folder / "rows.jsonl")).code == 0
        return [folder / "rows.jsonl"]
    files = []
    for table in tables_of([str(checkpoint)], look.open_patiently):
        files.append(folder / f"{table.name}{suffix}")
        only = ("--operator", table.operator, "--store", table.store)
        assert said("export", str(checkpoint), "--to", str(files[-1]), *only).code == 0
    return files


@pytest.mark.sample(24)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("case", STATEFUL, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_exported_rows_become_the_state_they_were(case: Path, suffix: str, tmp_path: Path) -> None:
    template = case / "checkpoint"
    done = imported(tmp_path, template, *exported(tmp_path, template, suffix))
    if case.parent.name == BEFORE_3_3:
        assert done.code == 4 and "cannot be computed" in done.err
        return
    assert done.code == 0, done.err
    there = str(tmp_path / "new")
    if case.name in BY_COLUMNS:
        assert exported_lines(tmp_path, there) == exported_lines(tmp_path, str(template))
    else:
        assert api.diff(str(template), there).equal
    assert look.restartable(there, look.open_patiently, thorough=True).restartable


def exported_lines(folder: Path, checkpoint: str) -> list[str]:
    assert said("export", checkpoint, "--to", str(folder / "lines.jsonl"), "--overwrite").code == 0
    return sorted((folder / "lines.jsonl").read_text().splitlines())


LINES = {
    "a doubled key": ("row 2 of", lambda rows: [rows[1], *rows[1:]]),
    "a wrong type": (
        "line 3: value.count is 'x', which is not of type long",
        ("value", "count", "x"),
    ),
    "a number too large": (
        "line 3: value.count is 9223372036854775808",
        ("value", "count", 1 << 63),
    ),
    "a decimal too long": ("line 3: value.sum is '1e99'", ("value", "sum", "1e99")),
    "a null": ("line 3: key.window is null", ("key", "window", None)),
    "another column": ("line 3: value has the columns", ("value", "more", 1)),
}


@pytest.mark.parametrize("fault", LINES)
def test_a_row_that_does_not_fit_is_refused_by_its_number(fault: str, tmp_path: Path) -> None:
    (file,) = exported(tmp_path, NEVER_NULL, ".jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    told, change = LINES[fault]
    if callable(change):
        rows = change(rows)
    else:
        part, column, value = change
        rows[2][part][column] = value
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = imported(tmp_path, NEVER_NULL, file)
    assert done.code == 3 and told in done.err, done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


@pytest.mark.parametrize(
    ("lines", "code", "told"),
    [
        ("", 2, "there are no rows"),
        ('{"key": 1}\n', 2, "rows have other columns"),
        ('{"key": 1, "value": 2, "batch": 3}\n', 2, "rows have other columns"),
        ('{"key": 1, "value": 2}\n[]\n', 3, "line 2"),
        ("{\n", 3, "line 1"),
        ('{"operator": "7", "store": "default", "key": {}, "value": {}}\n', 2, "no store default"),
        ('{"key": {}, "value": {}}\n', 3, "line 1: value has the columns none"),
    ],
)
def test_a_file_of_other_rows_is_refused(lines: str, code: int, told: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(lines)
    done = imported(tmp_path, WINDOWS, file)
    assert (done.code, told in done.err) == (code, True), done.err
    assert list(tmp_path.iterdir()) == [file]


def test_a_damaged_file_of_rows_is_refused(tmp_path: Path) -> None:
    (file,) = exported(tmp_path, WINDOWS, ".parquet")
    file.write_bytes(file.read_bytes()[:-9])
    assert imported(tmp_path, WINDOWS, file).code == 3


def test_an_answer_about_the_template_becomes_its_state(tmp_path: Path) -> None:
    columns = "count := value.count + 5, sum := value.sum, max := value.max"
    sql = f"select key, struct_pack({columns}) as value from state_0 where value.count > 0"
    done = imported(tmp_path, WINDOWS, sql)
    assert done.code == 0, done.err
    asked = (
        "select count(*) n, min(b.value.count - a.value.count) least from a_state_0 a "
        "join b_state_0 b using (key)"
    )
    (row,) = api.query(asked, str(WINDOWS), str(tmp_path / "new")).to_pylist()
    assert row["n"] == api.query("from state_0", str(WINDOWS)).num_rows and row["least"] == 5
    (identity,) = {(WINDOWS / "metadata").read_text()}
    assert identity != (tmp_path / "new" / "metadata").read_text()


def test_an_answer_of_another_type_is_refused_by_its_row(tmp_path: Path) -> None:
    columns = "count := case when key.word = 'beta' then value.count * 1.5 else 1 end"
    sql = f"select key, struct_pack({columns}, sum := value.sum, max := value.max) as value "
    done = imported(tmp_path, WINDOWS, f"{sql} from state_0")
    assert done.code == 3 and "row 4: value.count is Decimal" in done.err, done.err
    assert not (tmp_path / "new").exists()


def test_families_without_rows_keep_those_of_the_template(tmp_path: Path) -> None:
    template = NEWEST / "tws-ttl" / "checkpoint"
    rows = tmp_path / "rows.jsonl"
    assert said("export", str(template), "--store", "count", "--to", str(rows)).code == 0
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:1]))
    done = imported(tmp_path, template, rows)
    assert done.code == 0, done.err
    sql = "select (select count(*) from a_{0}) was, (select count(*) from b_{0}) is_now"
    for table in tables_of([str(template)], look.open_patiently):
        asked = sql.format(table.name)
        (row,) = api.query(asked, str(template), str(tmp_path / "new")).to_pylist()
        is_given = table.store == "default/count"
        assert row["is_now"] == (1 if is_given else row["was"]) and row["was"] != 1, table.store


FLOAT, LONG, DECIMAL = "float", "long", "decimal(4,2)"
DAY_TIME = "interval day to second"
MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
LIST = {"type": "array", "elementType": "short", "containsNull": True}


def written(kind: object, value: object) -> object:
    """A value as a store of such a column has it afterwards."""
    field = {"name": "a", "type": kind, "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    view = StoreView("0", "default", decode_struct(schema), decode_struct(schema))
    block = RowColumns.of(view, schema, schema).entries([{"a": value}], [{"a": value}])
    assert block.keys.equals(block.values)
    (decoded,) = view.decode_value(block.values[0].as_py())
    return decoded


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (FLOAT, 1, 1.0),
        (FLOAT, "-Infinity", -math.inf),
        (LONG, Decimal(7), 7),
        (DECIMAL, Decimal("1.5"), Decimal("1.50")),
        (DECIMAL, "-99.99", Decimal("-99.99")),
        (DECIMAL, Decimal("-1.5000"), Decimal("-1.50")),
        (DECIMAL, Decimal("40"), Decimal("40.00")),
        (
            "timestamp",
            datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            1767225600000000,
        ),
        ("timestamp_ntz", "2026-01-01T00:00:00", 1767225600000000),
        ("date", date(1970, 1, 3), 2),
        ("interval day to second", timedelta(seconds=2), 2_000_000),
        ("binary", b"\x01", b"\x01"),
        ("binary", {"hex": "01"}, b"\x01"),
        (MAP, [["x", 1], ["y", None]], (("x", 1), ("y", None))),
        (LIST, [1, None, 3], (1, None, 3)),
        ("string", "\udcff", "\udcff"),  # a byte that is not UTF-8, as JSON lines have it
    ],
)
def test_a_value_is_what_its_row_says(kind: object, value: object, expected: object) -> None:
    assert written(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (FLOAT, 1e300),
        (FLOAT, "1.5"),
        (LONG, True),
        (LONG, "7"),
        (LONG, 1.5),
        (LONG, Decimal("1.5")),
        ("byte", 128),
        (DECIMAL, "100.00"),
        (DECIMAL, "1.005"),
        ("timestamp", "yesterday"),
        ("date", "2026-01-01T23:00:00-05:00"),  # in UTC, it would be another day
        ("date", datetime(2026, 1, 1, 23, tzinfo=timezone(timedelta(hours=-5)))),
        ("date", datetime(2026, 1, 1, 10)),
        ("timestamp_ntz", "2026-01-01T00:00:00+01:00"),
        ("binary", "01"),
        ("binary", {"hex": "0"}),
        ("string", 7),
        ("string", "\ud800"),
        ("string", b"x"),
        (MAP, [["x"]]),
        (MAP, [[None, 1]]),
        (MAP, {"x": 1}),
        (LIST, 1),
        (LIST, ["1"]),
        ({"type": "struct", "fields": []}, {"b": 1}),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused(kind: object, value: object) -> None:
    with pytest.raises(Misfit):
        written(kind, value)


def test_a_time_with_nanoseconds_is_refused() -> None:
    for kind, unit in (("timestamp", pa.timestamp("ns")), (DAY_TIME, pa.duration("ns"))):
        columns, keys = of_columns(kind), pa.array([{"v": 1}])
        for count, is_refused in ((1_000, False), (1_001, True)):
            values = pa.array([{"v": count}]).cast(pa.struct([("v", unit)]))
            with pytest.raises(Misfit) if is_refused else nullcontext():
                columns.entries(keys, values)
            with pytest.raises(Misfit) if is_refused else nullcontext():
                columns.entries(keys.to_pylist(), values)


def test_a_value_too_large_for_spark_is_refused() -> None:
    schema = '{"type":"struct","fields":[{"name":"a","type":"string","nullable":true}]}'
    kind = decode_struct(schema)
    columns = RowColumns.of(StoreView("0", "default", kind, kind), schema, schema)
    with pytest.raises(Misfit, match="its value is of 88 bytes"):
        columns.entries([{"a": "k"}], [{"a": "v" * 65}], bytes_max=64)


def of_columns(kind: object, many: bool = False) -> RowColumns:
    """A store whose rows have one column of this type."""
    key, value = (
        json.dumps({"type": "struct", "fields": [{"name": "v", "type": each, "nullable": True}]})
        for each in ("integer", kind)
    )
    columns = decode_struct(key), decode_struct(value)
    return RowColumns.of(StoreView("0", "default", *columns, many=many), key, value)


STRICT = {"type": "array", "elementType": "integer", "containsNull": False}
PAIRS = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("decimal(38,2)", 12345678901234567.89),
        ("double", (1 << 53) + 1),
        ("float", (1 << 24) + 1),
        (STRICT, [1, None]),
        (PAIRS, [["a", None]]),
        (PAIRS, [["a", 1], ["a", 2]]),
    ],
)
def test_a_value_that_would_be_another_one_is_refused(kind: object, value: object) -> None:
    with pytest.raises(Misfit):
        of_columns(kind).entries([{"v": 1}], [{"v": value}])


def test_a_list_without_rows_is_refused() -> None:
    with pytest.raises(Misfit, match="empty list"):
        of_columns("integer", many=True).entries([{"v": 1}], [[]])


def test_the_parts_of_an_interval_go_by_name() -> None:
    parts = {"days": 2, "microseconds": 3, "months": 1}
    columns = of_columns("interval")
    (row,) = columns.entries([{"v": 1}], [{"v": parts}]).values.to_pylist()
    assert columns.view.decode_value(row) == ((1, 2, 3),)


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "run" / "rows" / "counts.parquet"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"of the user")
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    assert imported(tmp_path, WINDOWS, bad).code == 2
    assert own.read_bytes() == b"of the user"


def test_a_variable_without_its_index_is_warned_of(tmp_path: Path) -> None:
    template, rows = NEWEST / "tws-ttl" / "checkpoint", tmp_path / "rows.jsonl"
    assert said("export", str(template), "--store", "count", "--to", str(rows)).code == 0
    assert "default/$ttl_count has no rows" in imported(tmp_path, template, rows).err


def test_a_line_may_have_a_mark_and_half_a_character(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"value": "x"}\n\xef\xbb\xbf{"value": "\xed\xa0\x80"}\n')
    (batch,) = batches_in(str(file), look.open_patiently)
    assert batch.columns == {"value": ["x", "\ud800"]}


LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
WHOLES = [0, -1, 127, 128, -129, 1 << 15, 1 << 24, (1 << 24) + 1, (1 << 31) - 1, -(1 << 31) - 1]
WHOLES += [1 << 53, (1 << 53) + 1, -(1 << 53) - 1, LONG_MIN, LONG_MAX, (1 << 64) - 1]
DECIMALS = ["0", "-0.00", "1.5", "1.50", "99.99", "100", "-99.995", "7.000", "127", "128.0"]
DECIMALS += [str(LONG_MAX), str(LONG_MIN), str(1 << 63), "9" * 20, "12345678901234.56"]
FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 0.1, 1.5, 1e300, 5e-324, 3.4028234663852886e38]
TIMES = [0, 1, -1, 999, 1000, -1_000_001, 86_400_000_000, 1_767_225_600_000_000, 253_402_300_800]
TIMES += [-62_135_596_801, 253_402_300_799_999_999, 1_792_890_000_000_000, LONG_MIN, LONG_MAX]
TEXTS = ["", "x", "\u00e9\U0001f600", "a text of more than twelve bytes", "7", "NaN"]
UNITS = "s", "ms", "us", "ns"
INTEGERS = pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()
GIVEN: list[tuple[pa.DataType, list[Any]]] = [
    *((kind, WHOLES) for kind in INTEGERS),
    *((pa.timestamp(unit), TIMES) for unit in UNITS),
    *((pa.timestamp(unit, zone), TIMES) for unit in UNITS for zone in ("UTC", "Europe/Berlin")),
    *((pa.duration(unit), TIMES) for unit in UNITS),
    *((kind, DECIMALS) for kind in (pa.decimal128(38, 2), pa.decimal128(20, 0))),
    *((kind, DECIMALS) for kind in (pa.decimal128(4, 1), pa.decimal128(18, 3))),
    *((kind, DECIMALS) for kind in (pa.decimal256(60, 5), pa.decimal128(10, -2))),
    *((kind, FLOATS) for kind in (pa.float16(), pa.float32(), pa.float64())),
    *((kind, TEXTS) for kind in (pa.string(), pa.large_string())),
    *((kind, TEXTS) for kind in (pa.binary(), pa.large_binary(), pa.binary(1))),
    *((getattr(pa, name)(), TEXTS) for name in ("string_view", "binary_view") if name in dir(pa)),
    (pa.date32(), [0, -719_163, -719_162, 2_932_896, 2_932_897, 1 << 30]),
    (pa.date64(), [0, 86_400_000, 1]),
    (pa.bool_(), [True, False]),
    (pa.null(), []),
]
KINDS = ["byte", "short", "integer", "long", FLOAT, "double", DECIMAL, "decimal(18,6)", "boolean"]
KINDS += ["decimal(38,2)", "decimal(18,0)", "date", "timestamp", "timestamp_ntz", "string"]
KINDS += [DAY_TIME, "interval year to month", "binary", "void"]
# Types that must go the fast way: a test in which all goes one by one would show nothing.
BY_CAST = {
    ("long", pa.int32()): 9,
    ("byte", pa.int64()): 3,
    ("timestamp", pa.int64()): 15,
    ("timestamp", pa.timestamp("ns")): 5,
    ("timestamp", pa.timestamp("ms", "Europe/Berlin")): 9,
    ("timestamp_ntz", pa.timestamp("ms")): 9,
    ("double", pa.int64()): 11,
    ("double", pa.float32()): 10,
    (DECIMAL, pa.decimal128(38, 2)): 6,
    ("decimal(18,6)", pa.int64()): 10,
    ("long", pa.decimal128(38, 2)): 8,
    ("string", pa.large_string()): 6,
    ("binary", pa.binary(1)): 2,
}


def column_of(kind: pa.DataType, values: Sequence[Any]) -> list[pa.Array]:
    """Columns of one value each, of those that the type can hold."""
    columns = []
    for value in values:
        given = value
        if pa.types.is_decimal(kind):
            given = Decimal(value)
        elif "binary" in str(kind):
            given = value.encode()
        elif pa.types.is_temporal(kind):
            width = pa.int32() if kind == pa.date32() else pa.int64()
            columns.append(pa.array([value], width).view(kind))
            continue
        with suppress(pa.ArrowInvalid, OverflowError):
            columns.append(pa.array([given], kind))
    return [*columns, pa.nulls(1, kind)]


def columns_of(kind: pa.DataType, values: Sequence[Any]) -> Iterator[pa.Array]:
    """Columns of one value each: those that the type can hold, and null."""
    for value in values:
        if pa.types.is_temporal(kind):
            width = pa.int32() if kind == pa.date32() else pa.int64()
            yield pa.array([value], width).view(kind)
            continue
        given: Any = Decimal(value) if pa.types.is_decimal(kind) else value
        with suppress(pa.ArrowInvalid, OverflowError):
            yield pa.array([given.encode() if "binary" in str(kind) else given], kind)
    yield pa.nulls(1, kind)


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_another_type_becomes_what_its_values_become_one_by_one(kind: str) -> None:
    columns = of_columns(kind)
    key_kind, value_kind = columns.view.key, columns.view.value
    assert isinstance(key_kind, StructType) and isinstance(value_kind, StructType)

    def entries(column: pa.Array) -> list[bytes] | None:
        keys = pa.array([{"v": 1}] * len(column), arrow_type(key_kind))
        values = pa.StructArray.from_arrays([column], names=["v"])
        try:
            one_by_one = columns._one_by_one(keys, values, (key_kind, value_kind)).values
        except Misfit:
            with pytest.raises(Misfit):
                columns.entries(keys, values)
            return None
        together: list[bytes] = columns.entries(keys, values).values.to_pylist()
        assert together == one_by_one.to_pylist(), (kind, column)
        return together

    for given, values in GIVEN:
        if given == arrow_type(value_kind.types[0]):
            continue
        pieces = list(columns_of(given, values))
        made = [entries(piece) for piece in pieces]
        fitting = [piece for piece, entry in zip(pieces, made, strict=True) if entry]
        several = pa.concat_arrays([pieces[0], *fitting, *fitting[::-1]])[1:]
        wanted = chain.from_iterable(filter(None, [*made, *made[::-1]]))
        assert entries(several) == list(wanted), (kind, given)
        with suppress(pa.ArrowNotImplementedError):
            assert entries(several.dictionary_encode()) == entries(several), (kind, given)
        cast = [_in_own_type(piece, value_kind.types[0]) for piece in pieces[:-1]]
        count = sum(column is not None for column in cast)
        assert count == BY_CAST.get((kind, given), count), (kind, given)


def test_a_struct_goes_by_its_names_and_keeps_its_nulls() -> None:
    inner = json.loads(
        '{"type":"struct","fields":[{"name":"a","type":"long","nullable":false},'
        '{"name":"b","type":"string","nullable":true}]}'
    )
    columns = of_columns(inner)
    given = pa.struct([pa.field("b", pa.large_string()), pa.field("a", pa.int16(), nullable=False)])
    rows = [{"v": {"a": 1, "b": "x"}}, {"v": None}, {"v": {"a": -2, "b": None}}]
    keys = pa.array([{"v": 1}] * 3, pa.struct([("v", pa.int64())]))
    block = columns.entries(keys, pa.array(rows, pa.struct([("v", given)])))
    assert block.values.to_pylist() == columns.entries(keys.to_pylist(), rows).values.to_pylist()
    with pytest.raises(Misfit, match=r"value\.v\.a is null"):
        with_null = pa.struct([("v", pa.struct([("b", pa.string()), ("a", pa.int16())]))])
        columns.entries(keys[:1], pa.array([{"v": {"a": None, "b": "x"}}], with_null))


def test_text_that_is_not_utf_8_is_refused_in_each_type() -> None:
    for text in (pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        raw = pa.array([b"\xff"], pa.large_binary()).view(pa.large_string())
        column = raw if text == pa.large_string() else pa.DictionaryArray.from_arrays([0], raw)
        values = pa.StructArray.from_arrays([column], names=["v"])
        with pytest.raises(Misfit):
            of_columns("string").entries(pa.array([{"v": 1}]), values)
