"""RocksDB's MANIFEST: which tables make up a database, as a log of edits. One edit is written, that names them all.

    log     (crc32c u32LE, masked | size u16LE | type u8 | content)*      in blocks of 32768 bytes, which no record
                                                                          crosses: 1 whole, 2 first, 3 middle, 4 last
    edit    01 SIZED comparator | 02 log number | 09 previous log | 03 next file | 04 last sequence | TABLE*
    TABLE   67 level | number | size | SIZED smallest | SIZED largest | smallest sequence | largest sequence | 01
            numbers are varints, SIZED is a varint size and so many bytes; keys have their sequence and type behind them

Source: RocksDB, db/log_format.h, db/version_edit.cc (EncodeTo; NewFile4 without optional fields, which 6.20 to 9.8
read). CURRENT names the MANIFEST. Column families of RocksDB's own Spark does not use: its are parts of the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateshift.formats.crc32c import masked_crc32c
from stateshift.formats.rocksdb.sst_encoding import TableFacts, varint

MANIFEST, CURRENT = "MANIFEST-000001", b"MANIFEST-000001\n"
FIRST_TABLE = 2  # of a database that we make: the number before it is its MANIFEST's
BOTTOM = 6  # of RocksDB's seven levels the last, whose tables are never compacted for their size

_COMPARATOR = b"leveldb.BytewiseComparator"
_LOG_BLOCK, _HEADER = 32_768, 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_PUT = (1).to_bytes(8, "little")
_LAST_SEQUENCE = 1


def encode_manifest(tables: Mapping[int, TableFacts]) -> bytes:
    """A database of these tables, by their numbers. Their keys ascend from one to the next, as `encode_sst` made
    them."""
    head = b"\x01" + _sized(_COMPARATOR) + b"\x02\x00" + b"\x09\x00"
    head += b"\x03" + varint(max(tables, default=FIRST_TABLE) + 1) + b"\x04" + varint(_LAST_SEQUENCE)
    return b"".join(_log(head + b"".join(_table(number, table) for number, table in sorted(tables.items()))))


def _table(number: int, table: TableFacts) -> bytes:
    numbers = varint(BOTTOM) + varint(number) + varint(table.size)
    keys = _sized(table.smallest + _PUT) + _sized(table.largest + _PUT)
    return b"\x67" + numbers + keys + b"\x00\x00" + b"\x01"


def _log(record: bytes) -> Iterator[bytes]:
    """The record, cut at the ends of the log's blocks; there is nothing before it."""
    room = _LOG_BLOCK - _HEADER
    pieces = [record[start : start + room] for start in range(0, len(record), room)]
    for number, piece in enumerate(pieces):
        first, last = number == 0, number == len(pieces) - 1
        kind = bytes((_WHOLE if first and last else _FIRST if first else _LAST if last else _MIDDLE,))
        yield masked_crc32c(kind + piece).to_bytes(4, "little") + len(piece).to_bytes(2, "little") + kind + piece


def _sized(content: bytes) -> bytes:
    return varint(len(content)) + content
