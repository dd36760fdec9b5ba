"""RocksDB's log format, in which a MANIFEST is written: records, cut where a block ends.

    log  (crc32c u32LE, masked | size u16LE | type u8 | content)*

    in blocks of 32768 bytes, which no record crosses; types are 1 whole, 2 first, 3 middle, 4 last

Less than a header's bytes at the end of a block are zeros. The checksum covers type and content.

RocksDB itself takes a log whose last record is cut as one without it: a MANIFEST then lacks the
newest tables without a word. Here it is refused.

Source: RocksDB, db/log_format.h, db/log_reader.cc.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from stateshift.errors import FormatError
from stateshift.formats.crc32c import masked_crc32c

BLOCK = 32_768
HEADER = 7
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4

_HEADER = struct.Struct("<IHB")


def decode_log(content: bytes, what: str) -> Iterator[tuple[int, bytes]]:
    """Yield each record, with the offset at which it begins."""
    pieces: list[bytes] | None = None  # of the record that has begun
    start = 0
    for offset, kind, piece in _fragments(content, what):
        if kind in (WHOLE, FIRST):
            if pieces is not None:
                raise FormatError(f"{what}: a record begins inside of another", None, offset)
            pieces, start = [], offset
        if pieces is None:
            raise FormatError(f"{what}: a record has no beginning", None, offset)
        pieces.append(piece)
        if kind in (WHOLE, LAST):
            yield start, b"".join(pieces)
            pieces = None
    if pieces is not None:
        raise FormatError(f"{what} is truncated: its last record has no end", None, len(content))


def encode_log(record: bytes, position: int = 0) -> Iterator[bytes]:
    """Yield one record as it stands in a log, from this position on. Where a block has room for a
    header alone, the record begins with a piece of no bytes.
    """
    start, is_first = 0, True
    while start < len(record):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            yield bytes(left)
            position += left
            continue
        end = min(start + left - HEADER, len(record))
        piece = record[start:end]
        kind = _kind(first=is_first, last=end == len(record)).to_bytes(1, "little")
        checksum = masked_crc32c(kind + piece)
        yield checksum.to_bytes(4, "little") + len(piece).to_bytes(2, "little") + kind + piece
        start, position, is_first = end, position + HEADER + len(piece), False


def _kind(first: bool, last: bool) -> int:
    """Return the type of a piece of a record."""
    if first:
        return WHOLE if last else FIRST
    return LAST if last else MIDDLE


def _fragments(content: bytes, what: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, type and content of each piece of a record."""
    position = 0
    while position < len(content):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            if content[position : position + left].strip(b"\0"):
                raise FormatError(
                    f"{what}: bytes behind the last record of a block", None, position
                )
            position += left
            continue
        if position + HEADER > len(content):
            raise FormatError(f"{what} is truncated within a record's header", None, len(content))
        checksum, size, kind = _HEADER.unpack_from(content, position)
        end = position + HEADER + size
        if kind not in (WHOLE, FIRST, MIDDLE, LAST):
            raise FormatError(f"{what}: a record of the unknown type {kind}", None, position)
        if HEADER + size > left:
            raise FormatError(f"{what}: a record crosses the end of its block", None, position)
        if end > len(content):
            raise FormatError(
                f"{what} is truncated within a record of {size} bytes", None, len(content)
            )
        if checksum != masked_crc32c(content[position + 6 : end]):
            raise FormatError(
                f"{what}: a record's checksum does not fit its content", None, position
            )
        yield position, kind, content[position + HEADER : end]
        position = end
