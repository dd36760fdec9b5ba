"""DuckDB, as every question to state opens it: in UTC on every machine, and without fetching
anything.

    with open_database() as database: ...
    parse(database, sql)       the parts of a SELECT, as DuckDB's own JSON
    complaint_of(error)        its complaint in one line
    check_expression(database, where)   a condition on one entry
    Condition(where, store).true_of(rows, columns)      the rows of which it is true
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from stateshift.errors import PlanError
from stateshift.plain import JsonObject

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_ROW: Final = "stateshift_row"

CLOCKS = frozenset(
    (
        *("now", "today", "age", "get_current_time", "get_current_timestamp"),
        *("current_date", "current_time", "current_timestamp", "transaction_timestamp"),
        *("localtime", "localtimestamp", "current_localtime", "current_localtimestamp"),
    )
)


def open_database(folder: str | None = None) -> duckdb.DuckDBPyConnection:
    """Open a database of its own; what does not fit into memory goes to the folder.

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
    database = duckdb.connect(config=settings)
    database.execute("set TimeZone = 'UTC'")
    return database


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


@dataclass
class Condition:
    """A condition that is asked of the rows of a store, block by block, in one database."""

    where: str
    store: str

    @cached_property
    def columns(self) -> set[str]:
        """The columns that it asks. PlanError: it is no condition on one entry."""
        return check_expression(self._database, self.where)

    @cached_property
    def _database(self) -> duckdb.DuckDBPyConnection:
        return open_database()

    def check(self, made_up: pa.Table, columns: Sequence[str]) -> None:
        """Check that it can be asked, also where no AND ends it early, of rows that are made up."""
        check_expression(self._database, self.where)
        self._ask(made_up, columns, "{row} from {entries} where ({where}\n)")
        self._ask(made_up, columns, "({where}\n) from {entries}")

    def true_of(self, rows: pa.Table, columns: Sequence[str]) -> list[int]:
        """Return the numbers of the rows of which it is true; SQL says what their columns are."""
        found = self._ask(rows, columns, "{row} from {entries} where ({where}\n)")
        return [number for (number,) in found]

    def _ask(self, rows: pa.Table, columns: Sequence[str], asked: str) -> list[tuple[int]]:
        import duckdb
        import pyarrow as pa

        numbered = rows.append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
        entries = f"(select {', '.join((_ROW, *columns))} from numbered) as entries"
        self._database.register("numbered", numbered)
        try:
            sql = asked.format(row=_ROW, entries=entries, where=self.where)
            return self._database.sql(f"select {sql}").fetchall()
        except duckdb.Error as error:
            hint = "compare with values of the column's type; `inspect --entries` shows some"
            raise PlanError(f"store {self.store!r}: {complaint_of(error)}", hint=hint) from error
