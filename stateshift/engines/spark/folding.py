"""A shard's files folded into its entries, as blocks: what the state is, with files forgotten.

    folded(read, shard, settings) -> (store, Block) ...     puts only, every live key exactly once
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateshift.engines.spark.entries import entries
from stateshift.formats.blocks import BLOCK_RECORDS, Block, block_of
from stateshift.survey import ShardFiles
from stateshift.world import Read


def folded(read: Read, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[tuple[str, Block]]:
    """The entries of one shard, store by store; the same files give the same blocks."""
    held: dict[str, list[tuple[bytes, bytes | None]]] = {}
    for entry in entries(read, shard, settings):
        found = held.setdefault(entry.store, [])
        found.append((entry.key, entry.value))
        if len(found) == BLOCK_RECORDS:
            yield entry.store, block_of(held.pop(entry.store))
    for store, records in held.items():
        yield store, block_of(records)
