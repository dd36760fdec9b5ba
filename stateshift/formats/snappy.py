"""One raw snappy block, as RocksDB's blocks and both engines' frames hold it."""

from __future__ import annotations

import cramjam

from stateshift.errors import FormatError
from stateshift.formats import bounds


def decompress(data: bytes, start: int) -> bytes:
    """Return a raw snappy block, decompressed. Its longest copy makes 64 bytes of 3."""
    try:
        raw = cramjam.snappy.decompress_raw_len(data)
        if raw > 22 * len(data) + 64:
            raise FormatError(f"a snappy block of {len(data)} bytes cannot hold {raw}", None, start)
        bounds.require_piece(raw, "a snappy block", start)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise FormatError("a snappy block is damaged", None, start) from error
