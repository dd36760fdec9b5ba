"""State as rows for other programs: Parquet, Arrow or JSON lines. Reads only.

    state    operator | store | shard | key {...} | value {...}
    changes  batch | change (put, merge, delete) | operator | store | shard | key {...} | value
             {...}, null if deleted

Keys and values have the columns of the checkpoint's own schema; in a store of lists the value is a
list of them. A Parquet or an Arrow file has one schema, so it takes stores of one shape; JSON lines
take all. A store whose columns are not known is exported as bytes, never guessed at.

Rows are made in batches and bytes leave as they come: what is held is what folding holds, and one
batch.

JSON has dates as days and times as microseconds since 1970, as `inspect` shows them; decimals are
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from shlex import quote
from typing import Any

from stateshift.engines.spark.entries.changes import Change, Changes
from stateshift.engines.spark.entries.checksummed import checked_chunks
from stateshift.engines.spark.entries.fold import folded
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.views.blocks import Piece, key_of, part_of, value_of
from stateshift.engines.spark.views.json_lines import lines_of
from stateshift.engines.spark.views.selection import (
    Opened,
    check_wanted,
    opened,
    operator_fits,
    operator_id,
    store_fits,
)
from stateshift.engines.spark.views.tables import Tables
from stateshift.engines.spark.views.unknown_columns import note_of
from stateshift.engines.views import Opening, Wanted
from stateshift.errors import PlanError
from stateshift.formats.blocks import block_of
from stateshift.survey import Image, ShardFiles

ROWS = 65_536
LINES = 16_384


@dataclass
class Export:
    """What is to be exported. `chunks` gives the file's bytes once; `entries` counts them
    meanwhile.
    """

    found: Opened
    wanted: Wanted
    format: str
    entries: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Which stores are exported as bytes, and why."""
        pairs = []
        for image in self.found.images:
            for view in self._views_of(image):
                pairs.append((view, image))
        notes = [note_of(view, image) for view, image in pairs]
        return tuple(dict.fromkeys(note for note in notes if note is not None))

    def chunks(self) -> Iterator[bytes]:
        self.entries = 0
        return self._lines() if self.format == "jsonl" else self._tables()

    def _lines(self) -> Iterator[bytes]:
        for piece in self._pieces():
            for start in range(0, len(piece.block), LINES):
                part = part_of(piece, start, LINES)
                self.entries += len(part.block)
                yield from lines_of(part)

    def _tables(self) -> Iterator[bytes]:
        tables = Tables(self.format, self._only_view(), self.wanted.changes is not None)
        for piece in self._pieces():
            if (piece.view.key, piece.view.value) != (tables.view.key, tables.view.value):
                raise _several({piece.view.store, tables.view.store})
            for start in range(0, len(piece.block), ROWS):
                part = part_of(piece, start, ROWS)
                self.entries += len(part.block)
                keys, values = tables.together(part.view, part.block)
                if keys is None:
                    keys = tables.keys([key_of(part, key) for key in part.block.keys.to_pylist()])
                if values is None:
                    values = tables.values(
                        [value_of(part, value) for value in part.block.values.to_pylist()]
                    )
                yield tables.written(tables.batch(_places(part), keys, values))
        yield tables.finished()

    def _only_view(self) -> StoreView:
        """The one shape that all the stores have, or a refusal that says how to choose."""
        views = {(v.key, v.value, v.many): v for v in self._views()}
        if not views:
            raise PlanError("there is no state to export", hint="JSON lines (.jsonl) may be empty")
        if len(views) > 1:
            raise _several({v.store for v in self._views()})
        return next(iter(views.values()))

    def _views(self) -> list[StoreView]:
        views = []
        for image in self.found.images:
            views.extend(self._views_of(image))
        return views

    def _views_of(self, image: Image) -> list[StoreView]:
        views = []
        for view in self.found.views[image.path].all():
            if operator_fits(self.wanted, image, view.operator) and store_fits(
                self.wanted, view.store
            ):
                views.append(view)
        return views

    def _pieces(self) -> Iterator[Piece]:
        if self.wanted.changes is not None:
            yield from self._changed(*self.wanted.changes)
            return
        chunks = checked_chunks(self.found.storage, self.found.survey)
        for image, shard in self.found.shards(self.wanted):
            views, operator = self.found.views[image.path], operator_id(image, shard.operator)
            for store, block in folded(chunks, shard, image.settings):
                if store_fits(self.wanted, store):
                    yield Piece(
                        views.of(shard.operator, store),
                        operator,
                        shard.shard,
                        block,
                        shard.files[-1],
                    )

    def _changed(self, first: int, last: int) -> Iterator[Piece]:
        """Batch by batch, so that the feed is in the order of time."""
        shards = list(self.found.shards(self.wanted))
        sources = {
            image.path: Changes(self.found.storage, self.found.survey, image)
            for image in self.found.images
        }
        for batch in range(first, last + 1):
            for image, shard in shards:
                yield from self._changes_of(sources[image.path], image, shard, batch)

    def _changes_of(
        self, source: Changes, image: Image, shard: ShardFiles, batch: int
    ) -> Iterator[Piece]:
        views, operator = self.found.views[image.path], operator_id(image, shard.operator)
        path = f"state/{shard.operator}/{shard.shard}"
        for store, changes in groupby(source.of(shard, batch), lambda change: change.store):
            for some in _batched(changes, ROWS) if store_fits(self.wanted, store) else ():
                block = block_of((one.key, one.value) for one in some)
                kinds = tuple(one.change for one in some)
                yield Piece(
                    views.of(shard.operator, store),
                    operator,
                    shard.shard,
                    block,
                    path,
                    batch,
                    kinds,
                )


