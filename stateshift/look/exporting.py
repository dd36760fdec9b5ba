"""State as rows for other programs: Parquet, Arrow or JSON lines, by the file's suffix. Reads only, but for the file.

    state     operator | store | shard | key {...} | value {...}
    changes   batch | change (put, merge, delete) | operator | store | shard | key {...} | value {...}, null if deleted

Keys and values have the columns of the checkpoint's own schema; in a store of lists the value is a list of them. A
Parquet or an Arrow file has one schema, so it takes stores of one shape; JSON lines take all. A store whose columns are
not known is exported as bytes, never guessed at.

Rows are made in batches of ROWS and bytes leave as they come: what is held is one shard, as it is folded, and one
batch. The file is written whole or not at all.

JSON has dates as days and times as microseconds since 1970, as `inspect` shows them; decimals are text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from stateshift.engines.spark.changes import Changes
from stateshift.engines.spark.entries import entries
from stateshift.engines.spark.views import StoreView
from stateshift.errors import FormatError, PlanError
from stateshift.look.selecting import Opened, Wanted, check_wanted, opened, operator_id
from stateshift.spec.location import relation
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, ShardFiles

if TYPE_CHECKING:
    import pyarrow

ROWS = 65_536
LINES = 1_000
STDOUT = "-"

_SUFFIXES = {".parquet": "parquet", ".arrow": "arrow", ".jsonl": "jsonl", ".json": "jsonl"}


class _Row(NamedTuple):
    """An entry, or a change, on its way out. `path` is a file to blame where it does not decode."""

    view: StoreView
    operator: str
    shard: int
    key: bytes
    value: bytes | None
    path: str
    batch: int = 0
    change: str = "put"


@dataclass
class Export:
    """What is to be exported. `chunks` gives the file's bytes once; `entries` counts them meanwhile."""

    found: Opened
    wanted: Wanted
    format: str
    entries: int = 0

    def chunks(self) -> Iterator[bytes]:
        self.entries = 0
        return self._lines() if self.format == "jsonl" else self._tables()

    def _lines(self) -> Iterator[bytes]:
        changes = self.wanted.changes is not None
        for rows in _batched(self._rows(), LINES):
            text = "".join(_line(row, changes) for row in rows)
            self.entries += len(rows)
            yield text.encode("utf-8")

    def _tables(self) -> Iterator[bytes]:
        from stateshift.look.tables import Tables

        tables = Tables(self.format, self._only_view(), self.wanted.changes is not None)
        for rows in _batched(self._rows(), ROWS):
            self.entries += len(rows)
            yield tables.written(self._record_batch(tables, rows))
        yield tables.finished()

    def _record_batch(self, tables: Any, rows: list[_Row]) -> pyarrow.RecordBatch:
        view = tables.view
        odd = next((row for row in rows if (row.view.key, row.view.value) != (view.key, view.value)), None)
        if odd is not None:
            raise _several({odd.view.store, view.store})
        shared = ([row.operator for row in rows], [row.view.store for row in rows], [row.shard for row in rows])
        first = ([row.batch for row in rows], [row.change for row in rows]) if tables.changes else ()
        keys = tables.together([row.key for row in rows], view.key)
        if keys is None:
            keys = tables.keys([_key(row) for row in rows])
        values = None if view.many else tables.together([row.value for row in rows], view.value)
        if values is None:
            values = tables.values([_value(row) for row in rows])
        return tables.batch((*first, *shared), keys, values)

    def _only_view(self) -> StoreView:
        """The one shape that all the stores have, or a refusal that says how to choose."""
        views = {(v.key, v.value, v.many): v for v in self._views()}
        if not views:
            raise PlanError("there is no state to export", hint="JSON lines (.jsonl) may be empty")
        if len(views) > 1:
            raise _several({v.store for v in self._views()})
        return next(iter(views.values()))

    def _views(self) -> list[StoreView]:
        return [
            view
            for image in self.found.images
            for view in self.found.views[image.path].all()
            if self.wanted.operator_fits(image, view.operator) and self.wanted.store_fits(view.store)
        ]

    def _rows(self) -> Iterator[_Row]:
        if self.wanted.changes is not None:
            yield from self._changed(*self.wanted.changes)
            return
        for image, shard in self.found.shards(self.wanted):
            views, operator = self.found.views[image.path], operator_id(image, shard.operator)
            for entry in entries(self.found.storage.chunks, shard, image.settings):
                if self.wanted.store_fits(entry.store):
                    view = views.of(shard.operator, entry.store)
                    yield _Row(view, operator, shard.shard, entry.key, entry.value, shard.files[-1])

    def _changed(self, first: int, last: int) -> Iterator[_Row]:
        """Batch by batch, so that the feed is in the order of time."""
        shards = list(self.found.shards(self.wanted))
        sources = {image.path: Changes(self.found.storage, self.found.survey, image) for image in self.found.images}
        for batch in range(first, last + 1):
            for image, shard in shards:
                yield from self._changes_of(sources[image.path], image, shard, batch)

    def _changes_of(self, source: Changes, image: Image, shard: ShardFiles, batch: int) -> Iterator[_Row]:
        views, operator = self.found.views[image.path], operator_id(image, shard.operator)
        path = f"state/{shard.operator}/{shard.shard}"
        for one in source.of(shard, batch):
            if self.wanted.store_fits(one.store):
                view = views.of(shard.operator, one.store)
                yield _Row(view, operator, one.shard, one.key, one.value, path, one.batch, one.change)


