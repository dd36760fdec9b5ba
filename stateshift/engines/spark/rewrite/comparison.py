"""Entries as a comparison needs them: what a change of the state was meant to change is left out of
sight. Pure.

    "stateshift.rows": "plain"  RocksDB's encoding byte 00 is taken off keys and values, so that the
                                entries of both providers are the same; only for stores whose keys
                                and values are single rows

    "stateshift.sessions": "<JSON>"  stores whose keys RocksDB has in two, which are then put
    together (see
                                   `session_keys`)

    "stateshift.evolve": "<JSON>"  rows as they are after they became others (see `evolution`)

    "stateshift.part": "<JSON>"    only what belongs to a part of a split (see `split`)

    "stateshift.sums": "<JSON>"  {"sums": as `sums` has them, "places": ["a/", "b/"]}: a shard's
                                 files are those of several checkpoints at these places, and values
                                 of one key are added

The names stand among the settings that a reader of entries is given anyway; Spark has none that
begin like them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stateshift.engines.spark.layout import FRAME
from stateshift.engines.spark.rewrite.evolution import Bytes, evolver
from stateshift.engines.spark.rewrite.session_keys import of_operator
from stateshift.engines.spark.rewrite.split import belongs
from stateshift.engines.spark.rewrite.sums import adders
from stateshift.survey import ShardFiles
from stateshift.world import Read

if TYPE_CHECKING:
    from stateshift.formats.blocks import Block

ROWS, PLAIN_ROWS = "stateshift.rows", "plain"
SESSIONS = "stateshift.sessions"
PART = "stateshift.part"
EVOLVE = "stateshift.evolve"
SUMS = "stateshift.sums"


def comparable(
    read: Read, shard: ShardFiles, settings: Mapping[str, str]
) -> Iterator[tuple[str, Block]]:
    """The entries of one shard, as far as the settings let them be seen."""
    from stateshift.engines.spark.entries.fold import folded
    from stateshift.engines.spark.rewrite.row_blocks import mapped
    from stateshift.formats.binaries import without_prefix
    from stateshift.formats.blocks import Block

    kept = (
        belongs(json.loads(settings[PART]), shard.operator, shard.shard)
        if PART in settings
        else None
    )
    framed = any(path.endswith((".zip", ".changelog")) for path in shard.files)
    plain = settings.get(ROWS) == PLAIN_ROWS and framed
    evolvers = _evolvers(shard, json.loads(settings.get(EVOLVE, "{}")), framed)
    found = _summed(read, shard, settings) if SUMS in settings else folded(read, shard, settings)
    sessions = (
        of_operator(json.loads(settings.get(SESSIONS, "{}")), shard.operator, parting=False)
        if plain
        else {}
    )
    for store, block in found:
        own = kept(store, block) if kept else block
        own = mapped(own, *evolvers[store]) if store in evolvers else own
        if plain:
            keys = (
                mapped(own, sessions[store], None).keys
                if store in sessions
                else without_prefix(own.keys, FRAME)
            )
            own = Block(keys, without_prefix(own.values, FRAME))
        yield store, own


def _evolvers(
    shard: ShardFiles, evolutions: Mapping[str, Any], framed: bool
) -> dict[str, tuple[Bytes, Bytes]]:
    own = f"{shard.operator}/"
    return {
        name.removeprefix(own): evolver(one, framed)
        for name, one in evolutions.items()
        if name.startswith(own)
    }


def _summed(
    read: Read, shard: ShardFiles, settings: Mapping[str, str]
) -> Iterator[tuple[str, Block]]:
    """One shard of several checkpoints, added up: held in memory, one checkpoint after the other. A
    key that cannot be added comes as often as it is there, so that the comparison fails.
    """
    from stateshift.engines.spark.entries.fold import folded
    from stateshift.formats.blocks import binary, block_of

    asked = json.loads(settings[SUMS])
    add = adders(shard.operator, asked["sums"])
    found: dict[str, dict[bytes, bytes]] = {}
    for place in asked["places"]:
        own = replace(shard, files=tuple(path for path in shard.files if path.startswith(place)))
        for store, block in folded(read, own, settings):
            known = found.setdefault(store, {})
            records = [(key, value) for key, value in block.records() if value is not None]
            again = [(key, value) for key, value in records if key in known]
            if again and store not in add:
                yield store, block_of(again)
            elif again:
                ones = binary([known[key] for key, _ in again])
                sums = add[store](ones, binary([value for _, value in again])).to_pylist()
                records += [(key, value) for (key, _), value in zip(again, sums, strict=True)]
            known |= (
                records
                if store in add
                else [(key, value) for key, value in records if key not in known]
            )
    for store, items in found.items():
        yield store, block_of(items.items())
