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
from stateshift.formats.stream import Stream

MAGIC = b"LZ4Block"

_HEADER = struct.Struct("<8sBiiI")
_STORED, _COMPRESSED = 0x10, 0x20
_SEED = 0x9747B28C
_BLOCK = 32 * 1024
_LEVEL = 5  # log2(32 KiB) - 10
_END = _HEADER.pack(MAGIC, _STORED | _LEVEL, 0, 0, 0)


def decompress(stream: Stream) -> Iterator[bytes]:
    ended = False
    while not (ended and stream.at_end()):
        block = _block(stream)
        ended = not block
        if block:
            yield block


def compress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for chunk in chunks:
        held += chunk
        whole = len(held) - len(held) % _BLOCK
        for start in range(0, whole, _BLOCK):
            yield _encode_block(bytes(held[start : start + _BLOCK]))
        del held[:whole]
    if held:
        yield _encode_block(bytes(held))
    yield _END


def _block(stream: Stream) -> bytes:
    """One block's raw bytes; empty for the end mark."""
    start = stream.offset
    magic, token, stored, raw, checksum = _HEADER.unpack(stream.take(_HEADER.size))
    if magic != MAGIC:
        raise FormatError("an lz4 block does not begin with LZ4Block", None, start)
    _check_header(token, stored, raw, checksum, start)
    if raw == 0:
        return b""
    data = stream.take(stored)
    if token & 0xF0 == _COMPRESSED:
        data = _decompressed(data, raw, start)
    if xxhash.xxh32_intdigest(data, _SEED) & 0x0FFFFFFF != checksum:
        raise FormatError("an lz4 block's checksum does not fit its content", None, start)
    return data


def _check_header(token: int, stored: int, raw: int, checksum: int, start: int) -> None:
    method, largest = token & 0xF0, 1 << (10 + (token & 0x0F))
    if method not in (_STORED, _COMPRESSED):
        raise FormatError(f"an lz4 block has the unknown method {method:#x}", None, start + 8)
    if not 0 <= raw <= largest:
        raise FormatError(
            f"an lz4 block claims {raw} bytes where {largest} are the most", None, start + 13
        )
    # An incompressible block is stored; lz4's worst case is a 255th and 16 bytes more than the
    # input.
    fits = stored == raw if method == _STORED else 0 < stored <= raw + raw // 255 + 16
    if not fits and not (raw == stored == 0):
        raise FormatError(
            f"an lz4 block of {raw} bytes claims to be stored in {stored}", None, start + 9
        )
    if raw == 0 and (stored or checksum):
        raise FormatError("an lz4 end mark is not empty", None, start + 9)


def _decompressed(data: bytes, raw: int, start: int) -> bytes:
    if raw > 255 * len(data) + 64:  # no lz4 block expands further: do not allocate for a lie
        raise FormatError(f"an lz4 block of {len(data)} bytes cannot hold {raw}", None, start + 13)
    try:
        content = bytes(cramjam.lz4.decompress_block(data, output_len=raw))
    except cramjam.DecompressionError as error:
        raise FormatError("an lz4 block is damaged", None, start) from error
    if len(content) != raw:
        raise FormatError(
            f"an lz4 block claims {raw} bytes and holds {len(content)}", None, start + 13
        )
    return content


def _encode_block(raw: bytes) -> bytes:
    data = bytes(cramjam.lz4.compress_block(raw, store_size=False))
    method = _COMPRESSED
    if len(data) >= len(raw):
        data, method = raw, _STORED
    checksum = xxhash.xxh32_intdigest(raw, _SEED) & 0x0FFFFFFF
    return _HEADER.pack(MAGIC, method | _LEVEL, len(data), len(raw), checksum) + data
