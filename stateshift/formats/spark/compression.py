"""The four framings Spark compresses state files with, told apart by their first bytes; streaming
both ways.

    lz4     ("LZ4Block" | token u8 | stored length i32LE | raw length i32LE | XXH32 i32LE | data)*
            ended by a block of raw length 0. token: 0x10 stored, 0x20 compressed,
            | log2(largest block) - 10. XXH32 of the raw bytes, seed 0x9747B28C, & 0x0FFFFFFF.
            lz4-java, LZ4BlockOutputStream; the default.
    zstd    frames as RFC 8878 has them, magic 28 B5 2F FD
    snappy  82 "SNAPPY" 00 | version i32BE | compatible i32BE | (length i32BE | raw snappy)*
            snappy-java, SnappyOutputStream
    lzf     ("ZV" | 0 | length u16BE | data) or ("ZV" | 1 | stored u16BE | raw u16BE | data)
            ning compress, LZFChunk

Source of the choice: Spark, CompressionCodec; the name is in the offset log's conf, but the bytes
decide. Streams of one kind may follow each other. Offsets in errors are those of the compressed
bytes. A block that claims to be larger than its frame allows is refused before anything is
allocated for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from stateshift.errors import FormatError
from stateshift.formats.spark import lz4_block, lzf, snappy_java, zstd_frames
from stateshift.formats.stream import Stream

Codec = Literal["lz4", "zstd", "snappy", "lzf"]
CODECS: tuple[Codec, ...] = ("lz4", "zstd", "snappy", "lzf")

_MAGIC: dict[Codec, bytes] = {
    "lz4": lz4_block.MAGIC,
    "zstd": zstd_frames.MAGIC,
    "snappy": snappy_java.MAGIC,
    "lzf": lzf.MAGIC,
}
_DECOMPRESS: dict[Codec, Callable[[Stream], Iterator[bytes]]] = {
    "lz4": lz4_block.decompress,
    "zstd": zstd_frames.decompress,
    "snappy": snappy_java.decompress,
    "lzf": lzf.decompress,
}
_COMPRESS: dict[Codec, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    "lz4": lz4_block.compress,
    "zstd": zstd_frames.compress,
    "snappy": snappy_java.compress,
    "lzf": lzf.compress,
}


def codec_of(beginning: bytes) -> Codec | None:
    """Return which codec wrote a file that begins with these bytes (eight are enough)."""
    for codec, magic in _MAGIC.items():
        if beginning.startswith(magic):
            return codec
    return None


def decompress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the raw bytes, a block at a time."""
    stream = Stream(chunks, "a compressed file")
    beginning = stream.peek(8)
    codec = codec_of(beginning)
    if codec is None:
        raise _not_compressed(beginning)
    yield from _DECOMPRESS[codec](stream)


def _not_compressed(beginning: bytes) -> FormatError:
    if any(magic.startswith(beginning) for magic in _MAGIC.values()):  # nothing begins everything
        return FormatError("a compressed file ends early", None, len(beginning))
    return FormatError("not compressed by any codec of Spark's (lz4, zstd, snappy, lzf)", None, 0)


def compress(chunks: Iterable[bytes], codec: str) -> Iterator[bytes]:
    """Yield what Spark reads back with that codec. The same chunks give the same bytes."""
    if codec not in CODECS:
        raise FormatError(f"unknown codec {codec!r}; known are {', '.join(CODECS)}")
    yield from _COMPRESS[codec](chunks)
