"""Entries on their way from source shards to target shards: read, dealt out by their keys, put in
order. Pure.

    folded -> [part] -> [frame] -> [evolve] -> deal out -> [column family] -> piles -> [united]
           -> blocks of a target, in order

If there is nothing to redistribute, and entries are read in the order of their keys, they go
straight to the target (`sources.Straight`).

Several may share a piece, each the entries between two keys, where it is known before any entry is
read at which keys the tables of all targets end: of one source whose tables are sorted runs, or of
several that keep their keys. Dealt out by hash, entries of every target lie alike along the keys:
the same bounds serve for all of them.

Records of one key can come from several checkpoints only, which are merged: they are added (see
`sums`) or refused.

    unite_records(blocks, add)  blocks in order, of which keys may stand behind each other several
                                times
    add(keys, values, others)   the value of each of these keys instead of both; or an error, where
                                they are not added
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spark.entries import rocksdb_version
from stateshift.engines.spark.entries.columnar import hashes_of
from stateshift.engines.spark.entries.keys import KeyRule
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.layout import HDFS, ROCKSDB
from stateshift.engines.spark.rewrite.evolution import Bytes, evolver, key_makers
from stateshift.engines.spark.rewrite.pruning import filter_of
from stateshift.engines.spark.rewrite.shards import (
    frame_rows,
    internal_families,
    unframe_rows,
    with_family,
)
from stateshift.engines.spark.rewrite.sources import RowChecks, SourceSums, Straight
from stateshift.engines.spark.rewrite.stores import of_stores
from stateshift.engines.spark.rewrite.sums import Add, adders
from stateshift.errors import FormatError, Incompatible
from stateshift.formats.blocks import Binary, Flags, Ints, RowBlock, binary, part, whole
from stateshift.formats.rocksdb.table import KeyRange
from stateshift.formats.sorting import Scratch, SortedPile, SortedPiles, cuts
from stateshift.formats.spark.rocksdb import RocksDBSnapshot
from stateshift.plain import JsonObject, from_plain
from stateshift.step import ROWS_CHECKED
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gathered:
    """A piece's entries by target, Spark's own in `internal`; `bounds` end tables, if known."""

    piles: Mapping[int, SortedPile]
    internal: Counter[int]
    unite: Callable[[Iterator[RowBlock]], Iterator[RowBlock]]
    bounds: Sequence[bytes] | None

    def blocks(self, target: int, table: int = 0, tables: int = 1) -> Iterator[RowBlock]:
        """Yield one of several even parts of the target's entries, in order."""
        pile = self.piles[target]
        bounds = pile.bounds(tables) if self.bounds is None else self.bounds
        ends = [None, *bounds, None]
        assert len(ends) == tables + 1, "as many as were planned"
        return self.unite(pile.blocks(ends[table], ends[table + 1]))

    def internal_of(self, target: int) -> int:
        """Return the number of the target's entries in Spark's own column families."""
        return self.internal[target]


