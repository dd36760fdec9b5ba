"""A stream-stream join's stores held against each other, one shard at a time.

    formats 1 to 3  <side>-keyToNumValues       key -> n
                    <side>-keyWithIndexToValue  (key, index) -> row     every index 0 ... n-1, and no other
    format 4        <side>-keyWithTsToValues    (key, time) -> rows
                    <side>-tsWithKey            (time, key) -> as many  the same keys and times in both

Spark reads the indexes 0 to n-1 one by one (SymmetricHashJoinStateManager.getAll): a missing one
fails the query, one beyond n is never read. It finds them by the bytes of the key's row, and so do
we: of a key with an index or a time only the row of the other columns is kept. Held in memory are
BYTES_MAX of keys, the others wait on piles (see `spill`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.canonical_form import common_name
from stateshift.engines.spark.entries.columnar import values_of
from stateshift.engines.spark.entries.key_rows import row_and_last, row_and_time
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spill import PILES, Dealt, pile_of
from stateshift.formats.blocks import Binary, Block, Ints
from stateshift.formats.spark.types import StructType
from stateshift.formats.spark.unsafe_row import decode_row
from stateshift.survey import Finding, ShardFiles

COUNTS, INDEXED, LISTS, TIMES = (
    "keyToNumValues",
    "keyWithIndexToValue",
    "keyWithTsToValues",
    "tsWithKey",
)
KINDS = (COUNTS, INDEXED, LISTS, TIMES)

BYTES_MAX = 64 * 1024 * 1024

# So many keys of a shard are told one by one.
KEYS_MAX = 3

_SCHEMA = pa.schema([("key", pa.large_binary()), ("number", pa.int64()), ("kind", pa.int8())])


@dataclass
class _Told:
    """What is wrong: the first of it, and how much."""

    facts: list[str] = field(default_factory=list)
    count: int = 0

    def findings(self, level: Any, path: str) -> Iterator[Finding]:
        for fact in self.facts:
            yield Finding(level, fact, path=path or None)
        if self.count > len(self.facts):
            yield Finding(
                level, f"and {self.count - len(self.facts)} more keys like it", path=path or None
            )


@dataclass
class _Side:
    """One side of the join. `columns` are those of its keys, without index or time."""

    path: str = ""
    columns: StructType = field(default_factory=lambda: StructType((), ()))
    held: Dealt = field(default_factory=lambda: Dealt(PILES, _SCHEMA, BYTES_MAX))
    gaps: _Told = field(default_factory=_Told)
    strays: _Told = field(default_factory=_Told)

    def add(self, kind: str, keys: Binary, numbers: Ints) -> None:
        kinds = pa.repeat(pa.scalar(KINDS.index(kind), pa.int8()), len(keys))
        batch = pa.record_batch([keys, pa.array(numbers), kinds], schema=_SCHEMA)
        self.held.add(batch, pile_of(keys, 0))


@dataclass
class Join:
    """The join's stores in one shard; of any other operator nothing is kept. `incomplete` where
    rows are missing because they did not decode: that was said already.
    """

    operator: str
    shard: int
    incomplete: bool = False
    _sides: dict[str, _Side] = field(default_factory=dict)

    def add(self, view: StoreView, shard: ShardFiles, block: Block) -> None:
        """Entries that are known to decode."""
        side, _, kind = common_name(view.store).partition("-")
        if kind not in KINDS or view.key is None:
            return
        kept = self._sides.setdefault(side, _Side())
        if kind in (INDEXED, LISTS):
            kept.path = shard.files[-1]
        kept.columns = (
            view.key if kind == COUNTS else StructType(view.key.names[:-1], view.key.types[:-1])
        )
        split = _split(kind, view, block)
        if split is None:
            self.incomplete = True
        else:
            kept.add(kind, *split)

    def findings(self) -> Iterator[Finding]:
        for name, side in sorted(self._sides.items()):
            for table in side.held.each() if not self.incomplete else ():
                _check(side, self._of(name), table)
            yield from side.gaps.findings("refuse", side.path)
            yield from side.strays.findings("warn", side.path)
            side.held.close()

    def _of(self, side: str) -> str:
        return f"operator {self.operator}, shard {self.shard}, {side} side"


def _split(kind: str, view: StoreView, block: Block) -> tuple[Binary, Ints] | None:
    """The rows of the keys, and a count, an index or nothing; None where the keys are encoded in a
    way we do not know of such a store.
    """
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
    rows = (view.decode_value(value) for value in values.to_pylist())
    found: list[Any] = [row[0] if row else 0 for row in rows]
    return np.array([one if isinstance(one, int) else 0 for one in found], np.int64)


def _check(side: _Side, place: str, table: Any) -> None:
    """The stores of the keys in the table, each with everything that is known of it."""
    keys = table.column("key").combine_chunks().dictionary_encode()
    codes, names = keys.indices.to_numpy(), keys.dictionary
    kinds, numbers = (table.column(name).to_numpy() for name in ("kind", "number"))
    own = [codes[kinds == number] for number in range(len(KINDS))]
    there = np.zeros((len(KINDS), len(names)), bool)
    for kind, found in enumerate(own):
        there[kind, found] = True
    said = np.zeros(len(names), np.int64)
    said[own[0]] = numbers[kinds == 0]
    indexed, indexes = own[1], numbers[kinds == 1]
    inside = (indexes >= 0) & (indexes < said[indexed])
    have = np.bincount(indexed[inside], minlength=len(names))
    for code in _told(side.gaps, there[0] & (have < said)):
        seen = set(indexes[indexed == code].tolist())
        missing = next(at for at in range(len(seen) + 1) if at not in seen)
        key = decode_row(names[code].as_py(), side.columns)
        side.gaps.facts.append(
            f"{place}: the key {key!r} has {said[code]} rows, and number {missing} is missing"
        )
    for code in _told(side.gaps, there[2] ^ there[3]):
        key = _timed(names[code].as_py(), side.columns)
        side.gaps.facts.append(
            f"{place}: the key and time {key!r} is in one of its two indexes only"
        )
    most = np.full(len(names), -1, np.int64)
    np.maximum.at(most, indexed, indexes)
    for code in _told(side.strays, there[1] & (most >= np.maximum(said, 0))):
        key = decode_row(names[code].as_py(), side.columns)
        fact = (
            f"{place}: the key {key!r} has {said[code]} rows, and one numbered {most[code]}: "
            "never read"
        )
        side.strays.facts.append(fact)


def _told(told: _Told, wrong: Any) -> list[int]:
    """Which of these there is room to tell; all are counted."""
    found: list[int] = np.flatnonzero(wrong).tolist()
    told.count += len(found)
    return found[: max(0, KEYS_MAX - len(told.facts))]


def _timed(content: bytes, columns: StructType) -> tuple[Any, ...]:
    return (*decode_row(content[:-8], columns), int.from_bytes(content[-8:], "big") - (1 << 63))
