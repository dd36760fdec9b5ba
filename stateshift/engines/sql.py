"""DuckDB, as every question to state opens it: in UTC on every machine, and without fetching
anything.

    with open_database() as database: ...
    parse(database, sql)       the parts of a SELECT, as DuckDB's own JSON
    complaint_of(error)        its complaint in one line
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
