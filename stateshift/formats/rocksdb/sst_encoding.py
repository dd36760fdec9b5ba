"""RocksDB's table files (SST, block-based), written without RocksDB; the layout is drawn in `sst`.

    data block  record*  | restarts u32LE* | count u32LE; one every RESTARTS records of the block
      record      00 shared | varint key size + 8 | varint value size | key | TAIL | value
      TAIL        u64LE (sequence << 8 | type), type 1 put, 0 delete
    index       one entry per data block: its last key, without sequence | HANDLE. Every entry is a
                restart
    properties  what RocksDB asks a table for when it opens it, and `sst_dump` shows

A table holds each key once, all of one sequence. Puts alone, of sequence 0, are the shape of a
table at the bottom of the tree, where nothing older can follow; one on level 0 may hold deletes,
and has a sequence beyond those of the tables below it. Version 5, blocks compressed by LZ4 and
checked by CRC32C: what RocksDB 6.20 (Spark 3.3) reads and every later one, too. The same records
give the same bytes, in whatever blocks they come: no time, no host, no session stands in them.

There is no filter block, since RocksDB's hash for it is its own; a key that is missing costs a look
into one block, until RocksDB's next compaction rewrites the table.

Profile (1 million records of 45 bytes, one core): the records' bytes are put together by Arrow, and
no key shares its beginning with the one before, which LZ4 makes up for; what is left is work per
block of BLOCK bytes, not per record.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import cramjam
import numpy as np
import pyarrow as pa

from stateshift.formats.blocks import (
    Binary,
    Flags,
    Ints,
    RowBlock,
    binaries,
    edges,
    join_columns,
    lengths,
    of_width,
    part,
    varints,
    whole,
)
from stateshift.formats.crc32c import crc32c, masked_crc32c
from stateshift.formats.rocksdb.block import encode_varint as varint
from stateshift.formats.rocksdb.manifest import DELETE, PUT, TableFacts
from stateshift.formats.spans import missing

BLOCK = 16 * 1024
RESTARTS = 16

_MAGIC = (0x88E241B785F4CFF7).to_bytes(8, "little")
_VERSION = (5).to_bytes(4, "little")
_CRC32C = b"\x01"
_FOOTER = 53
_NONE, _LZ4 = b"\x00", b"\x04"
_TAIL = 8
_FLUSH = 1 << 20


def encode_sst(blocks: Iterable[RowBlock], sequence: int = 0) -> Generator[bytes, None, TableFacts]:
    """Yield the table of these puts and deletes in ascending order; return its facts."""
    table = _Table(sequence)
    for block in blocks:
        if len(block):
            table.add(block)
            yield from table.taken(_FLUSH)
    table.finish()
    yield from table.taken(0)
    return TableFacts(
        table.size, table.records, table.smallest, table.largest, table.first, table.last
    )


@dataclass(slots=True)
class _Table:
    """A table being written: its ready pieces, and the facts for its end."""

    sequence: int
    ready: list[bytes] = field(default_factory=list)
    waiting: int = 0
    size: int = 0
    records: int = 0
    deletes: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    blocks: int = 0
    smallest: bytes = b""
    largest: bytes = b""
    first: int = PUT
    last: int = PUT
    index: list[bytes] = field(default_factory=list)
    index_size: int = 0
    unfinished: list[RowBlock] = field(
        default_factory=list
    )  # of the last data block: more may come
    record_bytes: int = 0
    stripe: int = -1  # number of the BLOCK bytes of all records in which that one ends

    def add(self, block: RowBlock) -> None:
        keys, count = block.keys, len(block)
        first, last = keys[0].as_py(), keys[-1].as_py()
        assert not self.records or first > self.largest, "keys ascend"
        if not self.records:
            self.smallest, self.first = first, self._tail(block, 0)
        self.largest, self.last = last, self._tail(block, count - 1)
        deletes = missing(block.values)
        self.deletes += int(deletes.sum())
        if deletes.any():
            block = RowBlock(keys, block.values.fill_null(b""))
        self._write(RowBlock(keys, records_of(block, _tails(self.sequence, deletes))))
        self.records += count
        self.key_bytes += int(lengths(keys).sum()) + _TAIL * count
        self.value_bytes += int(lengths(block.values).sum())

    def finish(self) -> None:
        self._write_unfinished()
        data = self.size
        index = self._block(_with_restarts(self.index), compressed=True)
        self.index_size = self.size - data
        properties = self._block(_with_restarts(list(_entries(self._properties(data)))))
        meta = self._block(_with_restarts(list(_entries({b"rocksdb.properties": properties}))))
        handles = meta + index
        self._put(_CRC32C + handles + bytes(_FOOTER - 13 - len(handles)) + _VERSION + _MAGIC)

    def taken(self, least: int) -> Iterator[bytes]:
        if self.waiting >= least and self.ready:
            yield b"".join(self.ready)
            self.ready.clear()
            self.waiting = 0

    def _tail(self, block: RowBlock, place: int) -> int:
        return self.sequence << 8 | (PUT if block.values[place].is_valid else DELETE)

    def _write(self, records: RowBlock) -> None:
        """Write the data blocks that end in some records, each at a multiple of BLOCK bytes."""
        starts, content = edges(records.values)
        stripes = (self.record_bytes + starts[1:] - starts[0] - 1) // BLOCK
        begins = np.flatnonzero(np.diff(stripes, prepend=self.stripe))
        self.record_bytes += int(starts[-1] - starts[0])
        self.stripe = int(stripes[-1])
        if not len(begins):
            self.unfinished.append(records)
            return
        self.unfinished.append(part(records, 0, int(begins[0])))
        self._write_unfinished()
        lasts = records.keys.take(pa.array(begins[1:] - 1)).to_pylist()
        for (here, there), key in zip(pairwise(begins.tolist()), lasts, strict=True):
            self._data(content, starts[here : there + 1], key)
        self.unfinished = [part(records, int(begins[-1]), len(records))]

    def _write_unfinished(self) -> None:
        """Write what is held of a data block, which is all of it."""
        records = [block for block in self.unfinished if len(block)]
        if records:
            block = whole(records)
            starts, content = edges(block.values)
            self._data(content, starts, block.keys[-1].as_py())
        self.unfinished = []

    def _data(self, content: memoryview, starts: Ints, key: bytes) -> None:
        restarts = (starts[:-1:RESTARTS] - starts[0]).astype("<u4")
        body = content[starts[0] : starts[-1]]
        handle = self._block(
            b"".join((body, restarts, len(restarts).to_bytes(4, "little"))), compressed=True
        )
        self.index.append(b"\x00" + varint(len(key)) + key + handle)
        self.blocks += 1

    def _block(self, content: bytes, compressed: bool = False) -> bytes:
        """Write a block, compressed where that makes it smaller; return its handle."""
        stored, kind = content, _NONE
        if compressed:
            packed = cramjam.lz4.compress_block(content, store_size=False)
            with_size = varint(len(content)) + bytes(packed)
            if len(with_size) < len(content):
                stored, kind = with_size, _LZ4
        handle = varint(self.size) + varint(len(stored))
        self._put(stored)
        self._put(kind + masked_crc32c(kind, crc32c(stored)).to_bytes(4, "little"))
        return handle

    def _put(self, piece: bytes) -> None:
        self.ready.append(piece)
        self.size += len(piece)
        self.waiting += len(piece)

    def _properties(self, data: int) -> Mapping[bytes, bytes]:
        return {
            b"rocksdb.block.based.table.index.type": bytes(4),
            b"rocksdb.block.based.table.prefix.filtering": b"0",
            b"rocksdb.block.based.table.whole.key.filtering": b"0",
            b"rocksdb.column.family.id": b"\x00",
            b"rocksdb.column.family.name": b"default",
            b"rocksdb.comparator": b"leveldb.BytewiseComparator",
            b"rocksdb.compression": b"LZ4",
            b"rocksdb.data.size": varint(data),
            b"rocksdb.deleted.keys": varint(self.deletes),
            b"rocksdb.filter.size": b"\x00",
            b"rocksdb.fixed.key.length": b"\x00",
            b"rocksdb.format.version": b"\x00",
            b"rocksdb.index.key.is.user.key": b"\x01",
            b"rocksdb.index.size": varint(self.index_size),
            b"rocksdb.index.value.is.delta.encoded": b"\x01",
            b"rocksdb.merge.operands": b"\x00",
            b"rocksdb.num.data.blocks": varint(self.blocks),
            b"rocksdb.num.entries": varint(self.records),
            b"rocksdb.num.range-deletions": b"\x00",
            b"rocksdb.raw.key.size": varint(self.key_bytes),
            b"rocksdb.raw.value.size": varint(self.value_bytes),
        }


def records_of(block: RowBlock, tails: Binary | bytes) -> Binary:
    """Return the records as they stand in data blocks."""
    return join_columns(
        heads_of(lengths(block.keys) + _TAIL, lengths(block.values)),
        block.keys,
        tails,
        block.values,
    )


def _tails(sequence: int, deletes: Flags) -> Binary | bytes:
    """Return the bytes after each key: the same in every row if none is deleted."""
    put = (sequence << 8 | PUT).to_bytes(_TAIL, "little")
    if not deletes.any():
        return put
    rows = np.tile(np.frombuffer(put, np.uint8), (len(deletes), 1))
    rows[deletes, 0] = DELETE
    return of_width(rows)


def heads_of(keys: Ints, values: Ints) -> Binary:
    """Return the bytes before each record: 00 (nothing shared), and its sizes as varints."""
    if max(keys.max(), values.max()) < 0x80:  # of one width, as in most stores
        return of_width(np.stack((np.zeros(len(keys)), keys, values), axis=1).astype(np.uint8))
    zeros = np.zeros((len(keys), 1), np.uint8)
    (one, used), (other, used_too) = varints(keys), varints(values)
    columns = np.concatenate((zeros, one, other), axis=1)
    used = np.concatenate((zeros == 0, used, used_too), axis=1)
    return binaries(columns[used], np.concatenate(([0], np.cumsum(used.sum(axis=1)))))


def _entries(values: Mapping[bytes, bytes]) -> Iterator[bytes]:
    for key, value in sorted(values.items()):
        yield b"\x00" + varint(len(key)) + varint(len(value)) + key + value


def _with_restarts(entries: list[bytes]) -> bytes:
    """Return a block whose entries are all restarts; RocksDB wants one even without entries."""
    starts, position = [], 0
    for entry in entries:
        starts.append(position)
        position += len(entry)
    restarts = np.array(starts or [0], "<u4").tobytes()
    return b"".join((*entries, restarts, (len(starts) or 1).to_bytes(4, "little")))
