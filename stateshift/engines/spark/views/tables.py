"""Rows as a Parquet or an Arrow file that leaves in pieces: what a batch made of the file is
handed on at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from stateshift.engines.growing_file import Pieces
from stateshift.engines.spark.entries.columnar import keys_of, values_of
from stateshift.engines.spark.entries.columns import array, arrow_type
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.errors import PlanError
from stateshift.formats.blocks import Block
from stateshift.formats.spark.types import StructType, Value

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
        self._out = Pieces()
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        open_writer = pq.ParquetWriter if self._parquet else pa.ipc.new_file
        try:
            self._writer = open_writer(self._out, self.schema)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise PlanError(
                f"Parquet cannot hold these columns: {error}", hint="write .arrow or .jsonl"
            ) from error

    def together(self, view: StoreView, block: Block) -> tuple[pa.Array | None, pa.Array | None]:
        """Return keys and values as arrays; None where they are decoded one by one."""
        keys = block.keys.cast(pa.binary()) if view.key is None else keys_of(view, block.keys)
        if view.value is None:
            return keys, block.values.cast(pa.binary())
        return keys, values_of(view, block.values)

    def keys(self, decoded: Sequence[Value]) -> pa.Array:
        return _array(decoded, self.schema.field("key").type)

    def values(self, decoded: Sequence[Value]) -> pa.Array:
        return _array(decoded, self.schema.field("value").type)

    def batch(self, places: tuple[Place, ...], keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        columns = []
        for place, kind in zip(places, self.schema.types, strict=False):
            if isinstance(place, list):
                columns.append(pa.array(place, kind))
            else:
                columns.append(pa.repeat(pa.scalar(place, kind), len(keys)))
        return pa.record_batch([*columns, keys, values], schema=self.schema)

    def written(self, batch: pa.RecordBatch) -> bytes:
        """Write a batch, and return what is ready of the file. Small batches wait for each other: a
        file of many small parts is slow to read.
        """
        self._waiting.append(batch)
        self._rows += len(batch)
        return self._flushed(self._rows // ROWS * ROWS) if self._rows >= ROWS else b""

    def _flushed(self, count: int) -> bytes:
        """Write so many of the rows that wait."""
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


def _array(decoded: Sequence[Value], kind: pa.DataType) -> pa.Array:
    return pa.nulls(len(decoded)) if kind == pa.null() else array(decoded, kind)
