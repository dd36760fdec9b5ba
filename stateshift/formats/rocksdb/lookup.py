"""Which of some keys the tables of a database hold: only the blocks are read in which a key would
stand, as the tables' indexes say.

    Lookup(tables)
      .live(keys)      whether the newest write of each key is no delete; keys ascend, from one call
                       to the next, too

A table is opened with the first key that lies between its smallest and its largest one, and its
index forgotten behind the last: of tables that do not overlap one is open at a time. Filters are
not asked, since RocksDB's hash for them is its own. Column families, and range deletions, which
reach into other tables, are the caller's to refuse.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, Flags, Ints
from stateshift.formats.rocksdb.block import WHAT, DataBlock, Handle, read_block
from stateshift.formats.rocksdb.manifest import TableFile
from stateshift.formats.rocksdb.sst_blocks import Decoded, decoded_blocks
from stateshift.formats.rocksdb.table import SstTable
from stateshift.formats.spans import missing


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table by its MANIFEST, where it lies, and how it is opened."""

    fact: TableFile
    path: str
    open: Callable[[], SstTable]


class Lookup:
    """The tables of a database, asked for keys in their order."""

    def __init__(self, tables: Iterable[StoredTable]) -> None:
        self._tables = list(tables)
        self._opened: dict[int, _Indexed] = {}

    def live(self, keys: Binary) -> Flags:
        """Return whether the newest write of each key is no delete."""
        asked = keys.to_pylist()
        newest = _Newest.of(keys, asked)
        for table in self._tables:
            fact = table.fact
            start = bisect_left(asked, fact.smallest.key)
            end = bisect_right(asked, fact.largest.key)
            if start == end:
                continue
            try:
                indexed = self._opened.pop(fact.number, None) or _Indexed.of(table.open())
                for found in decoded_blocks(indexed.blocks(asked[start:end])):
                    newest.note(found)
            except FormatError as error:
                raise error.at(table.path) from error
            if end == len(asked):  # the keys that come may lie in it as well
                self._opened[fact.number] = indexed
        return newest.live


@dataclass(frozen=True, slots=True)
class _Indexed:
    """A table, and its index."""

    table: SstTable
    lasts: list[bytes]
    handles: list[Handle]

    @classmethod
    def of(cls, table: SstTable) -> _Indexed:
        if table.deletions:
            fact = f"{WHAT} has a rocksdb.range_del block, which is not read"
            raise FormatError(fact, None, table.index.offset)
        entries = list(table.ends())
        return cls(table, [end for end, _ in entries], [handle for _, handle in entries])

    def blocks(self, keys: Sequence[bytes]) -> Iterator[DataBlock]:
        """Yield the blocks in which these keys would stand."""
        places = {bisect_left(self.lasts, key) for key in keys}
        for place in sorted(places):
            if place < len(self.handles):
                handle = self.handles[place]
                yield DataBlock(read_block(self.table.file, handle), handle.offset)


@dataclass(frozen=True, slots=True, eq=False)
class _Newest:
    """The sequence of each key's newest write, -1 if it has none, and whether it is no delete."""

    keys: Binary
    asked: list[bytes]
    sequences: Ints
    live: Flags

    @classmethod
    def of(cls, keys: Binary, asked: list[bytes]) -> _Newest:
        return cls(keys, asked, np.full(len(keys), -1, np.int64), np.zeros(len(keys), bool))

    def note(self, found: Decoded) -> None:
        """Note the writes that are of these keys."""
        block, sequences = found
        if not len(block):
            return
        start = bisect_left(self.asked, block.keys[0].as_py())
        end = bisect_right(self.asked, block.keys[-1].as_py())
        # Only the keys between them: all of them would be hashed again for every few blocks.
        places = pc.index_in(block.keys, value_set=self.keys.slice(start, end - start))
        own = np.flatnonzero(~missing(places))
        at, when = places.drop_null().to_numpy() + start, sequences[own].astype(np.int64)
        np.maximum.at(self.sequences, at, when)
        is_newest = self.sequences[at] == when
        self.live[at[is_newest]] = ~missing(block.values)[own[is_newest]]
