"""lz4-java's LZ4BlockOutputStream framing; the layout is drawn in `compression`.

Written with blocks of 32 KiB, as Spark does (`spark.io.compression.lz4.blockSize`); any block size
is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import cramjam
import xxhash

from stateshift.errors import FormatError
from stateshift.formats.stream import Stream, regrouped

MAGIC = b"LZ4Block"

_HEADER = struct.Struct("<8sBiiI")
_STORED, _COMPRESSED = 0x10, 0x20
_SEED = 0x9747B28C
_BLOCK = 32 * 1024
_LEVEL = 5  # log2(32 KiB) - 10
_END = _HEADER.pack(MAGIC, _STORED | _LEVEL, 0, 0, 0)


def decompress(stream: Stream) -> Iterator[bytes]:
    """Yield the raw bytes of each LZ4Block, its checksum checked; further streams may follow."""
    ended = False
    while not ended or not stream.at_end():
        block = _block(stream)
        ended = not block
        if block:
            yield block


def compress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield LZ4Blocks of 32 KiB of raw bytes each, and the empty block that ends them."""
    yield from map(_encode_block, regrouped(chunks, _BLOCK))
    yield _END


def _block(stream: Stream) -> bytes:
    """Return one block's raw bytes; empty for the end mark."""
    start = stream.offset
    magic, token, stored, raw, checksum = _HEADER.unpack(stream.take(_HEADER.size))
    if magic != MAGIC:
        raise FormatError("an lz4 block does not begin with LZ4Block", None, start)
    method = token & 0xF0
    if method not in (_STORED, _COMPRESSED):
        raise FormatError(f"an lz4 block has the unknown method {method:#x}", None, start + 8)
    if raw == 0:
        _check_end_mark(stored, checksum, start)
        return b""
    _check_sizes(token, stored, raw, start)
    data = stream.take(stored)
    if method == _COMPRESSED:
        data = _decompressed(data, raw, start)
    _check_content(data, checksum, start)
    return data


def _check_content(data: bytes, checksum: int, start: int) -> None:
    if _checksum(data) != checksum:
        raise FormatError("an lz4 block's checksum does not fit its content", None, start)


def _checksum(data: bytes) -> int:
    return xxhash.xxh32_intdigest(data, _SEED) & 0x0FFFFFFF


def _check_end_mark(stored: int, checksum: int, start: int) -> None:
    if stored or checksum:
        raise FormatError("an lz4 end mark is not empty", None, start + 9)


def _check_sizes(token: int, stored: int, raw: int, start: int) -> None:
    largest = 1 << (10 + (token & 0x0F))
    if not 0 < raw <= largest:
        fact = f"an lz4 block claims {raw} bytes where {largest} are the most"
        raise FormatError(fact, None, start + 13)
    if stored not in _stored_sizes(token & 0xF0, raw):
        fact = f"an lz4 block of {raw} bytes claims to be stored in {stored}"
        raise FormatError(fact, None, start + 9)


def _stored_sizes(method: int, raw: int) -> range:
    """Return how many bytes a block may be stored in. An incompressible one is stored as it is;
    lz4's worst case is a 255th and 16 bytes more than the input.
    """
    if method == _STORED:
        return range(raw, raw + 1)
    return range(1, raw + raw // 255 + 17)


def _decompressed(data: bytes, raw: int, start: int) -> bytes:
    content = _inflated(data, raw, start)
    if len(content) != raw:
        fact = f"an lz4 block claims {raw} bytes and holds {len(content)}"
        raise FormatError(fact, None, start + 13)
    return content


def _inflated(data: bytes, raw: int, start: int) -> bytes:
    if raw > 255 * len(data) + 64:  # no lz4 block expands further: do not allocate for a lie
        raise FormatError(f"an lz4 block of {len(data)} bytes cannot hold {raw}", None, start + 13)
    try:
        return bytes(cramjam.lz4.decompress_block(data, output_len=raw))
    except cramjam.DecompressionError as error:
        raise FormatError("an lz4 block is damaged", None, start) from error


def _encode_block(raw: bytes) -> bytes:
    data = bytes(cramjam.lz4.compress_block(raw, store_size=False))
    method = _COMPRESSED
    if len(data) >= len(raw):
        data, method = raw, _STORED
    return _HEADER.pack(MAGIC, method | _LEVEL, len(data), len(raw), _checksum(raw)) + data
