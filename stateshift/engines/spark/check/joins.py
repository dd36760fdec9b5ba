"""A stream-stream join's stores compared with each other, one shard at a time.

    formats 1 to 3  <side>-keyToNumValues       key -> n
                    <side>-keyWithIndexToValue  (key, index) -> row
                    every index 0 ... n-1, and no other
    format 4        <side>-keyWithTsToValues    (key, time) -> rows
                    <side>-tsWithKey            (time, key) -> as many
                    the same keys and times in both

Spark reads the indexes 0 to n-1 one by one (SymmetricHashJoinStateManager.getAll): a missing one
fails the query, one beyond n is never read. It finds them by the bytes of the key's row, and so do
we: of a key with an index or a time only the row of the other columns is kept. Held in memory are
BYTES_MAX of keys, the others wait on piles (see `spill`).

The keys of rows hold more than the join's own key: an index, or a time, which is cut out. A row
without its last column has the slots of the others, and what lies behind them moves eight
bytes forward: so does the offset in each slot that has one. The results are the bytes of the row as
Spark writes it for the other columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.columnar import values_of
from stateshift.engines.spark.entries.sides import common_name
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spill import PILES, Dealt, pile_of
from stateshift.formats.blocks import Binary, Flags, Ints, RowBlock, binaries, cut, join_columns
from stateshift.formats.spans import Spans, hash64, spans, words
from stateshift.formats.spark.types import StructType, is_in_slot, null_bytes
from stateshift.formats.spark.unsafe_row import decode_row
from stateshift.survey import Finding, Level, ShardFiles

COUNTS, INDEXED, LISTS, TIMES = (
    "keyToNumValues",
    "keyWithIndexToValue",
    "keyWithTsToValues",
    "tsWithKey",
)
KINDS = (COUNTS, INDEXED, LISTS, TIMES)

BYTES_MAX = 64 * 1024 * 1024

# The number of keys of a shard that are named one by one.
KEYS_MAX = 3

_SCHEMA = pa.schema([("key", pa.large_binary()), ("number", pa.int64()), ("kind", pa.int8())])


@dataclass
class _Faults:
    """Keys with something wrong: the first of them, and how many there are."""

    facts: list[str] = field(default_factory=list)
    count: int = 0

    def first_of(self, wrong: Flags) -> list[int]:
        """Count the keys that are wrong; return those that are still to be named."""
        codes: list[int] = np.flatnonzero(wrong).tolist()
        self.count += len(codes)
        return codes[: max(0, KEYS_MAX - len(self.facts))]

    def findings(self, level: Level, path: str) -> Iterator[Finding]:
        for fact in self.facts:
            yield Finding(level, fact, path=path or None)
        more = self.count - len(self.facts)
        if more > 0:
            yield Finding(level, f"and {more} more keys like it", path=path or None)


@dataclass
class _Side:
    """One side of the join. `columns` are those of its keys, without index or time."""

    path: str = ""
    columns: StructType = field(default_factory=lambda: StructType((), ()))
    held: Dealt = field(default_factory=lambda: Dealt(PILES, _SCHEMA, BYTES_MAX))
    gaps: _Faults = field(default_factory=_Faults)
    strays: _Faults = field(default_factory=_Faults)

    def add(self, kind: str, keys: Binary, numbers: Ints) -> None:
        kinds = pa.repeat(pa.scalar(KINDS.index(kind), pa.int8()), len(keys))
        batch = pa.record_batch([keys, pa.array(numbers), kinds], schema=_SCHEMA)
        self.held.add(batch, pile_of(hash64(keys), 0))


@dataclass
class Join:
    """The join's stores in one shard; `incomplete` where rows did not decode, as said already."""

    operator: str
    shard: int
    incomplete: bool = False
    _sides: dict[str, _Side] = field(default_factory=dict)

    def add(self, view: StoreView, shard: ShardFiles, block: RowBlock) -> None:
        name, _, kind = common_name(view.store).partition("-")
        if kind not in KINDS or view.key is None:
            return
        side = self._sides.setdefault(name, _Side())
        if kind in (INDEXED, LISTS):
            side.path = shard.files[-1]
        side.columns = (
            view.key if kind == COUNTS else StructType(view.key.names[:-1], view.key.types[:-1])
        )
        split = _split(kind, view, block)
        if split is None:
            self.incomplete = True
        else:
            side.add(kind, *split)

    def findings(self) -> Iterator[Finding]:
        for name, side in sorted(self._sides.items()):
            if not self.incomplete:
                place = f"operator {self.operator}, shard {self.shard}, {name} side"
                for table in side.held.each():
                    _check(side, place, table)
            yield from side.gaps.findings("refuse", side.path)
            yield from side.strays.findings("warn", side.path)
            side.held.close()


def _split(kind: str, view: StoreView, block: RowBlock) -> tuple[Binary, Ints] | None:
    """Return the keys' rows, with a count or an index; None where their encoding is not known."""
    match kind:
        case "keyToNumValues":
            split = row_and_last(view, block.keys, last=False)
            return split and (split[0], _counts(view, block.values))
        case "keyWithIndexToValue":
            return row_and_last(view, block.keys, last=True)
    keys = row_and_time(view, block.keys)
    return None if keys is None else (keys, np.zeros(len(keys), np.int64))


