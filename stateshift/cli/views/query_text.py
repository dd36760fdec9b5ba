"""The tables of images, and the rows of an answer, for a person. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from stateshift.cli.views.text import Block, Line, TextTable
from stateshift.cli.views.units import many
from stateshift.documents.query import AnswerFacts
from stateshift.storage.locations import redact
from stateshift.table.tables import StateTable

WIDTH_MAX = 60


def tables(tables: Sequence[StateTable]) -> Iterator[Block]:
    """Show which tables there are."""
    if not tables:
        yield Line("there is no state, and no table")
        return
    several = len({table.location for table in tables}) > 1
    rows = []
    for table in tables:
        where = (redact(table.location),) if several else ()
        rows.append((table.name, table.operator, table.store, *where))
    yield TextTable(("table", "operator", "store", *(("image",) if several else ())), tuple(rows))


def answer(facts: AnswerFacts) -> Iterator[Block]:
    """Show the rows of an answer, or where they are."""
    if facts.file is not None:
        yield Line(f"written: {redact(facts.file)}")
        return
    numbers = ("int", "uint", "double", "float", "decimal")
    heads = []
    for column in facts.columns:
        heads.append(f"{'>' if column.type.startswith(numbers) else ''}{column.name}")
    rows = [tuple(_cell(value) for value in row.values()) for row in facts.rows]
    yield TextTable(tuple(heads), tuple(rows))
    if facts.more:
        yield Line(f"{many(len(facts.rows), 'row', 'rows')}, and more (--limit)", "dim")


def _cell(value: object) -> str:
    text = (
        value
        if isinstance(value, str)
        else ""
        if value is None
        else json.dumps(value, ensure_ascii=False)
    )
    return text if len(text) <= WIDTH_MAX else f"{text[: WIDTH_MAX - 1]}…"
