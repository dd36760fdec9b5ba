"""Entries as a comparison needs them: what a change of the state was meant to change is left out of
sight. Pure.

    "stateshift.rows": "plain"  RocksDB's encoding byte 00 is taken off keys and values, so that the
                                entries of both providers are the same; only for stores whose keys
                                and values are single rows

    "stateshift.sessions": "<JSON>"  stores whose keys RocksDB has in two, which are then put
                                     together (see `evolution`)

    "stateshift.evolve": "<JSON>"  rows as they are after they became others (see `evolution`)

    "stateshift.part": "<JSON>"    only what belongs to a part of a split (see `stores`)

    "stateshift.changes": "true"   what is behind a version's tables, not what all of it comes to
                                   (see `kept_tables`)

    "stateshift.sums": "<JSON>"  {"sums": as `sums` has them, "places": ["a/", "b/"]}: a shard's
                                 files are those of several checkpoints at these places, and values
                                 of one key are added

The names stand among the settings that a reader of entries is given anyway; Spark has none that
begin like them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from stateshift.engines.spark.layout import FRAME
from stateshift.engines.spark.rewrite.evolution import Bytes, evolver, key_makers
from stateshift.engines.spark.rewrite.stores import of_stores
from stateshift.engines.spark.rewrite.sums import Add, adders
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom

if TYPE_CHECKING:
    from stateshift.formats.blocks import RowBlock

ROWS, PLAIN_ROWS = "stateshift.rows", "plain"
SESSIONS = "stateshift.sessions"
PART = "stateshift.part"
EVOLVE = "stateshift.evolve"
SUMS = "stateshift.sums"
CHANGES = "stateshift.changes"


def comparable(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]
) -> Iterator[tuple[str, RowBlock]]:
    """Yield the entries of one shard, as far as the settings let them be seen."""
    from stateshift.engines.spark.entries.fold import fold_shard

    if CHANGES in settings:
        from stateshift.engines.spark.rewrite.kept_tables import compared_changes

        yield from compared_changes(read, shard, settings)
        return
    view = compared_as(shard, settings)
    entries = (
        _summed(read, shard, settings) if SUMS in settings else fold_shard(read, shard, settings)
    )
    for store, block in entries:
        yield store, view(store, block)


def compared_as(
    shard: ShardFiles, settings: Mapping[str, str]
) -> Callable[[str, RowBlock], RowBlock]:
    """Return the function that makes comparable entries of a shard's stores."""
    framed = any(path.endswith((".zip", ".changelog")) for path in shard.files)
    unframes = settings.get(ROWS) == PLAIN_ROWS and framed
    keep = None
    if PART in settings:
        from stateshift.engines.spark.rewrite.pruning import filter_of  # with Arrow

        keep = filter_of(json.loads(settings[PART]), shard.operator, shard.shard)
    evolutions = of_stores(json.loads(settings.get(EVOLVE, "{}")), shard.operator)
    evolvers = {store: evolver(evolution, framed) for store, evolution in evolutions.items()}
    sessions = key_makers(json.loads(settings.get(SESSIONS, "{}")), shard.operator, parting=False)

    def view(store: str, block: RowBlock) -> RowBlock:
        if keep is not None:
            block = keep(store, block)
        if store in evolvers:
            block = block.mapped(*evolvers[store])
        return _unframed(block, sessions.get(store)) if unframes else block

    return view


def _unframed(block: RowBlock, key: Bytes | None) -> RowBlock:
    """Return RocksDB's entries as HDFS-backed ones; `key` converts keys of several rows."""
    from stateshift.formats.blocks import RowBlock, without_prefix

    keys = without_prefix(block.keys, FRAME) if key is None else block.mapped(key, None).keys
    return RowBlock(keys, without_prefix(block.values, FRAME))


def _summed(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]
) -> Iterator[tuple[str, RowBlock]]:
    """Yield one shard of several checkpoints, added up; keys that cannot be are repeated."""
    from stateshift.engines.spark.entries.fold import fold_shard
    from stateshift.formats.blocks import block_of

    asked = json.loads(settings[SUMS])
    adds = adders(shard.operator, asked["sums"])
    totals: dict[str, dict[bytes, bytes]] = {}
    for place in asked["places"]:
        own = replace(shard, files=tuple(path for path in shard.files if path.startswith(place)))
        for store, block in fold_shard(read, own, settings):
            known = totals.setdefault(store, {})
            puts = {key: value for key, value in block.records() if value is not None}
            repeated = {key: value for key, value in puts.items() if key in known}
            if store in adds:
                _add_up(known, puts, adds[store])
                continue
            known.update((key, value) for key, value in puts.items() if key not in repeated)
            if repeated:
                yield store, block_of(repeated.items())
    for store, items in totals.items():
        yield store, block_of(items.items())


def _add_up(known: dict[bytes, bytes], puts: Mapping[bytes, bytes], add: Add) -> None:
    """Put into `known`, or add to what it has of a key."""
    from stateshift.formats.blocks import binary

    repeated = [key for key in puts if key in known]
    before = binary([known[key] for key in repeated])
    known |= puts
    if repeated:
        sums = add(before, binary([puts[key] for key in repeated]))
        known.update(zip(repeated, sums.to_pylist(), strict=True))