def export(location: str, wanted: Wanted, format: str, opening: Opening) -> Export:
    found = opened(location, opening, wanted.batch)
    check_wanted(found, wanted)
    _check_committed(found, wanted)
    if wanted.changes is not None:
        _check_changes(found, *wanted.changes)
    made = Export(found, wanted, format)
    if format != "jsonl":
        made._only_view()
    return made


def _check_committed(found: Opened, wanted: Wanted) -> None:
    """Refuse state that no finished batch has left: an empty file would say that there is none."""
    for image in found.images:
        operators = [one for one in image.operators if operator_fits(wanted, image, one.id)]
        if image.epoch is None and any(store.files for one in operators for store in one.stores):
            name = f"{found.location}/{image.path}" if image.path else found.location
            raise PlanError(
                (
                    f"{name} has files of state and no batch that is finished: which of them "
                    "count, nothing tells"
                ),
                hint=f"stateshift verify {quote(found.location)}",
            )


def _check_changes(found: Opened, first: int, last: int) -> None:
    for image in found.images:
        if first > last or first < 0 or image.epoch is None or last > image.epoch:
            raise PlanError(
                (
                    f"no changes of batches {first} to {last}: the last one that was committed "
                    f"is {image.epoch}"
                ),
                hint="--changes A..B takes both batches in, the earlier one first",
            )


def _several(stores: Iterable[str]) -> PlanError:
    names = ", ".join(sorted(set(stores)))
    return PlanError(
        f"a Parquet or Arrow file has one schema, and these stores have several: {names}",
        hint="choose with --operator and --store, or write JSON lines (.jsonl)",
    )


def _batched(changes: Iterator[Change], size: int) -> Iterator[list[Change]]:
    while batch := list(islice(changes, size)):
        yield batch


def _places(piece: Piece) -> tuple[Any, ...]:
    """What stands before key and value; the same for all of them, or one for each."""
    shared = (piece.operator, piece.view.store, piece.shard)
    return (piece.batch, list(piece.changes), *shared) if piece.changes else shared