@dataclass(frozen=True)
class Gathering:
    """One piece of a rewriting (see `state`). `base` has the column families of its targets."""

    plain: JsonObject
    options: JsonObject
    sources: Sequence[ShardFiles]
    open: ReadFrom
    base: RocksDBSnapshot
    sums: SourceSums

    def between(self, ends: Sequence[bytes | None], scratch: Scratch) -> Gathered | Straight:
        """Return the entries of the tables between some of `bounds`; None is where no table is."""
        part = rocksdb_version.encode_part(KeyRange(ends[0], ends[-1]))
        settings = {**self.options["settings"], rocksdb_version.SHARD_PART: part}
        own = replace(self, options={**self.options, "settings": settings})
        return own.in_tables([key for key in ends[1:-1] if key is not None], scratch)

    def in_tables(self, bounds: Sequence[bytes] | None, scratch: Scratch) -> Gathered | Straight:
        """Return the entries for tables that end at these keys, where those are known."""
        if bounds is not None and not self._deals_out:
            return Straight(self.read_apart, bounds)
        piles, internal = SortedPiles(scratch), Counter[int]()
        for target, own, is_internal in self.dealt_out():
            piles.add(target, own)
            internal[target] += len(own) if is_internal else 0
        by_target = {target: piles.pile(target) for target in self.plain["targets"]}
        return replace(self.of_piles(by_target), internal=internal, bounds=bounds)

    def bounds(self) -> list[bytes] | None:
        """Return the bounds of every target's tables; None where only reading all shows them."""
        if self.options["provider"] != ROCKSDB or any(map(self._framing, self.sources)):
            return None
        if self._deals_out:
            counts = {len(tables) for tables in self.plain["tables"]}
            if len(counts) != 1 or self._views_after:
                return None
            (count,) = counts
            if count == 1:
                return []
            samples: list[rocksdb_version.Sample] = []
            for source in self.sources:
                lying = rocksdb_version.block_ends(self.open, source)
                if lying is None or lying.families != self._families:
                    return None  # keys that begin otherwise are in another order
                samples += lying.samples
            return cuts(samples, count) if samples else None
        if len(self.sources) != 1:
            return None
        (source,) = self.sources
        (tables,) = self.plain["tables"]
        return rocksdb_version.table_bounds(self.open, source, len(tables))

    @property
    def _deals_out(self) -> bool:
        """Whether entries go to several targets, or come for them from several sources."""
        return bool(self.plain.get("partitions"))

    def read_apart(self) -> Iterator[tuple[RowBlock, int]]:
        """Yield the one source's entries, each block with the number of Spark's own."""
        (source,) = self.sources
        counted_apart = internal_families(self.base)
        for store, block in self.read(source):
            is_internal = store.rpartition("/")[2] in counted_apart
            written = with_family(store, block, self._families)
            yield written, len(block) if is_internal else 0

    def dealt_out(self) -> Iterator[tuple[int, RowBlock, bool]]:
        """Yield entries as they are read: their target, and whether they are Spark's own."""
        counted_apart = internal_families(self.base)
        for source in self.sources:
            for store, block in self.read(source):
                is_internal = store.rpartition("/")[2] in counted_apart
                for target, own in self._dealt(source, store, block):
                    yield target, with_family(store, own, self._families), is_internal

    def of_piles(self, piles: Mapping[int, SortedPile]) -> Gathered:
        if len(self.sources) > 1:
            return Gathered(piles, Counter(), partial(unite_records, add=self._add), None)
        return Gathered(piles, Counter(), iter, None)

    def read(self, source: ShardFiles) -> Iterator[tuple[str, RowBlock]]:
        """Yield the entries of a source that are wanted, in the targets' encoding."""
        change, part = self._framing(source), self.options.get("part")
        keep = filter_of(part, source.operator, source.shard) if part else None
        entries = self._checks.fold_shard(source, self.options["settings"])
        for store, block in self.sums.watched(source, entries):
            if keep is not None:
                block = keep(store, block)
            if change is not None and len(block):
                block = change(store, block)
            if store in self._evolvers:
                _, new_value = self._evolvers[store]
                block = block.mapped(None, new_value)
            yield store, block

    @cached_property
    def _checks(self) -> RowChecks:
        return RowChecks(self.options.get(ROWS_CHECKED, {}), self.plain["operator"], self.open)

    @cached_property
    def _families(self) -> Mapping[str, int]:
        return self.base.families if self.options["provider"] == ROCKSDB else {}

    @property
    def changes_nothing(self) -> bool:
        """Whether all entries of its sources are read as they will be written."""
        if self.options.get("part") or self._evolvers:
            return False
        return not any(map(self._framing, self.sources))

    def _framing(self, source: ShardFiles) -> Callable[[str, RowBlock], RowBlock] | None:
        """Return the change of a row when the provider changes."""
        is_rocksdb = any(path.endswith((".zip", ".changelog")) for path in source.files)
        provider = ROCKSDB if is_rocksdb else HDFS
        if provider == self.options["provider"] or not source.files:
            return None
        change = unframe_rows if is_rocksdb else frame_rows
        sessions, parting = self.options.get("sessions", {}), not is_rocksdb
        keys = key_makers(sessions, self.plain["operator"], parting)
        return lambda store, block: change(store, block, keys.get(store))

    def _dealt(
        self, source: ShardFiles, store: str, block: RowBlock
    ) -> Iterator[tuple[int, RowBlock]]:
        """Yield the records of each target. Other pieces take the shard's other keys."""
        if not self._deals_out:
            yield self.plain["targets"][0], block
            return
        before, after = self.plain["partitions"]
        view = self._views.get(store)
        if view is None:
            fact = f"entries of the store {store}, which no schema describes"
            raise FormatError(fact, source.files[0])
        hashes = hashes_of(view, block.keys)
        # Refuse state that was not distributed by its keys' hashes, and cannot be redistributed.
        places = hashes % before
        wrong = np.flatnonzero(places != source.shard)
        if len(wrong):
            key, folder = block.keys[int(wrong[0])].as_py(), source.files[0].rpartition("/")[0]
            raise Incompatible(
                f"{folder}: the key {key.hex()} of store {store} belongs to shard "
                f"{places[wrong[0]]} by its hash, and is in shard {source.shard}: this state was "
                "not distributed by all of its key columns",
                hint="a checkpoint born before Spark 3.3 (useStrictDistribution=false) keeps its "
                "number of partitions; take this run back (`stateshift rollback WORKDIR`) and "
                "leave `repartition` out",
            )
        if store in self._views_after:
            new_key, _ = self._evolvers[store]
            block = block.mapped(new_key, None)
            hashes = hashes_of(self._views_after[store], block.keys)
        targets = frozenset(self.plain["targets"])
        for target, own in _split(block, hashes % after):
            if target in targets:
                yield target, own

    @cached_property
    def _views(self) -> Mapping[str, StoreView]:
        return self._own("rules", _view_of)

    @cached_property
    def _views_after(self) -> Mapping[str, StoreView]:
        return self._own("rules_after", _view_of)

    @cached_property
    def _evolvers(self) -> Mapping[str, tuple[Bytes, Bytes]]:
        framed = self.options["provider"] == ROCKSDB
        return self._own("evolve", lambda store, evolution: evolver(evolution, framed))

    def _own(self, option: str, make: Callable[[str, JsonObject], T]) -> dict[str, T]:
        """Return the results of an option for each store of this piece's operator."""
        own = of_stores(self.options.get(option, {}), self.plain["operator"])
        return {store: make(store, plain) for store, plain in own.items()}

    def _add(self, keys: Binary, values: Binary, others: Binary) -> Binary:
        """Return the result of keys that are in several of the merged checkpoints."""
        if not self._families:
            return self._adder(self.plain["store"], keys[0].as_py())(values, others)
        sums = []
        rows = zip(keys.to_pylist(), values.to_pylist(), others.to_pylist(), strict=True)
        names = {number: name for name, number in self._families.items()}
        for key, value, other in rows:
            name = names[int.from_bytes(key[:2], "little")]
            add = self._adder(f"{self.plain['store']}/{name}", key[2:])
            sums.append(add(binary([value]), binary([other])))
        return pa.concat_arrays(sums)

    def _adder(self, store: str, key: bytes) -> Add:
        add = self._adders.get(store)
        if add is not None:
            return add
        source = self.sources[0]
        folder = source.files[0].rpartition("/")[0] if source.files else f"shard {source.shard}"
        raise Incompatible(
            f"{folder}: the key {key.hex()} of store {store} is in another of the merged "
            "checkpoints, too",
            hint="take this run back (`stateshift rollback WORKDIR`); merge checkpoints of "
            "disjoint keys, or name under `sum` the columns whose values can be added",
        )

    @cached_property
    def _adders(self) -> Mapping[str, Add]:
        return adders(self.plain["operator"], self.options.get("sums", {}))


