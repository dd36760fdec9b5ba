"""snappy-java's SnappyOutputStream framing; the layout is drawn in `compression`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import cramjam

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.snappy import decompressed
from stateshift.formats.stream import Stream, regrouped

MAGIC = b"\x82SNAPPY\x00"

_BLOCK = 32 * 1024  # spark.io.compression.snappy.blockSize
_HEADER = MAGIC + struct.pack(">ii", 1, 1)


def decompress(stream: Stream) -> Iterator[bytes]:
    """Yield the raw bytes of each block; further streams may follow the first."""
    _read_header(stream)
    while not stream.at_end():
        if stream.peek(1) == MAGIC[:1]:  # another stream follows; as a length it would be negative
            _read_header(stream)
        else:
            yield _decode_block(stream)


def _decode_block(stream: Stream) -> bytes:
    start = stream.offset
    (length,) = struct.unpack(">i", stream.take(4))
    if length < 0:
        raise FormatError(f"a snappy block claims {length} bytes", None, start)
    return decompressed(stream.take(length), start + 4)


def compress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield one stream: its header, then blocks of 32 KiB of raw bytes, compressed."""
    yield _HEADER
    yield from map(_encode_block, regrouped(chunks, _BLOCK))


def _read_header(stream: Stream) -> None:
    start = stream.offset
    if stream.take(len(MAGIC)) != MAGIC:
        raise FormatError("a snappy stream does not begin with its magic", None, start)
    version, compatible = struct.unpack(">ii", stream.take(8))
    if compatible > 1 or version < 1:
        fact = f"a snappy stream of version {version} (for {compatible})"
        raise UnknownVersion(fact, None, start + 8)


def _encode_block(raw: bytes) -> bytes:
    data = bytes(cramjam.snappy.compress_raw(raw))
    return struct.pack(">i", len(data)) + data
