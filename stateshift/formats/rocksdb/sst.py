"""RocksDB's table files (SST, block-based), read without RocksDB, entry by entry.

    user entry key | u64LE (sequence << 8 | type), type 1 put, 2 merge, 0 and 7 delete

`block` draws a block, `table` the whole file. Entries come in the order of their keys, of one key
the newest first.

Source: RocksDB, db/dbformat.h. Spark writes no range deletions: a table with any is refused by
`decode_sst`, since who reads one table by itself would miss what they delete in others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.rocksdb.block import WHAT, DataBlock, Read, block_entries
from stateshift.formats.rocksdb.table import SstTable, open_table

PUT, MERGE = 1, 2
DELETES = (0, 7)

_U64 = struct.Struct("<Q")


class TableEntry(NamedTuple):
    """One write: the newest sequence of a key counts, merges are added to what was before them."""

    key: bytes
    sequence: int
    kind: int
    value: bytes


BEFORE_ALL = TableEntry(b"", 1 << 56, PUT, b"")


def decode_sst(content: bytes) -> Iterator[TableEntry]:
    """Yield the table's entries in their order: keys ascending, of one key the newest first."""
    return in_order(open_content(content).blocks(), BEFORE_ALL)


def in_order(blocks: Iterable[DataBlock], last: TableEntry) -> Iterator[TableEntry]:
    """Yield the entries of blocks, which have to come after the entry `last`."""
    for block in blocks:
        for entry in entries_of(block):
            same_key = entry.key == last.key
            if entry.key < last.key or (same_key and entry.sequence >= last.sequence):
                fact = f"{WHAT} holds entries that are not in their order"
                raise FormatError(fact, None, block.offset)
            last = entry
            yield entry


def open_content(content: bytes) -> SstTable:
    """Open a table that is held whole."""
    return open_alone(lambda offset, count: content[offset : offset + count], len(content))


def open_alone(read: Read, size: int) -> SstTable:
    """Open a table that is read by itself: one with range deletions is refused."""
    table = open_table(read, size)
    if table.deletions:
        fact = f"{WHAT} has a rocksdb.range_del block, which is not read"
        raise FormatError(fact, None, table.index.offset)
    return table


def entries_of(block: DataBlock) -> Iterator[TableEntry]:
    """Yield a block's entries, each key split from its u64LE trailer (sequence << 8 | type)."""
    unpack = _U64.unpack_from
    for key, value in block_entries(*block):
        if len(key) < 8:
            raise FormatError(f"{WHAT} holds a key without a sequence", None, block.offset)
        tail = unpack(key, len(key) - 8)[0]
        kind = tail & 0xFF
        if kind not in (PUT, MERGE, *DELETES):
            raise FormatError(f"{WHAT} holds an entry of type {kind}", None, block.offset)
        yield TableEntry(key[:-8], tail >> 8, kind, value)