def _view_of(store: str, rule: JsonObject) -> StoreView:
    return StoreView.of_rule(store, from_plain(KeyRule, rule))


def _split(block: RowBlock, targets: Ints) -> Iterator[tuple[int, RowBlock]]:
    """Yield the records of each target together, in their order."""
    order = np.argsort(targets, kind="stable")
    block, targets = block.take(order), targets[order]
    cuts = np.concatenate(([0], np.flatnonzero(np.diff(targets)) + 1, [len(targets)]))
    for start, end in pairwise(cuts.tolist()):
        if start < end:
            yield int(targets[start]), part(block, start, end)


AddRecords = Callable[[Binary, Binary, Binary], Binary]


def unite_records(blocks: Iterator[RowBlock], add: AddRecords) -> Iterator[RowBlock]:
    """Yield each key once. A block's last key waits: the next block may begin with it."""
    waiting: RowBlock | None = None
    for block in blocks:
        once = block if waiting is None else whole([waiting, block])
        # Neighbours of one key are added, every second of them at a time, until there are none.
        while (again := _again(once.keys)).any():
            seconds = np.flatnonzero(again & ~np.concatenate(([False], again[:-1])))
            firsts, others = once.take(seconds - 1), once.take(seconds)
            sums = add(firsts.keys, firsts.values, others.values)
            places = np.arange(len(once))
            keys = once.keys.take(pa.array(np.delete(places, seconds)))
            places[seconds - 1] = len(once) + np.arange(len(seconds))
            values = pa.concat_arrays([once.values, sums]).take(
                pa.array(np.delete(places, seconds))
            )
            once = RowBlock(keys, values)
        yield part(once, 0, len(once) - 1)
        waiting = part(once, len(once) - 1, len(once))
    if waiting is not None:
        yield waiting


def _again(keys: Binary) -> Flags:
    count = len(keys)
    if not count:
        return np.zeros(0, bool)
    same = np.asarray(pc.equal(keys.slice(1), keys.slice(0, count - 1)))
    return np.concatenate(([False], same.astype(bool)))
