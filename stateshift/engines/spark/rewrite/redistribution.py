"""Entries on their way from source shards to target shards: read, dealt out by their keys, put in
order. Pure.

    folded -> [part] -> [frame] -> [evolve] -> deal out -> [column family] -> piles -> [united] -> blocks of a target,
    in order

Records of one key can come from several checkpoints only, which are merged: they are added (see
`sums`) or refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.columnar import hashes_of
from stateshift.engines.spark.entries.fold import folded
from stateshift.engines.spark.entries.keys import KeyRule
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.layout import HDFS, ROCKSDB
from stateshift.engines.spark.rewrite import session_keys
from stateshift.engines.spark.rewrite.evolution import Bytes, evolver
from stateshift.engines.spark.rewrite.merged_records import united
from stateshift.engines.spark.rewrite.row_blocks import mapped
from stateshift.engines.spark.rewrite.shards import framed, internal_families, unframed, with_family
from stateshift.engines.spark.rewrite.split import belongs
from stateshift.engines.spark.rewrite.sums import Add, adders
from stateshift.errors import FormatError, Incompatible
from stateshift.formats.binaries import part
from stateshift.formats.blocks import Binary, Block, Ints, binary
from stateshift.formats.sorting import Scratch, SortedPile, SortedPiles
from stateshift.formats.spark.rocksdb import RocksDBSnapshot
from stateshift.plain import from_plain
from stateshift.survey import ShardFiles
from stateshift.world import Read


@dataclass(frozen=True, slots=True)
class Gathered:
    """All entries of a piece, by target; `internal` are those of Spark's own column families."""

    piles: Mapping[int, SortedPile]
    internal: Counter[int]
    unite: Callable[[Iterator[Block]], Iterator[Block]]

    def blocks(self, target: int, table: int = 0, tables: int = 1) -> Iterator[Block]:
        """The target's entries in order; one of several parts of about the same size, of which each
        goes on where the one before it ends.
        """
        pile = self.piles[target]
        bounds = [None, *pile.bounds(tables), None]
        return self.unite(pile.blocks(bounds[table], bounds[table + 1]))


