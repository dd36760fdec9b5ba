"""State as rows for other programs: Parquet, Arrow or JSON lines. Reads only.

    state    operator | store | shard | key {...} | value {...}
    changes  batch | change (put, merge, delete) | operator | store | shard | key {...} | value
             {...}, null if deleted

Keys and values have the columns of the checkpoint's own schema; in a store of lists the value is a
list of them. A Parquet or an Arrow file has one schema, so it takes stores of one shape; JSON lines
take all. A store whose columns are not known is exported as bytes, never guessed at.

Rows are made in batches and bytes leave as they come: what is held is what folding holds, and one
batch. If there is much state, others make the rows of a shard and put them aside (`save`), and here
they are taken in the order of the shards: the file is the same.

Changes are the puts, merges and deletes of deltas or changelogs: those of batch b are in the change
files of version b + 1. A RocksDB store without changelog checkpointing keeps none, and Spark tidies
old ones away: a missing file is named, for a feed with holes would be taken for one without. Under
checkpoint format 2 the commit says which of several files of a version counts.

JSON has dates as days and times as microseconds since 1970, as `inspect` shows them; decimals are
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, product
from shlex import quote
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import listed_stores, place_of
from stateshift.engines.spark.entries.columnar import keys_of, values_of
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.row_checksums import (
    checked_chunks,
    without_delete_checksum,
    without_value_checksums,
)
from stateshift.engines.spark.entries.store_view import StoreView, note_of
from stateshift.engines.spark.entries.vectors import array, arrow_type
from stateshift.engines.spark.small_files import SMALL
from stateshift.engines.spark.views.json_lines import StoreRows, key_of, lines_of, part_of, value_of
from stateshift.engines.spark.views.selection import (
    Opened,
    check_wanted,
    image_location,
    open_images,
    operator_fits,
    operator_id,
    store_fits,
)
from stateshift.engines.spill import storage_errors
from stateshift.engines.views import Opening, Readers, Wanted
from stateshift.engines.window import GrowingFile
from stateshift.errors import FormatError, MissingFile, PlanError, errors_at
from stateshift.formats.blocks import Column, RowBlock, block_of
from stateshift.formats.spark import commits, rocksdb
from stateshift.formats.spark.offset_conf import delimiter, has_row_checksums
from stateshift.formats.spark.state_files import (
    StateRecord,
    decode_changelog,
    decode_delta,
    without_row_checksum,
)
from stateshift.formats.spark.types import StructType, Value
from stateshift.storage.protocol import CHUNK, Storage
from stateshift.survey import Image, ShardFiles, Survey, sizes_of

# The number of rows that are written together, whatever batches they come in.
ROWS = 65_536

# The columns before key and value: one for all rows, or a list with one for each.
Place = str | int | list[str]

_CHANGE = [pa.field("batch", pa.int64()), pa.field("change", pa.string())]
_PLACE = [
    pa.field("operator", pa.string()),
    pa.field("store", pa.string()),
    pa.field("shard", pa.int32()),
]


class Tables:
    """A file of one schema being written. Arrow's has a footer, and can be memory-mapped."""

    def __init__(self, format: str, view: StoreView, changes: bool) -> None:
        self.view, self.changes = view, changes
        self._parquet = format == "parquet"
        key, value = self._type(view.key), self._type(view.value)
        kinds = [pa.field("key", key), pa.field("value", pa.list_(value) if view.many else value)]
        self.schema = pa.schema([*(_CHANGE if changes else ()), *_PLACE, *kinds])
        self._out = GrowingFile()
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        open_writer = pq.ParquetWriter if self._parquet else pa.ipc.new_file
        try:
            self._writer = open_writer(self._out, self.schema)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise PlanError(
                f"Parquet cannot hold these columns: {error}", hint="write .arrow or .jsonl"
            ) from error

    def columns(self, rows: StoreRows) -> tuple[Column, Column]:
        """Return keys and values as arrays, decoded together or one by one."""
        view, block = rows.view, rows.block
        keys = block.keys.cast(pa.binary()) if view.key is None else keys_of(view, block.keys)
        if view.value is None:
            values = block.values.cast(pa.binary())
        else:
            values = values_of(view, block.values)
        if keys is None:
            keys = self._array("key", [key_of(rows, key) for key in block.keys.to_pylist()])
        if values is None:
            decoded = [value_of(rows, value) for value in block.values.to_pylist()]
            values = self._array("value", decoded)
        return keys, values

    def _array(self, field: str, decoded: Sequence[Value]) -> pa.Array:
        kind = self.schema.field(field).type
        return pa.nulls(len(decoded)) if kind == pa.null() else array(decoded, kind)

    def batch(self, places: tuple[Place, ...], keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        columns = []
        for place, kind in zip(places, self.schema.types, strict=False):
            if isinstance(place, list):
                columns.append(pa.array(place, kind))
            else:
                columns.append(pa.repeat(pa.scalar(place, kind), len(keys)))
        return pa.record_batch([*columns, keys, values], schema=self.schema)

    def written(self, batch: pa.RecordBatch) -> bytes:
        """Write a batch; return the bytes that are ready. Small ones wait for each other."""
        self._waiting.append(batch)
        self._rows += len(batch)
        return self._flushed(self._rows // ROWS * ROWS) if self._rows >= ROWS else b""

    def _flushed(self, count: int) -> bytes:
        table = pa.Table.from_batches(self._waiting, self.schema).combine_chunks()
        for start in range(0, count, ROWS):
            self._writer.write_table(table.slice(start, min(ROWS, count - start)))
        self._waiting = table.slice(count).to_batches()
        self._rows -= count
        return self._out.taken()

    def finished(self) -> bytes:
        first = self._flushed(self._rows)
        self._writer.close()
        return first + self._out.taken()

    def _type(self, columns: StructType | None) -> pa.DataType:
        """Return bytes without columns. Parquet has no empty structs: an empty key is null."""
        if columns is None:
            return pa.binary()
        return pa.null() if self._parquet and not columns.types else arrow_type(columns)


LINES = 16_384


@dataclass
class Export:
    """The entries to export. `chunks` gives the file's bytes once, and counts `entries`."""

    opened: Opened
    wanted: Wanted
    format: str
    entries: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the stores that are exported as bytes, and the reasons."""
        notes = [note_of(view, image) for image, view in self._views()]
        return tuple(dict.fromkeys(filter(None, notes)))

    @property
    def stores(self) -> tuple[tuple[str, str], ...]:
        found = [(operator_id(image, view.operator), view.store) for image, view in self._views()]
        return tuple(dict.fromkeys(found))

    @property
    def watermark_ms(self) -> int | None:
        """Return the watermark that the last commit hands on; of a workflow, none."""
        image = self.opened.images[0]
        if len(self.opened.images) > 1 or image.epoch is None:
            return None
        path = layout.under(image.path, layout.commit_path(image.epoch))
        try:
            commit = commits.decode_commit(self.opened.storage.read(path, SMALL))
        except (FormatError, MissingFile):
            return None
        return commit.handed_on_ms or None

    def chunks(self, readers: Readers | None = None) -> Iterator[bytes]:
        self.entries = 0
        shared = None
        if readers is not None and self.wanted.changes is None:  # of which there are few
            paths = chain.from_iterable(shard.files for _, shard in self.opened.shards(self.wanted))
            if readers.is_worth(sum(sizes_of(self.opened.survey, paths))):
                shared = readers
        return self._lines(shared) if self.format == "jsonl" else self._tables(shared)

    def save(self, path: str) -> None:
        """Put what is wanted aside, for one who has asked for it as a part."""
        with storage_errors(), open(path, "wb") as file:
            if self.format == "jsonl":
                file.writelines(self._lines(None))
                return
            tables = self._new_tables()
            with pa.ipc.new_stream(file, tables.schema) as writer:
                for batch in self._batches(tables):
                    writer.write_batch(batch)

    def _made_by(self, readers: Readers) -> Iterator[str]:
        """Yield the files that others make, one for each shard, and count what is in them."""
        shards = self.opened.shards(self.wanted)
        for part in readers.exported(self.opened.survey, shards, self.wanted, self.format):
            self.entries += part.entries
            yield part.file

    def _lines(self, readers: Readers | None) -> Iterator[bytes]:
        if readers is not None:
            for path in self._made_by(readers):
                with open(path, "rb") as file:
                    while chunk := file.read(CHUNK):
                        yield chunk
            return
        for piece in self._parts(LINES):
            yield from lines_of(piece)

    def _tables(self, readers: Readers | None) -> Iterator[bytes]:
        tables = self._new_tables()
        if readers is None:
            yield from map(tables.written, self._batches(tables))
        else:
            for path in self._made_by(readers):
                with pa.memory_map(path) as file, pa.ipc.open_stream(file) as reader:
                    yield from map(tables.written, reader)
        yield tables.finished()

    def _new_tables(self) -> Tables:
        return Tables(self.format, self.only_view(), self.wanted.changes is not None)

    def _batches(self, tables: Tables) -> Iterator[pa.RecordBatch]:
        columns = (tables.view.key, tables.view.value)
        for piece in self._parts(ROWS):
            if (piece.view.key, piece.view.value) != columns:
                raise _several({piece.view.store, tables.view.store})
            shared = (piece.operator, piece.view.store, piece.shard)
            places = (piece.batch, list(piece.changes), *shared) if piece.changes else shared
            yield tables.batch(places, *tables.columns(piece))

    def _parts(self, size: int) -> Iterator[StoreRows]:
        """Yield the entries, so many at once, and count them."""
        changes = self.wanted.changes
        for piece in self._state() if changes is None else self._changed(*changes):
            for start in range(0, len(piece.block), size):
                part = part_of(piece, start, size)
                self.entries += len(part.block)
                yield part

    def only_view(self) -> StoreView:
        """Return the one shape that all the stores have; refuse others, and say how to choose."""
        views = [view for _, view in self._views()]
        shapes = {(view.key, view.value, view.many): view for view in views}
        if not shapes:
            raise PlanError("there is no state to export", hint="JSON lines (.jsonl) may be empty")
        if len(shapes) > 1:
            raise _several({view.store for view in views})
        return next(iter(shapes.values()))

    def _views(self) -> Iterator[tuple[Image, StoreView]]:
        for image in self.opened.images:
            for view in self.opened.views[image.path].all():
                is_of_operator = operator_fits(self.wanted, image, view.operator)
                if is_of_operator and store_fits(self.wanted, view.store):
                    yield image, view

    def _state(self) -> Iterator[StoreRows]:
        chunks = checked_chunks(self.opened.storage, self.opened.survey)
        for image, shard in self.opened.shards(self.wanted):
            for store, block in fold_shard(chunks, shard, image.settings):
                if store_fits(self.wanted, store):
                    yield self._piece(image, shard, store, block)

    def _piece(self, image: Image, shard: ShardFiles, store: str, block: RowBlock) -> StoreRows:
        view = self.opened.views[image.path].of(shard.operator, store)
        operator = operator_id(image, shard.operator)
        return StoreRows(view, operator, shard.shard, block, shard.files[-1])

    def _changed(self, first: int, last: int) -> Iterator[StoreRows]:
        """Yield the changes batch by batch, so that the feed is in the order of time."""
        shards = list(self.opened.shards(self.wanted))
        sources = {}
        for image in self.opened.images:
            sources[image.path] = Changes(self.opened.storage, self.opened.survey, image)
        for batch, (image, shard) in product(range(first, last + 1), shards):
            path = f"state/{shard.operator}/{shard.shard}"
            changed = sources[image.path].of(shard, batch)
            for store, changes in groupby(changed, lambda change: change.store):
                if not store_fits(self.wanted, store):
                    continue
                while some := list(islice(changes, ROWS)):
                    block = block_of((change.key, change.value) for change in some)
                    kinds = tuple(change.kind for change in some)
                    piece = self._piece(image, shard, store, block)
                    yield piece._replace(path=path, batch=batch, changes=kinds)


def export(location: str, wanted: Wanted, format: str, opening: Opening) -> Export:
    """Return an export, nothing written yet. Parquet and Arrow require one shape."""
    there = open_images(location, opening, wanted.batch)
    check_wanted(there, wanted)
    # An empty file would say that there is none.
    hint = f"stateshift verify {quote(there.location)}"
    for image in there.images:
        operators = [each for each in image.operators if operator_fits(wanted, image, each.id)]
        stores = chain.from_iterable(operator.stores for operator in operators)
        if image.epoch is None and any(store.files for store in stores):
            place = image_location(there.location, image)
            what = "has files of state and no batch that is finished"
            raise PlanError(f"{place} {what}: which of them count, nothing tells", hint=hint)
    for image in there.images:
        first, last = wanted.changes or (0, 0)
        has_batches = image.epoch is not None and 0 <= first <= last <= image.epoch
        if wanted.changes is not None and not has_batches:
            raise PlanError(
                f"no changes of batches {first} to {last}: the last one that was committed is "
                f"{image.epoch}",
                hint="--changes A..B takes both batches in, the earlier one first",
            )
    made = Export(there, wanted, format)
    if format != "jsonl":
        made.only_view()
    return made


def _several(stores: Iterable[str]) -> PlanError:
    names = ", ".join(sorted(set(stores)))
    fact = f"a Parquet or Arrow file has one schema, and these stores have several: {names}"
    return PlanError(fact, hint="choose with --operator and --store, or write JSON lines (.jsonl)")


Uuids = Mapping[str, tuple[tuple[str, ...], ...]]
ChangeKind = Literal["put", "merge", "delete"]


class StoreChange(NamedTuple):
    """One change. `value` is None where the key was deleted."""

    kind: ChangeKind
    store: str
    key: bytes
    value: bytes | None


class Changes:
    """The change files of one image, looked up once."""

    def __init__(self, storage: Storage, survey: Survey, image: Image) -> None:
        self._storage, self._image = storage, image
        self._chunks = checked_chunks(storage, survey)
        self._is_checked = has_row_checksums(image.settings)
        self._between = delimiter(image.settings)
        self._ids: dict[int, Uuids] = {}
        self._stores = listed_stores(survey, image)

    def of(self, shard: ShardFiles, batch: int) -> Iterator[StoreChange]:
        """Yield the changes of the batch to the shard's store, in the order of their writes."""
        path = self._path(shard, batch)
        with errors_at(path):
            families, records = self._records(path, shard, batch + 1)
            for key, value, merge in records:
                kind: ChangeKind = "merge" if merge else "put"
                store, own_key = _family(families, shard.store, key)
                yield StoreChange("delete" if value is None else kind, store, own_key, value)

    def _path(self, shard: ShardFiles, batch: int) -> str:
        store, files = self._stores.get(place_of(shard)), {}
        for (version, uuid), path in store.changes.items() if store else ():
            if version == batch + 1:
                files[uuid] = path
        own = "" if "" in files or not files else self._uuid(shard, batch)
        if own not in files:
            raise PlanError(
                f"the changes of batch {batch} in shard {shard.shard} of operator "
                f"{shard.operator} are not there: "
                "tidied away, or never written (RocksDB without changelog checkpointing)",
                hint="narrow --changes to batches whose delta or changelog is still there, or "
                "export the state itself",
            )
        return files[own]

    def _uuid(self, shard: ShardFiles, batch: int) -> str | None:
        """Return the id of the file of a version that counts, as the batch's commit says."""
        operators = {operator.id: operator for operator in self._image.operators}
        names = [store.name for store in operators[shard.operator].stores]
        try:
            if batch not in self._ids:
                path = layout.under(self._image.path, layout.commit_path(batch))
                self._ids[batch] = commits.decode_commit(self._storage.read(path, SMALL)).state_ids
            ids = self._ids[batch]
            return ids[shard.operator][shard.shard][names.index(shard.store)]
        except (KeyError, IndexError):
            return None

    def _records(
        self, path: str, shard: ShardFiles, version: int
    ) -> tuple[Mapping[int, str], Iterator[StateRecord]]:
        """Return the column families of a file's keys, and its records without checksums."""
        if path.endswith(".delta"):
            records = decode_delta(self._chunks(path))
            return {}, map(without_row_checksum, records) if self._is_checked else records
        header, records = decode_changelog(self._chunks(path))
        families = self._families(shard, version) if header.column_families else {}
        if header.column_families and not families:
            raise FormatError("a changelog has column families, and no snapshot names them")
        if self._is_checked:
            records = map(self._unchecked, records)
        return families, records

    def _unchecked(self, record: StateRecord) -> StateRecord:
        """Return a changelog's record without the checksums of `rowChecksum.enabled`."""
        key, value, merge = record
        if value is None:
            return StateRecord(without_delete_checksum(key), None)
        return StateRecord(key, without_value_checksums(key, value, self._between), merge)

    def _families(self, shard: ShardFiles, version: int) -> dict[int, str]:
        """Return the column families as the newest snapshot up to the version names them."""
        zips = {}
        store = self._stores.get(place_of(shard))
        for (number, _), path in store.snapshots.items() if store else ():
            if number <= version:
                zips[number] = path
        if not zips:
            return {}
        snapshot = rocksdb.decode_zip(self._storage.read(zips[max(zips)], SMALL))
        return {number: f"{shard.store}/{name}" for name, number in snapshot.families.items()}


def _family(families: Mapping[int, str], store: str, key: bytes) -> tuple[str, bytes]:
    """Return the name of a key's column family, and the key without its id."""
    if not families:
        return store, key
    name = families.get(int.from_bytes(key[:2], "little")) if len(key) >= 2 else None
    if name is None:
        raise FormatError(f"a key of the column family {key[:2].hex()}, which has no name")
    return name, key[2:]
