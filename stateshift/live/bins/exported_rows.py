"""Rows of `stateshift export` on their way into a group: columns by an operator's names, and the
times of timers beside the keys that they are of.

    key                   value       timers
    {user: "a", day: 3}   {n: 5}      [1772000000000]

A column inside a struct is named by its path, `key.user`. The times of Spark's timers and of
Flink's are milliseconds since 1970.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stateshift.errors import Complaint, SpecError

if TYPE_CHECKING:
    import pyarrow

TIMERS = "timers"  # the column of their times
TIMES = ("expiryTimestampMs", "timestamp")  # in a timer's key, of Spark and of Flink


def columns_of(table: pyarrow.Table, name: str) -> pyarrow.Table:
    """Return the columns inside a struct; a column that is none as itself."""
    import pyarrow

    if name not in table.column_names:
        fact = f"there is no column {name}"
        hint = "give a file that `stateshift export --to FILE.parquet` has written"
        raise SpecError((Complaint(name, fact),), hint=hint)
    column = table.column(name).combine_chunks()
    if not pyarrow.types.is_struct(column.type):
        return pyarrow.table({name: column})
    names = [field.name for field in column.type]
    return pyarrow.table(dict(zip(names, column.flatten(), strict=True)))


def map_columns(table: pyarrow.Table, names: Mapping[str, str]) -> pyarrow.Table:
    """Return rows with other names of columns, in their keys and in their values."""
    missing = dict(names)
    for part in ("key", "value"):
        columns = columns_of(table, part)
        renamed = {}
        for source, target in names.items():
            column = _at(columns, source.split("."))
            if column is not None:
                renamed[target] = column
                missing.pop(source, None)
        if renamed:
            others = {name: columns[name] for name in columns.column_names if name not in names}
            table = _with(table, part, {**others, **renamed})
    if missing:
        there = ", ".join(columns_of(table, "key").column_names)
        complaints = tuple(
            Complaint("--map", f"the rows have no column {name}", name) for name in missing
        )
        raise SpecError(complaints, hint=f"their keys have {there}")
    return table


def _at(columns: pyarrow.Table, path: Sequence[str]) -> pyarrow.Array | None:
    """Return the column at a path; None where there is none."""
    import pyarrow

    if path[0] not in columns.column_names:
        return None
    column = columns.column(path[0]).combine_chunks()
    for name in path[1:]:
        if not pyarrow.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = column.field(name)
    return column


def _with(
    table: pyarrow.Table, name: str, columns: Mapping[str, pyarrow.ChunkedArray]
) -> pyarrow.Table:
    """Return a table with a struct of columns in the place of one."""
    import pyarrow

    whole = pyarrow.table(dict(columns)).combine_chunks()
    arrays = [column.combine_chunks() for column in whole.columns]
    struct = pyarrow.StructArray.from_arrays(arrays, names=whole.column_names)
    return table.set_column(table.column_names.index(name), name, struct)


def with_timers(
    table: pyarrow.Table, timers: pyarrow.Table, key: Sequence[str], names: Mapping[str, str]
) -> pyarrow.Table:
    """Return rows with the times of their timers; keys with timers alone get a row more."""
    import pyarrow

    columns = columns_of(timers, "key")
    if "key" in columns.column_names and pyarrow.types.is_struct(columns.column("key").type):
        inner = columns_of(columns, "key")  # Spark's: the key, and the time beside it
        columns = columns.drop_columns(["key"])
        for name in inner.column_names:
            columns = columns.append_column(name, inner.column(name))
    columns = columns.rename_columns(
        [names.get(f"key.{name}", names.get(name, name)) for name in columns.column_names]
    )
    times = [name for name in TIMES if name in columns.column_names]
    missing = [name for name in key if name not in columns.column_names]
    if not times or missing:
        fact = f"the keys of its rows have no {', '.join(missing) or 'time'}"
        raise SpecError(
            (Complaint("--timers", fact),),
            hint="give what `stateshift export --store` has written of timers by their key: in "
            "Spark 'default/$eventTimers_keyToTimestamp', in Flink '_timer_state/event_NAME'",
        )
    found: dict[tuple[object, ...], list[int]] = defaultdict(list)
    parts = [columns.column(name).to_pylist() for name in key]
    for *of_key, at in zip(*parts, columns.column(times[0]).to_pylist(), strict=True):
        found[tuple(of_key)].append(at)
    keys = columns_of(table, "key").select(list(key))
    mine = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
    alone = [of_key for of_key in found if of_key not in set(mine)]
    more = {
        name: pyarrow.array([of_key[place] for of_key in alone], keys.schema.field(name).type)
        for place, name in enumerate(key)
    }
    table = _with(table.select(["key", "value"]), "key", dict(zip(key, keys.columns, strict=True)))
    rows = pyarrow.table({"key": [None] * len(alone), "value": [None] * len(alone)})
    if alone:
        rows = _with(rows, "key", {name: pyarrow.chunked_array([more[name]]) for name in key})
        table = pyarrow.concat_tables([table, rows.cast(table.schema)])
    ats = [sorted(found.get(of_key, ())) for of_key in (*mine, *alone)]
    return table.append_column(TIMERS, pyarrow.array(ats, pyarrow.list_(pyarrow.int64())))
