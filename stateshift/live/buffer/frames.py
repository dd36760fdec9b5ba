"""A record as bytes, on disk and on the way to readers. Pure.

    segment, 16 bytes:  0  7  SSBUFFR
                        7  1  version, 1
                        8  8  number of its first record
                       16     records, one behind the other

    record, 24 bytes:   0  4  CRC-32 of all that follows
                        4  4  length of the value; the highest bit is the barrier
                        8  8  its number
                       16  8  when it came in, in microseconds since 1970
                       24     the value

All numbers are little-endian. A record with the barrier was written after everything before it had
been synced. Bytes that are no record, with a barrier behind them, were whole once: that is damage.
Without one they are the torn end of a write that nobody was told of.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from stateshift.errors import FormatError, UnknownVersion

MAGIC = b"SSBUFFR"
VERSION = 1
SEGMENT_HEAD = struct.Struct("<7sBQ")
RECORD_HEAD = struct.Struct("<IIQQ")
BARRIER = 1 << 31
LENGTH_MAX = BARRIER - 1


class BufferRecord(NamedTuple):
    """A record: its number, when it came in (microseconds since 1970), and its value."""

    number: int
    at: int
    value: bytes


class Extent(NamedTuple):
    """Whole records: where they end, and the number of the next one."""

    end: int
    number: int


def encode_segment_head(first: int) -> bytes:
    """Return the head of a segment."""
    return SEGMENT_HEAD.pack(MAGIC, VERSION, first)


def decode_segment_head(content: bytes) -> int:
    """Return the number of a segment's first record."""
    if len(content) < SEGMENT_HEAD.size:
        raise FormatError("segment is truncated in its head", offset=len(content))
    magic, version, first = SEGMENT_HEAD.unpack_from(content)
    if magic != MAGIC:
        raise FormatError("not a segment of a buffer: the magic is wrong", offset=0)
    if version > VERSION:
        raise UnknownVersion(
            f"segment version {version}; the newest that is known here is {VERSION}",
            hint="use the version that wrote it, or a newer one",
        )
    return int(first)


def encode_record(record: BufferRecord, is_barrier: bool = False) -> bytes:
    """Return a record's bytes."""
    assert len(record.value) <= LENGTH_MAX
    length = len(record.value) | (BARRIER if is_barrier else 0)
    head = RECORD_HEAD.pack(0, length, record.number, record.at)
    checksum = zlib.crc32(record.value, zlib.crc32(head[4:]))
    return checksum.to_bytes(4, "little") + head[4:] + record.value


def decode_records(block: bytes, number: int) -> Iterator[BufferRecord]:
    """Yield the records of a block, of which the first one has this number."""
    offset = 0
    while offset < len(block):
        record = _record_at(block, offset)
        if record is None or record.number != number:
            raise FormatError(f"record {number} is damaged, or is not there", offset=offset)
        yield record
        offset += RECORD_HEAD.size + len(record.value)
        number += 1


def whole_records(block: bytes, number: int, offset: int = 0) -> Extent:
    """Return the extent of a block's whole records that are numbered in turn."""
    while (record := _record_at(block, offset)) is not None and record.number == number:
        offset += RECORD_HEAD.size + len(record.value)
        number += 1
    return Extent(offset, number)


def skip_records(block: bytes, count: int, bytes_max: int) -> Extent:
    """Return the end of so many records of a block, and their number; fewer where the block or
    `bytes_max` ends before, but one at least. Only lengths are read.
    """
    offset = passed = 0
    while passed < count and offset + RECORD_HEAD.size <= len(block):
        length = RECORD_HEAD.unpack_from(block, offset)[1] & LENGTH_MAX
        end = offset + RECORD_HEAD.size + length
        if end > len(block) or (passed and end > bytes_max):
            break
        offset, passed = end, passed + 1
    return Extent(offset, passed)


def has_barrier(block: bytes, number: int, offset: int) -> bool:
    """Return whether a whole record with a barrier is behind `offset`, where `number` is due."""
    last_offset = len(block) - RECORD_HEAD.size
    last_number = number + (len(block) - offset) // RECORD_HEAD.size
    for place in range(offset + 1, last_offset + 1):
        _, length, found, _ = RECORD_HEAD.unpack_from(block, place)
        if number < found <= last_number and length & BARRIER and _record_at(block, place):
            return True
    return False


def _record_at(block: bytes, offset: int) -> BufferRecord | None:
    """Return the record at an offset; None where there is no whole one."""
    start = offset + RECORD_HEAD.size
    if start > len(block):
        return None
    checksum, length, number, at = RECORD_HEAD.unpack_from(block, offset)
    end = start + (length & LENGTH_MAX)
    if end > len(block) or zlib.crc32(memoryview(block)[offset + 4 : end]) != checksum:
        return None
    return BufferRecord(number, at, block[start:end])
