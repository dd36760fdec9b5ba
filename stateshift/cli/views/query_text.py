"""The tables of images, the rows of an answer, and profiles of images, for a person. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from stateshift.cli.views.page import escape, tag, whole_page
from stateshift.cli.views.page import table as html_table
from stateshift.cli.views.text import Block, Gap, Line, Row, TextTable
from stateshift.cli.views.units import bar, many, number, size
from stateshift.documents.query import AnswerFacts, ProfileDocument
from stateshift.engines.views import ImageProfile, StoreProfile
from stateshift.storage.locations import redact
from stateshift.table.profile import AFTER, AGES
from stateshift.table.tables import StateTable
from stateshift.terms import moment

WIDTH_MAX = 60
KEY_MAX = 400  # of a large key, by which somebody looks for it
SHOWN, BAR = 2, 40  # of the largest entries; characters
AGES_SHOWN = (AFTER, *map(str, AGES))


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


def _cell(value: object, most: int = WIDTH_MAX) -> str:
    text = "" if value is None else value
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def profile(facts: ProfileDocument) -> Iterator[Block]:
    """Show a profile: its stores, their largest entries, and how old entries are."""
    yield _stores(facts)
    stores = facts.image.stores
    largest: list[Row] = []
    for store in stores:
        for what, entries in (("key", store.largest_keys), ("value", store.largest_values)):
            for entry in entries[:SHOWN]:
                key = _cell(entry.key, KEY_MAX)
                largest.append((store.table, what, size(entry.bytes), str(entry.shard), key))
    if largest:
        yield Gap()
        yield TextTable(("store", "largest", ">bytes", ">shard", "key"), tuple(largest))
    yield from _ages(facts.image)
    estimated = [store for store in stores if store.is_estimate]
    if estimated:
        read, there = len(estimated[0].shards), estimated[0].shards_there
        yield Line(f"{read} of {there} shards were read: ± is two standard errors", "dim")


def _stores(facts: ProfileDocument) -> TextTable:
    """Return the stores of an image, and those of another beside them."""
    heads = ("store", ">entries", ">bytes", ">shards", ">skew", ">files", ">stored")
    rows = [_of_store(store) for store in facts.image.stores]
    if facts.beside is None:
        return TextTable(heads, tuple(rows))
    others = {store.table: _of_store(store) for store in facts.beside.stores}
    beside = [(*row, *others.pop(row[0], ("-",) * len(heads))[1:3]) for row in rows]
    for row in others.values():
        beside.append((row[0], *("-",) * (len(heads) - 1), *row[1:3]))
    return TextTable((*heads, ">entries there", ">bytes there"), tuple(beside))


def _ages(image: ImageProfile) -> Iterator[Block]:
    rows: list[Row] = []
    for store in image.stores:
        for times in store.times:
            counts = [number(times.ages.get(age, 0)) for age in AGES_SHOWN]
            span = moment(times.oldest_ms / 1000), moment(times.newest_ms / 1000)
            rows.append((store.table, times.column, *span, *counts))
    if rows:
        yield Gap()
        reference = "the newest time of the column"
        if image.watermark_ms is not None:
            reference = f"the watermark {moment(image.watermark_ms / 1000)}"
        yield Line(f"entries by age, in days before {reference}")
        titles = (">after", *(f">{age}+" for age in AGES_SHOWN[1:]))
        yield TextTable(("store", "time", "oldest", "newest", *titles), tuple(rows))


def _of_store(store: StoreProfile) -> tuple[str, ...]:
    margin = f" ± {number(store.margin)}" if store.is_estimate else ""
    counts = f"{number(store.entries)}{margin}", size(store.bytes), str(store.shards_there)
    files = ("-", "-")  # of Flink: the states of an operator share its files
    if store.files:
        files = (number(store.files), size(store.stored_bytes))
    return store.table, *counts, f"{store.skew:.2f}", *files


def profile_page(facts: ProfileDocument) -> str:
    """Return a profile as a page, with the entries of each shard as bars."""
    parts = [tag("h1", escape(redact(facts.image.location)))]
    for block in profile(facts):
        if isinstance(block, TextTable):
            parts.append(html_table(block.heads, block.rows))
        elif isinstance(block, Line):
            parts.append(tag("p", escape(block.text)))
    for store in facts.image.stores:
        most = max((shard.entries for shard in store.shards), default=0)
        rows = []
        for shard in store.shards:
            drawn = bar(0, shard.entries, most, BAR) if shard.entries else ""
            rows.append((str(shard.shard), number(shard.entries), size(shard.bytes), drawn))
        parts.append(tag("h2", escape(store.table)))
        parts.append(html_table(("shard", ">entries", ">bytes", "entries"), rows, "the JSON"))
    return whole_page(f"profile of {redact(facts.image.location)}", *parts)