def export(
    location: str, to: str, wanted: Wanted | None = None, opening: Callable[[str], Storage] = open_patiently
) -> Export:
    """What would be exported to `to`; everything that can be refused without reading the state is refused here."""
    wanted = wanted or Wanted()
    format = _format(to)
    found = opened(location, opening, wanted.batch)
    check_wanted(found, wanted)
    if wanted.changes is not None:
        _check_changes(found, *wanted.changes)
    if to != STDOUT:
        target = locations.normal(to, os.getcwd())
        if relation(target, locations.normal(location, os.getcwd())) in ("same", "inside"):
            raise PlanError(f"{to} lies inside of what is exported", hint="name a file outside of the checkpoint")
    made = Export(found, wanted, format)
    if format != "jsonl":
        made._only_view()
    return made


def save(made: Export, to: str, opening: Callable[[str], Storage] = open_patiently) -> int:
    """Write the export to a file, whole or not at all; its bytes."""
    target = locations.normal(to, os.getcwd())
    storage = opening(locations.parent(target))
    size = storage.write(locations.name(target), made.chunks)
    storage.sync()
    return size


def _format(to: str) -> str:
    if to == STDOUT:
        return "jsonl"
    suffix = os.path.splitext(to)[1].lower()
    if suffix not in _SUFFIXES:
        raise PlanError(
            f"{to}: the suffix decides the format, and {suffix or 'none'} is none that is known",
            hint="name it .parquet, .arrow or .jsonl; - writes JSON lines to stdout",
        )
    return _SUFFIXES[suffix]


def _check_changes(found: Opened, first: int, last: int) -> None:
    for image in found.images:
        if first > last or first < 0 or image.epoch is None or last > image.epoch:
            raise PlanError(
                f"no changes of batches {first} to {last}: the last one that was committed is {image.epoch}",
                hint="--changes A..B takes both batches in, the earlier one first",
            )


def _several(stores: Iterable[str]) -> PlanError:
    names = ", ".join(sorted(set(stores)))
    return PlanError(
        f"a Parquet or Arrow file has one schema, and these stores have several: {names}",
        hint="choose with --operator and --store, or write JSON lines (.jsonl)",
    )


def _batched(rows: Iterator[_Row], size: int) -> Iterator[list[_Row]]:
    while batch := list(islice(rows, size)):
        yield batch


def _key(row: _Row) -> Any:
    try:
        return row.view.decode_key(row.key) if row.view.key is not None else row.key
    except FormatError as error:
        raise _at(error, row) from error


def _value(row: _Row) -> Any:
    if row.value is None:
        return None
    try:
        return row.view.decode_value(row.value) if row.view.value is not None else row.value
    except FormatError as error:
        raise _at(error, row) from error


def _at(error: FormatError, row: _Row) -> FormatError:
    fact = f"a row of the store {row.view.store} does not fit its schema: {error.fact}"
    return FormatError(fact, row.path, hint="stateshift verify LOCATION --deep names the file it stands in")


def _line(row: _Row, changes: bool) -> str:
    view = row.view
    key, value = _key(row), _value(row)
    plain = {
        "operator": row.operator,
        "store": view.store,
        "shard": row.shard,
        "key": view.named_key(key) if view.key is not None else {"hex": key.hex()},
        "value": None if value is None else view.named_value(value) if view.value is not None else {"hex": value.hex()},
    }
    if changes:
        plain = {"batch": row.batch, "change": row.change, **plain}
    text = json.dumps(plain, ensure_ascii=False)
    # What is not UTF-8 in a string is kept as a surrogate, which JSON can only say as an escape.
    return (text if text.isascii() or _encodable(text) else json.dumps(plain)) + "\n"


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
