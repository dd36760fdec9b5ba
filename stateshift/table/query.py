"""The answer to a question in SQL about the tables of images, by DuckDB.

Each table that is named once is read as DuckDB asks for its rows: what is not needed is not read,
and LIMIT ends it early. A table that is named twice is held meanwhile, in memory or on a disk.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

import pyarrow as pa

from stateshift.engines.sql import complaint_of, nodes_of, open_database, parse
from stateshift.engines.views import Opening, Readers
from stateshift.errors import SpecError
from stateshift.table.tables import StateTable

if TYPE_CHECKING:
    import duckdb

ROWS = 65_536
TABLES_TOLD = 8


@dataclass(frozen=True)
class Answer:
    """The rows of an answer, which are read as they are asked for."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def is_question(text: str) -> bool:
    """Whether a text is meant as SQL, and as no file."""
    return re.match(r"\s*\(*\s*(select|with|from)\s", text, re.IGNORECASE) is not None


@contextmanager
def answer(
    sql: str, tables: Sequence[StateTable], opening: Opening, readers: Readers | None = None
) -> Iterator[Answer]:
    """The answer, to be read before the context ends.

    Raises:
        SpecError: it is no question, or one that DuckDB does not understand.
        PlanError: DuckDB is not installed.
        FormatError, StorageError: the state cannot be read.
    """
    with (
        tempfile.TemporaryDirectory(prefix="stateshift-query-") as folder,
        open_database(folder) as database,
    ):
        import duckdb

        asking = _Asking(database, opening, readers)
        try:
            named = _tables_named(database, sql, tables)
            is_repeated = max(named.values(), default=0) > 1
            for table in () if is_repeated else named:
                asking.give(table)
            if is_repeated or _scans(database, sql) > len(named):
                for table in named:
                    asking.hold(table)
            rows = database.sql(sql).to_arrow_reader(ROWS)
            names, counts = list[str](), Counter[str]()
            for name in rows.schema.names:  # of several columns of one name, the later are numbered
                counts[name] += 1
                names.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
            fields = [field.with_name(name) for field, name in zip(rows.schema, names, strict=True)]
            yield Answer(pa.schema(fields), (batch.rename_columns(names) for batch in rows))
        except (duckdb.Error, pa.ArrowException) as error:
            raise asking.failure or _misunderstood(error, tables) from error
        except OSError as error:  # Arrow tells of what a reader raises in this way
            raise asking.failure or error from error


class _Asking:
    """Tables that DuckDB reads. It tells of an error while it reads one in its own words, so
    `failure` keeps ours.
    """

    def __init__(
        self, database: duckdb.DuckDBPyConnection, opening: Opening, readers: Readers | None
    ) -> None:
        self._database, self._opening, self._readers = database, opening, readers
        self.failure: Exception | None = None

    def give(self, table: StateTable) -> None:
        """Let it be read once, under its name."""
        reader = table.batches(self._opening, self._readers)
        rows = pa.RecordBatchReader.from_batches(reader.schema, self._watched(reader))
        self._database.register(f"{table.name} rows", rows)
        shown = {}
        for column in ("key", "value"):
            is_json = pa.types.is_string(reader.schema.field(column).type)
            shown[column] = f"{column}::json" if is_json else column
        self._database.execute(
            f'create or replace temp view "{table.name}" as select operator, store, shard, '
            f'{shown["key"]} as key, {shown["value"]} as value from "{table.name} rows"'
        )

    def hold(self, table: StateTable) -> None:
        """Let it be read as often as it is named."""
        self.give(table)
        self._database.execute(
            f'create temp table "{table.name} held" as from "{table.name}"; '
            f'create or replace temp view "{table.name}" as from "{table.name} held"'
        )

    def _watched(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except Exception as error:
            self.failure = error
            raise


def _tables_named(
    database: duckdb.DuckDBPyConnection, sql: str, tables: Sequence[StateTable]
) -> dict[StateTable, int]:
    """Return the tables that a question names, and how often.

    Raises:
        SpecError: it is no single SELECT: nothing else is carried out.
    """
    question = parse(database, sql)
    if question.get("error"):
        is_unread = question["error_type"] == "parser"
        fact = (
            question["error_message"] if is_unread else "it is no SELECT, and nothing else is done"
        )
        raise SpecError.of("SQL", fact, sql, "one SELECT")
    if len(question["statements"]) != 1:
        raise SpecError.of("SQL", "several statements", sql, "one SELECT")
    names = Counter[str]()
    for node in nodes_of(question):
        if node.get("type") == "BASE_TABLE":
            names[str(node["table_name"]).lower()] += 1
    return {table: names[table.name] for table in tables if table.name in names}


def _scans(database: duckdb.DuckDBPyConnection, sql: str) -> int:
    """Return the number of times that tables are read; a very large one where SQL calls itself."""
    ((_, plan),) = database.execute(f"explain (format json) {sql}").fetchall()
    if "RECURSIVE" in plan:
        return 1 << 30
    return int(plan.count('"name": "PYTHON_ARROW_SCAN"'))


def _misunderstood(error: Exception, tables: Sequence[StateTable]) -> SpecError:
    if len(tables) > TABLES_TOLD:
        places = " ".join(dict.fromkeys(quote(table.location) for table in tables))
        hint = f"stateshift query {places}   # lists the {len(tables)} tables"
    else:
        hint = f"the tables: {', '.join(table.name for table in tables) or 'none'}"
    return SpecError.of("SQL", complaint_of(error), hint=hint)
