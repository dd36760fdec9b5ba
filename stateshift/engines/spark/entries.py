"""A shard's entries one by one: for what is shown to a person, and what has to see each alone. See `folding`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateshift.survey import ShardFiles
from stateshift.world import Entry, Read


def entries(read: Read, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[Entry]:
    """The entries of one shard, in no particular order."""
    from stateshift.engines.spark.folding import folded  # loads Arrow, for which no plan should wait

    for store, block in folded(read, shard, settings):
        for key, value in block.records():
            assert value is not None, "what is folded has no deletes"
            yield Entry(shard.operator, store, key, value)