@dataclass(frozen=True)
class Gathering:
    """One piece of a rewriting (see `state`). `base` has the column families of its targets."""

    plain: Mapping[str, Any]
    options: Mapping[str, Any]
    sources: Sequence[ShardFiles]
    open: Read
    base: RocksDBSnapshot

    def gathered(self, scratch: Scratch) -> Gathered:
        piles, internal, apart = SortedPiles(scratch), Counter[int](), internal_families(self.base)
        for source in self.sources:
            for store, block in self.read(source):
                for target, own in self._dealt(source, store, block):
                    piles.add(target, with_family(store, own, self._families))
                    internal[target] += len(own) * (store.rpartition("/")[2] in apart)
        found = {target: piles.pile(target) for target in self.plain["targets"]}
        return Gathered(
            found, internal, self._united if len(self.sources) > 1 else lambda blocks: blocks
        )

    def read(self, source: ShardFiles) -> Iterator[tuple[str, Block]]:
        """The entries of a source that are wanted, in the targets' encoding."""
        change, wanted = self._framing(source.files), self.options.get("part")
        keep = belongs(wanted, source.operator, source.shard) if wanted else None
        for store, block in folded(self.open, source, self.options["settings"]):
            own = keep(store, block) if keep else block
            own = change(store, own) if change and len(own) else own
            yield (
                store,
                mapped(own, None, self._evolvers[store][1]) if store in self._evolvers else own,
            )

    @cached_property
    def _families(self) -> Mapping[str, int]:
        return self.base.families if self.options["provider"] == ROCKSDB else {}

    @property
    def changes_nothing(self) -> bool:
        """About any entry of a source: all of them are read as they will be written."""
        return not (
            self.options.get("part")
            or self._evolvers
            or any(self._framing(one.files) for one in self.sources)
        )

    def _framing(self, files: tuple[str, ...]) -> Callable[[str, Block], Block] | None:
        """What changes about a row when the provider does."""
        came = ROCKSDB if any(path.endswith((".zip", ".changelog")) for path in files) else HDFS
        if came == self.options["provider"] or not files:
            return None
        change, keys = framed if came == HDFS else unframed, self._session_keys
        return lambda store, block: change(store, block, keys.get(store))

    @cached_property
    def _session_keys(self) -> Mapping[str, Bytes]:
        parting = self.options["provider"] == ROCKSDB
        return session_keys.of_operator(
            self.options.get("sessions", {}), self.plain["operator"], parting
        )

    def _dealt(self, source: ShardFiles, store: str, block: Block) -> Iterator[tuple[int, Block]]:
        """The records of each target; those of other pieces, which take the shard's other keys,
        are left out.
        """
        if not self.plain.get("partitions"):
            yield self.plain["targets"][0], block
            return
        before, after = self.plain["partitions"]
        hashed = self._hashes(source, store, block)
        _check_places(source, store, block, hashed % before)
        if store in self._views_after:
            block = mapped(block, self._evolvers[store][0], None)
            hashed = hashes_of(self._views_after[store], block.keys)
        numbers = hashed % after
        places = np.argsort(numbers, kind="stable")
        block, numbers = block.take(places), numbers[places]
        cuts = np.concatenate(([0], np.flatnonzero(np.diff(numbers)) + 1, [len(numbers)]))
        for start, end in pairwise(cuts.tolist()):
            if start < end and int(numbers[start]) in self._targets:
                yield int(numbers[start]), part(block, start, end)

    @cached_property
    def _targets(self) -> frozenset[int]:
        return frozenset(self.plain["targets"])

    def _hashes(self, source: ShardFiles, store: str, block: Block) -> Ints:
        view = self._views.get(store)
        if view is None:
            raise FormatError(
                f"entries of the store {store}, of which no schema tells", source.files[0]
            )
        return hashes_of(view, block.keys)

    @cached_property
    def _views(self) -> Mapping[str, StoreView]:
        return self._views_of("rules")

    @cached_property
    def _views_after(self) -> Mapping[str, StoreView]:
        """Of stores whose keys become others."""
        return self._views_of("rules_after")

    def _views_of(self, option: str) -> Mapping[str, StoreView]:
        rules = self._own(option).items()
        return {store: StoreView.of_rule(store, from_plain(KeyRule, rule)) for store, rule in rules}

    @cached_property
    def _evolvers(self) -> Mapping[str, tuple[Bytes, Bytes]]:
        framed = self.options["provider"] == ROCKSDB
        return {store: evolver(one, framed) for store, one in self._own("evolve").items()}

    def _own(self, option: str) -> dict[str, Any]:
        """What an option says of the stores of this piece's operator."""
        own = f"{self.plain['operator']}/"
        told = self.options.get(option, {}).items()
        return {name.removeprefix(own): value for name, value in told if name.startswith(own)}

    def _united(self, blocks: Iterator[Block]) -> Iterator[Block]:
        return united(blocks, self._add)

    def _add(self, keys: Binary, values: Binary, others: Binary) -> Binary:
        """What keys that are in several of the merged checkpoints have in the end."""
        if not self._families:
            return self._adder(self.plain["store"], keys[0].as_py())(values, others)
        rows = zip(keys.to_pylist(), values.to_pylist(), others.to_pylist(), strict=True)
        found = [
            self._adder(*self._store_of(key))(binary([one]), binary([other]))
            for key, one, other in rows
        ]
        return pa.concat_arrays(found)

    def _adder(self, store: str, key: bytes) -> Add:
        add = self._adders.get(store)
        if add is None:
            raise _twice(self.sources[0], store, key)
        return add

    @cached_property
    def _adders(self) -> Mapping[str, Add]:
        return adders(self.plain["operator"], self.options.get("sums", {}))

    def _store_of(self, key: bytes) -> tuple[str, bytes]:
        name = next(
            name
            for name, number in self._families.items()
            if number == int.from_bytes(key[:2], "little")
        )
        return f"{self.plain['store']}/{name}", key[2:]


def _check_places(source: ShardFiles, store: str, block: Block, places: Ints) -> None:
    """State that was distributed otherwise than by its keys' hashes cannot be distributed anew."""
    wrong = np.flatnonzero(places != source.shard)
    if len(wrong):
        key, folder = block.keys[int(wrong[0])].as_py(), source.files[0].rpartition("/")[0]
        raise Incompatible(
            f"{folder}: the key {key.hex()} of store {store} belongs to shard "
            f"{places[wrong[0]]} by its hash, and is "
            f"in shard {source.shard}: this state was not distributed by all of its key columns",
            hint="a checkpoint born before Spark 3.3 (useStrictDistribution=false) keeps its "
            "number of partitions; "
            "take this run back (`stateshift rollback WORKDIR`) and leave `repartition` out",
        )


def _twice(source: ShardFiles, store: str, key: bytes) -> Incompatible:
    folder = source.files[0].rpartition("/")[0] if source.files else f"shard {source.shard}"
    return Incompatible(
        (
            f"{folder}: the key {key.hex()} of store {store} is in another of the merged "
            "checkpoints, too"
        ),
        hint="take this run back (`stateshift rollback WORKDIR`); merge checkpoints of disjoint "
        "keys, or name under "
        "`sum` the columns whose values can be added",
    )
