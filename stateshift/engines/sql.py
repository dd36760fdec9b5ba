"""DuckDB, as every question to state opens it: in UTC on every machine, and without fetching
anything.

    with open_database() as database: ...
    parse(database, sql)       the parts of a SELECT, as DuckDB's own JSON
    complaint_of(error)        its complaint in one line
    check_expression(database, where)   a condition on one entry
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stateshift.errors import PlanError
from stateshift.plain import JsonObject

if TYPE_CHECKING:
    import duckdb


CLOCKS = frozenset(
    (
        *("now", "today", "age", "get_current_time", "get_current_timestamp"),
        *("current_date", "current_time", "current_timestamp", "transaction_timestamp"),
        *("localtime", "localtimestamp", "current_localtime", "current_localtimestamp"),
    )
)


@contextmanager
def open_database(folder: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database of its own; what does not fit into memory goes to the folder.

    Raises:
        PlanError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        hint = "pip install 'stateshift[sql]'"
        raise PlanError("SQL needs DuckDB, which is not installed", hint=hint) from error
    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False
    }
    if folder is not None:
        settings["temp_directory"] = folder
    with duckdb.connect(config=settings) as database:
        database.execute("set TimeZone = 'UTC'")
        yield database


def parse(database: duckdb.DuckDBPyConnection, sql: str) -> JsonObject:
    """Return the SELECT's parts; `error` is true of what is none, and `error_message` says why."""
    ((text,),) = database.execute("select json_serialize_sql(?)", [sql]).fetchall()
    found: JsonObject = json.loads(text)
    return found


def nodes_of(part: object) -> Iterator[JsonObject]:
    """Yield every part inside of a part."""
    if isinstance(part, list):
        for inner in part:
            yield from nodes_of(inner)
    elif isinstance(part, dict):
        yield part
        yield from nodes_of(list(part.values()))


def complaint_of(error: Exception) -> str:
    """Return DuckDB's complaint in one line, without its drawing."""
    return str(error).strip().partition("\n\nLINE")[0].replace("\n", " ")


def check_expression(database: duckdb.DuckDBPyConnection, where: str) -> set[str]:
    """Return the columns, `key` and `value`, of an expression. Refuse what is none over one entry,
    or does not always say the same of it.

    Raises:
        PlanError: it is none, or may say something else later.
    """
    asked, told = parse(database, f"select {where}"), f"the condition {where!r}"
    if asked.get("error"):
        is_unread = asked["error_type"] == "parser"
        fact = asked["error_message"] if is_unread else "it is not one expression"
        raise PlanError(f"{told}: {fact}")
    node = asked["statements"][0]["node"]
    is_plain = node["from_table"]["type"] == "EMPTY" and not node["where_clause"]
    if len(asked["statements"]) > 1 or len(node["select_list"]) != 1 or not is_plain:
        raise PlanError(f"{told} is not one expression")
    volatile = "select function_name from duckdb_functions() where stability = 'VOLATILE'"
    changing = {name for (name,) in database.sql(volatile).fetchall()} | CLOCKS
    columns: set[str] = set()
    for part in nodes_of(node["select_list"]):
        names = part.get("column_names") or ()
        asked_columns = {name.lower() for name in names[:1]}
        columns |= asked_columns
        function = str(part.get("function_name", "")).lower()
        if part.get("class") in ("SUBQUERY", "LAMBDA"):
            raise PlanError(f"{told} has a SELECT, or a function of its own, in it")
        for name in {function, *asked_columns} & changing:
            hint = "write the time or the value itself"
            raise PlanError(f"{told} asks {name}, which changes", hint=hint)
        for column in asked_columns - {"key", "value"}:
            raise PlanError(f"{told} asks {column}: an entry has `key` and `value`")
    return columns
