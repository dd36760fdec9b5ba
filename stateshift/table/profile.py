"""A profile of state: how many entries each store has, where they lie, which are the largest, and
how old they are.

Rows are read as a question's are, a batch at a time. It keeps a few numbers for each shard, the
largest entries, and a count for each hour that times fall into. If every so-many-th shard alone is
read, counts are estimates, with the margin that the shards that were read differ by (two standard
errors).

Bytes are those of the columns, as they are read: without what a file format adds, or compresses.

    a column is a time, if      Arrow says so; a struct of two is a span, which ends then
    milliseconds since 1970     a whole number whose name ends in Ms or Timestamp; below 1 is none
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.registry import engine_of
from stateshift.engines.views import (
    ImageProfile,
    LargeEntry,
    Opening,
    Readers,
    ShardCount,
    StoreProfile,
    Times,
    Wanted,
)
from stateshift.formats.blocks import Column, Ints
from stateshift.survey import Survey, sizes_of
from stateshift.table.rows import plain
from stateshift.table.tables import StateTable, tables_of

LARGEST = 5  # entries of a store that are shown
HOUR_MS = 3_600_000
AGES = (0, 1, 7, 30, 90, 365)  # days before the reference, at least
AFTER = "after"


def profile(
    location: str, opening: Opening, readers: Readers | None = None, every: int = 1
) -> ImageProfile:
    """Return the profile of an image, of every so-many-th shard.

    Raises:
        PlanError: there is no image.
        FormatError, StorageError: it cannot be read.
    """
    engine = engine_of(location, opening=opening)
    watermark_ms = engine.export(location, Wanted(), "jsonl", opening).watermark_ms
    _, survey = engine.survey(location, opening)
    every = every if engine.leaves_out_shards else 1
    at, stores = ImageProfile(location, watermark_ms, ()), []
    for table in tables_of([location], opening):
        counting = _Counting()
        for batch in table.batches(opening, readers, every):
            counting.add(batch)
        stores.append(_store_profile(table, counting, at, survey, every))
    return replace(at, stores=tuple(stores))


@dataclass
class _Counting:
    """The counts of one store's rows so far."""

    entries: Counter[int] = field(default_factory=Counter)
    bytes: Counter[int] = field(default_factory=Counter)
    keys: list[LargeEntry] = field(default_factory=list)
    values: list[LargeEntry] = field(default_factory=list)
    hours: dict[str, Counter[int]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        keys, values = batch.column("key"), batch.column("value")
        key_bytes, value_bytes = bytes_of(keys), bytes_of(values)
        shards = batch.column("shard").to_numpy()
        sums = np.bincount(shards, key_bytes + value_bytes)
        for shard, count in enumerate(np.bincount(shards).tolist()):
            if count:
                self.entries[shard] += count
                self.bytes[shard] += int(sums[shard])
        self.keys = _largest(self.keys, key_bytes, shards, keys)
        self.values = _largest(self.values, value_bytes, shards, keys)
        for name, column in (("key", keys), ("value", values)):
            for path, times in times_of(column, name):
                if not len(times):
                    continue
                hours, counts = np.unique(times // HOUR_MS, return_counts=True)
                own = self.hours.setdefault(path, Counter())
                for hour, count in zip(hours.tolist(), counts.tolist(), strict=True):
                    own[hour] += count


def _largest(before: list[LargeEntry], sizes: Ints, shards: Ints, keys: Column) -> list[LargeEntry]:
    """Return the largest of some entries and those before."""
    least = before[-1].bytes if len(before) == LARGEST else -1
    found = list(before)
    for place in np.argsort(-sizes, kind="stable")[:LARGEST].tolist():
        if sizes[place] > least:
            key = plain(keys[place].as_py())
            found.append(LargeEntry(int(sizes[place]), int(shards[place]), key))
    return sorted(found, key=lambda entry: -entry.bytes)[:LARGEST]


def bytes_of(column: Column) -> Ints:
    """Return the bytes of each value of a column."""
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(map(bytes_of, column.flatten()), np.zeros(len(column), np.int64))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        inner = bytes_of(column.values if pa.types.is_list(kind) else column.keys)
        if pa.types.is_map(kind):
            inner = inner + bytes_of(column.items)
        ends = np.concatenate(([0], np.cumsum(inner)))
        offsets = column.offsets.to_numpy()
        return ends[offsets[1:]] - ends[offsets[:-1]]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    return np.full(len(column), max(1, kind.bit_width // 8), np.int64)


def times_of(column: Column, path: str) -> Iterator[tuple[str, Ints]]:
    """Yield the columns in a column that are times, and these in milliseconds."""
    kind = column.type
    if pa.types.is_struct(kind):
        names = [inner.name for inner in kind]
        for name, inner in zip(names, column.flatten(), strict=True):
            is_begin = names == ["start", "end"] and name == "start"
            if not is_begin:
                yield from times_of(inner, f"{path}.{name}")
    elif pa.types.is_timestamp(kind) and kind.unit == "us":
        yield path, column.drop_null().view(pa.int64()).to_numpy() // 1000
    elif pa.types.is_int64(kind) and path.endswith(("Ms", "Timestamp", "timestamp")):
        known = column.drop_null().to_numpy()
        yield path, known[known > 0]


def _store_profile(
    table: StateTable, counting: _Counting, at: ImageProfile, survey: Survey, every: int
) -> StoreProfile:
    path, _, operator = table.operator.rpartition("/")
    place = operator, table.store.partition("/")[0]
    shards = chain.from_iterable(image.shards for image in survey.images if image.path == path)
    own = [shard for shard in shards if (shard.operator, shard.store) == place]
    read = {shard.shard for shard in own if shard.shard % every == 0} | counting.entries.keys()
    counted = [
        ShardCount(shard, counting.entries[shard], counting.bytes[shard]) for shard in sorted(read)
    ]
    there = max(len(own), len(counted))
    counts = np.array([shard.entries for shard in counted] or [0], np.float64)
    factor = there / max(1, len(counted))
    files = set(chain.from_iterable(shard.files for shard in own))
    return StoreProfile(
        table=table.name,
        operator=table.operator,
        store=table.store,
        entries=round(counts.sum() * factor),
        bytes=round(counting.bytes.total() * factor),
        margin=_margin(counts, there),
        shards=tuple(counted),
        shards_there=there,
        skew=round(float(counts.max() / (counts.mean() or 1)), 2),
        largest_keys=tuple(counting.keys),
        largest_values=tuple(counting.values),
        times=tuple(_times(path, hours, at.watermark_ms) for path, hours in counting.hours.items()),
        files=len(files),
        stored_bytes=sum(sizes_of(survey, files)),
    )


def _margin(counts: Ints, there: int) -> int:
    """Return two standard errors of the sum of all shards, of which some were counted."""
    seen = len(counts)
    if seen == there or seen < 2:
        return 0 if seen == there else there * round(float(counts.sum()))
    error = there * math.sqrt((1 - seen / there) * float(counts.var(ddof=1)) / seen)
    return math.ceil(2 * error)


def _times(column: str, hours: Counter[int], watermark_ms: int | None) -> Times:
    oldest, newest = min(hours) * HOUR_MS, (max(hours) + 1) * HOUR_MS
    reference = newest if watermark_ms is None else watermark_ms
    ages: Counter[str] = Counter()
    for hour, count in sorted(hours.items()):
        days = (reference - (hour + 1) * HOUR_MS) / (24 * HOUR_MS)
        least = [age for age in AGES if age <= days]
        ages[str(least[-1]) if least else AFTER] += count
    return Times(column, oldest, newest, reference, dict(ages))
