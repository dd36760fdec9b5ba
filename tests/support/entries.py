"""A shard's entries one by one, as the program folds them in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom


class Entry(NamedTuple):
    """One key and its value, as the bytes the engine compares."""

    operator: str
    store: str
    key: bytes
    value: bytes


def entries(read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[Entry]:
    """The entries of one shard, in no particular order."""
    for store, block in fold_shard(read, shard, settings):
        for key, value in block.records():
            assert value is not None, "what is folded has no deletes"
            yield Entry(shard.operator, store, key, value)


def reading(files: dict[str, bytes]) -> ReadFrom:
    """These files, as entries are read from a storage."""

    def read(path: str, offset: int = 0) -> Iterator[bytes]:
        yield files[path][offset:]

    return read
