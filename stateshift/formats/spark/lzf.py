"""The LZF framing of ning's compress library; the layout is drawn in `compression`.

A compressed chunk is a row of instructions on what has been written so far:

    000LLLLL            L + 1 literal bytes follow
    LLLHHHHH loooooooo  copy L + 2 bytes from H * 256 + o + 1 back; L = 7 means that 7 + the next
                        byte counts

We write stored chunks only: LZF's compressor exists in no Python library that is kept, nobody
chooses lzf for size, and what we write is replaced by Spark's own files within a few batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from stateshift.errors import FormatError
from stateshift.formats.stream import Stream, regrouped

MAGIC = b"ZV"

_CHUNK = 65_535


def decompress(stream: Stream) -> Iterator[bytes]:
    """Yield the raw bytes of each ZV chunk, stored or compressed."""
    while not stream.at_end():
        yield _chunk(stream)


def _chunk(stream: Stream) -> bytes:
    """Return the raw bytes of a chunk."""
    start = stream.offset
    magic, kind, length = struct.unpack(">2sBH", stream.take(5))
    if (magic, kind) == (MAGIC, 0):
        return stream.take(length)
    if (magic, kind) != (MAGIC, 1):
        raise FormatError("not a chunk of lzf", None, start)
    (raw,) = struct.unpack(">H", stream.take(2))
    return _expand(stream.take(length), raw, start + 7)


def compress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield stored ZV chunks of up to 65,535 bytes: nothing gets smaller."""
    pieces = regrouped(chunks, _CHUNK)
    yield _stored(next(pieces, b""))  # an empty file has one chunk, too
    yield from map(_stored, pieces)


def _stored(raw: bytes) -> bytes:
    return struct.pack(">2sBH", MAGIC, 0, len(raw)) + raw


def _expand(data: bytes, raw: int, start: int) -> bytes:
    """Return the raw bytes of one compressed chunk: at most 65,535."""
    out = bytearray()
    position, end = 0, len(data)
    try:
        while position < end and len(out) <= raw:
            control = data[position]
            position += 1
            if control < 32:
                literal = data[position : position + control + 1]
                if len(literal) <= control:
                    raise IndexError
                out += literal
                position += len(literal)
                continue
            length = control >> 5
            if length == 7:
                length += data[position]
                position += 1
            back = ((control & 31) << 8 | data[position]) + 1
            position += 1
            _copy(out, back, length + 2)
    except IndexError as error:
        raise FormatError("a chunk of lzf is damaged", None, start + min(position, end)) from error
    if len(out) != raw or position != end:
        raise FormatError(f"a chunk of lzf claims {raw} bytes and holds {len(out)}", None, start)
    return bytes(out)


def _copy(out: bytearray, back: int, length: int) -> None:
    """Append `length` bytes from `back` before the end; they may overlap what is being written."""
    start = len(out) - back
    if start < 0:
        raise IndexError
    if back >= length:
        out += out[start : start + length]
    else:
        piece = bytes(out[start:])
        out += (piece * (length // back + 1))[:length]
