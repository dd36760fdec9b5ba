"""Entries as a comparison needs them: what a change of the state was meant to change is left out of sight. Pure.

    "stateshift.rows": "plain"     RocksDB's encoding byte 00 is taken off keys and values, so that the entries of both
                                   providers are the same; only for stores whose keys and values are single rows

    "stateshift.evolve": "<JSON>"  rows as they are after they became others (see `evolving`)

    "stateshift.part": "<JSON>"    only what belongs to a part of a split (see `parts`)

    "stateshift.sums": "<JSON>"    {"sums": as `sums` has them, "places": ["a/", "b/"]}: a shard's files are those of
                                   several checkpoints at these places, and values of one key are added

The names stand among the settings that a reader of entries is given anyway; Spark has none that begin like them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stateshift.engines.spark.entries import entries
from stateshift.engines.spark.evolving import evolver
from stateshift.engines.spark.layout import FRAME
from stateshift.engines.spark.parts import belongs
from stateshift.engines.spark.sums import adders
from stateshift.survey import ShardFiles
from stateshift.world import Entry, Read

ROWS, PLAIN_ROWS = "stateshift.rows", "plain"
PART = "stateshift.part"
EVOLVE = "stateshift.evolve"
SUMS = "stateshift.sums"


def comparable(read: Read, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[Entry]:
    """The entries of one shard, as far as the settings let them be seen."""
    found = _summed(read, shard, settings) if SUMS in settings else entries(read, shard, settings)
    if PART in settings:
        kept = belongs(json.loads(settings[PART]), shard.operator, shard.shard)
        found = (entry for entry in found if kept(entry.store, entry.key))
    if EVOLVE in settings:
        found = _evolved(found, shard, json.loads(settings[EVOLVE]))
    if settings.get(ROWS) == PLAIN_ROWS and any(path.endswith((".zip", ".changelog")) for path in shard.files):
        found = (
            Entry(entry.operator, entry.store, entry.key.removeprefix(FRAME), entry.value.removeprefix(FRAME))
            for entry in found
        )
    return found


def _evolved(found: Iterator[Entry], shard: ShardFiles, plain: Mapping[str, Any]) -> Iterator[Entry]:
    framed, own = any(path.endswith((".zip", ".changelog")) for path in shard.files), f"{shard.operator}/"
    evolvers = {
        name.removeprefix(own): evolver(one, framed) for name, one in plain.items() if name.startswith(own)
    }
    for entry in found:
        if entry.store not in evolvers:
            yield entry
            continue
        key, value = evolvers[entry.store]
        yield entry._replace(key=key(entry.key), value=value(entry.value))


def _summed(read: Read, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[Entry]:
    """One shard of several checkpoints, added up: held in memory, one checkpoint after the other. A key that cannot be
    added comes as often as it is there, so that the comparison fails."""
    from stateshift.formats.blocks import binary  # the planner, too, imports this module

    asked = json.loads(settings[SUMS])
    add = adders(shard.operator, asked["sums"])
    found: dict[tuple[str, bytes], Entry] = {}
    for place in asked["places"]:
        own = replace(shard, files=tuple(path for path in shard.files if path.startswith(place)))
        again: dict[str, list[Entry]] = {}
        for entry in entries(read, own, settings):
            if (entry.store, entry.key) not in found:
                found[entry.store, entry.key] = entry
            elif entry.store in add:
                again.setdefault(entry.store, []).append(entry)
            else:
                yield entry
        for store, others in again.items():
            known = [found[store, entry.key].value for entry in others]
            sums = add[store](binary(known), binary([entry.value for entry in others])).to_pylist()
            found |= {(store, e.key): e._replace(value=value) for e, value in zip(others, sums, strict=True)}
    yield from found.values()