def _counts(view: StoreView, values: Binary) -> Ints:
    decoded = values_of(view, values)
    if decoded is not None and pa.types.is_int64(decoded.type.field(0).type):
        return decoded.flatten()[0].fill_null(0).to_numpy(zero_copy_only=False)
    counts = []
    for value in values.to_pylist():
        row = view.decode_value(value)
        count = row[0] if row else 0
        counts.append(count if isinstance(count, int) else 0)
    return np.array(counts, np.int64)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a pile and what each store has of them, by the key's number in the pile.

    names            the bytes of each key
    has              for each of KINDS, whether that store has the key
    counts           how many rows COUNTS says that the key has, 0 where it says nothing
    indexed, indexes the entries of INDEXED: whose they are, and their index
    """

    names: pa.Array
    has: Flags
    counts: Ints
    indexed: Ints
    indexes: Ints


def _keys(table: pa.Table) -> _Keys:
    encoded = table.column("key").combine_chunks().dictionary_encode()
    codes, names = encoded.indices.to_numpy(), encoded.dictionary
    kinds, numbers = table.column("kind").to_numpy(), table.column("number").to_numpy()
    has = np.zeros((len(KINDS), len(names)), bool)
    has[kinds, codes] = True
    counted, is_indexed = kinds == KINDS.index(COUNTS), kinds == KINDS.index(INDEXED)
    counts = np.zeros(len(names), np.int64)
    counts[codes[counted]] = numbers[counted]
    return _Keys(names, has, counts, codes[is_indexed], numbers[is_indexed])


def _check(side: _Side, place: str, table: pa.Table) -> None:
    """Compare the stores of the keys in the table, which holds everything that is known of each."""
    keys = _keys(table)
    inside = (keys.indexes >= 0) & (keys.indexes < keys.counts[keys.indexed])
    rows = np.bincount(keys.indexed[inside], minlength=len(keys.names))
    is_counted = keys.has[KINDS.index(COUNTS)]
    for code in side.gaps.first_of(is_counted & (rows < keys.counts)):
        indexes = set(keys.indexes[keys.indexed == code].tolist())
        missing = min(set(range(len(indexes) + 1)) - indexes)
        key = decode_row(keys.names[code].as_py(), side.columns)
        side.gaps.facts.append(
            f"{place}: the key {key!r} has {keys.counts[code]} rows, and number {missing} is "
            "missing"
        )
    in_one_only = keys.has[KINDS.index(LISTS)] ^ keys.has[KINDS.index(TIMES)]
    for code in side.gaps.first_of(in_one_only):
        row = keys.names[code].as_py()
        time = int.from_bytes(row[-8:], "big") - (1 << 63)
        key = (*decode_row(row[:-8], side.columns), time)
        side.gaps.facts.append(
            f"{place}: the key and time {key!r} is in one of its two indexes only"
        )
    highest = np.full(len(keys.names), -1, np.int64)
    np.maximum.at(highest, keys.indexed, keys.indexes)
    is_indexed = keys.has[KINDS.index(INDEXED)]
    for code in side.strays.first_of(is_indexed & (highest >= np.maximum(keys.counts, 0))):
        key = decode_row(keys.names[code].as_py(), side.columns)
        side.strays.facts.append(
            f"{place}: the key {key!r} has {keys.counts[code]} rows, and one numbered "
            f"{highest[code]}: never read"
        )


_MOVED = np.uint64(8 << 32)


def row_and_last(view: StoreView, keys: Binary, last: bool) -> tuple[Binary, Ints] | None:
    """Return keys' rows and their last columns, cut out if `last`; None without single rows."""
    assert view.key is not None, "asked before whether the columns are known"
    if view.encoder.kind not in ("plain", "row"):
        return None
    whole = spans(keys)
    starts, ends = whole.starts + (view.encoder.kind == "row"), whole.ends
    if not last:
        return cut(whole.content, starts, ends), np.zeros(len(keys), np.int64)
    count = len(view.key.types)
    bits = null_bytes(count)
    if count < 2 or null_bytes(count - 1) != bits or ((ends - starts) % 8).any():
        return None
    slots = starts + bits + 8 * (count - 1)
    rows = join_columns(cut(whole.content, starts, slots), cut(whole.content, slots + 8, ends))
    kinds = view.key.types[:-1]
    offsets = [bits // 8 + at for at, kind in enumerate(kinds) if not is_in_slot(kind)]
    return _moved(spans(rows), offsets), words(whole.content, slots).view(np.int64)


def row_and_time(view: StoreView, keys: Binary) -> Binary | None:
    """Return keys as row | i64BE time, its sign bit turned; None where no time is encoded."""
    whole = spans(keys)
    content, starts, ends = whole.content, whole.starts, whole.ends
    if view.encoder.kind == "postfix":
        return join_columns(cut(content, starts + 1, ends - 8), cut(content, ends - 8, ends))
    if view.encoder.kind == "before":
        return join_columns(cut(content, starts + 9, ends), cut(content, starts, starts + 8))
    return None


def _moved(rows: Spans, slots: list[int]) -> Binary:
    """Return rows, of whole words, with these slots eight bytes less: they point at what moved."""
    first = end = 0
    if len(rows.starts):
        first, end = int(rows.starts[0]), int(rows.ends[-1])
    content = rows.content[first:end].copy()
    numbers = content.view(np.uint64)
    begins = (rows.starts - first) // 8
    for slot in slots:
        places = begins + slot
        numbers[places] -= np.where(numbers[places] != 0, _MOVED, np.uint64(0))
    return binaries(content, np.append(rows.starts, end) - first)
