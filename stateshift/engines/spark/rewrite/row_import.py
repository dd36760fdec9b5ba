"""Rows made state: the inverse of `export`. The files of the stores that rows are given for; what a
template has beside them is not touched.

    rows    key {...} | value {...} [| operator | store | shard]     of Arrow, or plain JSON
    files   state/<operator>/<shard>/[<store>/]<batch + 1>.snapshot, or .zip and its tables

A row goes to the shard of its key, whatever its column `shard` says. Rows replace all entries of
their store; column families without rows keep those of the template, for they share its files. A
row that does not fit is refused by its number, and then no file is of use: the caller has them
written to a place of their own first.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from shlex import quote
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from stateshift.engines.spark.entries.columnar import hashes_of
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.row_columns import Misfit, RowColumns
from stateshift.engines.spark.entries.store_view import note_of
from stateshift.engines.spark.entries.store_views import Views
from stateshift.engines.spark.image import StoreSchema, spark_image
from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.rewrite import shards
from stateshift.engines.spark.rewrite.pieces import table_count
from stateshift.engines.spark.rewrite.shards import TableContent
from stateshift.engines.spark.rewrite.stores import provider_of
from stateshift.engines.spark.small_files import SMALL
from stateshift.engines.spark.survey.checkpoint import survey as surveyed
from stateshift.engines.views import PreparedState, RowBatch, RowNumbers, Wanted
from stateshift.errors import FormatError, PlanError, SpecError
from stateshift.formats.blocks import (
    Ints,
    RowBlock,
    join_columns,
    of_width,
    part,
    whole,
    without_first,
)
from stateshift.formats.rocksdb.manifest import FIRST_TABLE
from stateshift.formats.sorting import Scratch, SortedPile, SortedPiles
from stateshift.formats.spark.names import DEFAULT_STORE, classify
from stateshift.formats.spark.offset_conf import codec_in, has_row_checksums, is_strict
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, decode_zip
from stateshift.formats.spark.state_blocks import (
    add_row_checksums,
    add_value_checksums,
    encode_snapshot,
)
from stateshift.specification.transform import Compact
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, ShardFiles

NUMBER_BYTES = 8  # before each value on its way: the number of its row


class Store(NamedTuple):
    """A store, or column family, as rows name it; `folder` is the store on disk that it is in."""

    operator: str
    name: str

    @property
    def folder(self) -> tuple[str, str]:
        return self.operator, self.name.partition("/")[0]


@dataclass(frozen=True)
class Template:
    """The image that all else is taken from, and how its stores are read."""

    storage: Storage
    image: Image
    views: Views


def import_rows(
    template: Template, rows: Iterable[RowBatch], wanted: Wanted, into: Storage, scratch: Scratch
) -> PreparedState:
    """Write the files of state that rows make; `wanted` is the store of rows that name none.

    Raises:
        PlanError: a store of the template cannot take rows.
        SpecError: rows name no store that is there, or have other columns.
        FormatError: a row does not fit; its number is told.
    """
    schemas = spark_image(surveyed(template.storage, changes=(Compact(),)).images[0]).schemas
    making = _Making(template, wanted, schemas, SortedPiles(scratch))
    for batch in rows:
        making.add(batch)
    return making.write(into)


@dataclass
class _Making:
    """State in the making: rows dealt out to the shards of their keys."""

    template: Template
    wanted: Wanted
    schemas: Mapping[str, StoreSchema]
    piles: SortedPiles
    numbers: dict[tuple[str, str, int], int] = field(default_factory=dict)  # of piles, by shard
    stores: dict[Store, RowColumns] = field(default_factory=dict)
    entries: Counter[tuple[str, str]] = field(default_factory=Counter)
    internal: Counter[int] = field(default_factory=Counter)
    bases: dict[ShardFiles, RocksDBSnapshot] = field(default_factory=dict)
    rows: RowNumbers = field(default_factory=RowNumbers)

    def add(self, batch: RowBatch) -> None:
        """Deal out rows."""
        known = [(view.operator, view.store) for view in self.template.views.all()]
        for operator, name, places in batch.by_store(self.wanted, known):
            store = Store(operator, name)
            columns = self.stores.get(store) or self._columns_of(store, batch.source)
            self.stores[store] = columns
            self._deal(store, columns, batch, places)
        self.rows.add(batch)

    def _columns_of(self, store: Store, source: str) -> RowColumns:
        """Return the columns of a store, refused if rows cannot become its entries."""
        views = self.template.views
        names = [view.store for view in views.all() if view.operator == store.operator]
        inner = store.name.partition("/")[0]
        is_there = store.name in names or (store.name == f"{inner}/default" and inner in names)
        if not is_there or not self._shards(store.folder):
            known = ", ".join(f"{view.operator} {view.store}" for view in views.all())
            fact = f"the template has no store {store.name} of operator {store.operator}"
            raise SpecError.of(source, fact, hint=f"its operators and stores: {known}")
        view = views.of(*store)
        where = f"operator {store.operator}, store {store.name}"
        if not view.known:
            raise PlanError(note_of(view, self.template.image) or where)
        own = self.schemas.get("/".join(store)) or self.schemas.get(f"{store.operator}/{inner}")
        is_placed = view.placed is not None and (
            not view.placed or is_strict(self.template.image.settings)
        )
        shards_there = self._shards(store.folder)
        is_whole = sorted(shards_there) == list(range(len(shards_there)))
        if not (is_placed or len(shards_there) == 1) or not is_whole or own is None:
            fact = f"{where}: the shard of a key cannot be computed, as not all of a key decides it"
            raise PlanError(fact, hint="the checkpoint was made by another operator, or before 3.3")
        return RowColumns.of(view, own["key"], own["value"])

    def _deal(
        self, store: Store, columns: RowColumns, batch: RowBatch, rows: Sequence[int]
    ) -> None:
        block = self._encoded(columns, batch.take(rows), batch, rows)
        block = _numbered(block, self.rows.count + np.asarray(rows))
        own = self._shards(store.folder)
        hashes = hashes_of(columns.view, block.keys)
        places = hashes % len(own)
        for shard in np.unique(places).tolist():
            some = block.take(np.flatnonzero(places == shard))
            self._put(own[shard], store.name, some)
        self.entries[store] += len(block)

    def _put(self, shard: ShardFiles, name: str, block: RowBlock) -> None:
        base = self._base(shard)
        key = shard.operator, shard.store, shard.shard
        number = self.numbers.setdefault(key, len(self.numbers))
        if name.rpartition("/")[2] in shards.internal_families(base):
            self.internal[number] += len(block)
        families = base.families
        if "/" in name and not families:
            fact = "no snapshot of that shard names its column families"
            raise PlanError(f"{_folder(shard)}: {fact}", hint="let the job run a few batches more")
        self.piles.add(number, shards.with_family(name, block, families))

    def _encoded(
        self, columns: RowColumns, given: RowBatch, batch: RowBatch, places: Sequence[int]
    ) -> RowBlock:
        """Return rows as entries; of rows that do not fit, the first is told."""
        try:
            return columns.entries(given.columns["key"], given.columns["value"])
        except Misfit as error:
            if given.count > 1:
                # The first half that does not fit has the first row that does not.
                middle = given.count // 2
                for half in (slice(0, middle), slice(middle, given.count)):
                    own = range(given.count)[half]
                    self._encoded(columns, given.take(own), batch, places[half])
            row = batch.first + places[0]
            raise FormatError(f"{batch.unit} {row}: {error}", batch.source) from error

    # ---- what is written

    def write(self, into: Storage) -> PreparedState:
        """Write the files of all shards of the stores that have rows."""
        if not self.stores:
            place = quote(self.template.storage.location)
            hint = f"to leave all entries behind: stateshift prune {place} --to NEW --where true"
            raise SpecError.of("ROWS", "there are no rows", hint=hint)
        files: list[str] = []
        for folder in dict.fromkeys(store.folder for store in self.stores):
            for shard in self._shards(folder).values():
                files += self._write_shard(shard, into)
        warnings = []
        groups = {(store.folder, _variable(store.name)) for store in self.stores}
        for view in self.template.views.all():
            store = Store(view.operator, view.store)
            is_family = "/" in store.name and (store.folder, _variable(store.name)) in groups
            if is_family and store not in self.stores:
                warnings.append(
                    f"operator {store.operator}: store {store.name} has no rows, and keeps the "
                    f"template's; {_variable(store.name)} needs both to agree (expiry, timers)"
                )
        take = dict.fromkeys(files, into.location)
        change: dict[str, object] = {
            "kind": "import",
            "batch": self.template.image.epoch or 0,
            "take": take,
        }
        return PreparedState((change,), dict(self.entries), tuple(warnings))

    def _write_shard(self, shard: ShardFiles, into: Storage) -> Iterator[str]:
        replaced, settings = {shard.store}, self.template.image.settings
        for store in self.stores:
            if store.folder == (shard.operator, shard.store):
                replaced |= {store.name, f"{store.name}/default"}
        for name, block in fold_shard(self.template.storage.chunks, shard, settings):
            if name not in replaced:
                self._put(shard, name, _numbered(block, np.zeros(len(block), np.int64)))
        self.piles.put_aside()  # else memory holds what was kept of one shard after the other
        number = self.numbers.get((shard.operator, shard.store, shard.shard), -1)
        pile, version = self.piles.pile(number), (self.template.image.epoch or 0) + 1
        if provider_of(self.template.image) == ROCKSDB:
            yield from self._write_tables(shard, version, pile, into)
            return
        path = f"{_folder(shard)}/{version}.snapshot"

        def snapshot() -> Iterator[bytes]:
            blocks = self._once(pile.blocks())
            checked = map(add_row_checksums, blocks) if has_row_checksums(settings) else blocks
            return encode_snapshot(checked, codec_in(settings))

        into.write(path, snapshot)
        yield path

    def _write_tables(
        self, shard: ShardFiles, version: int, pile: SortedPile, into: Storage
    ) -> Iterator[str]:
        base, folder = self._base(shard), _folder(shard)
        count = table_count(sum(chunk.size for chunk in chain.from_iterable(pile.runs)))
        ends = [None, *pile.bounds(count), None]
        names, tables = [], []
        is_checked = has_row_checksums(self.template.image.settings)

        def blocks(after: bytes | None, upto: bytes | None) -> Iterator[RowBlock]:
            own = self._once(pile.blocks(after, upto))
            return map(add_value_checksums, own) if is_checked else own

        for number in range(count):
            place = f"{into.location} {folder} {number}"  # of this import, and of no other
            name = f"{FIRST_TABLE + number:06}-{uuid.uuid5(uuid.NAMESPACE_URL, place)}.sst"
            table = TableContent(partial(blocks, ends[number], ends[number + 1]))
            into.write(f"{folder}/SSTs/{name}", table)
            yield f"{folder}/SSTs/{name}"
            names.append(name)
            tables.append(table.known())
        number = self.numbers.get((shard.operator, shard.store, shard.shard), -1)
        written = base.format if base.text else 1
        content = shards.version_zip(base, names, tables, self.internal[number], written)
        # Under checkpoint format 2, the commit has an id for this version of the shard.
        places = [place for place in map(classify, shard.files) if place.version == version]
        ids = [f"_{place.uuid}" for place in places if place.uuid]
        path = f"{folder}/{version}{ids[0] if ids else ''}.zip"
        into.write(path, lambda: iter((content,)))
        yield path

    def _once(self, blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
        """Yield entries without the numbers of their rows; a key of two rows is refused."""
        before: RowBlock | None = None
        for block in blocks:
            both = block if before is None else whole([before, block])
            same = pc.equal(both.keys.slice(1), both.keys.slice(0, len(both) - 1))
            again = np.flatnonzero(same.to_numpy(zero_copy_only=False))
            if len(again):
                rows = []
                for value in both.values.slice(int(again[0]), 2).to_pylist():
                    rows.append(self.rows.named(int.from_bytes(value[:NUMBER_BYTES], "little")))
                raise FormatError(f"{' and '.join(sorted(rows))} have the same key")
            yield RowBlock(block.keys, without_first(block.values, NUMBER_BYTES))
            before = part(block, len(block) - 1, len(block))

    # ---- the template

    def _shards(self, folder: tuple[str, str]) -> dict[int, ShardFiles]:
        own = [
            shard for shard in self.template.image.shards if (shard.operator, shard.store) == folder
        ]
        return {shard.shard: shard for shard in own}

    def _base(self, shard: ShardFiles) -> RocksDBSnapshot:
        """Return the column families of a shard."""
        if shard not in self.bases:
            zips = [path for path in shard.files if path.endswith(".zip")]
            snapshots = [decode_zip(self.template.storage.read(path, SMALL)) for path in zips]
            self.bases[shard] = shards.unite_families(each for each in snapshots if each.text)
        return self.bases[shard]


def _numbered(block: RowBlock, rows: Ints) -> RowBlock:
    """Return entries with the numbers of their rows before their values."""
    numbers = of_width(rows.astype("<u8").view(np.uint8).reshape(-1, NUMBER_BYTES))
    return RowBlock(block.keys, join_columns(numbers, block.values))


def _variable(store: str) -> str:
    """Return the state variable, or the timers, that a column family is of."""
    family = store.rpartition("/")[2]
    kind, _, name = family.removeprefix("$").partition("_")
    if not family.startswith("$"):
        return family
    return kind if kind.endswith("Timers") else name


def _folder(shard: ShardFiles) -> str:
    folder = f"state/{shard.operator}/{shard.shard}"
    return folder if shard.store == DEFAULT_STORE else f"{folder}/{shard.store}"
