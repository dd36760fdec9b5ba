"""Entries as a comparison needs them: what a change of the state was meant to change is left out of sight. Pure.

    "stateshift.rows": "plain"     RocksDB's encoding byte 00 is taken off keys and values, so that the entries of both
                                   providers are the same; only for stores whose keys and values are single rows

    "stateshift.part": "<JSON>"    only what belongs to a part of a split (see `parts`)

The names stand among the settings that a reader of entries is given anyway; Spark has none that begin like them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from stateshift.engines.spark.layout import FRAME
from stateshift.engines.spark.parts import belongs
from stateshift.survey import ShardFiles
from stateshift.world import Read

if TYPE_CHECKING:
    from stateshift.formats.blocks import Block

ROWS, PLAIN_ROWS = "stateshift.rows", "plain"
PART = "stateshift.part"


def comparable(read: Read, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[tuple[str, Block]]:
    """The entries of one shard, as far as the settings let them be seen."""
    from stateshift.engines.spark.folding import folded  # loads Arrow, for which no plan should wait
    from stateshift.formats.binaries import without_prefix
    from stateshift.formats.blocks import Block

    kept = belongs(json.loads(settings[PART]), shard.operator, shard.shard) if PART in settings else None
    plain = settings.get(ROWS) == PLAIN_ROWS and any(path.endswith((".zip", ".changelog")) for path in shard.files)
    for store, block in folded(read, shard, settings):
        own = kept(store, block) if kept else block
        yield store, Block(*(without_prefix(one, FRAME) for one in (own.keys, own.values))) if plain else own
